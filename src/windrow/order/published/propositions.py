"""Propositions, which the published policies put in order: what each takes and what share of the rows it discards.

The publications order filters - HEP-Frame calls them propositions - which compute for themselves what they need. Here
columns and weights are steps of their own, so a proposition is a cut together with the steps that have to be made for
it and for no cut before it; those run right before the first cut that needs them, and what no cut needs runs last.

Some things the publications do not have, and how they are read for all of them:

- *Regions.* A cut discards a row when the row is then in no lane, by this cut alone. A cut that some lane does without
  discards nothing. Lanes without cuts are for outputs of all rows and do not count.
- *Calls.* Seconds per row are those of a row plus its share of what a call costs in a full chunk. Reading a file's
  columns is not charged: the publications take rows that are in memory.
- *Rows that a cut was not asked about* do not count for its share; a cut that was never asked discards nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from windrow.core.records import FAILED, NOT_ASKED, PASSED, UNDEFINED
from windrow.order.constraints import all_needs, complete
from windrow.order.cost import verdicts_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from windrow.order.model import Situation, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposition:
    """A cut, what has to be made for it, and what is known of both."""

    name: str
    place: int  #: among the cuts in written order: what decides between equals
    made: frozenset[str]  #: steps that are no cuts and must run before it
    after: frozenset[str]  #: cuts that must run before it
    seconds: float  #: per row, of the cut and of everything in ``made``
    discarded: float  #: the share of rows that it discards alone


class Rule:
    """A published policy with parameters: called with a situation it gives an order."""

    __slots__ = ()

    def __call__(self, situation: Situation) -> tuple[str, ...]:
        raise NotImplementedError

    def explain(self, situation: Situation) -> str:
        """Say what the parameters made of a situation."""
        raise NotImplementedError


class Verdicts:
    """What the cuts say of all sampled rows, as far as it decides whether a row is still in a lane."""

    def __init__(self, situation: Situation) -> None:
        cuts = situation.cuts
        self._column = {name: number for number, name in enumerate(cuts)}
        windows = situation.windows
        empty = np.empty((0, len(cuts)), np.int8)
        self._verdicts = np.concatenate([empty, *(verdicts_of(window, cuts, NOT_ASKED) for window in windows)])
        #: how many rows are alike
        self.rows: NDArray[np.int64] = np.concatenate([np.empty(0, np.int64), *(window.rows for window in windows)])
        self.lanes = [lane for lane in situation.lanes if lane.cuts]

    def everywhere(self) -> NDArray[np.bool_]:
        """All rows in all lanes: (patterns, lanes), as it is before the first cut."""
        return np.ones((len(self.rows), len(self.lanes)), np.bool_)

    def kept(self, cut: str, alive: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Where rows still are after a cut."""
        said = self._verdicts[:, self._column[cut]]
        result = alive.copy()
        for number, lane in enumerate(self.lanes):
            for name, inverted in lane.cuts:
                if name == cut:
                    rejecting = PASSED if inverted else FAILED
                    result[:, number] &= (said != rejecting) & (said != UNDEFINED)
        return result

    def discards(self, cut: str, alive: NDArray[np.bool_]) -> int:
        """How many rows are in some lane now and in none after a cut."""
        gone = alive.any(axis=1) & ~self.kept(cut, alive).any(axis=1)
        return int(self.rows[gone].sum())

    def asked(self, cut: str) -> int:
        said = self._verdicts[:, self._column[cut]]
        return int(self.rows[said != NOT_ASKED].sum())


def seconds_per_row(situation: Situation, step: Step) -> float:
    """What a step takes for a row of a chunk that is whole."""
    rows = min(step.block, situation.chunk_rows) if step.block else situation.chunk_rows
    return step.row_s + (step.fixed_s / rows if rows > 0 else 0.0)


def propositions(situation: Situation) -> dict[str, Proposition]:
    """Gather the cuts with what they need, what they take and what they discard, in written order."""
    above = all_needs(situation.written, situation.needs)
    cuts = situation.cuts
    verdicts = Verdicts(situation)
    everywhere = verdicts.everywhere()
    found = {}
    for place, name in enumerate(cuts):
        made = above[name].difference(cuts)
        asked = verdicts.asked(name)
        found[name] = Proposition(
            name=name,
            place=place,
            made=made,
            after=above[name].intersection(cuts),
            seconds=total_seconds(situation, (name, *made)),
            discarded=verdicts.discards(name, everywhere) / asked if asked else 0.0,
        )
    return found


def pick(waiting: Mapping[str, Proposition], ran: Collection[str], key: Callable[[Proposition], float]) -> Proposition:
    """Pick the proposition of the lowest key among those whose needed cuts have run; of equals the first written."""
    free = [one for one in waiting.values() if one.after.issubset(ran)]
    return min(free, key=lambda one: (key(one), one.place))


def total_seconds(situation: Situation, names: Iterable[str]) -> float:
    """What some steps take for a row; added up by name, so that it is the same every time."""
    return sum(seconds_per_row(situation, situation.steps[name]) for name in sorted(names))


def full_order(situation: Situation, cuts: Sequence[str]) -> tuple[str, ...]:
    """Make a full order of one of the cuts: other steps right before the first cut that needs them, else last."""
    return complete(cuts, situation.written, situation.needs)
