"""The launch policy that learns: what tasks are granted by what those like them used, and what becomes of those that use more.

Tasks are alike in category, kind of work and, of rows, order (moved or written). The first are given an equal share of a node, then
what nearly all of their size keep to; no less than the share while all that is known fits into it, as nobody has use for the rest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import ceil, frexp, inf, ldexp
from statistics import median_low
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.core.policies import Answer, LaunchPolicy
from windrow.core.records import IO, NO_LIMITS, EvaluateUnit, Measurement, MergePartials, Needs, OpenInput, RunRows
from windrow.core.retry import in_words
from windrow.errors import UnknownNameError, alternatives
from windrow.shape.allocation.strategies import BY_SIZE, FIXED, STRATEGIES
from windrow.shape.allocation.usage import TaskUsage
from windrow.shape.chunks import BLOCKS, ROWS, RowBounds

if TYPE_CHECKING:
    from windrow.core.policies import TooMuch, Tries
    from windrow.core.records import Task
    from windrow.shape.allocation.strategies import Strategy
    from windrow.shape.allocation.usage import UsageFit

#: What becomes of tasks that use too much: by the model; or predicted, a whole worker, the largest worker, in two.
LADDERS = ("windrow", "workqueue")
#: Tasks that must have ended before their use is trusted: the paper has 5, Work Queue 25, coffea 3.
THRESHOLD = 5
#: Grants are rounded up to so many binary digits, by a sixteenth at most: tasks of about one size have the same, and may queue.
DIGITS = 5
#: Tasks that wait are asked about anew when what they would be given has changed by more than this share.
MATERIAL = 0.1
#: A grant beyond all that was seen is at least so many times the one that was too small, and all that as many can have of a node;
#: after so many steps a task is given all that there is.
USEFUL, STEPS = 1.5, 3
#: Grants are equal that differ by a millionth: engines count whole bytes.
ALMOST = 1 - 1e-6
#: Fewer rows are of no use where one alone takes more than this share of what there is.
NEARLY_ALL = 0.98
#: Multiples of it modulo one spread evenly: they stand for chance.
GOLDEN = 0.6180339887498949

#: Kinds of tasks about rows that run none, beside those of the bounds.
OPEN, EVALUATE, MERGE = "open", "evaluate", "merge"
OTHERS: dict[type, str] = {OpenInput: OPEN, EvaluateUnit: EVALUATE, MergePartials: MERGE}
CALLS = "calls"
#: They are not ended below the memory of the largest node: what they work on is there already, and would go with their worker.
UNENDED = (OPEN, MERGE)


class NodeSize(NamedTuple):
    """What a node has for all its workers together."""

    memory: float
    places: int  #: workers


class Key(NamedTuple):
    """What tasks that are alike have in common."""

    category: str
    kind: str = ROWS  #: ``ROWS``, ``BLOCKS``, "calls" or a value of ``OTHERS``
    moved: bool = False  #: in another order than the written one


class Alike:
    """What tasks that are alike used, and what came of what they were granted."""

    def __init__(self, usage: TaskUsage, strategy: Strategy | None) -> None:
        self.usage, self.strategy = usage, strategy
        self.facts: defaultdict[str, float] = defaultdict(float)  #: for people
        if strategy is not None:
            for point in usage.points:
                strategy.add(point.memory, point.seconds)


class Allocation(LaunchPolicy):
    """Grants memory by what was learned; without nodes that share some it is the plain launch policy."""

    def __init__(
        self,
        limits: Needs = NO_LIMITS,
        nodes: Sequence[NodeSize] = (),
        *,
        strategy: str = BY_SIZE,
        threshold: int = THRESHOLD,
        cap: float | None = None,
        ladder: str = "windrow",
        target: float | None = None,
        guessed: bool = False,
        blocks: bool = True,
        remembered: Iterable[Mapping[str, Any]] = (),
    ) -> None:
        super().__init__(limits)
        self._bounds = RowBounds(
            lambda key: self._find(key).usage,
            lambda: min(self.share, cap or self.share),
            lambda: min(self._largest, cap or self._largest),
            target=target,
            threshold=threshold,
            guessed=guessed,
            blocks=blocks,
        )
        for called, name, known in (("strategies", strategy, STRATEGIES), ("ladders", ladder, LADDERS)):
            if name not in known:
                raise UnknownNameError(f"there is no {name!r} for allocations{alternatives(called, name, known)}")
        self._make, self._strategy, self._ladder = STRATEGIES[strategy], strategy, ladder
        self._trusted, self._cap = threshold, cap
        self._threshold = threshold if strategy != FIXED else inf
        self._alike: dict[Key, Alike] = {}
        self._granted: dict[int, tuple[Key | None, float]] = {}  #: by task, until it ends
        self._crowded = False  #: a task is known that needs more than its share
        self.resize(nodes)
        for one in remembered:
            usage = TaskUsage(one["points"], one["count"])
            self._alike[Key(*[one[name] for name in Key._fields])] = Alike(usage, self._make(cap))

    def resize(self, nodes: Sequence[NodeSize]) -> None:
        """Nodes have come or gone: see what workers may have at a time, and the most that one can."""
        places = [node for node in nodes for _ in range(node.places)]
        self._whole = median_low(node.memory for node in places) if places else 0.0
        self._largest = max((node.memory for node in places), default=0.0)
        self._smallest = min((node.memory for node in places), default=0.0)
        self.share = median_low(node.memory / node.places for node in places) if places else 0.0

    # -- what is known

    def fit(self, key: Key) -> UsageFit | None:
        """Give the line of the memory of tasks that are alike; None until enough of them have ended."""
        return self._fit(key, self._threshold)

    def _fit(self, key: Key, least: float) -> UsageFit | None:
        alike = self._alike.get(key)
        return alike.usage.fit() if alike is not None and alike.usage.count >= least else None

    def _find(self, key: Key) -> Alike:
        if key not in self._alike:
            self._alike[key] = Alike(TaskUsage(), self._make(self._cap))
        return self._alike[key]

    def _key(self, task: Task) -> Key:
        if task.twin:
            blocks = isinstance(task.payload, RunRows) and task.payload.block
            return Key(task.category, BLOCKS if blocks else ROWS, self.is_moved(task.category))
        return Key(task.category, OTHERS.get(type(task.payload), CALLS))

    def _most(self, key: Key) -> float:
        if key.kind == MERGE:  # it runs where its results are, be that the smallest
            return self._smallest
        return self._largest if self._cap is None or key.kind in OTHERS.values() else min(self._cap, self._largest)

    def most_memory(self, task: Task) -> float:
        fit = self._fit(self._key(task), 1)
        return fit.upper(size_of(task)) if fit is not None else 0.0

    # -- grants

    def rows_at_once(self, category: str) -> tuple[int, int]:
        if not self.share or self._ladder == "workqueue":
            return 0, 0
        return self._bounds.at_once(Key(category, ROWS, self.is_moved(category)))

    def grant(self, task: Task, tries: Tries) -> tuple[Needs, Needs]:
        asked = dict(task.needs.amounts)
        if not self.share or IO in asked:
            return super().grant(task, tries)
        key = self._key(task)
        amount = asked.get("memory")  # as the user says, or the ladder
        if key.kind == CALLS and amount is None:
            return self._grant_call(task, key) or super().grant(task, tries)
        if amount is None:
            amount = self._amount(key, size_of(task), task.id)
        elif not tries.exhaustions:
            self._crowded = self._crowded or amount > self.share
        self._granted[task.id] = key, amount
        limit = self._largest if key.kind in UNENDED else amount
        return with_memory(task.needs, amount), with_memory(self.limits if task.twin else NO_LIMITS, limit)

    def _grant_call(self, task: Task, key: Key) -> tuple[Needs, Needs] | None:
        """Keep memory for a call where some are known to need more than their share; what nobody asked for is no limit."""
        if not self._outgrows(key) and not self._crowded:
            return None
        amount = self._amount(key, task.size, task.id)
        self._granted[task.id] = key, amount
        return with_memory(task.needs, amount), NO_LIMITS

    def _outgrows(self, key: Key) -> bool:
        fit = self.fit(key)
        return fit is not None and fit.upper(1) > self.share

    def _amount(self, key: Key, rows: int, number: int) -> float:
        fit, share = self.fit(key), self.share
        first = share if key.kind in OTHERS.values() else self._cap or share
        if fit is None:
            like = self.fit(Key(key.category)) if key.moved or key.kind == EVALUATE else None
            return min(first if like is None else max(first, like.upper(rows)), self._most(key))
        alike = self._alike[key]
        if alike.strategy is not None:
            amount = alike.strategy.predict(None, number * GOLDEN % 1) or first
        else:
            amount = fit.upper(rows)
            self._crowded = self._crowded or amount > share
            amount = round_up(amount, share) if self._crowded else share
        return min(max(amount, alike.usage.idle), self._most(key))

    def seen(self, task: Task, measured: Measurement) -> bool:
        super().seen(task, measured)
        key, granted = self._granted.pop(task.id, (None, 0.0))
        key = key or self._key(task)
        used, wall, size = measured.peak_memory, measured.wall, size_of(task)
        if not used:
            return False
        alike = self._find(key)
        facts, usage, fit = alike.facts, alike.usage, self.fit(key)
        facts["tasks"] += 1
        for name, value in (("rows", size), ("most", used), ("most_granted", granted)):
            facts[name] = max(facts[name], value)
        facts["granted_byte_s"] += granted * wall
        facts["wasted_byte_s"] += max(granted - used, 0.0) * wall
        if fit is not None:
            expected = fit.expected(size)
            facts["predictions"] += 1
            facts["predicted"] += expected
            facts["used"] += used
            facts["off"] += abs(expected - used)
            usage.refit = usage.refit or used > fit.upper(size)
        if alike.strategy is not None:
            alike.strategy.add(used, wall)
        news = usage.add(size, measured) and "memory" not in dict(task.needs.amounts)
        if news and not granted and key.kind == CALLS:
            return self._outgrows(key)
        if not news or not granted:
            return False
        return abs(self._amount(key, size, task.id) - granted) > MATERIAL * granted

    # -- what used too much

    def exhausted(self, found: TooMuch) -> Answer:
        """Blame the order first; then more memory if that will do, fewer rows if those do, a fresh worker, or the task."""
        task, limit = found.task, found.limit
        key, granted = self._granted.pop(task.id, (None, 0.0))
        if not self.share or (limit is not None and limit[0] != "memory"):
            return super().exhausted(found)
        key = (key or self._key(task))._replace(moved=found.moved)
        granted = limit[1] if limit is not None else granted or self.share
        climb = self._climb if self._ladder == "windrow" else self._climb_as_workqueue
        answer = Answer("written") if found.moved else climb(found, key, granted)
        self._find(key).facts[answer.act] += 1
        return answer

    def _climb(self, found: TooMuch, key: Key, granted: float) -> Answer:
        task, tries, most, divisible = found.task, found.tries, self._most(key), found.divisible
        size, fit, room = size_of(task), self._fit(key, self._trusted), granted < most * ALMOST
        if key.kind == CALLS:
            return super().exhausted(found)  # twice what it asked for, once
        if key.kind == MERGE:  # its results have gone with its worker; those of the next are brought away
            usage = self._find(key).usage
            usage.add(
                size, Measurement(peak_memory=int(max(found.used, granted)), baseline=int(usage.idle)), ended=True
            )
            return Answer("fail", why=self._why(key, granted))
        if fit is None:
            bound, room = most, room and not divisible and tries.exhaustions == 1
        else:
            bound = fit.upper_beyond(size, granted) or self._largest / max(self._largest // (USEFUL * granted), 1)
            bound = round_up(bound, most) if tries.exhaustions <= STEPS else most
            divisible = divisible and fit.least(size, granted) <= most * NEARLY_ALL
            room = room and (bound <= most or not divisible)
        # Rows are to blame where most tasks would keep to what this one had, had they but one: more memory would hide them.
        if found.by_rows and (fit is None or fit.expected(1) <= (granted if room else most * NEARLY_ALL)):
            return self._bounds.fewer(found, key)
        if room:
            return Answer("larger", with_memory(task.needs, min(bound, most)))
        if divisible:
            return Answer("split")
        if (
            (task.twin or key.kind == EVALUATE)
            and found.limit is not None
            and not tries.fresh
            and tries.exhaustions <= STEPS + 2
        ):
            return Answer("fresh")
        return Answer("fail", why=self._why(key, granted))

    def _climb_as_workqueue(self, found: TooMuch, key: Key, granted: float) -> Answer:
        most = self._most(key)
        strategy = self._find(key).strategy
        next_one = strategy.predict(granted, found.task.id * GOLDEN % 1) if strategy is not None else None
        for amount in (next_one or 0.0, self._whole, self._largest):
            if granted < min(amount, most) * ALMOST:
                return Answer("larger", with_memory(found.task.needs, min(amount, most)))
        if found.by_rows:
            return Answer("split", rows=-(-found.task.size // 2))
        return Answer("split") if found.divisible else Answer("fail", why=self._why(key, granted))

    def _why(self, key: Key, granted: float) -> str:
        fit, most = self.fit(key), self._most(key)
        whose = "it may" if most == self._cap else "the largest node can"
        said = f"that is all that {whose} have{' (task_memory=)' if most == self._cap else ''}"
        if granted < most * ALMOST:
            said = f"it had {in_words('memory', granted)}, and {whose} have {in_words('memory', most)}"
        if fit is not None and key.kind in (ROWS, BLOCKS):
            fixed, per_row = in_words("memory", fit.fixed), in_words("memory", fit.per_row)
            said += f"; tasks of {key.category!r} use {fixed} however few rows they have, and {per_row} a row"
        if key.kind == EVALUATE:
            said += "; outputs are made of all rows of a unit at once, however few rows its chunks have: let units be smaller"
            said += " (grid= of windrow.data.open, row groups of the file)"
        return f"{said}; make what is kept and returned smaller"

    # -- for people, and for the next run

    def describe(self, *, lines: bool = True) -> list[dict[str, Any]]:
        """List what tasks of this run used, what was learned of them, and what came of what they were granted.

        Without ``lines``, which are made anew when they are asked for, it may be asked while the run goes on.
        """
        found = []
        allowed = min(self.share, self._cap or self.share)
        for key, alike in list(self._alike.items()):
            fit = alike.usage.fit() if lines else None
            said = {**key._asdict(), "strategy": self._strategy, "allowed": allowed, **alike.facts}
            if block := self._bounds.block(key):
                said["block_rows"] = block
            if fit is not None:
                said |= {"fixed": fit.fixed, "per_row": fit.per_row, "fitting": fit.most_rows(allowed)}
                # Those that were seen had enough with what they were granted.
                said["suggested"] = min(fit.upper(said.get("rows", 0)), said.get("most_granted") or inf)
            found.append(said)
        return found

    def remember(self) -> list[dict[str, Any]]:
        """Give what the next run may begin with, as plain data."""
        return [{**key._asdict(), **alike.usage.plain()} for key, alike in self._alike.items()]


def size_of(task: Task) -> int:
    """Count the rows that a task works on."""
    if type(task.payload) is EvaluateUnit:
        return sum(rows.stop - rows.start for rows in task.payload.rows)
    return task.size


@lru_cache(256)  # equal ones are the same: tasks are told apart by that
def with_memory(needs: Needs, amount: float) -> Needs:
    return replace(needs, amounts=Needs.of({**dict(needs.amounts), "memory": amount}).amounts)


def round_up(amount: float, border: float) -> float:
    """Round to a few digits, but not beyond a border that the amount keeps to."""
    fraction, power = frexp(amount)
    rounded = ldexp(ceil(ldexp(fraction, DIGITS)), power - DIGITS)
    return border if amount <= border < rounded else rounded
