"""Steps of one chunk that run at once, on threads that have no chunk of their own.

Answers are made ahead, for the rows that are left when the first of the steps begins, and taken over one after the other as
if each step had run in its turn: for fewer rows where a cut between has dropped some, and not at all where a step raised,
which may just have been too early. Only steps on plain arrays are run so, since they read nothing while they run. Where the
steps turn out to hold the interpreter's lock they run one after the other from then on.

Propositions of one event in parallel: A. Pereira and A. Proença, "HEP-Frame: Improving the efficiency of pipelined data
transformation & filtering for scientific analyses", fig. 4 and 5.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.blocks.calls import Meter

if TYPE_CHECKING:
    from windrow.blocks.chunk import ChunkRun
    from windrow.blocks.program import BoundStep
    from windrow.blocks.selection import Selection

#: Steps that took more than this share of their added time did not run at once.
HELD = 0.9
#: Seconds and share of the time that must be saved: threads take a tenth of a millisecond to begin, and costs are guesses.
LEAST_S, LEAST_SHARE = 0.002, 0.1


class ExpectedStep(NamedTuple):
    """What a step is expected to do with the rows that are left."""

    seconds: float
    passing: float  #: share of the rows that goes on


def steps_at_once(steps: Sequence[ExpectedStep], threads: int) -> int:
    """Say how many of the first steps, none of which reads from another, to run at once; 1: one after the other.

    A step behind a cut runs on rows that the cut will drop, too. So the times that are expected are compared: one after the
    other, each step for the rows that come that far, and all at once, as long as the longest takes.
    """
    best, saved = 1, 0.0
    one_by_one = longest = 0.0
    reaching = 1.0
    for count, step in enumerate(steps[:threads], 1):
        one_by_one += reaching * step.seconds
        reaching *= step.passing
        longest = max(longest, step.seconds)
        gain = one_by_one - longest
        if gain > max(saved, LEAST_S, LEAST_SHARE * one_by_one):
            best, saved = count, gain
    return best


def answer_ahead(run: ChunkRun, names: Sequence[str]) -> None:
    """Make the answers of the next steps at once, where that is expected to take less time than one after the other."""
    program = run.program
    steps = [program.steps[name] for name in names if name in program.steps]
    group = _independent(run, steps)
    rows = [run.alive(step.lanes) for step in group]
    expected = [_expect(run, step, count.count) for step, count in zip(group, rows, strict=True)]
    count = steps_at_once(expected, run.spare + 1)
    if count == 1:
        return
    asked = []
    for step, mine in zip(group[:count], rows, strict=False):
        asking = run.caller.gathered(step, mine)
        if asking is None:
            break
        asked.append((step, mine, asking, Meter()))
    if len(asked) < 2:
        return
    began = perf_counter()
    with ThreadPoolExecutor(len(asked) - 1) as pool:
        others = [pool.submit(copy_context().run, _try, asking, meter) for _, _, asking, meter in asked[1:]]
        values = [_try(asked[0][2], asked[0][3]), *(other.result() for other in others)]
    took = perf_counter() - began
    if took > HELD * sum(meter.wall for *_, meter in asked):
        program.alone.update(step.name for step, *_ in asked)
    for (step, mine, _, meter), value in zip(asked, values, strict=True):
        if value is not None:
            run.answered[step.name] = mine, value, meter


def _try(asking: Callable[[Meter], Any], meter: Meter) -> Any:
    try:
        return asking(meter)
    except Exception:  # noqa: BLE001 - the step is called again in its turn, and what it raises then is told
        return None


def _independent(run: ChunkRun, steps: Sequence[BoundStep]) -> list[BoundStep]:
    """Give the first steps that read nothing from each other and may run ahead; their costs are known."""
    program = run.program
    group: list[BoundStep] = []
    names: set[str] = set()
    for step in steps:
        reads = {argument.source for argument in step.arguments if argument.kind == "made"}
        plain = all(argument.kind in ("file", "made", "default") for argument in step.arguments)
        known = step.name in program.measured and step.name not in program.unchecked | program.alone
        if reads & names or not plain or not known or step.wants_rng or step.same_as is not None:
            break
        group.append(step)
        names.add(step.name)
    return group


def _expect(run: ChunkRun, step: BoundStep, rows: int) -> ExpectedStep:
    known = run.program.measured[step.name]
    passing = known.rows_out / known.rows_in if step.kind == "cut" and known.rows_in else 1.0
    return ExpectedStep(known.wall / max(known.rows_in, 1) * rows, passing)


def remember_costs(run: ChunkRun) -> None:
    """Note what steps took, for the next chunk that has threads to spare."""
    for name, meter in run.meters.items():
        known = run.program.measured.setdefault(name, Meter())
        known.rows_in += meter.rows_in
        known.rows_out += meter.rows_out
        known.wall += meter.wall


def take_over(run: ChunkRun, step: BoundStep, meter: Meter) -> tuple[Selection, Any] | None:
    """Give the rows and the answer that were made ahead for a step, and charge the step for them."""
    found = run.answered.pop(step.name, None)
    if found is None:
        return None
    rows, value, spent = found
    for name in Meter.__slots__:
        setattr(meter, name, getattr(meter, name) + getattr(spent, name))
    return rows, value
