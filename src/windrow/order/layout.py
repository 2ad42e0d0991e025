"""Orders of cuts made into orders of all steps: what filters nothing runs as late as it can.

A made column or a weight drops no row, so it is best run just before the first cut that needs it,
and at the end if no cut does. What is left to decide is the order of the cuts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from windrow.order.constraints import repair

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from windrow.order.model import Situation

__all__ = ["Layout", "layout_of", "needs_of"]


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The cuts, numbered as they stand in the current order, and what comes along with each."""

    cuts: tuple[str, ...]
    before: tuple[int, ...]  #: by cut: the cuts that must have run, as bits
    along: tuple[tuple[str, ...], ...]  #: by cut: the other steps it needs, in a legal order
    rest: tuple[str, ...]  #: steps that no cut needs
    needs: Mapping[str, tuple[str, ...]]

    def full(self, cuts: Sequence[int]) -> tuple[str, ...]:
        """Make an order of cuts one of all steps."""
        order: dict[str, None] = {}
        for cut in cuts:
            order.update(dict.fromkeys(self.along[cut]))
            order[self.cuts[cut]] = None
        order.update(dict.fromkeys(self.rest))
        return repair(tuple(order), self.needs, ())


def needs_of(situation: Situation) -> dict[str, tuple[str, ...]]:
    """Give the direct needs of every step, learned guards included, among the steps there are."""
    known = set(situation.written)
    needs = {name: set(situation.needs.get(name, ())) & known for name in situation.written}
    for step, cut in situation.guards:
        if step in known and cut in known:
            needs[step].add(cut)
    return {name: tuple(sorted(needs[name])) for name in situation.written}


def layout_of(situation: Situation) -> Layout:
    """Find out what every cut needs, however far away."""
    needs = needs_of(situation)
    place = {name: number for number, name in enumerate(situation.written)}
    far: dict[str, set[str]] = {}
    for name in repair(situation.written, needs, ()):
        far[name] = set(needs[name]).union(*(far[need] for need in needs[name]))
    current = repair(situation.current, needs, ())
    cuts = tuple(name for name in current if situation.steps[name].kind == "cut")
    bit = {name: 1 << number for number, name in enumerate(cuts)}
    along = tuple(tuple(sorted(far[cut] - bit.keys(), key=place.__getitem__)) for cut in cuts)
    taken = {name for steps in along for name in steps} | bit.keys()
    return Layout(
        cuts=cuts,
        before=tuple(sum(bit[name] for name in far[cut] & bit.keys()) for cut in cuts),
        along=along,
        rest=tuple(name for name in situation.written if name not in taken),
        needs=needs,
    )
