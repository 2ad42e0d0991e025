"""What a report shows over time: who worked when, how fast, with how much memory.

However long the log, what is drawn has a fixed size: many tasks are joined on a grid of time, on
which a block's height says how busy its worker was, so that gaps stay visible.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.watch.readlog import DISCARDED, FAILED, LOST, Attempts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from windrow.watch.readlog import Log

#: Rectangles a browser draws at once without a stutter.
MOST_BLOCKS = 3_000
#: Lanes a person can tell apart; more workers share one.
MOST_LANES = 48
#: Steps of the curves, about one every ten points of a wide screen.
CURVE_POINTS = 120
MEMORY_POINTS = 600
#: Colours that can be told apart; what took less time than these is "other".
MOST_COLOURS = 9
#: Failures and lost workers marked on the timeline.
MOST_MARKS = 200

_MARKED = ("InspectFailed", "MergeFailed", "WorkerLost")


def shares(log: Log, workers: int | None = None) -> dict[str, Any]:
    tasks = log.attempts
    wall = float(tasks.wall.sum())
    cpu = min(float(tasks.cpu.sum()), wall)
    lock = min(float(tasks.lock.sum()), wall - cpu)
    crew = max(workers or 0, len(np.unique(tasks.worker)))
    busy = float((tasks.end - tasks.begin)[tasks.ran].sum())
    return {
        "tasks": len(tasks),
        "cpu": cpu / wall if wall else None,
        "lock": lock / wall if wall else None,
        "waiting": (wall - cpu - lock) / wall if wall else None,
        "busy": min(busy / (crew * log.span), 1.0) if crew and log.span > 0 else None,
    }


def spread(
    begin: NDArray[np.float64], end: NDArray[np.float64], amount: NDArray[np.float64], span: float, bins: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Share each task's amount among the steps of time it covers, by how long it covers each.

    Returns which task, which step and how much; every amount is shared out completely.
    """
    width = span / bins
    first = np.clip((begin / width).astype(np.int64), 0, bins - 1)
    last = np.clip((end / width).astype(np.int64), first, bins - 1)
    count = last - first + 1
    which = np.repeat(np.arange(len(begin)), count)
    step = np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count) + first[which]
    covered = np.minimum(end[which], (step + 1) * width) - np.maximum(begin[which], step * width)
    covered = np.maximum(covered, 0.0)
    total = np.bincount(which, weights=covered, minlength=len(begin))
    even = 1.0 / count[which]  # a task of no length belongs to where it is
    part = np.divide(covered, total[which], out=even, where=total[which] > 0)
    return which, step, part * amount[which]


def throughput(log: Log) -> dict[str, Any] | None:
    kept = log.attempts.done
    if log.span <= 0 or not kept.any():
        return None
    width = log.span / CURVE_POINTS
    curves = {}
    for name, amount in (("rows", log.attempts.rows), ("read", log.attempts.read)):
        _, step, part = spread(
            log.attempts.begin[kept], log.attempts.end[kept], amount[kept].astype(np.float64), log.span,
            CURVE_POINTS,
        )  # fmt: skip
        curves[name] = np.bincount(step, weights=part, minlength=CURVE_POINTS) / width
    return {"step": width, **{name: _short(curve) for name, curve in curves.items()}}


def memory_data(log: Log, points: int = MEMORY_POINTS) -> dict[str, Any] | None:
    """Return memory over time, the largest of every few samples; None without any."""
    if not len(log.memory):
        return None
    group = -(-len(log.memory) // points)
    firsts = np.arange(0, len(log.memory), group)
    return {
        "time": _short(log.memory[firsts, 0]),
        "bytes": [int(most) for most in np.maximum.reduceat(log.memory[:, 1], firsts)],
    }


def timeline(log: Log, rest: str = "other datasets") -> dict[str, Any] | None:
    """Return lanes of workers and blocks on them; ``rest`` names what has no colour.

    Blocks are columns: lane, begin, end, colour, tasks, rows, and how much of it was busy.
    """
    attempts = log.attempts
    if log.span <= 0 or not attempts.ran.any():
        return None
    place = np.flatnonzero(attempts.ran)
    tasks = Attempts(**{name: getattr(attempts, name)[place] for name in Attempts.__slots__})
    workers, lane = np.unique(tasks.worker, return_inverse=True)
    together = -(-len(workers) // MOST_LANES)
    lane = lane // together
    groups = [workers[first : first + together] for first in range(0, len(workers), together)]
    colour, names = _coloured(tasks, log.names, rest)
    if len(tasks) <= MOST_BLOCKS and together == 1:
        blocks = {
            "joined": False,
            "lane": lane.tolist(),
            "begin": _short(tasks.begin),
            "end": _short(tasks.end),
            "colour": colour.tolist(),
            "tasks": [1] * len(tasks),
            "rows": tasks.rows.tolist(),
            "busy": [1] * len(tasks),
        }
    else:
        blocks = _joined(tasks, lane, colour, len(names), log.span, together)
    return {
        "span": log.span,
        "lanes": [f"{group[0]}" if len(group) == 1 else f"{group[0]}-{group[-1]}" for group in groups],
        "colours": names,
        "joined": blocks.pop("joined"),
        "blocks": blocks,
        "marks": _marks(log, workers, together),
    }


def _coloured(tasks: Attempts, names: Sequence[str], rest: str) -> tuple[NDArray[np.int64], list[str]]:
    """Give every task a colour: what took most time has its own, discarded work is apart."""
    taken = np.bincount(tasks.name, weights=tasks.end - tasks.begin, minlength=len(names))
    used = np.flatnonzero(np.bincount(tasks.name, minlength=len(names)))
    shown = used.tolist()
    if len(shown) > MOST_COLOURS:
        most = set(used[np.argsort(-taken[used], kind="stable")][: MOST_COLOURS - 1].tolist())
        shown = [number for number in shown if number in most]
    words = [names[number] for number in shown]
    if len(shown) < len(used):
        words.append(rest)
    colour_of = np.full(len(names), len(words) - 1)
    colour_of[shown] = np.arange(len(shown))
    colour = colour_of[tasks.name]
    discarded = tasks.how == DISCARDED
    if discarded.any():
        colour = np.where(discarded, len(words), colour)
        words.append("discarded: done elsewhere")
    return colour, words


def _joined(
    tasks: Attempts, lane: NDArray[np.int64], colour: NDArray[np.int64], colours: int, span: float, together: int
) -> dict[str, Any]:
    lanes = int(lane.max()) + 1
    bins = max(MOST_BLOCKS // lanes, 20)
    width = span / bins
    which, step, busy = spread(tasks.begin, tasks.end, tasks.end - tasks.begin, span, bins)
    cell = lane[which] * bins + step
    cells = lanes * bins
    used = np.bincount(cell, weights=busy, minlength=cells) / (width * together)
    by_colour = np.zeros((cells, colours))
    np.add.at(by_colour, (cell, colour[which]), np.maximum(busy, 1e-12))
    at_end = lane * bins + np.clip((tasks.end / width).astype(np.int64), 0, bins - 1)
    count = np.bincount(at_end, minlength=cells)
    rows = np.bincount(at_end, weights=tasks.rows, minlength=cells)
    filled = np.flatnonzero((used > 0) | (count > 0))
    place = filled % bins
    return {
        "joined": True,
        "lane": (filled // bins).tolist(),
        "begin": _short(place * width),
        "end": _short((place + 1) * width),
        "colour": by_colour[filled].argmax(axis=1).tolist(),
        "tasks": count[filled].tolist(),
        "rows": rows[filled].astype(np.int64).tolist(),
        "busy": [round(float(part), 3) for part in np.minimum(used[filled], 1.0)],
    }


def _marks(log: Log, workers: NDArray[np.int64], together: int) -> list[dict[str, Any]]:
    lane = {int(worker): place // together for place, worker in enumerate(workers)}
    found = [(line["t"], line.get("worker", -1), line["event"]) for line in log.rare if line["event"] in _MARKED]
    bad = np.flatnonzero((log.attempts.how == FAILED) | (log.attempts.how == LOST))
    times, owners = log.attempts.end[bad].tolist(), log.attempts.worker[bad].tolist()
    found += [(time, worker, "an attempt failed") for time, worker in zip(times, owners, strict=True)]
    return [
        {"time": round(time, 6), "lane": lane.get(worker, 0), "what": what}
        for time, worker, what in sorted(found)[:MOST_MARKS]
    ]


def _short(values: Sequence[float] | NDArray[Any]) -> list[float]:
    """Write numbers with the digits a drawing can show."""
    return [float(f"{value:.6g}") for value in values]
