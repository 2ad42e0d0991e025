"""The launch policy that learns: what tasks are granted by what those like them used, and what becomes of those that use more.

Tasks are alike that have the category, the kind of work and, of rows, the order (moved or written) in common. The first of them
are given an equal share of a node; then what nearly all of their size keep to. Nobody is given less than the share as long as
all that is known fits into it: no other task has any use for the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, frexp, ldexp
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.core.policies import Answer, LaunchPolicy
from windrow.core.records import IO, NO_LIMITS, EvaluateUnit, Measurement, MergePartials, Needs, OpenInput, RunRows
from windrow.core.retry import in_words
from windrow.errors import UsageError, alternatives
from windrow.shape.allocation.strategies import BY_SIZE, find_strategy
from windrow.shape.allocation.usage import Usage

if TYPE_CHECKING:
    from windrow.core.policies import TooMuch, Tries
    from windrow.core.records import Task
    from windrow.shape.allocation.strategies import Strategy
    from windrow.shape.allocation.usage import UsageFit

LADDERS = ("windrow", "workqueue")
#: Tasks that must have ended before their use is trusted: the paper has 5, Work Queue 25, coffea 3.
THRESHOLD = 5
#: Grants are rounded up to a sixteenth of a power of two, so that tasks of about one size have the same and may queue.
GRAIN = 5
#: Tasks that wait are asked about anew when what they would be given has changed by more than this share.
MATERIAL = 0.1
#: A grant beyond all that was seen is at least so many times the one that was too small, and so that fewer fit a node.
USEFUL = 1.5
#: Times that a task is given more before it is given all that there is.
STEPS = 3
#: Rows are taken to use so much before anything is known of them: more than they do in nearly all analyses.
ROW_BYTES = 64_000
#: Share of what a task may use that its rows are chosen for: what a fit of a few tasks says is off by a tenth.
ROOM = 0.85
#: Tasks have at most so many times the rows of the largest that was seen: what a fit says far beyond that is a guess.
GROWTH = 8
#: More rows than a task ever has.
MOST_ROWS = 1_000_000
#: Every second task has that share of the rows that another would have, so that the fit sees more than one size.
VARIED = 0.9
#: Grants are equal that differ by less: a billionth, from sums of fractions.
ALMOST = 1 - 1e-9
#: A low-discrepancy sequence over the numbers of tasks, in place of chance.
GOLDEN = 0.6180339887498949

#: Tasks of rows: whose steps see all their rows at once, or blocks of them.
ROWS, BLOCKS = "rows", "blocks"
KINDS: dict[type, str] = {OpenInput: "open", EvaluateUnit: "evaluate", MergePartials: "merge"}
#: Category; ``ROWS``, ``BLOCKS``, "calls" or a value of ``KINDS``; in a moved order.
Key = tuple[str, str, bool]


class NodeSize(NamedTuple):
    """A node as far as its memory is concerned."""

    memory: float  #: bytes for all its workers together
    places: int  #: workers


@dataclass(slots=True)
class Account:
    """What tasks that are alike used, and what came of what they were granted."""

    usage: Usage
    strategy: Strategy | None
    need: float = 0.0  #: memory of the largest of them
    told: tuple[int, float] = (0, 0.0)  #: rows, and what they were granted when that last changed
    tasks: int = 0
    predicted: tuple[int, float, float, float] = (0, 0.0, 0.0, 0.0)  #: tasks, and sums: predicted, used, difference
    granted_byte_s: float = 0.0
    used_byte_s: float = 0.0
    ends: Counter[str] = field(default_factory=Counter)  #: what became of those that used too much
    block: int = 0  #: rows of a call, where tasks are run in blocks
    blocks_help: bool = True  #: no task that was run in blocks used too much


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
        remembered: Iterable[Mapping[str, Any]] = (),
    ) -> None:
        super().__init__(limits)
        if ladder not in LADDERS:
            raise UsageError(f"there is no ladder {ladder!r}{alternatives('ladders', ladder, LADDERS)}")
        self.nodes = nodes  #: may change as nodes come and go
        self._make, self._strategy = find_strategy(strategy), strategy
        self._threshold, self._cap, self._ladder = threshold, cap, ladder
        self._target, self._guessed = (
            target,
            guessed,
        )  #: memory of a task; whether the user says how many rows the first ones have
        self._turn = False
        self._accounts: dict[Key, Account] = {}
        self._granted: dict[int, tuple[Key, float]] = {}  #: by task, until it ends
        self._packed: dict[tuple[Needs, float, str], tuple[Needs, Needs]] = {}
        self._crowded = False  #: a task is known that needs more than its share
        for one in remembered:
            account = self._account((one["category"], one["kind"], one["moved"]), Usage.from_plain(one["usage"]))
            self._look(account)

    # -- what is known

    @property
    def share(self) -> float:
        """Memory that every worker of the poorest node may have at a time."""
        return min(node.memory / node.places for node in self.nodes)

    def most(self, kind: str = "rows") -> float:
        """Give the memory of the largest node, or what the user allows a task."""
        largest = max(node.memory for node in self.nodes)
        return largest if self._cap is None or kind in KINDS.values() else min(self._cap, largest)

    def fit(self, category: str, kind: str = "rows", *, moved: bool = False) -> UsageFit | None:
        """Give the line of the memory of tasks; None until enough of them have ended."""
        account = self._accounts.get((category, kind, moved))
        return None if account is None else self._known(account)

    def _known(self, account: Account) -> UsageFit | None:
        return account.usage.fit() if account.usage.count >= self._threshold else None

    def _key(self, task: Task) -> Key:
        if task.twin:
            kind = BLOCKS if isinstance(task.payload, RunRows) and task.payload.block else ROWS
            return task.category, kind, self.is_moved(task.category)
        return task.category, KINDS.get(type(task.payload), "calls"), False

    def _account(self, key: Key, usage: Usage | None = None) -> Account:
        account = self._accounts.get(key)
        if account is None:
            usage, strategy = usage or Usage(), self._make(self._cap) if self._make else None
            if strategy is not None:
                for point in usage.points:
                    strategy.add(point.memory, point.seconds)
            account = self._accounts[key] = Account(usage, strategy)
        return account

    # -- how many rows at once

    def rows_at_once(self, category: str) -> tuple[int, int]:
        """Bound tasks by what fits the memory that one is to use: their rows, or those of a call where that is enough."""
        if not self.nodes or self._ladder == "workqueue":
            return 0, 0
        moved = self.is_moved(category)
        account = self._account((category, ROWS, moved))
        if not account.usage.count and moved:  # the same steps, in another order
            account = self._account((category, ROWS, False))
        rows = self._fitting(account, self.target)
        if account.blocks_help and rows < MOST_ROWS and account.usage.count >= self._threshold:
            account.block = account.block or rows
        block = account.block if account.blocks_help else 0
        if block:
            # A block was made as large as fits: what comes with each further row has the room that was left.
            blocks = self._account((category, BLOCKS, moved))
            rows = self._fitting(blocks, self._allowed) if blocks.usage.count else 0
            rows = rows if rows > block else GROWTH * block
        self._turn = not self._turn
        if rows >= MOST_ROWS:
            return 0, block
        return max(int(VARIED * rows) if self._turn else rows, 1), block

    @property
    def target(self) -> float:
        """The memory that a task is to use."""
        return min(self._target or self._allowed, ROOM * self._allowed)

    @property
    def _allowed(self) -> float:
        return min(self.share, self._cap or self.share)

    def _fitting(self, account: Account, memory: float) -> int:
        """Give the rows of a task that is expected to fit."""
        usage = account.usage
        if not usage.count:
            return MOST_ROWS if self._guessed and not account.ends else max(int(memory / ROW_BYTES), 1)
        fit = usage.fit()
        rows = fit.most_rows(memory) if fit is not None else MOST_ROWS
        return max(min(rows, GROWTH * usage.rows), 1)

    # -- grants

    def grant(self, task: Task, tries: Tries) -> tuple[Needs, Needs]:
        amounts = dict(task.needs.amounts)
        if not self.nodes or IO in amounts:
            return super().grant(task, tries)
        key = self._key(task)
        amount = amounts.get("memory")  # as the user says, or the ladder
        if amount is None:
            amount = self._amount(key, task.size, task.id)
        elif not tries.exhaustions and amount > self.share:
            self._crowded = True
        self._granted[task.id] = key, amount
        packed = self._packed.get((task.needs, amount, key[1]))
        if packed is None:
            if len(self._packed) > 256:
                self._packed.clear()
            limit = self.most(key[1]) if key[1] in KINDS.values() else amount  # what is merged is there already
            limits = dict(self.limits.amounts) if key[1] in (ROWS, BLOCKS) else {}
            packed = with_memory(task.needs, amount), Needs.of({**limits, "memory": limit})
            self._packed[task.needs, amount, key[1]] = packed
        return packed

    def _amount(self, key: Key, rows: int, number: int = 0) -> float:
        account, share, most = self._account(key), self.share, self.most(key[1])
        fit = self._known(account)
        if fit is None:
            amount = self._cap or share
            if key[2] and (written := self.fit(key[0])) is not None:
                amount = max(amount, written.upper(rows))
        elif account.strategy is not None:
            amount = account.strategy.predict(None, number * GOLDEN % 1) or self._cap or share
        else:
            amount = fit.upper(rows)
            amount = share if amount <= share and not self._crowded else round_up(amount, share)
        return min(max(amount, account.usage.idle), most)

    def seen(self, task: Task, measured: Measurement) -> bool:
        super().seen(task, measured)
        key, granted = self._granted.pop(task.id, (self._key(task), 0.0))
        used = measured.peak_memory
        if not used:
            return False
        account = self._account(key)
        account.tasks += 1
        account.granted_byte_s += granted * measured.wall
        account.used_byte_s += used * measured.wall
        fit = self._known(account)
        if fit is not None:
            count, predicted, had, off = account.predicted
            expected = fit.expected(task.size)
            account.predicted = count + 1, predicted + expected, had + used, off + abs(expected - used)
        if account.strategy is not None:
            account.strategy.add(used, measured.wall)
        if not account.usage.add(task.size, measured) or not self.nodes:
            return False
        return self._look(account) and self._is_news(key, account, task.size, granted)

    def _look(self, account: Account) -> bool:
        """See what the largest task of an account needs; False where too few were seen."""
        fit = self._known(account)
        if fit is not None and self.nodes:
            account.need = fit.upper(account.usage.rows)
            self._crowded = self._crowded or account.need > self.share
        return fit is not None

    def _is_news(self, key: Key, account: Account, rows: int, granted: float) -> bool:
        then_rows, then = account.told if account.told[1] else (rows, granted)
        if abs(self._amount(key, then_rows) - then) <= MATERIAL * then:
            return False
        account.told = rows, self._amount(key, rows)
        return True

    # -- what used too much

    def exhausted(self, found: TooMuch) -> Answer:
        """Blame the order first; then more memory if that will do, fewer rows if those do, a fresh worker, or the task."""
        task, limit, moved = found.task, found.limit, found.moved
        key, granted = self._granted.pop(task.id, (self._key(task), 0.0))
        if not self.nodes or (limit is not None and limit[0] != "memory"):
            return super().exhausted(found)
        account = self._account((*key[:2], moved))
        if limit is not None:  # it would have used that and more
            account.usage.add(
                task.size, Measurement(peak_memory=int(max(found.used, limit[1])), baseline=int(account.usage.idle))
            )
        if moved:
            answer = Answer("written")
        elif self._ladder == "windrow":
            answer = self._climb(found, key, account, limit[1] if limit is not None else granted or self.share)
        else:
            answer = self._climb_as_workqueue(found, key, account, limit[1] if limit is not None else granted)
        account.ends[answer.act] += 1
        return answer

    def _climb(self, found: TooMuch, key: Key, account: Account, granted: float) -> Answer:
        task, tries, most, fit = found.task, found.tries, self.most(key[1]), self._known(account)
        room, divisible, bound = granted < most * ALMOST, found.divisible, 2 * granted
        if fit is not None:
            bound = fit.upper_beyond(task.size, granted) or self._useful(granted)
            divisible = divisible and fit.least(task.size, granted) <= most
        if found.by_rows and (fit is None or fit.least(task.size, granted) <= most):
            rows = max(min(self._fitting(account, self.target), -(-task.size // 2)), 1)
            whole = self._account((key[0], ROWS, key[2]))
            if key[1] == ROWS and account.blocks_help and not task.payload.part:
                whole.block = whole.block or rows
                return Answer("blocks", rows=whole.block)
            whole.blocks_help = whole.blocks_help and key[1] == ROWS
            return Answer("split", rows=rows)
        if tries.exhaustions > STEPS:
            bound = most
        if fit is None:
            room = room and not divisible and tries.exhaustions == 1
        elif divisible:
            room = room and bound <= most
        if room:
            return Answer("larger", with_memory(task.needs, min(round_up(bound, most), most)))
        if divisible:
            return Answer("split")
        if task.twin and found.limit is not None and not tries.fresh and tries.exhaustions <= STEPS + 2:
            return Answer("fresh")
        return Answer("fail", why=self._why(key, fit, granted, most))

    def _climb_as_workqueue(self, found: TooMuch, key: Key, account: Account, granted: float) -> Answer:
        """Predicted, a whole worker, the largest worker, in two; at once in two where the user says how much a task may have."""
        most = self.most(key[1])
        for stage in (min(node.memory for node in self.nodes), most):
            if granted < min(stage, most) * ALMOST:
                return Answer("larger", with_memory(found.task.needs, min(stage, most)))
        if found.by_rows:
            return Answer("split", rows=-(-found.task.size // 2))
        if found.divisible:
            return Answer("split")
        return Answer("fail", why=self._why(key, self._known(account), granted, most))

    def _useful(self, granted: float) -> float:
        """Give the most of a larger grant of which as many fit the largest node."""
        largest = self.most("merge")
        return largest / max(largest // (USEFUL * granted), 1)

    def _why(self, key: Key, fit: UsageFit | None, granted: float, most: float) -> str:
        there_is = "the user allows a task" if most == self._cap else "the largest node has"
        said = f"it had {in_words('memory', granted)}, and {there_is} {in_words('memory', most)}"
        if fit is not None and key[1] in (ROWS, BLOCKS):
            said += (
                f"; tasks of {key[0]!r} use {in_words('memory', fit.fixed)} however few rows they have, "
                f"and {in_words('memory', fit.per_row)} a row"
            )
        return f"{said}. Let tasks have more (memory=, task_memory=, fewer workers), or make what they keep and return smaller"

    # -- for people and for the next run

    def describe(self) -> list[dict[str, Any]]:
        """List what was learned of tasks, and what came of what they were granted."""
        return [self._describe(key, account) for key, account in self._accounts.items() if account.usage.count]

    def _describe(self, key: Key, account: Account) -> dict[str, Any]:
        usage, fit = account.usage, account.usage.fit()
        count, predicted, used, off = account.predicted
        return {
            "category": key[0],
            "kind": key[1],
            "moved": key[2],
            "strategy": self._strategy,
            "tasks": account.tasks,
            "fixed": fit.fixed if fit else 0.0,
            "per_row": fit.per_row if fit else 0.0,
            "most": usage.most(),
            "suggested": fit.upper(usage.rows) if fit else 0.0,  # memory to ask for, for tasks as large as these
            "predicted": predicted / count if count else None,
            "used": used / count if count else None,
            "off": off / count if count else None,
            "granted_byte_s": account.granted_byte_s,
            "wasted_byte_s": account.granted_byte_s - account.used_byte_s,
            **{f"{act}s": account.ends[act] for act in ("written", "blocks", "larger", "split", "fresh", "fail")},
        }

    def remember(self) -> list[dict[str, Any]]:
        """Give what the next run may begin with, as plain data."""
        return [
            {"category": category, "kind": kind, "moved": moved, "usage": account.usage.plain()}
            for (category, kind, moved), account in self._accounts.items()
            if account.usage.count
        ]


def with_memory(needs: Needs, amount: float) -> Needs:
    return replace(needs, amounts=Needs.of({**dict(needs.amounts), "memory": amount}).amounts)


def round_up(amount: float, border: float) -> float:
    """Round to the grain, but not beyond a border that the amount keeps to."""
    fraction, power = frexp(amount)
    rounded = ldexp(ceil(ldexp(fraction, GRAIN)), power - GRAIN)
    return border if amount <= border < rounded else rounded
