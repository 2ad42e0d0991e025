"""Outputs of ranges of rows, added up so that neither the workers nor the cuts between ranges change the answer.

What may be added in any order (numbers, sets, histograms with fixed axes) is added as it comes. All else (lists, columns, categories that
grow) is added to its neighbours alone, so that it ends in the order of the rows. On a grid only siblings of a fixed binary tree over its
cells are added, and of one over the inputs that are whole, so that floats have the same bits in every run, and few pieces wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, MutableSet
from collections.abc import Set as AbstractSet
from functools import reduce
from itertools import groupby
from numbers import Number
from operator import attrgetter
from typing import Any, Literal, NamedTuple

import awkward as ak
import boost_histogram as bh
import numpy as np
from coffea.processor import accumulate
from coffea.processor.accumulator import add

from windrow.blocks.failing import first_line
from windrow.errors import MergeError

#: What outputs may be, in messages.
EXPECTED = "expected, alike for all rows: numbers, sets, lists, histograms, arrays of one shape, column_accumulator(...), dictionaries of these"


class Piece(NamedTuple):
    """The output of what is between two places, each an input and a row of it or a cell of the grid."""

    start: tuple[int, int]
    stop: tuple[int, int]
    value: Any
    order: Literal["any", "rows", "cells"]
    mine: bool = False  #: the value was made here by adding, so that it may be added to in place


def commutes(value: Any) -> bool:
    """Say whether outputs such as this one may be added up in any order."""
    if isinstance(value, Mapping):
        return all(map(commutes, value.values()))
    if isinstance(value, bh.Histogram):
        return not any(axis.traits.growth for axis in value.axes)
    return isinstance(value, (Number, np.generic, np.ndarray, AbstractSet))


def join_pieces(pieces: Iterable[Piece]) -> list[Piece]:
    """Add up what may be added up by now."""
    free: list[Piece] = []
    others: list[Piece] = []
    for piece in sorted(pieces, key=attrgetter("start")):
        if piece.order == "any":
            free = [_add(free[0], piece) if free else piece]
            continue
        others.append(piece)
        while len(others) > 1 and _are_next(*others[-2:]):
            others[-2:] = [_add(*others[-2:])]
    return free + others


def _are_next(left: Piece, right: Piece) -> bool:
    if left.stop != right.start or right.order == "rows":
        return left.stop == right.start
    if left.stop[1] == 0:  # the end of an input
        inputs = left.stop[0] - left.start[0]
        whole = left.start[1] == right.stop[1] == 0
        return whole and right.stop[0] - right.start[0] == inputs and left.start[0] % (2 * inputs) == 0
    cells = left.stop[1] - left.start[1]
    return left.start[1] % (2 * cells) == 0 and right.stop[1] in (right.start[1] + cells, 0)  # 0: all that are left


def add_all(pieces: Iterable[Piece]) -> Any:
    """Add up all there is, first by input; None if that is nothing."""
    inputs = groupby(sorted(pieces, key=attrgetter("start")), key=lambda piece: piece.start[0])
    sums = [reduce(_add, group) for _, group in inputs]
    return reduce(_add, sums).value if sums else None


def _add(left: Piece, right: Piece) -> Piece:
    try:
        value = accumulate([right.value], left.value) if left.mine else accumulate([left.value, right.value])
    except MemoryError:
        raise
    except Exception as error:
        key, one, other = _find_clash(left.value, right.value)
        raise MergeError(
            f"outputs of two ranges of rows cannot be added up: {key} is {type(one)} of one and {type(other)} of the other "
            f"({type(error).__name__}: {first_line(error)}); {EXPECTED}"
        ) from error
    return Piece(left.start, max(left.stop, right.stop), value, left.order, mine=True)


def _find_clash(left: Any, right: Any, key: str = "output") -> tuple[str, Any, Any]:
    """Find the first entry that cannot be added up: where it is, and what it is of both."""
    if isinstance(left, MutableMapping) and isinstance(right, MutableMapping):
        for name in left:
            try:
                add(left[name], right.get(name, left[name]))
            except Exception:  # noqa: BLE001 - whatever it is, it is what ended adding up
                return _find_clash(left[name], right[name], f"{key}[{name!r}]")
    return key, left, right


def check_output(value: Any, where: str, key: str = "output") -> None:
    """Refuse what coffea cannot add up before there is a second output to add it to."""
    if isinstance(value, MutableMapping):
        for name, one in value.items():
            check_output(one, where, f"{key}[{name!r}]")
    # Arrays of awkward have a sum, but coffea adds up in place, which they refuse.
    elif isinstance(value, (ak.Array, ak.Record)) or not (isinstance(value, MutableSet) or hasattr(value, "__add__")):
        raise MergeError(f"{key} is {type(value)}, which cannot be added up {where}; {EXPECTED}")


class PieceCollector:
    """The collector of a run: what came home so far."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []

    def add(self, handle: Any, value: list[Piece], about: Any) -> None:  # noqa: ARG002 - a Protocol's
        self.pieces = join_pieces([*self.pieces, *value])

    def partials(self) -> dict[int, list[Any]]:
        return {}  # there are the pieces
