"""``wr.parallel_for`` and ``wr.map_blocks``: loops over numbers of rows, and over blocks of an array."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

from windrow.errors import UsageError
from windrow.loops.kernel import block_kernel, make_kernel
from windrow.loops.loop import Loop
from windrow.loops.options import read_options
from windrow.loops.row_blocks import block, check_fold, concatenate, count_rows, fold_values


def parallel_for(
    kernel: Callable[..., Any],
    n: int,
    partition: Any = "auto",
    queues: str = "centralized",
    victims: str = "seq",
    *,
    args: tuple[Any, ...] = (),
    reduce: Callable[[Any, Any], Any] | None = None,
    **options: Any,
) -> Any:
    """Run a kernel for the rows 0 to ``n`` - 1, on all cores.

    Parameters
    ----------
    kernel
        A function of a row, or of a first row and the one behind the last; each row writes to places of its own.
    args
        Further arguments of the kernel, such as arrays; one that Numba compiled has no other way to them.
    reduce
        A function of two values, which puts together what the kernel returns for blocks of rows, in their order.
    partition, queues, victims
        Named schemes, for who compares them; ``grain``, ``flavour`` and ``pre_partition`` go with them.
    options
        ``timing=True`` prints the phases, as DAPHNE does; ``report``, a ``LoopReport`` to be filled in, explains how the loop ran;
        ``workers``, ``engine`` ("auto", "threads", "processes", "inline"), ``topology``, ``pin``, ``hyperthreads``, ``seed``.
    """
    chosen = read_options(partition, queues, victims, options)
    check_fold(reduce)
    if isinstance(n, bool) or not hasattr(n, "__index__") or n < 0:
        raise UsageError(f"a loop has a whole number of rows, 0 or more; got {n!r}")
    begin, keep = perf_counter(), reduce is not None
    made = make_kernel(kernel, tuple(args), keep=keep)
    values = Loop(made, int(n), chosen, keep=keep, in_blocks=keep, compilation_s=perf_counter() - begin).run()
    return fold_values(made.name, reduce, values) if values and reduce is not None else None


def map_blocks(
    function: Callable[[Any], Any],
    array: Any,
    partition: Any = "auto",
    queues: str = "centralized",
    victims: str = "seq",
    *,
    reduce: Callable[[Any, Any], Any] | None = None,
    **options: Any,
) -> Any:
    """Call a function with blocks of the rows of an array, on all cores, and give what it returns as one array.

    Parameters
    ----------
    function
        Gets some consecutive rows and returns as many; or, with ``reduce``, one value.
    array
        A NumPy or awkward array, or a sparse matrix in CSR format.
    reduce, options
        As for ``wr.parallel_for``, and so are all other options.
    """
    chosen = read_options(partition, queues, victims, options)
    check_fold(reduce)
    if not callable(function):
        raise UsageError(f"wr.map_blocks calls a function with blocks of rows, got {type(function).__name__}")
    made = block_kernel(function, array)
    rows = count_rows(array)
    values = Loop(made, rows, chosen, keep=True, in_blocks=reduce is not None).run()
    if reduce is not None:
        return fold_values(made.name, reduce, values) if values else None
    return concatenate(made.name, values, rows) if values else function(block(array, 0, 0))
