"""``wr.parallel_for`` and ``wr.map_blocks``: loops over numbers of rows, and over blocks of an array."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import reduce as fold
from time import perf_counter
from typing import Any

from windrow.errors import UnknownNameError, UsageError, alternatives
from windrow.loops.kernel import Kernel, make_kernel
from windrow.loops.loop import Apart, Loop
from windrow.loops.loop_report import LoopReport
from windrow.loops.options import LoopOptions
from windrow.loops.row_blocks import block, concatenate, count_rows


def parallel_for(
    kernel: Callable[..., Any],
    n: int,
    partition: Any = "auto",
    queues: str = "centralized",
    victims: str = "seq",
    *,
    args: tuple[Any, ...] = (),
    reduce: Callable[[Any, Any], Any] | None = None,
    timing: bool = False,
    report: LoopReport | None = None,
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
    timing, report
        Print the phases, as DAPHNE does; a ``LoopReport`` to be filled in, which explains how the loop ran.
    options
        ``workers``, ``engine`` ("auto", "threads", "processes", "inline"), ``topology``, ``pin``, ``hyperthreads``, ``seed``.
    """
    rows = _whole(n)
    report = LoopReport() if report is None else report
    begin = perf_counter()
    made = make_kernel(kernel, tuple(args), keep=reduce is not None)
    report.phases = {"startup_seconds": 0.0, "compilation_seconds": perf_counter() - begin}
    values: dict[int, Any] = {}
    apart = None
    if reduce is not None:
        call = made.call
        made = made._replace(call=lambda start, stop: values.__setitem__(start, call(start, stop)))
        apart = Apart(
            send=lambda _, ranges: (_call_ranges, kernel, ranges, args),
            keep=lambda ranges, found: values.update(zip((start for start, _ in ranges), found, strict=True)),
            share=lambda _: None,
        )
    loop = Loop(made, rows, _options(partition, queues, victims, options), report)
    if reduce is not None:
        loop.in_blocks()
    loop.run(apart)
    if timing:
        sys.stderr.write(report.timing() + "\n")
    return _reduced(reduce, values) if reduce is not None else None


def map_blocks(
    function: Callable[[Any], Any],
    array: Any,
    partition: Any = "auto",
    queues: str = "centralized",
    victims: str = "seq",
    *,
    reduce: Callable[[Any, Any], Any] | None = None,
    timing: bool = False,
    report: LoopReport | None = None,
    **options: Any,
) -> Any:
    """Call a function with blocks of the rows of an array, on all cores, and give what it returns as one array.

    Parameters
    ----------
    function
        Gets some consecutive rows and returns as many; or, with ``reduce``, one value.
    array
        A NumPy or awkward array, or a sparse matrix in CSR format.
    reduce, timing, report
        As for ``wr.parallel_for``, and so are all other options.
    """
    if not callable(function):
        raise UsageError(f"wr.map_blocks calls a function with blocks of rows, got {type(function).__name__}")
    rows = count_rows(array)
    report = LoopReport() if report is None else report
    report.phases = {"startup_seconds": 0.0}
    made: dict[int, tuple[int, int, Any]] = {}

    def call(start: int, stop: int) -> None:
        made[start] = start, stop, function(block(array, start, stop))

    def keep(ranges: Sequence[tuple[int, int]], values: Sequence[Any]) -> None:
        for (start, stop), value in zip(ranges, values, strict=True):
            made[start] = start, stop, value

    apart = Apart(
        send=lambda shared, ranges: (_call_blocks, function, [block(shared, *one) for one in ranges]),
        keep=keep,
        share=lambda session: session.share(array),
    )
    name = getattr(function, "__name__", type(function).__name__)
    loop = Loop(Kernel(name, call, releases=False), rows, _options(partition, queues, victims, options), report)
    if reduce is not None:
        loop.in_blocks()
    loop.run(apart)
    if timing:
        sys.stderr.write(report.timing() + "\n")
    if reduce is not None:
        return _reduced(reduce, {start: value for start, (_, _, value) in made.items()})
    if not rows:
        return function(block(array, 0, 0))
    return concatenate(name, [made[start] for start in sorted(made)])


def _reduced(reduce: Callable[[Any, Any], Any], values: dict[int, Any]) -> Any:
    return fold(reduce, [values[start] for start in sorted(values)]) if values else None


def _call_ranges(kernel: Callable[..., Any], ranges: Sequence[tuple[int, int]], args: tuple[Any, ...]) -> list[Any]:
    return [kernel(start, stop, *args) for start, stop in ranges]


def _call_blocks(function: Callable[[Any], Any], blocks: Sequence[Any]) -> list[Any]:
    return [function(one) for one in blocks]


def _whole(n: Any) -> int:
    if isinstance(n, bool) or not hasattr(n, "__index__") or n < 0:
        raise UsageError(f"a loop has a whole number of rows, 0 or more; got {n!r}")
    return int(n)


def _options(partition: Any, queues: str, victims: str, others: dict[str, Any]) -> LoopOptions:
    known = list(LoopOptions.__dataclass_fields__)
    for name in others:
        if name not in known:
            raise UnknownNameError(f"a loop has no option {name!r}{alternatives('options', name, known)}")
    return LoopOptions(partition=partition, queues=queues, victims=victims, **others)
