"""Is a step's answer for a row its own? Checked by asking again about other company.

What it answered for scattered rows before the run is compared with what it answers among all; where there is no such
answer, a sample of rows is given to the step once more, shuffled, in two halves that are unlike each other. If any row's
answer changes, the step looks at other rows (a mean, a neighbour, the length, a counter, global random numbers) and its
result would depend on chunking and order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np

from windrow.blocks.results import checked
from windrow.errors import RowPurityError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from windrow.blocks.chunk import ChunkRun
    from windrow.blocks.program import BoundStep
    from windrow.blocks.selection import Selection

#: Rows that are asked about again; fewer where they would take longer than so many seconds, and so many at least.
SAMPLE_ROWS, SAMPLE_S, LEAST_ROWS = 256, 0.03, 16

#: Rows of a step for each that it was asked about before the run: were these a larger part, the row with the maximum may be one of them.
SCATTERED = 16

#: Libraries may sum in another order for another length (BLAS, SIMD tails): a last-bit difference is not a
#: dependence on other rows.
#: Doubles may have been computed as floats: weights are doubles in the end.
_RELATIVE = {"f2": 1e-2, "f4": 1e-4, "f8": 1e-4, "c8": 1e-4, "c16": 1e-4}


def sample_halves(answer: Any, rows: int, size: int, seed: int) -> tuple[NDArray[np.int64], ...]:
    """Pick rows from all over a block and split them in two by what was answered, each half shuffled.

    Random halves resemble the whole: a cut on the mean would hardly notice. Halves of low and high answers do not.
    """
    generator = np.random.default_rng(seed)
    sample = generator.permutation(rows)[:size]
    rank = _rank(answer)
    if rank is not None:
        sample = sample[np.argsort(rank[sample], kind="stable")]
    halves = np.array_split(sample, 2)
    if rank is not None and rank.dtype == np.int8:
        # A cut: those that pass, and the others.
        halves = [sample[rank[sample] != 1], sample[rank[sample] == 1]]
        halves = halves if all(len(half) for half in halves) else np.array_split(sample, 2)
    return tuple(generator.permutation(half) for half in halves if len(half))


def _rank(answer: Any) -> NDArray[Any] | None:
    """Something to sort answers by, where there is an obvious thing."""
    first = _parts(answer)[0]
    if isinstance(first, ak.Array):
        return _lengths(first) if first.ndim > 1 else _filled(first)
    return first if first.ndim == 1 and first.dtype.kind in "biuf" else None


def _filled(array: ak.Array) -> NDArray[Any] | None:
    """Return one number per row, 0 for None; None if they are no numbers, or would have to be read first."""
    kind = array.type.content
    if isinstance(kind, ak.types.OptionType):
        kind = kind.content
    if not isinstance(kind, ak.types.NumpyType) or not _was_read(array):
        return None
    if np.dtype(kind.primitive).kind not in "biuf":
        return None
    return np.asarray(ak.fill_none(array, 0))


def first_difference(
    answer: Any, rows: int, ask: Callable[[NDArray[np.int64]], Any], size: int, seed: int = 20_011
) -> int | None:
    """Return a row whose answer changes when it is asked about in other company; None if there is none.

    ``answer`` is what the step said about all ``rows``; ``ask`` gives the step just some of them, in that order.
    """
    if rows < 2:
        return None
    for half in sample_halves(answer, rows, size, seed):
        found = _first_unlike(answer, ask(half), half)
        if found is not None:
            return found
    return None


def _first_unlike(answer: Any, again: Any, rows: NDArray[np.int64]) -> int | None:
    """Return the first of some rows about which a step says something else ``again``."""
    for one, other in zip(_parts(answer), _parts(again), strict=True):
        differing = _differing(one[rows], other, rows)
        if len(differing):
            return int(differing[0])
    return None


def _parts(answer: Any) -> tuple[Any, ...]:
    if isinstance(answer, (np.ndarray, ak.Array)):
        return (answer,)  # records may have a field of any name
    return answer.parts  # type: ignore[no-any-return]


def _differing(one: Any, other: Any, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return those of ``rows`` for which two answers differ; each entry of an answer belongs to one of them."""
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return rows[_unequal(one, other)]
    one, other = ak.Array(one), ak.Array(other)
    if one.fields and one.fields == other.fields:
        return np.concatenate([_differing(one[name], other[name], rows) for name in one.fields])
    if not (_was_read(one) and _was_read(other)):
        return rows[:0]
    missing: NDArray[np.bool_] = np.asarray(ak.is_none(one))
    unlike: NDArray[np.bool_] = missing != np.asarray(ak.is_none(other))
    if unlike.any():
        return rows[unlike]
    if missing.any():
        one, other, rows = ak.drop_none(one, axis=0), ak.drop_none(other, axis=0), rows[~missing]
    if not len(one) or one.ndim != other.ndim:
        return rows
    if "union" in str(one.type):
        return rows[:0]  # of numbers and texts, say: nothing to compare them by
    if one.ndim == 1:
        # Without the mask of an optional type, which has nothing to hide here.
        return rows[_unequal(ak.to_numpy(one, allow_missing=False), ak.to_numpy(other, allow_missing=False))]
    lengths = _lengths(one)
    unlike = lengths != _lengths(other)
    if unlike.any():
        return rows[unlike]
    return _differing(ak.flatten(one, axis=1), ak.flatten(other, axis=1), np.repeat(rows, lengths))


def _was_read(array: ak.Array) -> bool:
    # A field nobody touched is the file's own: looking at it here would read it for nothing.
    return bool(array.layout.is_all_materialized)


def _lengths(array: ak.Array) -> NDArray[np.int64]:
    return np.asarray(ak.fill_none(ak.num(array, axis=1), -1))


def _unequal(expected: NDArray[Any], again: NDArray[Any]) -> NDArray[np.bool_]:
    if expected.shape != again.shape:
        return np.ones(len(expected), dtype=bool)
    if not expected.size:
        return np.zeros(len(expected), dtype=bool)  # nothing has no type: texts may come as numbers
    if expected.dtype.kind in "fc" or again.dtype.kind in "fc":
        tolerance = _RELATIVE.get(f"{expected.dtype.kind}{expected.dtype.itemsize}", 1e-9)
        with np.errstate(invalid="ignore", over="ignore"):
            sizes = np.abs(expected[np.isfinite(expected)])
            near = tolerance * 1e-3 * float(sizes.max(initial=0.0))
            unequal = ~np.isclose(expected, again, rtol=tolerance, atol=near, equal_nan=True)
    else:
        # Not a time (NaT) is unlike itself, as NaN is.
        unequal = (expected != again) & ((expected == expected) | (again == again))
    while unequal.ndim > 1:
        unequal = unequal.any(axis=-1)
    return np.asarray(unequal, dtype=bool)


def check_row_purity(run: ChunkRun, step: BoundStep, rows: Selection, value: Any) -> None:
    """Raise if a step's answers ``value`` depend on which rows it is asked about together; note that they do not."""
    few, answer = run.samples.get(step.name, (None, None))
    asked = run.program.sample_rows is not None  # for so many rows
    if not asked and few is not None and LEAST_ROWS <= few.count <= rows.count // SCATTERED and rows.covers(few):
        places = np.searchsorted(rows.positions(), few.positions())
        found = _first_unlike(value, answer, places)
    else:
        found = _ask_again(run, step, rows, value)
    if found is not None:
        row = run.start + int(rows.positions()[found])
        raise RowPurityError(
            f"{step.kind} {step.name!r} is not a function of its own row: asked about row {row} of "
            f"{run.chunk.label} together with other rows, it gave another answer. Something in it looks at all "
            "rows (a mean, a maximum, a length, the row's position, np.random); compute that beforehand and "
            "pass it as a parameter, or use rng(...) for random numbers",
            step=step.name, file=run.chunk.label, start=row, stop=row + 1,
        )  # fmt: skip
    run.program.unchecked.discard(step.name)


def _ask_again(run: ChunkRun, step: BoundStep, rows: Selection, value: Any) -> int | None:
    """Ask a step about some of its rows again, in halves that are unlike; return one whose answer changes."""
    arguments = run.caller.gather(step.arguments, rows, step.lanes)

    def ask(positions: NDArray[np.int64]) -> Any:
        again = run.caller.call(step, arguments, rows, positions)
        return checked(step, again, len(positions))

    size = run.program.sample_rows
    if size is None:
        row_s = run.program.row_s.get(step.name, 0.0)
        size = max(int(min(SAMPLE_S / max(row_s, 1e-9), SAMPLE_ROWS)), LEAST_ROWS)
    return first_difference(value, rows.count, ask, size)
