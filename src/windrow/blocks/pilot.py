"""The first rows of a run, of whose steps nothing is known: shown to all steps, few at first and then more.

They say what rows take, and which cuts drop them. Where a unit would take long they are run by themselves, as a part of
it, so that the order of the steps can be decided before the bulk; what the steps answered is not asked again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from windrow.blocks.calls import Meter, Stopwatch
from windrow.blocks.failing import quiet
from windrow.blocks.probe import Look, Place, Seen, Unreadable
from windrow.blocks.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Mapping

    from windrow.blocks.chunk import ChunkRun
    from windrow.blocks.probe import Guards

#: Rows that are shown first, after a single one that took no longer than so many seconds: eight tell 30 % from 90 % nearly
#: always. Then more, to tell what a call costs from what rows do, and how many seconds these may take.
FIRST_ROWS, HEAVY_S, MORE_ROWS, MORE_S = 8, 1.0, 64, 0.25
#: A single row that took no longer than this is followed by two: it may have been the call that took so long, or compiling.
HEAVIER_S = 10.0
#: Rows at most: shares of them have an error of 1.5 %. And the seconds that they may take.
MOST_ROWS, MOST_S = 1024, 0.1
#: Looking in the order of the run ends after so many seconds: what takes longer is seen to take long.
BRIEF_S = 0.2
#: So many rows are shown second then: of few a step behind cuts would have none.
SECOND_ROWS = 32
#: And where a unit clearly takes more than this.
SLOW_S = 1.0
#: Rows that made a smaller difference to what calls took, as a share of that, may have made none.
CHANCE = 0.15

#: Rows of a unit that each row shown in the order of the run is taken from, where the first cluster has fewer.
SCATTERED = 4

NOT_ASKED = (0, 0.0)  #: rows and seconds of a step that was not asked
#: Of the rows of a unit, one in so many at most.
MOST_PART = 4
#: With fewer rows than this, more of them are shown to the steps that cost little.
ENOUGH_ROWS = 256
#: A unit that takes less than so many times what looking took is not worth a part of its own.
WORTH = 20


@dataclass(slots=True)
class Pilot:
    """What the first rows have shown."""

    run: ChunkRun
    look: Look
    seen: Seen
    row_s: float  #: what a row is expected to take in the order of the run
    seconds: float  #: that looking took
    step_s: dict[str, float]  #: by step: what a row takes
    are_first: bool = True  #: the rows are the first ones, and all steps saw them

    def is_long(self, unit_rows: int, short_s: float, long_s: float) -> bool:
        """Say whether a unit takes too long to run it whole: not below ``short_s``, surely above ``long_s``."""
        unit_s = self.row_s * unit_rows
        return unit_s > short_s and unit_s > min(long_s, WORTH * self.seconds)

    def first_rows(self, rows: int) -> int:
        """Say how many of some rows to run as the first part: those that were looked at, or what takes a moment."""
        if self.are_first:
            return len(self.look.rows)
        return min(max(int(MOST_S / self.row_s), FIRST_ROWS), rows // MOST_PART)

    def hand_over(self, run: ChunkRun) -> None:
        """Let a run of these rows alone take over the answers, and what was read for them."""
        length = run.store.length
        run.store.adopt(self.run.store.excerpt(0, length).give_away())
        run.known = {
            name: (Selection(length, rows.positions()), value, self.step_s[name])
            for name, (rows, value) in self.look.answers.items()
        }
        for name in run.program.needed(run.order):
            read = self.seen.costs[name]
            run.meters[name] = Meter(bytes_read=read.bytes_read, read_s=read.read_s)


def take_pilot(run: ChunkRun, guards: Guards, unit_rows: int, above: Guards | None = None) -> Pilot | None:
    """Look at the first rows of a run; with guards for the order ``above``, at some of them for a moment, to see what they take.

    None for few rows, or where they cannot be read, which the run itself will say.
    """
    watch, seen = Stopwatch(), Seen()
    most = min(int(run.borders[1]) // MOST_PART, MOST_ROWS)
    if most < FIRST_ROWS:
        return None
    try:
        with quiet():
            look, step_s, last_s = _show_more(run, guards, seen, most, above)
            row_s = _expected_s(run, look, step_s)
            if above is not None and row_s * len(look.rows) < CHANCE * last_s:
                row_s = 0.0
            if len(look.rows) < min(ENOUGH_ROWS, most) and above is None:
                cheap = Look(run, run.store.fork(), np.arange(most), guards)
                cheap.show(seen.costs, _cheap(run, step_s, most))
                row_s = _expected_s(run, cheap, step_s)
                cheap.release()
    except (Unreadable, MemoryError):
        return None
    seen.guards = tuple(look.learned)
    if look.verdicts and above is None:
        unit = run.chunk.first_unit
        here = Place(unit, unit_rows, run.start, run.start + len(look.rows))
        seen.windows[unit] = look.window(here, watch.seconds())
    return Pilot(run, look, seen, row_s, watch.seconds(), step_s, above is None)


def _show_more(
    run: ChunkRun, guards: Guards, seen: Seen, most: int, above: Guards | None
) -> tuple[Look, dict[str, float], float]:
    """Show more and more rows to all steps, while that takes little.

    Return the last look, what a row takes by step, and what the look took.
    """
    rows, most_s, second = np.arange(most), math.inf, FIRST_ROWS
    if above is not None:
        # Rows that have other neighbours and places than in the run: so it shows whether a step looks at those.
        among = max(run.chunk.clusters[1] - run.start, SCATTERED * most)
        rows = np.random.default_rng(most).permutation(min(among, int(run.borders[1])))
        most_s, second = BRIEF_S, SECOND_ROWS
    size, looks, learned = 1, list[Shown](), list[tuple[str, str]]()
    while True:
        look = Look(run, run.store.fork(), np.sort(rows[:size]), guards)
        if not looks:
            look.fetch(Selection(run.store.length, np.sort(rows[:most])))
        before = {name: (meter.rows_in, meter.wall) for name, meter in seen.costs.items()}
        look.show(seen.costs)
        asked = {name: (one.rows_in, one.wall) for name, one in seen.costs.items()}
        looks.append(
            Shown(
                size,
                {k: (n - before.get(k, NOT_ASKED)[0], s - before.get(k, NOT_ASKED)[1]) for k, (n, s) in asked.items()},
            )
        )
        larger = _next_size([(one.rows, one.seconds) for one in looks], most, second)
        if above is not None:
            larger = _not_slow(looks, larger, run)
        if larger < 2 * size or sum(one.seconds for one in looks) > most_s:
            look.learned[:0] = learned
            row_s = {name: _row_s([one.steps[name] for one in looks]) for name in seen.costs}
            return look, row_s, looks[-1].seconds
        look.release()
        # Or many rows would be asked one by one about what few have told.
        guards = (*guards, *look.learned, *(above or ()))
        learned += look.learned
        size = larger


class Shown(NamedTuple):
    """Rows that were shown, and by step how many it was asked about and how long that took."""

    rows: int
    steps: dict[str, tuple[int, float]]

    @property
    def seconds(self) -> float:
        return sum(seconds for _, seconds in self.steps.values())


def _row_s(asked: list[tuple[int, float]]) -> float:
    """What a row takes, by what it took to ask about more and more of them: a call may take long whatever its rows."""
    calls = [one for one in asked if one[0]]
    if not calls:
        return 0.0
    (first, before), (rows, seconds) = [(0, 0.0), *calls][-2:]
    return max(seconds - before, 0.0) / (rows - first) if rows > first else seconds / rows


def _not_slow(looks: list[Shown], larger: int, run: ChunkRun) -> int:
    """Say how many rows of ``larger`` to look at next: none where it is clear that a unit takes long.

    Steps to which the cuts left no row took their time for the first one, to which they would have left it: as if they left one.
    Calls of awkward take milliseconds whatever their rows; what takes so long without it are rows.
    """
    latest, unit = looks[-1], int(run.borders[1])
    if len(looks) > 1 and not _is_jagged(run):
        larger = min(larger, int(MOST_S * latest.rows / max(latest.seconds, 1e-9)))
    if len(looks) > 1 and latest.seconds > 2 * looks[-2].seconds:
        more_s = (latest.seconds - looks[-2].seconds) / (latest.rows - looks[-2].rows)
        if more_s * unit > SLOW_S:
            return latest.rows
    hidden = sum(looks[0].steps[name][1] for name, (rows, _) in latest.steps.items() if not rows)
    return min(larger, int(MOST_S * latest.rows / hidden)) if hidden else larger


def _is_jagged(run: ChunkRun) -> bool:
    program = run.program
    names = {column for name, step in program.steps.items() for column in program.file_columns(name, step.arguments)}
    return any(program.columns[name].kind == "jagged" for name in names if name in program.columns)


def _cheap(run: ChunkRun, step_s: Mapping[str, float], rows: int) -> set[str]:
    """Choose the steps that can be shown many rows in a moment, with all that they read."""
    found: set[str] = set()
    left_s = MOST_S
    for name in sorted(step_s, key=lambda name: step_s[name]):
        left_s -= rows * step_s[name]
        if left_s < 0:
            break
        found.add(name)
    for name, step in run.program.steps.items():
        if any(argument.kind == "made" and argument.source not in found for argument in step.arguments):
            found.discard(name)
    return found


def _next_size(times: list[tuple[int, float]], most: int, second: int = FIRST_ROWS) -> int:
    """Say how many rows to look at next, after so many took so long; as many as before: it is enough."""
    size, seconds = times[-1]
    if len(times) == 1:
        few = max(FIRST_ROWS, min(second, int(HEAVY_S / max(seconds, 1e-9))))
        return min(few if seconds <= HEAVY_S else 2 if seconds <= HEAVIER_S else 1, most)
    # A first call that took longer than one on more rows has compiled something: nothing is known of rows then.
    row_s = _row_s(times) if times[-2][1] <= 1.2 * seconds else seconds / size
    # What few rows take may say little of many, as caches grow full: no more than eight times as many, at first.
    target, allowed_s = (MORE_ROWS, MORE_S) if size <= FIRST_ROWS else (MOST_ROWS, MOST_S)
    if size < FIRST_ROWS:
        allowed_s = HEAVY_S
    rows = min(size + (allowed_s / row_s if row_s else most), target, most)
    return int(rows) if rows >= 2 * size else size


def _expected_s(run: ChunkRun, look: Look, step_s: Mapping[str, float]) -> float:
    """What a row takes if only those rows that are left are shown to each step, in the order of the run."""
    program, count = run.program, len(look.rows)
    alive = {number: np.ones(count, dtype=bool) for number in range(len(program.lanes))}
    seconds = 0.0
    for name in program.needed(run.order):
        step = program.steps[name]
        rows = np.zeros(count, dtype=bool)
        for lane in step.lanes:
            rows |= alive[lane]
        seconds += step_s.get(name, 0.0) * max(float(rows.mean()), 1 / count)
        if step.kind == "cut":
            for lane in step.lanes:
                sides = program.lanes[lane].cuts
                if name in sides:
                    alive[lane] &= look.passes(name, inverted=sides[name])
    return seconds
