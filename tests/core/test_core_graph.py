"""The graph alone: readiness per output, lineage, failure, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from windrow.core.checking import check
from windrow.core.graph import Graph
from windrow.core.nodes import Node, Output
from windrow.core.patience import end_orphans, orphans
from windrow.core.records import Failure, FailureKind, Handle, Rows, Task
from windrow.core.transitions import TASK_MOVES, TaskState
from windrow.errors import InternalError, UsageError

BROKEN = Failure(FailureKind.USER, "ValueError", "it broke")


class Recorder:
    """Hands that only remember."""

    def __init__(self) -> None:
        self.queue: dict[int, Node] = {}
        self.stopped: list[int] = []
        self.dropped: list[tuple[str, int]] = []
        self.ends: list[tuple[int, str]] = []

    def ready(self, node: Node) -> None:
        assert node.id not in self.queue
        self.queue[node.id] = node

    def unready(self, node: Node) -> None:
        del self.queue[node.id]

    def call_off(self, node: Node) -> None:
        self.stopped.append(node.id)

    def made(self, output: Output) -> None:
        assert output.handle is not None

    def drop(self, output: Output) -> None:
        assert output.handle is not None
        self.dropped.append((output.name, output.handle.id))

    def ended(self, node: Node) -> bool:
        self.ends.append((node.id, node.state.name))
        return False

    def failed_output(self, output: Output, failure: Failure) -> None:
        raise AssertionError(output, failure)


def task(number: int, reads: str = "", makes: str = "", **more: Any) -> Task:
    """Make a task; ``reads`` and ``makes`` are names of one letter each."""
    return Task(number, "t", (), 1, reads=tuple(reads), outputs=tuple(makes), **more)


class World:
    """A graph, and attempts that are numbered as they finish."""

    def __init__(self, *tasks: Task) -> None:
        self.hands = Recorder()
        self.graph = Graph(self.hands)
        self.attempts = 0
        self.submit(*tasks)

    def submit(self, *tasks: Task) -> None:
        check(self.graph, tasks)
        self.graph.add(tasks)

    def handle(self, output: str = "") -> Handle:
        self.attempts += 1
        return Handle(self.attempts, self.attempts, 0, 0, (), 0, output)

    @property
    def ready(self) -> list[int]:
        return sorted(self.hands.queue)

    def start(self, number: int) -> Node:
        node = self.hands.queue.pop(number)
        node.move(TaskState.RUNNING)
        return node

    def run(self, *numbers: int) -> None:
        for number in numbers:
            self.graph.finish(self.start(number), self.handle(), ())

    def early(self, number: int, output: str) -> bool:
        assert self.graph.nodes[number].state is TaskState.RUNNING
        return self.graph.make(self.graph.outputs[output], self.handle(output))

    def lose(self, output: str) -> None:
        self.graph.lose(self.graph.outputs[output])

    def release(self, *names: str) -> None:
        for name in names:
            output = self.graph.outputs[name]
            output.claimed = False
            self.graph.tidy(output)

    def state(self, number: int) -> str:
        return self.graph.nodes[number].state.name

    def message(self, number: int) -> str:
        failure = self.graph.nodes[number].failure
        assert failure is not None
        return failure.message


# -- readiness


def test_a_task_is_ready_when_all_it_reads_exists() -> None:
    world = World(task(1, "", "a"), task(2, "", "b"), task(3, "ab", "c"))
    assert world.ready == [1, 2]
    world.run(1)
    assert world.ready == [2]
    world.run(2)
    assert world.ready == [3]


def test_readers_of_one_output_do_not_wait_for_the_others() -> None:
    world = World(task(1, "", "ab"), task(2, "a"), task(3, "b"), task(4, "aa"))
    node = world.start(1)
    assert world.early(1, "a")
    assert world.ready == [2, 4]
    world.graph.finish(node, world.handle(), {"a"})
    assert world.ready == [2, 3, 4]


def test_tasks_may_come_before_those_they_read_from_and_long_after() -> None:
    world = World(task(1, "a"))
    assert (world.ready, [one.name for one in orphans(world.graph)]) == ([], ["a"])
    world.submit(task(2, "", "a"))
    world.run(2)
    world.submit(task(3, "a"))
    assert world.ready == [1, 3]
    assert orphans(world.graph) == []


def test_what_nobody_makes_is_named_at_the_end() -> None:
    world = World(task(1, "", "a"), Task(2, "t", (), 1, reads=("alph",), outputs=("x",)), task(3, "x"))
    world.submit(Task(4, "t", (), 1, outputs=("alpha",)))
    (failure,) = end_orphans(world.graph)
    assert "task 2 reads 'alph', which no task makes; did you mean 'alpha'?" in failure.message
    assert world.hands.ends == [(2, "FAILED"), (3, "FAILED")]
    assert "task 3 did not run because task 2 failed" in world.message(3)


def test_a_stream_makes_what_it_had_not_announced() -> None:
    world = World(task(1), task(2, "s"))
    node = world.start(1)
    assert world.graph.make(world.graph.adopt(node, "s"), world.handle("s"))
    assert world.ready == [2]
    with pytest.raises(InternalError, match=r"task 2 made 's', which task 1 makes"):
        world.graph.adopt(world.graph.nodes[2], "s")


# -- refusals


@pytest.mark.parametrize(
    ("before", "batch", "links"),
    [
        ([], [task(1, "a", "a")], "task 1 reads 'a', and task 1"),
        ([], [task(1, "b", "a"), task(2, "a", "b")], "task 1 reads 'b', task 2 reads 'a', and"),
        ([], [task(9, "a"), task(1, "b", "a"), task(2, "ca", "b"), task(3, "", "c")],
         "task 1 reads 'b', task 2 reads 'a', and task 1"),
        ([task(1, "b", "a"), task(7, "", "x")], [task(2, "xa", "b")],
         "task 2 reads 'a', task 1 reads 'b', and task 2"),
    ],
)  # fmt: skip
def test_a_circle_is_refused_with_its_names(before: list[Task], batch: list[Task], links: str) -> None:
    world = World(*before)
    with pytest.raises(UsageError, match="in a circle") as caught:
        world.submit(*batch)
    assert links in str(caught.value)
    assert sorted(world.graph.nodes) == sorted(one.id for one in before)


def test_a_diamond_is_no_circle() -> None:
    world = World(task(1, "", "a"), task(2, "a", "b"), task(3, "a", "c"), task(4, "bca"))
    world.run(1, 2, 3)
    assert world.ready == [4]


@pytest.mark.parametrize(
    ("batch", "words"),
    [
        ([task(1)], "task 1 was submitted twice"),
        ([task(2), task(2)], "task 2 was submitted twice"),
        ([task(2, "", "b"), task(3, "", "b")], "output 'b', but task 2 makes that too"),
        ([task(2, "", "a")], "output 'a', but task 1 makes that too"),
        ([Task(2, "t", (), 1)], "output '', but it needs a name"),
        ([task(2)._replace(inputs=(Rows(0, 0, 3),))], "has rows"),
    ],
)
def test_tasks_that_cannot_belong_are_refused_whole(batch: list[Task], words: str) -> None:
    world = World(task(1, "", "a"))
    with pytest.raises(UsageError, match=words):
        world.submit(task(8, "", "z"), *batch)
    assert list(world.graph.nodes) == [1]
    assert "z" not in world.graph.outputs


# -- how long outputs live


def test_an_output_goes_when_the_last_reader_ended_and_the_user_let_go() -> None:
    world = World(task(1, "", "a"), task(2, "a"), task(3, "a"))
    world.run(1, 2)
    world.release("a")
    assert world.hands.dropped == []
    world.run(3)
    assert world.hands.dropped == [("a", 1)]


def test_what_nobody_wants_is_dropped_as_soon_as_it_is_made() -> None:
    world = World(task(1, "", "ab"))
    world.release("a")
    world.run(1)
    assert world.hands.dropped == [("a", 1)]


# -- lineage


def test_a_lost_output_is_made_again_with_all_that_is_gone_before_it() -> None:
    world = World(task(1, "", "a"), task(2, "a", "b"), task(3, "b", "c"))
    world.run(1, 2)
    world.release("a", "b")
    assert world.hands.dropped == [("a", 1)]
    world.lose("b")
    assert (world.ready, world.state(2), world.state(3)) == ([1], "WAITING", "WAITING")
    world.run(1, 2, 3)
    assert world.hands.ends == [(1, "DONE"), (2, "DONE"), (1, "DONE"), (2, "DONE"), (3, "DONE")]
    assert world.hands.dropped[-2:] == [("a", 3), ("b", 4)]


def test_only_what_is_needed_is_made_again() -> None:
    world = World(task(1, "", "ab"), task(2, "a"))
    world.run(1, 2)
    world.release("a")
    world.lose("b")
    assert world.ready == [1]
    world.run(1)  # makes both again, and only b counts
    assert world.hands.dropped[-1][0] == "a"
    assert world.ready == []
    world.release("b")
    world.submit(task(3, "b"))
    assert world.ready == [1]  # b was dropped; a new reader brings it back


def test_an_early_output_lost_before_its_maker_ends_is_made_again_after() -> None:
    world = World(task(1, "", "ab"), task(2, "a"))
    node = world.start(1)
    world.early(1, "a")
    world.lose("a")
    assert world.state(2) == "WAITING"
    world.graph.finish(node, world.handle(), {"a"})
    assert world.ready == [1]
    world.run(1)
    assert world.ready == [2]


def test_a_reader_that_runs_on_may_still_finish() -> None:
    world = World(task(1, "", "a"), task(2, "a", "b"))
    world.run(1)
    node = world.start(2)
    world.lose("a")
    assert world.ready == [1]
    world.graph.finish(node, world.handle(), ())
    assert world.state(2) == "DONE"


def test_a_reader_that_came_to_nothing_waits_for_what_was_lost_meanwhile() -> None:
    world = World(task(1, "", "a"), task(2, "a", "b"))
    world.run(1)
    node = world.start(2)
    world.lose("a")
    world.graph.back(node)
    assert (world.ready, world.state(2)) == ([1], "WAITING")
    world.run(1, 2)


# -- failure


def test_dependents_fail_with_the_root_and_others_go_on() -> None:
    world = World(task(1, "", "a"), task(2, "a", "b"), task(3, "b"), task(4, "", "d"), task(5, "bd"))
    world.graph.end(world.start(1), TaskState.FAILED, BROKEN)
    assert [end for end in world.hands.ends if end[1] == "FAILED"] == world.hands.ends
    assert {number for number, _ in world.hands.ends} == {1, 2, 3, 5}
    assert world.message(3) == "task 3 did not run because task 1 failed: it broke"
    assert world.ready == [4]
    world.submit(task(6, "b"))
    assert world.message(6) == "task 6 did not run because task 1 failed: it broke"


def test_readers_of_what_a_failed_task_released_go_on() -> None:
    world = World(task(1, "", "ab"), task(2, "a"), task(3, "b"))
    node = world.start(1)
    world.early(1, "a")
    world.graph.end(node, TaskState.FAILED, BROKEN)
    assert (world.ready, world.state(3)) == ([2], "FAILED")
    world.lose("a")
    assert world.state(2) == "FAILED"


def test_dependents_of_a_cancelled_task_are_cancelled() -> None:
    world = World(task(1, "", "a"), task(2, "a"))
    world.graph.end(world.graph.nodes[1], TaskState.CANCELLED, BROKEN)
    assert world.hands.ends == [(1, "CANCELLED"), (2, "CANCELLED")]
    assert world.message(2) == "task 2 did not run because task 1 was cancelled: it broke"


# -- released outputs are final, or their readers are redone


def test_a_restarted_task_leaves_what_it_released() -> None:
    world = World(task(1, "", "ab"), task(2, "a"))
    node = world.start(1)
    world.early(1, "a")
    world.run(2)
    world.graph.back(node)
    world.start(1)
    assert not world.early(1, "a")
    assert world.hands.ends == [(2, "DONE")]
    assert world.hands.stopped == []


def test_readers_of_a_task_that_cannot_be_restarted_are_redone() -> None:
    world = World(task(1, "", "ab", restartable=False), task(2, "a", "c"), task(3, "c", "d"), task(4, "a"))
    node = world.start(1)
    world.early(1, "a")
    world.run(2)
    world.release("c")
    world.run(3)
    world.start(4)
    world.graph.back(node)
    assert world.hands.stopped == [4]
    assert sorted(world.hands.dropped) == [("a", 1), ("c", 2), ("d", 3)]
    assert world.ready == [1]
    assert [world.state(number) for number in (2, 3, 4)] == ["WAITING"] * 3
    world.run(1, 2, 3, 4)
    assert world.graph.open == {}


def test_chains_longer_than_the_stack() -> None:
    count = 5000
    tasks = [Task(n, "t", (), 1, reads=(f"o{n - 1}",) if n else (), outputs=(f"o{n}",)) for n in range(count)]
    world = World(*tasks)
    world.run(*range(count - 1))
    for n in range(count - 1):
        world.release(f"o{n}")
    world.lose(f"o{count - 2}")
    assert world.ready == [0]
    world.graph.end(world.graph.nodes[0], TaskState.FAILED, BROKEN)
    assert world.state(count - 1) == "FAILED"
    with pytest.raises(UsageError, match="circle"):
        World(*tasks[1:], Task(0, "t", (), 1, reads=(f"o{count - 1}",), outputs=("o0",)))


def test_the_table_of_moves_is_complete() -> None:
    assert set(TASK_MOVES) == set(TaskState)
    reached = {state for moves in TASK_MOVES.values() for state in moves}
    assert reached == set(TaskState)
    node = Node(task(1), 0)
    with pytest.raises(InternalError, match="task 1 cannot go from WAITING to DONE"):
        node.move(TaskState.DONE)
