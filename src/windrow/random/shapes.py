"""How many numbers each row gets and what shape they have: one, a fixed number, or one per object."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from windrow.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


#: The counter has 32 bits for the object and 32 for the draw.
LOW32 = 0xFFFFFFFF


class Shape(NamedTuple):
    """Numbers per row, and what makes a result of them."""

    counts: int | NDArray[np.int64]
    wrap: Callable[[NDArray[Any]], Any]


def short(value: object) -> str:
    """Name a value in a message: itself if it is small, else what it is."""
    text = repr(value)
    return text if len(text) <= 40 and "\n" not in text else f"a {type(value).__name__}"


def whole(where: str, argument: str, value: int, lowest: int, highest: int) -> int:
    """Return an integer argument, if it is one and within its bounds."""
    try:
        number = operator.index(value)
    except TypeError:
        number = lowest - 1
    if not lowest <= number <= highest:
        raise UsageError(f"{where}: {argument} must be an integer from {lowest} to {highest}, but is {short(value)}")
    return number


def shape_of(where: str, length: int, like: Any, size: int | None, argument: str = "like") -> Shape:
    """Return the shape that ``like`` and ``size`` ask for; ``argument`` is what the user calls ``like``."""
    if size is not None:
        if like is not None:
            raise UsageError(f"{where}: give like= or size=, not both")
        width = whole(where, "size", size, 0, LOW32)
        return Shape(width, lambda values: values.reshape(length, width))
    if like is None:
        return Shape(1, lambda values: values)
    depth = _depth(where, argument, like, length)
    if depth == 1:
        return Shape(1, lambda values: values)
    if isinstance(like, np.ndarray):
        return Shape(like.shape[1], lambda values: values.reshape(like.shape))
    return _jagged(like)


def _depth(where: str, argument: str, column: Any, length: int) -> int:
    import awkward as ak  # only now: it is slow to import, and most streams do not need it

    if not isinstance(column, (np.ndarray, ak.Array)):
        raise UsageError(f"{where}: {argument} must be a column, but is a {type(column).__name__}")
    depth = column.ndim if isinstance(column, np.ndarray) else column.layout.purelist_depth
    if depth not in (1, 2):
        raise UsageError(
            f"{where}: {argument} must have one number or one list per row, but has {depth} "
            "dimensions; flatten its inner lists first"
        )
    if len(column) != length:
        raise UsageError(
            f"{where}: {argument} has {len(column)} rows, but the step was given {length}; "
            "pass a column of this step's rows"
        )
    return int(depth)


def _jagged(like: Any) -> Shape:
    import awkward as ak

    missing = ak.to_numpy(ak.is_none(like))
    counts = ak.to_numpy(ak.fill_none(ak.num(like, axis=1), 0)).astype(np.int64)

    def wrap(values: NDArray[Any]) -> Any:
        offsets = ak.index.Index64(np.append(0, np.cumsum(counts)))
        lists = ak.Array(ak.contents.ListOffsetArray(offsets, ak.contents.NumpyArray(values)))
        return ak.mask(lists, ~missing) if missing.any() else lists

    return Shape(counts, wrap)


def flat_means(where: str, column: Any, length: int, shape: Shape, highest: float) -> NDArray[np.float64]:
    """Return one mean per number out of one per row or one per object."""
    import awkward as ak

    depth = _depth(where, "lam", column, length)
    counts = np.broadcast_to(shape.counts, length)
    try:
        if isinstance(column, ak.Array):
            own = ak.num(column, axis=1) if depth == 2 else np.ones(length, np.int64)
            own = ak.to_numpy(ak.fill_none(own, 0))
            flat = ak.flatten(column, axis=1) if depth == 2 else column
            column = ak.to_numpy(flat, allow_missing=False)
        else:
            own = np.broadcast_to(column.shape[1] if depth == 2 else 1, length)
        values = np.asarray(column, np.float64).reshape(-1)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{where}: lam must be numbers, none of them missing ({error})") from error
    if depth == 1:
        values = np.repeat(values, counts) if np.any(counts != 1) else values
    elif not np.array_equal(own, counts):
        raise UsageError(f"{where}: lam must have as many objects in each row as numbers are drawn")
    good = (values >= 0.0) & (values <= highest)
    if not good.all():
        wrong = values[~good][0]
        raise UsageError(f"{where}: lam must be from 0 to {highest:.4g}, but is {wrong} somewhere")
    return np.ascontiguousarray(values)
