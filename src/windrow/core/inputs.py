"""The inputs of a row feeder: which is opened next, which rows are wanted, and how the next task is cut from them.

Inputs are opened when work reaches them, in order, and never more than a few ahead. With a row limit the rows of an
input are released only when all earlier inputs of its category are known. Cuts follow the input's own units: a task is
whole units, at least one, unless the range it comes from begins or ends inside a unit.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from operator import lt
from typing import TYPE_CHECKING

from windrow.core.records import Rows, make_record
from windrow.core.transitions import INPUT_MOVES, InputState, move
from windrow.errors import InternalError

if TYPE_CHECKING:
    from windrow.core.ledger import Ledger
    from windrow.core.records import CostSums, Failure, InputSpec, Life, StepCost


#: In place of the most rows of a task: those of a unit.
UNIT = -1


class Cutter:
    """Ranges of rows waiting to be cut, lowest first; rows given back come first again."""

    __slots__ = ("_borders", "_input", "_pieces", "rows", "split")

    def __init__(self, input_id: int, borders: Sequence[int]) -> None:
        self._input = input_id
        self._borders = borders
        #: (-start, stop, most rows of a task or 0): sorted, so that the lowest range is the last and cheap to pop
        self._pieces: list[tuple[int, int, int]] = []
        self.rows = 0  #: rows waiting
        self.split: set[int] = set()  #: first rows of units that are cut into parts

    def add(self, start: int, stop: int, *, most: int = 0) -> None:
        """Put rows in, of which a task has ``most`` at most: a number, a ``UNIT``, or 0 for any number."""
        if start < stop:
            insort(self._pieces, (-start, stop, most))
            self.rows += stop - start

    def next_unit(self) -> int:
        """Count the rows of the unit that is cut next."""
        key, stop, _ = self._pieces[-1]
        end = self._borders[bisect_right(self._borders, -key)]
        return (end if end < stop else stop) + key

    def most(self) -> int:
        """Say how many rows the next task may have; 0: a unit, or any number."""
        return max(self._pieces[-1][2], 0)

    def is_split(self) -> bool:
        """Say whether the unit that is cut next is cut into parts."""
        return self.is_part(-self._pieces[-1][0])

    def cut(self, want: int, *, parts: bool = False) -> Rows:
        """Cut the next task: ``want`` rows snapped down to whole units, at least one unit, or else a part of one."""
        key, stop, most = self._pieces.pop()
        start = -key
        borders = self._borders
        at = bisect_right(borders, start)
        end = borders[at]
        if borders[at - 1] in self.split or (parts and want < min(end, stop) - start):
            self.split.add(borders[at - 1])
            end = min(end, start + max(want, 1))
        elif most != UNIT and end < (goal := start + (min(want, most) if most else want)):
            end = stop if goal >= stop else borders[bisect_right(borders, goal, at) - 1]
        if end < stop:  # few rows were a guess for all of them: if it is too careful, it holds for a few tasks only
            self._pieces.append((-end, stop, 2 * most if most > 0 else most))
        else:
            end = stop
        self.rows -= end - start
        return make_record(Rows, (self._input, start, end))

    def is_part(self, row: int) -> bool:
        """Say whether a row is of a unit that is cut into parts."""
        return bool(self.split) and self._borders[bisect_right(self._borders, row) - 1] in self.split

    def split_unit(self, row: int) -> None:
        """From now on, cut the unit of a row into parts."""
        self.split.add(self._borders[bisect_right(self._borders, row) - 1])

    def units(self, rows: Rows) -> int:
        borders = self._borders
        return bisect_left(borders, rows.stop) - bisect_right(borders, rows.start) + 1

    def take_out(self, start: int, stop: int) -> list[Rows]:
        """Take out the rows of a range that wait, and give them."""
        taken = []
        for piece in list(self._pieces):
            first, last = max(-piece[0], start), min(piece[1], stop)
            if first < last:
                self._pieces.remove(piece)
                self.rows -= piece[1] + piece[0]
                self.add(-piece[0], first, most=piece[2])
                self.add(last, piece[1], most=piece[2])
                taken.append(Rows(self._input, first, last))
        return taken

    def clear(self) -> list[Rows]:
        pieces = self.waiting()
        self._pieces.clear()
        self.rows = 0
        return pieces

    def waiting(self) -> list[Rows]:
        return [Rows(self._input, -key, stop) for key, stop, _ in reversed(self._pieces)]


#: Rows of an input are taken to be slower than those of others from here on: what tasks take varies by a tenth anyway.
SLOWER = 1.25


class Family:
    """Neighbouring inputs, a subtree of those of their category, whose partials a worker adds up with each other."""

    __slots__ = ("id", "inputs", "life")

    def __init__(self, number: int) -> None:
        self.id = number  #: that of its first input
        self.inputs: list[Input] = []
        self.life: Life | None = None  #: the worker that began with it

    @property
    def more(self) -> bool:
        """Whether rows of it wait to be cut, or are not known yet."""
        return any(one.cutter.rows or one.state not in _OPENED for one in self.inputs)

    def is_for(self, life: Life | None) -> bool:
        return self.life in (None, life) or len(self.inputs) == 1


_OPENED = (InputState.OPEN, InputState.BAD)


class Input:
    """One input as work is cut from it."""

    __slots__ = (
        "bad", "borders", "crashes", "cutter", "failure", "family", "free", "identity", "place", "rows", "running", "spec", "state", "took",
        "touched",
    )  # fmt: skip

    def __init__(self, spec: InputSpec, family: Family, place: int) -> None:
        self.spec = spec
        self.family, self.place = family, place  #: place: among the inputs of its category
        self.state = InputState.WAITING
        self.rows = 0  #: of the whole input; meaningful once it is known
        self.borders: Sequence[int] = (0,)
        self.cutter = Cutter(spec.id, self.borders)
        self.identity = spec.identity  #: what is read must be that; "" where nobody knows
        self.free = False  #: no row limit counts its rows
        self.crashes = 0  #: of workers that merged or sent its partials
        self.touched = False  #: a task was cut from it
        self.took = (0, 0.0)  #: rows that were run, and seconds
        self.running: dict[int, tuple[int, float]] = {}  #: by task that may still run: its rows, and since when
        self.failure: Failure | None = None  #: why it is BAD
        self.bad: dict[tuple[int, int], Failure] = {}  #: rows of units in parts that were given up, and why

    def slower(self, costs: StepCost | CostSums, now: float = 0.0) -> float:
        """Say how many times as long rows take here as on average, where that is more than chance; also of those that run."""
        rows, seconds = self.took
        if not costs.wall:
            return 1.0
        mean = costs.wall / costs.rows_in
        times = seconds / (rows * mean) if rows else 1.0
        for size, since in self.running.values():
            rows, seconds = rows + size, seconds + now - since
        if self.running:
            times = max(times, seconds / (rows * mean))
        return times if times > SLOWER else 1.0

    def failure_of(self, row: int) -> Failure | None:
        """Say why a row was given up before it was done; None: it was not."""
        if self.state is InputState.BAD:
            return self.failure
        return next((why for (start, stop), why in self.bad.items() if start <= row < stop), None)


class _Order:
    """The inputs of one category in order, and how many rows of them are still wanted."""

    __slots__ = ("family", "inputs", "left", "next", "places", "uncut", "unopened")

    def __init__(self, limit: int | None) -> None:
        self.inputs: list[Input] = []
        self.next = 0  #: the first input that was not released yet
        self.left = limit
        self.places = count()  #: of inputs, and
        self.family: Family  #: of the latest
        self.uncut = 0  #: rows that can be cut now
        self.unopened = 0  #: inputs whose rows are not known or not released yet


class Inputs:
    """All inputs of a run."""

    def __init__(
        self, ledger: Ledger, limit: int | None, limits: Mapping[str, int] | None = None, size: int = 1
    ) -> None:
        self.inputs: dict[int, Input] = {}
        self.uncut = 0  #: rows that can be cut now
        self.unopened = 0  #: inputs whose rows are not known or not released yet
        self.opening = 0  #: inputs that tasks open now
        self._ledger = ledger
        self._limit = limit
        self._limits = limits  #: by category; nothing of ``limit`` counts then
        self._size = size  #: of families
        self._orders: dict[str, _Order] = {}
        self._waiting: dict[int, Input] = {}  #: to be opened, in order
        self._fresh: dict[int, Input] = {}  #: released, and nothing was cut from them yet
        self._open: dict[int, Input] = {}  #: with rows to cut; the oldest first
        self._seen = self._seen_rows = 0  #: for the estimate of what unopened inputs hold

    def add(self, specs: Iterable[InputSpec]) -> None:
        """Take inputs in; those with rows and borders need no opening."""
        for spec in specs:
            if spec.id in self.inputs:
                raise InternalError(f"input {spec.id} ({spec.label}) was submitted twice")
            order = self._orders.get(spec.category)
            if order is None:
                limit = self._limit if self._limits is None else self._limits.get(spec.category)
                order = self._orders[spec.category] = _Order(limit)
            place = next(order.places)
            if order.left is not None or place % self._size == 0:  # limited rows are released in order
                order.family = Family(spec.id)
            one = self.inputs[spec.id] = Input(spec, order.family, place)
            order.family.inputs.append(one)
            if spec.limited:
                order.inputs.append(one)
            self._count(spec.category, unopened=1)
            self._ledger.unopened[spec.id] = None
            if spec.rows is not None and spec.borders is not None:
                self.known(one, spec.rows, spec.borders)
            elif spec.limited and order.left == 0 and len(order.inputs) > 1:
                self._release(order)
            else:
                self._waiting[spec.id] = one

    def known(self, one: Input, rows: int, borders: Sequence[int]) -> None:
        """An input's rows and borders are known: release what is wanted of it."""
        ends = (*borders[:1], *borders[-1:])
        if ends != (0, rows) or not (isinstance(borders, range) or all(map(lt, borders, borders[1:]))):
            raise InternalError(
                f"input {one.spec.id} ({one.spec.label}) has {rows} rows, so its unit borders "
                f"must grow from 0 to {rows}; they are {borders[:3]} ... {borders[-1:]}"
            )
        self.opening -= one.state is InputState.OPENING
        self._move(one, InputState.KNOWN)
        one.rows, one.borders = rows, borders
        self._seen += 1
        self._seen_rows += rows
        order = self._orders[one.spec.category]
        if order.left is None or not one.spec.limited:
            self._open_one(one, None)
        else:
            self._release(order)

    def _release(self, order: _Order) -> None:
        """Release inputs of a category in order, as far as they are known or no longer wanted."""
        while order.next < len(order.inputs):
            one = order.inputs[order.next]
            unopened = one.state is InputState.WAITING
            # The first is opened even for no rows: its columns say of what type an empty result is.
            if unopened and order.left == 0 and order.next:
                self._move(one, InputState.KNOWN)  # nobody needs to know how many rows it has
            if one.state is InputState.KNOWN:
                taken = self._open_one(one, order.left)
                if order.left is not None and not one.free:
                    order.left -= taken
            elif one.state is not InputState.BAD:
                return
            order.next += 1

    def _open_one(self, one: Input, limit: int | None) -> int:
        """Let rows be cut from an input; return how many."""
        self._move(one, InputState.OPEN)
        one.cutter = Cutter(one.spec.id, one.borders)
        wanted = []
        for start, stop in union_of(one.spec.ranges, one.rows):
            if limit is not None:
                stop = min(stop, start + limit)
                limit -= stop - start
            if start < stop:
                wanted.append((start, stop))
                one.cutter.add(start, stop)
        self._ledger.expect(one.spec.id, wanted)
        self._count(one.spec.category, uncut=one.cutter.rows, unopened=-1)
        if one.cutter.rows:
            self._open[one.spec.id] = one
            self._fresh[one.spec.id] = one
        return one.cutter.rows

    def next_waiting(self, ahead: int, life: Life | None = None) -> Input | None:
        """Give the next input to open, if not too many are being opened already; best of no other worker's family."""
        waiting = self._waiting
        while waiting and self._is_beyond(first := next(iter(waiting.values()))):
            del waiting[first.spec.id]
        if not waiting or self.opening >= ahead:
            return None
        mine = (one for one in waiting.values() if one.family.is_for(life) and not self._is_beyond(one))
        return next(mine, first)

    def _is_beyond(self, one: Input) -> bool:
        """Whether the row limit is reached before an input; the first is opened even for no rows."""
        order = self._orders[one.spec.category]
        return one.spec.limited and order.left == 0 and one is not order.inputs[0]

    def begin_opening(self, one: Input) -> None:
        self._move(one, InputState.OPENING)
        self.opening += 1

    def wait_again(self, one: Input) -> None:
        """An input must be opened once more; it comes first."""
        self.opening -= 1
        self._move(one, InputState.WAITING)
        self._waiting = {one.spec.id: one, **self._waiting}
        self._release(self._orders[one.spec.category])

    def fresh(self, life: Life | None = None) -> Input | None:
        """Give an input that no task was cut from, so that every worker can have its own, or its own family."""
        return next((one for one in self._fresh.values() if one.family.is_for(life) and one.cutter.rows), None)

    def any(self) -> Input | None:
        for one in self._open.values():
            return one
        return None

    def cut(self, one: Input, want: int, *, parts: bool = False) -> Rows:
        cutter = one.cutter
        rows = cutter.cut(want, parts=parts)
        if not one.touched:
            one.touched = True
            self._fresh.pop(one.spec.id, None)
        count = rows.stop - rows.start
        self._orders[one.spec.category].uncut -= count
        self.uncut -= count
        if not cutter.rows:
            del self._open[one.spec.id]
        return rows

    def give_back(self, rows: Iterable[Rows], *, most: int = 0) -> None:
        """Rows must be cut again; those of an input or a unit that was given up fail instead."""
        for part in rows:
            one = self.inputs[part.input]
            failure = one.failure_of(part.start)
            if failure is not None:
                self._ledger.fail(part, failure)
                continue
            one.cutter.add(part.start, part.stop, most=most)
            self._count(one.spec.category, uncut=part.stop - part.start)
            self._open[part.input] = one

    def give_up_unit(self, one: Input, start: int, stop: int, failure: Failure) -> None:
        """Rows of a unit fail that wait to be cut, and from now on those of it that are given back."""
        one.bad.setdefault((start, stop), failure)
        waiting = one.cutter.take_out(start, stop)
        self._count(one.spec.category, uncut=-sum(part.stop - part.start for part in waiting))
        if not one.cutter.rows:
            self._open.pop(one.spec.id, None)
        self.give_back(waiting)

    def give_up(self, one: Input, failure: Failure) -> None:
        if one.state is InputState.BAD:
            return
        opened = one.state is InputState.OPEN
        self.opening -= not opened
        self._move(one, InputState.BAD)
        self._fresh.pop(one.spec.id, None)
        one.failure = failure
        if opened:
            self._count(one.spec.category, uncut=-one.cutter.rows)
            for part in one.cutter.clear():
                self._ledger.fail(part, failure)
            self._open.pop(one.spec.id, None)
        else:
            self._count(one.spec.category, unopened=-1)
            self._ledger.fail_input(one.spec.id, failure)
            self._release(self._orders[one.spec.category])

    def expected(self) -> int:
        """Estimate the rows of unopened inputs; nothing under a row limit, which may end it all."""
        if not self.unopened or not self._seen or self._limit is not None or self._limits:
            return 0
        return self.unopened * self._seen_rows // self._seen

    def left(self, category: str) -> int:
        order = self._orders[category]
        mean = self._seen_rows // self._seen if self._seen else 0
        return order.uncut + (order.unopened * mean if order.left is None else 0)

    def _count(self, category: str, *, uncut: int = 0, unopened: int = 0) -> None:
        order = self._orders[category]
        order.uncut += uncut
        order.unopened += unopened
        self.uncut += uncut
        self.unopened += unopened

    def _move(self, one: Input, state: InputState) -> None:
        one.state = move(INPUT_MOVES, one.state, state, "input", one.spec.id)
        if state is not InputState.WAITING:
            self._waiting.pop(one.spec.id, None)


def union_of(ranges: tuple[tuple[int, int], ...] | None, rows: int) -> list[tuple[int, int]]:
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
