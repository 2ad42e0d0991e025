"""The way of inputs into the run: who is opened next, which rows are wanted, where to cut.

Inputs are opened when work reaches them, in order, and never more than a few ahead. With a row
limit the rows of an input are released only when all earlier inputs of its category are known.
"""

from __future__ import annotations

from collections import deque
from operator import lt
from typing import TYPE_CHECKING

from windrow.core.source import Cutter
from windrow.core.state import NO_TRIES, Feed, WorkerState
from windrow.core.transitions import INPUT_MOVES, InputState, move
from windrow.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from windrow.core.ledger import Ledger
    from windrow.core.records import Failure, InputSpec, Rows

__all__ = ["Intake"]


class _Order:
    """The inputs of one category in order, and how many rows of them are still wanted."""

    __slots__ = ("feeds", "left", "next", "uncut", "unopened")

    def __init__(self, limit: int | None) -> None:
        self.feeds: list[Feed] = []
        self.next = 0  #: the first input that was not released yet
        self.left = limit
        self.uncut = 0  #: rows that can be cut now
        self.unopened = 0  #: inputs whose rows are not known or not released yet


class Intake:
    """All inputs of a run."""

    def __init__(self, ledger: Ledger, limit: int | None, limits: Mapping[str, int] | None = None) -> None:
        self.feeds: dict[int, Feed] = {}
        self.uncut = 0  #: rows that can be cut now
        self.unopened = 0  #: inputs whose rows are not known or not released yet
        self.inspecting = 0
        self._ledger = ledger
        self._limit = limit
        self._limits = limits  #: by category; nothing of ``limit`` counts then
        self._orders: dict[str, _Order] = {}
        self._waiting: deque[Feed] = deque()  #: to be opened; may hold ones that no longer need it
        self._fresh: deque[Feed] = deque()  #: released, and nothing was cut from them yet
        self._open: dict[int, Feed] = {}  #: with rows to cut; the oldest first
        self._seen = self._seen_rows = 0  #: for the estimate of what unopened inputs hold

    def add(self, specs: Iterable[InputSpec]) -> None:
        """Take inputs in; those with rows and borders need no opening."""
        for spec in specs:
            if spec.id in self.feeds:
                raise InternalError(f"input {spec.id} ({spec.label}) was submitted twice")
            feed = self.feeds[spec.id] = Feed(spec)
            order = self._orders.get(spec.category)
            if order is None:
                order = self._orders[spec.category] = _Order(self._limit_of(spec.category))
            if spec.limited:
                order.feeds.append(feed)
            self._count(spec.category, unopened=1)
            self._ledger.unopened[spec.id] = None
            if spec.rows is not None and spec.borders is not None:
                self.known(feed, spec.rows, spec.borders)
            elif spec.limited and order.left == 0 and len(order.feeds) > 1:
                self._release(order)
            else:
                self._waiting.append(feed)

    def _limit_of(self, category: str) -> int | None:
        return self._limit if self._limits is None else self._limits.get(category)

    def known(self, feed: Feed, rows: int, borders: tuple[int, ...]) -> None:
        """An input's rows and borders are known: release what is wanted of it."""
        ends = (*borders[:1], *borders[-1:])
        if ends != (0, rows) or not all(map(lt, borders, borders[1:])):
            raise InternalError(
                f"input {feed.spec.id} ({feed.spec.label}) has {rows} rows, so its unit borders "
                f"must grow from 0 to {rows}; they are {borders[:3]} ... {borders[-1:]}"
            )
        self._move(feed, InputState.KNOWN)
        feed.rows, feed.borders, feed.tries = rows, borders, NO_TRIES
        self._seen += 1
        self._seen_rows += rows
        order = self._orders[feed.spec.category]
        if order.left is None or not feed.spec.limited:
            self._open_feed(feed, None)
        else:
            self._release(order)

    def _release(self, order: _Order) -> None:
        """Release inputs of a category in order, as far as they are known or no longer wanted."""
        while order.next < len(order.feeds):
            feed = order.feeds[order.next]
            unopened = feed.state in (InputState.WAITING, InputState.DELAYED)
            # The first is opened even for no rows: its columns say of what type an empty result is.
            if unopened and order.left == 0 and order.next:
                self._move(feed, InputState.KNOWN)  # nobody needs to know how many rows it has
            if feed.state is InputState.KNOWN:
                taken = self._open_feed(feed, order.left)
                if order.left is not None:
                    order.left -= taken
            elif feed.state is not InputState.BAD:
                return
            order.next += 1

    def _open_feed(self, feed: Feed, limit: int | None) -> int:
        """Let rows be cut from an input; return how many."""
        self._move(feed, InputState.OPEN)
        feed.cutter = Cutter(feed.spec.id, feed.borders)
        wanted = []
        for start, stop in _union(feed.spec.ranges, feed.rows):
            if limit is not None:
                stop = min(stop, start + limit)
                limit -= stop - start
            if start < stop:
                wanted.append((start, stop))
                feed.cutter.add(start, stop)
        self._ledger.expect(feed.spec.id, wanted)
        self._count(feed.spec.category, uncut=feed.cutter.rows, unopened=-1)
        if feed.cutter.rows:
            self._open[feed.spec.id] = feed
            self._fresh.append(feed)
        return feed.cutter.rows

    def next_waiting(self, ahead: int) -> Feed | None:
        """Give the next input to open, if not too many are being opened already."""
        waiting = self._waiting
        while waiting and waiting[0].state is not InputState.WAITING:
            waiting.popleft()
        if not waiting or self.inspecting >= ahead:
            return None
        return waiting[0]

    def inspect(self, feed: Feed, worker: WorkerState) -> None:
        """A worker opens an input."""
        self._move(feed, InputState.INSPECTING)
        feed.inspector = worker
        self.inspecting += 1

    def inspected(self, feed: Feed, worker: int, incarnation: int) -> WorkerState | None:
        """The opening has ended, one way or the other; None if it is not what is waited for."""
        inspector = feed.inspector
        if inspector is None or (inspector.id, inspector.incarnation) != (worker, incarnation):
            return None
        feed.inspector = None
        self.inspecting -= 1
        return inspector

    def wait_again(self, feed: Feed) -> None:
        """An input must be opened once more; it comes first."""
        if feed.state in (InputState.INSPECTING, InputState.DELAYED):
            self._move(feed, InputState.WAITING)
            self._waiting.appendleft(feed)
            self._release(self._orders[feed.spec.category])

    def delay(self, feed: Feed) -> None:
        """An input will be opened again later."""
        self._move(feed, InputState.DELAYED)
        self._release(self._orders[feed.spec.category])

    def fresh(self) -> Feed | None:
        """Give an input that no task was cut from, so that every worker can have its own."""
        fresh = self._fresh
        while fresh and (fresh[0].touched or not fresh[0].cutter.rows):
            fresh.popleft()
        return fresh[0] if fresh else None

    def any(self) -> Feed | None:
        """Give the oldest input with rows to cut."""
        for feed in self._open.values():
            return feed
        return None

    def cut(self, feed: Feed, want: int) -> Rows:
        """Cut rows for a task."""
        rows = feed.cutter.cut(want)
        feed.touched = True
        self._count(feed.spec.category, uncut=rows.start - rows.stop)
        if not feed.cutter.rows:
            del self._open[feed.spec.id]
        return rows

    def give_back(self, rows: Iterable[Rows], *, single: bool = False) -> None:
        """Rows must be cut again; those of an input that was given up fail instead."""
        for part in rows:
            feed = self.feeds[part.input]
            if feed.state is InputState.BAD and feed.failure is not None:
                self._ledger.fail(part, feed.failure)
                continue
            feed.cutter.add(part.start, part.stop, single=single)
            self._count(feed.spec.category, uncut=part.stop - part.start)
            self._open[part.input] = feed

    def give_up(self, feed: Feed, failure: Failure) -> None:
        """No more rows come from an input: what waits has failed."""
        if feed.state is InputState.BAD:
            return
        opened = feed.state is InputState.OPEN
        self._move(feed, InputState.BAD)
        feed.failure = failure
        if opened:
            self._count(feed.spec.category, uncut=-feed.cutter.rows)
            for part in feed.cutter.clear():
                self._ledger.fail(part, failure)
            self._open.pop(feed.spec.id, None)
        else:
            self._count(feed.spec.category, unopened=-1)
            self._ledger.fail_input(feed.spec.id, failure)
            self._release(self._orders[feed.spec.category])

    def expected(self) -> int:
        """Estimate the rows of unopened inputs; nothing under a row limit, which may end it all."""
        if not self._seen or self._limit is not None or self._limits:
            return 0
        return self.unopened * self._seen_rows // self._seen

    def left(self, category: str) -> int:
        """Estimate the rows of a category that nobody was given yet."""
        order = self._orders[category]
        mean = self._seen_rows // self._seen if self._seen else 0
        return order.uncut + (order.unopened * mean if order.left is None else 0)

    def waiting(self) -> dict[str, tuple[int, int]]:
        """Give by category the rows that can be cut now, and the inputs that are not open yet."""
        return {name: (order.uncut, order.unopened) for name, order in self._orders.items()}

    def _count(self, category: str, *, uncut: int = 0, unopened: int = 0) -> None:
        order = self._orders[category]
        order.uncut += uncut
        order.unopened += unopened
        self.uncut += uncut
        self.unopened += unopened

    def _move(self, feed: Feed, state: InputState) -> None:
        feed.state = move(INPUT_MOVES, feed.state, state, "input", feed.spec.id)


def _union(ranges: tuple[tuple[int, int], ...] | None, rows: int) -> list[tuple[int, int]]:
    """Clip ranges to the rows there are, in order, each row once; no ranges are all rows."""
    if ranges is None:
        return [(0, rows)]
    result: list[tuple[int, int]] = []
    reached = 0
    for start, stop in sorted(ranges):
        start, stop = max(start, reached), min(stop, rows)
        if start < stop:
            result.append((start, stop))
            reached = stop
    return result
