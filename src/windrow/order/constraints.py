"""Legal orders: completing a wanted order and repairing one when a guard was learned.

``written`` is the order in the user's file; it is legal by construction. ``needs`` says which steps must come before a
step; a guard (step, cut) adds one. Guards always point to cuts written above, so there is always a legal order.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence

from windrow.errors import InternalError, UnknownNameError, UsageError, alternatives


def all_needs(written: Sequence[str], needs: Mapping[str, tuple[str, ...]]) -> dict[str, frozenset[str]]:
    """Give all that every step needs, however far above it."""
    found: dict[str, frozenset[str]] = {}
    for name in written:  # what a step needs is written above it
        found[name] = frozenset(needs[name]).union(*(found[need] for need in needs[name]))
    return found


def complete(wanted: Sequence[str], written: Sequence[str], needs: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Make a full order of a wanted one: what was left out comes just before it is first needed, else at the end."""
    _check_names(wanted, written)
    place = {name: number for number, name in enumerate(wanted)}
    for name in wanted:
        for need in needs[name]:
            if place.get(need, -1) > place[name]:
                raise UsageError(
                    f"order= puts {name!r} before {need!r}, which it needs; the written order is {list(written)}"
                )
    order: dict[str, None] = {}

    def put(name: str) -> None:
        if name in order:
            return
        for need in needs[name]:
            put(need)
        order[name] = None

    for name in (*wanted, *written):
        put(name)
    if [name for name in order if name in place] != list(wanted):
        raise UsageError(
            f"order= {list(wanted)} cannot be run as it stands: steps between them need each other in another "
            f"order; the written order is {list(written)}"
        )
    return tuple(order)


def repair(
    order: Sequence[str], needs: Mapping[str, tuple[str, ...]], guards: Iterable[tuple[str, str]] = ()
) -> tuple[str, ...]:
    """Change an order as little as needed for every guard to hold: steps wait, nothing is brought forward."""
    before: dict[str, set[str]] = {name: set(needs[name]) & set(order) for name in order}
    for step, cut in guards:
        if step in before and cut in before:
            before[step].add(cut)
    after: dict[str, list[str]] = {name: [] for name in order}
    for name in order:
        for need in sorted(before[name]):
            after[need].append(name)
    rank = {name: number for number, name in enumerate(order)}
    ready = [rank[name] for name in order if not before[name]]
    heapq.heapify(ready)
    result: list[str] = []
    while ready:
        name = order[heapq.heappop(ready)]
        result.append(name)
        for reader in after[name]:
            before[reader].discard(name)
            if not before[reader]:
                heapq.heappush(ready, rank[reader])
    if len(result) != len(order):
        lost = [name for name in order if name not in set(result)]
        raise InternalError(f"no order keeps what these steps need: {', '.join(lost)}")
    return tuple(result)


def _check_names(wanted: Sequence[str], written: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in wanted:
        if name not in written:
            there = alternatives("steps", name, written)
            raise UnknownNameError(f"order= names the step {name!r}, which is not defined{there}")
        if name in seen:
            raise UsageError(f"order= names the step {name!r} twice")
        seen.add(name)
