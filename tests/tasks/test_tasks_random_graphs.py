"""Random graphs of tasks give what the plain sequential program gives, on every engine."""

from __future__ import annotations

import concurrent.futures
import contextlib
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import example, given, settings

import windrow as wr
from searching import examples
from tasks.random_programs import (
    BAD,
    CHANGES,
    FIRST,
    OUTPUTS,
    TASKS,
    Op,
    Program,
    Tally,
    combine,
    new_things,
    packed_in,
    plainly,
    programs,
)
from windrow.errors import DependencyError

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Seconds after which a value counts as never coming.
NEVER_S = 60
RESOURCES = {"licence": 2}


class CalledOff:
    """Stands for what was cancelled, or needs what was."""


CALLED_OFF = CalledOff()


class Played:
    """A program on its way through a session."""

    def __init__(self, session: wr.Session, place: Path) -> None:
        self.session = session
        self.place = place  #: for tasks that write down how often they ran
        self.values: list[Any] = list(FIRST)
        self.things = new_things()
        self.groups = [session.group(f"g{number}") for number in range(3)]
        self.forgotten: set[int] = set()  #: variables
        self.makers: list[int] = [-1] * len(FIRST)  #: by variable, the step that makes it
        self.changers: dict[int, int] = {}  #: by thing, the step that changed it last
        self.needs: dict[int, set[int]] = {}  #: by step, those it reads from
        self.called_off: set[int] = set()  #: steps

    def play(self, program: Program) -> None:
        for step, op in enumerate(program.ops):
            if op.kind in TASKS or op.kind == "look":
                self.call(op, step)
            else:
                getattr(self, f"_{op.kind}")(op, program)

    def call(self, op: Op, step: int) -> None:
        with self.groups[op.group] if op.group else contextlib.nullcontext():
            made = self.made(op, step)
        self.values += made
        self.makers += [step] * len(made)
        self.needs[step] = {self.makers[one] for one in op.reads}
        if op.kind == "look" or op.kind in CHANGES:
            self.needs[step] |= {self.changers[one] for one in op.things if one in self.changers}
        if op.kind in CHANGES:
            self.changers[op.things[0]] = step

    def made(self, op: Op, step: int) -> list[Any]:
        got = [self.values[one] for one in op.reads]
        first = got[0]
        task = TASKS["combine" if op.kind == "look" else op.kind].options(**op.options)
        submit = self.session.submit
        if op.kind == "combine":
            return [submit(task, packed_in(op.way, got), scale=len(got), more=got[-1:])]
        if op.kind == "look":
            seen = [self.things[one] for one in op.things]
            return [submit(task, values=packed_in(op.way, seen), more={"m": got})]
        if op.kind == "array":
            return [submit(task, first, size=op.size)]
        if op.kind in CHANGES:
            thing = self.things[op.things[0]]
            by_name = op.way % 2
            return [submit(task, value=first, thing=thing) if by_name else submit(task, thing, first)]  # fmt: skip
        if op.kind == "counted":
            return [read_to_the_end(submit(task, first, op.until))]
        if op.kind == "parts":
            return list(submit(task, first, op.until))
        if op.kind in ("not_yet", "parts_not_yet"):
            found = submit(task, first, str(self.place / str(step)), failures=op.failures)
            return [found] if op.kind == "not_yet" else list(found)
        found = submit(task, first)
        return list(found) if op.kind in OUTPUTS else [found]

    # -- what is no call

    def _ask(self, op: Op, program: Program) -> None:
        value_of(self.values[op.reads[0]])

    def _forget(self, op: Op, program: Program) -> None:
        if op.reads[0] >= len(FIRST):
            self.values[op.reads[0]] = None
            self.forgotten.add(op.reads[0])

    def _barrier(self, op: Op, program: Program) -> None:
        (self.groups[op.group] if op.group else self.session).barrier(NEVER_S)

    def _cancel(self, op: Op, program: Program) -> None:
        future = self.values[op.reads[0]]
        if isinstance(future, wr.Future) and future.cancel():
            self.called_off.add(self.makers[op.reads[0]])

    def _cancel_group(self, op: Op, program: Program) -> None:
        group = op.group or 1
        self.groups[group].cancel()
        self.called_off |= {step for step in self.needs if program.ops[step].group == group}

    # -- what came of it

    def uncertain(self) -> set[int]:
        """Steps that were called off, or read from such: they may have run before that, or not."""
        found = set(self.called_off)
        for step in sorted(self.needs):  # a step reads from earlier ones
            if self.needs[step] & found:
                found.add(step)
        return found

    def check(self, values: list[Any], things: list[Any]) -> None:
        uncertain = self.uncertain()
        for place, expected in enumerate(values):
            if place not in self.forgotten:
                found = value_of(self.values[place])
                same(found, expected, may_be_off=self.makers[place] in uncertain)
        for place, expected in enumerate(things):
            found = value_of(self.session.latest(self.things[place]))
            same(found, expected, may_be_off=self.changers.get(place, -1) in uncertain)


def read_to_the_end(stream: Any) -> Any:
    """The length of a stream is known when it is read; one that failed stands for itself."""
    try:
        return combine([one.result(NEVER_S) for one in stream])
    except (ValueError, DependencyError, concurrent.futures.CancelledError):
        return stream._end


def value_of(thing: Any) -> Any:
    if not isinstance(thing, wr.Future):
        return thing
    try:
        return thing.result(NEVER_S)
    except TimeoutError:
        raise AssertionError(f"{thing!r} never came") from None
    except (ValueError, OSError, DependencyError, concurrent.futures.CancelledError) as error:
        return standing_for(error)


def standing_for(error: BaseException) -> Any:
    if isinstance(error, concurrent.futures.CancelledError) or "which was cancelled" in str(error):
        return CALLED_OFF
    return BAD


def same(found: Any, expected: Any, *, may_be_off: bool) -> None:
    if found is CALLED_OFF:
        assert may_be_off, "it was not called off"
        return
    assert type(found) is type(expected), (found, expected)
    if isinstance(expected, np.ndarray):
        np.testing.assert_array_equal(found, expected)
    elif isinstance(expected, Tally):
        assert found.seen == expected.seen
    elif expected is not BAD:
        assert found == expected


def play(session: wr.Session, program: Program) -> None:
    with tempfile.TemporaryDirectory() as place:
        played = Played(session, Path(place))
        try:
            played.play(program)
            played.check(*plainly(program))
        finally:
            session.barrier(60)  # tasks that nobody asks for write there too


def play_alone(engine: str, program: Program) -> None:
    """In a session of its own, which does not mind failures that nobody looks at."""
    session = wr.Session(engine=engine, workers=2, resources=RESOURCES)
    try:
        play(session, program)
    finally:
        session.close()


@pytest.fixture(scope="module", params=["processes", "auto"])
def processes(request: pytest.FixtureRequest) -> Iterator[wr.Session]:
    """One session for many programs: starting workers is what takes time. It is nobody's current one."""
    session = wr.Session(engine=request.param, workers=2, resources=RESOURCES)
    yield session
    session.close()


#: Outputs of one task that end in different ways, read by others; found to be worth trying every time.
MIXED = Program(
    [
        Op("parts", [0], until=1, options={"on_failure": "ignore"}),
        Op("combine", [2, 3, 4], options={"on_failure": None}),
        Op("parts", [1], until=2, options={"on_failure": None}),
        Op("combine", [6, 7], options={"on_failure": None}),
        Op("combine", [8], options={"on_failure": None}),
        Op("change_and_fail", [0], [2], options={"on_failure": "ignore"}),
        Op("change", [1], [2], options={"on_failure": None}),
        Op("look", [0], [2, 2], way=3, options={"on_failure": None}),
    ]
)


@pytest.mark.parametrize("engine", ["inline", "threads"])
@settings(max_examples=examples(25))
@given(program=programs())
@example(program=MIXED)
def test_graphs_give_what_the_program_gives(engine: str, program: Program) -> None:
    play_alone(engine, program)


@settings(max_examples=examples(25))
@given(program=programs())
@example(program=MIXED)
def test_graphs_give_the_same_in_processes(processes: wr.Session, program: Program) -> None:
    play(processes, program)


@pytest.mark.parametrize("engine", ["inline", "threads"])
@settings(max_examples=examples(25))
@given(program=programs(cancels=True))
def test_what_is_called_off_is_right_or_gone(engine: str, program: Program) -> None:
    play_alone(engine, program)


@settings(max_examples=examples(25))
@given(program=programs(cancels=True))
def test_what_is_called_off_in_processes_is_right_or_gone(processes: wr.Session, program: Program) -> None:
    play(processes, program)


def test_the_comparison_is_not_blind() -> None:
    values, things = plainly(MIXED)
    assert values[2:5] == [3, None, None]
    assert values[8] is BAD
    with wr.Session(engine="inline", resources=RESOURCES) as session:
        played = Played(session, Path())
        played.play(MIXED)
        played.check(values, things)
        for place in range(2, len(values)):
            wrong = [*values]
            wrong[place] = 12_345 if values[place] is BAD else BAD
            with pytest.raises(AssertionError):
                played.check(wrong, things)
        with pytest.raises(AssertionError):
            played.check(values, [things[0], things[1], things[2] + 1, things[3]])
