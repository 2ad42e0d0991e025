"""Why a step stands where it does, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow.order.constraints import all_needs

if TYPE_CHECKING:
    from windrow.order.cost import Expected, StepExpected
    from windrow.order.model import Situation

#: A cut that drops less than this is said to drop little.
LITTLE = 0.1


def reasons(situation: Situation, expected: Expected) -> tuple[str, ...]:
    needs = all_needs(situation.written, situation.needs)
    cuts = [step for step in expected.steps if situation.steps[step.name].kind == "cut"]
    dearest = max((_per_row(situation, step) for step in cuts), default=0.0)
    said = []
    for step in expected.steps:
        if step not in cuts:
            readers = [cut.name for cut in cuts if step.name in needs[cut.name]]
            if readers:
                said.append(f"just before {readers[0]!r}, the first cut that needs it")
            else:
                said.append(f"at the end, for {percent(step.alive)} of the rows: no cut needs it")
            continue
        number = cuts.index(step) + 1
        words = _of_cut(situation, step, number, len(cuts), dearest)
        before = cuts[number - 2].name if number > 1 else ""
        if before in needs[step.name]:
            words += f"; after {before!r}, which it needs"
        said.append(words)
    return tuple(said)


def _of_cut(situation: Situation, step: StepExpected, number: int, cuts: int, dearest: float) -> str:
    place = "last" if number == cuts and cuts > 1 else _ordinal(number)
    if not step.alive:
        return f"{place}: no sampled row is left for it"
    drops, each = 1.0 - step.passes, _per_row(situation, step)
    if place == "last" and drops < LITTLE and each == dearest:
        return f"last: drops little ({percent(drops)}) and costs most ({duration(each)} a row)"
    left = "the rows" if number == 1 else "the rows left"
    words = f"{place}: drops {percent(drops)} of {left} for {duration(each)} each"
    if step.column_s > step.seconds:
        words += ", most of it for columns that nobody read before"
    return words


def _per_row(situation: Situation, step: StepExpected) -> float:
    rows = step.alive * situation.chunk_rows
    return (step.seconds + step.column_s) / rows if rows else 0.0


def _ordinal(number: int) -> str:
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def percent(share: float) -> str:
    """Say a share; below ten per cent with one digit more."""
    return f"{100 * share:.1f} %" if 0 < abs(share) < 0.0995 else f"{100 * share:.0f} %"


def duration(seconds: float) -> str:
    """Say a time in the unit that suits it."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
