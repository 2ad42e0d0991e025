"""Tasks that read each other's outputs: who waits for what, and what must be made again.

Dependencies are per output: a task is ready when every output it reads exists, and every task it
must come ``after`` (which may overwrite what that one reads) has ended once. An output lives as
long as a task that has not ended reads it, or the user may ask for it; when it is lost before, the
task that made it runs again, and so do the makers of what that one reads, as far as those are gone.
The graph decides this and nothing else; what follows for workers is done by its hands.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from windrow.core.nodes import ENDS, Node, Output
from windrow.core.records import Failure, FailureKind, named
from windrow.core.transitions import TaskState
from windrow.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

    from windrow.core.records import Handle, Task

__all__ = ["Graph", "Hands"]


class Hands(Protocol):
    """What the graph has done for it."""

    def ready(self, node: Node) -> None:
        """A task can run."""

    def unready(self, node: Node) -> None:
        """A task that was ready, or waited for copies, cannot run, or need not."""

    def call_off(self, node: Node) -> None:
        """The attempt of a task is not wanted any more."""

    def made(self, output: Output) -> None:
        """An output exists, with its handle."""

    def drop(self, output: Output) -> None:
        """Nobody needs the output's handle any more."""

    def ended(self, node: Node) -> bool:
        """A task has ended; True if it may yet be done again, so that nothing may follow it."""

    def failed_output(self, output: Output, failure: Failure) -> None:
        """Nobody will make an output that its task had not announced."""


class Graph:
    """All tasks and outputs of a run."""

    def __init__(self, hands: Hands) -> None:
        self.nodes: dict[int, Node] = {}
        self.outputs: dict[str, Output] = {}
        self.open: dict[int, Node] = {}  #: tasks that have not ended
        self.submitted = 0  #: so far; those that nobody can need any more are not in ``nodes``
        self.largest = 0  #: number of a task
        self.frozen = False  #: the run ends: nothing is made again
        self.held: Container[int] = ()  #: tasks that are done, and may be done again
        #: by name: outputs of streams that an attempt made once, and the one that counts did not
        self.lacking: dict[str, Failure] = {}
        self._hands = hands
        self._agenda: deque[tuple[Callable[[Any], None], Any]] = deque()

    # -- submission

    def add(self, tasks: Sequence[Task]) -> None:
        """Take tasks in that were checked (``checking``)."""
        nodes = []
        for task in tasks:
            node = self.nodes[task.id] = Node(task, self.submitted)
            self.submitted += 1
            for name in task.outputs:
                output = self.outputs.get(name)
                if output is None:
                    output = self.outputs[name] = Output(name)
                node.outputs[name] = output
                output.maker = node
            nodes.append(node)
        for node in nodes:
            task = node.task
            if node.id > self.largest:
                self.largest = node.id
            if not (task.reads or task.after):  # by far the most
                self.open[node.id] = node
                self._ready(node)
                continue
            if task.reads:
                node.reads = {}
            for name in task.reads:
                node.reads[name] = output = self.output(name)
                if not output.consumers:
                    output.consumers = {}
                output.consumers[node.id] = node
                maker = output.maker
                # Of one that comes later it is not known yet what it reads.
                known = maker is not None and maker.number < node.number
                if not known or maker.fragile or not maker.task.restartable:  # type: ignore[union-attr]
                    node.fragile = True
            for number in task.after:
                former = self.open.get(number)
                if former is None and number in self.held:
                    former = self.nodes[number]
                if former is not None:
                    if not node.unended:
                        node.unended = {}
                    node.unended[number] = former
                    former.followers = former.followers or []
                    former.followers.append(node)
            self._enter(node)
        self._work_off()

    def output(self, name: str) -> Output:
        """Find an output, or make a place for one that will be made."""
        output = self.outputs.get(name)
        if output is None:
            output = self.outputs[name] = Output(name)
        return output

    def adopt(self, node: Node, name: str) -> Output:
        """A task has made something that it had not announced, as streams do."""
        output = self.output(name)
        if output.maker is not None:
            raise InternalError(f"task {node.id} made {name!r}, which task {output.maker.id} makes")
        output.maker = node
        node.outputs[name] = output
        return output

    # -- what becomes of tasks

    def finish(self, node: Node, handle: Handle, reported: Container[str]) -> None:
        """An attempt is done: its handle covers every output that it did not report before."""
        node.move(TaskState.DONE)
        node.errors = node.io_errors = node.crashes = node.losses = 0
        self._leave(node)
        announced = node.task.outputs
        for name, output in node.outputs.items():
            if name not in reported:
                if output.handle is None:
                    if name in announced:
                        self.make(output, named(handle, name))
                    elif output.needed:
                        self._lack(node, output)
            elif output.handle is None and output.needed:
                self._ask(output)  # it was lost or dropped since
        self._work_off()

    def back(self, node: Node, *, delayed: bool = False) -> None:
        """An attempt came to nothing: the task runs again, at once or when it is ``due``."""
        node.move(TaskState.DELAYED if delayed else TaskState.WAITING)
        self._begin_anew(node, force=False)
        if not delayed:
            self._await(node)
        self._work_off()

    def due(self, node: Node) -> None:
        """A delayed task need not wait any longer."""
        node.move(TaskState.WAITING)
        self._await(node)
        self._work_off()

    def later(self, step: Callable[[Any], None], what: object) -> None:
        """Do something when all that follows from what is being done is done."""
        self._agenda.append((step, what))

    def end(self, node: Node, state: TaskState, failure: Failure) -> None:
        """Give a task up, and all that cannot be without it."""
        self._give_up(node, state, failure)
        self._work_off()

    def _give_up(self, node: Node, state: TaskState, failure: Failure) -> None:
        if node.state is TaskState.RUNNING:
            self._hands.call_off(node)
        elif node.state in (TaskState.READY, TaskState.FETCHING):
            self._hands.unready(node)
        node.move(state)
        node.failure = failure
        node.pending.clear()
        self._leave(node)
        for output in node.outputs.values():
            if not node.task.restartable:
                self._withdraw(output)
            if output.handle is None:
                self._agenda.append((self._bereave, output))

    def _bereave(self, output: Output) -> None:
        """Nobody will make an output: its readers end too; one that runs may have it, unless it was launched ahead."""
        maker = output.maker
        if output.handle is not None or maker is None:
            return
        if maker.failure is None:
            if output.name in self.lacking:
                self._end_without(output, self.lacking[output.name])
            return
        root = maker.root or maker
        why = maker.failure if maker.root is None else root.failure or maker.failure
        verb = "failed" if maker.state is TaskState.FAILED else "was cancelled"
        if output.name not in maker.task.outputs:
            self._hands.failed_output(output, why)
        for reader in list(output.readers.values()):
            if reader.id in self.open and (reader.state is not TaskState.RUNNING or reader.ahead):
                reader.root = root
                message = f"task {reader.id} did not run because task {root.id} {verb}: {why.message}"
                failure = Failure(FailureKind.USER, why.type, message, why.place, why.exception, since=maker.id)  # fmt: skip
                self._give_up(reader, maker.state, failure)

    def _lack(self, node: Node, output: Output) -> None:
        """A stream was made again, and has fewer outputs than somebody knows of."""
        message = f"task {node.id} was done again and did not make {output.name!r}, as it had the first time"
        self.lacking[output.name] = Failure(FailureKind.USER, "TaskError", message)
        self._agenda.append((self._bereave, output))

    def _end_without(self, output: Output, failure: Failure) -> None:
        self._hands.failed_output(output, failure)
        for reader in list(output.readers.values()):
            if reader.id in self.open and reader.state is not TaskState.RUNNING:
                self._give_up(reader, TaskState.FAILED, failure)

    # -- what becomes of outputs

    def make(self, output: Output, handle: Handle) -> bool:
        """An output exists; False if it did already: what was released first is final."""
        if output.handle is not None:
            return False
        output.handle, output.kept, output.made = handle, True, True
        if self.lacking:
            self.lacking.pop(output.name, None)
        self._hands.made(output)
        if output.readers:
            for reader in output.readers.values():
                reader.missing -= 1
                if not reader.missing:
                    reader.ahead = False
                    if reader.state is TaskState.WAITING:
                        self._ready(reader)
        elif not output.claimed:
            self.tidy(output)
        return True

    def lose(self, output: Output) -> None:
        """No copy of an output is left: make it again if somebody needs it."""
        self._unmake(output)
        if output.needed:
            self._ask(output)
        self._work_off()

    def want(self, output: Output) -> None:
        """The user waits for an output: it is made again if it was dropped."""
        output.asked = output.claimed = True
        if output.handle is None:
            self._ask(output)
        self._work_off()

    def tidy(self, output: Output) -> None:
        """Drop an output that nobody needs."""
        if output.handle is not None and not (output.claimed or output.readers):
            self._hands.drop(output)
            self._unmake(output)

    def fetched(self, output: Output) -> None:
        """A copy is here: tasks that waited for it can run anywhere."""
        output.here, output.fetching = True, False
        for reader in list(output.readers.values()):
            if reader.pending.pop(output.name, None) is not None and not reader.pending:
                self._ready(reader)

    def fail_fetch(self, output: Output, failure: Failure) -> None:
        """An output is of no use but where it was made: its maker has failed."""
        node = output.maker
        self._unmake(output)
        if node is not None:
            if node.state in (TaskState.FAILED, TaskState.CANCELLED):
                self._agenda.append((self._bereave, output))
            else:
                self._give_up(node, TaskState.FAILED, failure)
        self._work_off()

    # -- the steps of all this

    def _ready(self, node: Node) -> None:
        node.move(TaskState.READY)
        self._hands.ready(node)

    def _enter(self, node: Node) -> None:
        """A task begins to wait for what it reads."""
        self.open[node.id] = node
        missing = len(node.unended)
        for output in node.reads.values():
            if not output.readers:
                output.readers = {}
            output.readers[node.id] = node
            missing += output.handle is None
        node.missing = missing
        self._await(node)

    def _await(self, node: Node) -> None:
        """A task can run, or everything it misses is asked for."""
        if not node.missing:
            self._ready(node)
            return
        for output in node.reads.values():
            if output.handle is None:
                self._ask(output)

    def _ask(self, output: Output) -> None:
        maker = output.maker
        if maker is None:
            return
        if maker.state is TaskState.DONE and output.name not in self.lacking:
            if not self.frozen:
                self._agenda.append((self._again, maker))
        elif maker.state in ENDS:
            self._agenda.append((self._bereave, output))

    def _again(self, node: Node) -> None:
        """A task that was done runs once more."""
        if node.state is TaskState.DONE:
            node.move(TaskState.WAITING)
            self._begin_anew(node, force=False)
            self._enter(node)

    def _redo(self, node: Node) -> None:
        """A task has read, now or when it ran before, what does not count any more."""
        if node.state in (TaskState.FAILED, TaskState.CANCELLED):
            self._begin_anew(node, force=True)  # nobody will: what it had released goes too
            self._agenda.extend((self._bereave, output) for output in node.outputs.values())
            return
        if node.state is TaskState.DONE and node.told and not node.needed:
            self._begin_anew(node, force=True)  # nobody can tell the difference any more
            return
        began = node.state in (TaskState.RUNNING, TaskState.DOUBTED, TaskState.DONE)
        if node.state is TaskState.RUNNING:
            self._hands.call_off(node)
        if began:
            node.move(TaskState.WAITING)
            node.errors = node.io_errors = node.crashes = node.losses = 0
        self._begin_anew(node, force=True)
        if began:
            self._enter(node)

    def _begin_anew(self, node: Node, *, force: bool) -> None:
        """Take back what a task made, unless its next attempt will make the same."""
        if force or not node.task.restartable:
            for output in node.outputs.values():
                self._withdraw(output)

    def _withdraw(self, output: Output) -> None:
        """An output does not count any more, and neither does what was made from it."""
        if not output.made:
            return
        output.made = False
        began = list(output.consumers.values())
        if output.handle is not None:
            self._hands.drop(output)
            self._unmake(output)
        self._agenda.extend((self._redo, one) for one in began)

    def _unmake(self, output: Output) -> None:
        output.handle = None
        output.kept = output.here = output.fetching = False
        for reader in output.readers.values():
            reader.missing += 1
            if reader.state in (TaskState.READY, TaskState.FETCHING):
                self._hands.unready(reader)
                reader.pending.clear()
                reader.move(TaskState.WAITING)

    def _leave(self, node: Node) -> None:
        """A task has ended: what it read may go, unless it may yet be done again."""
        self.open.pop(node.id, None)
        if not self._hands.ended(node):
            self.let_follow(node)
        if node.unended:
            node.unended.clear()

    def let_follow(self, node: Node) -> None:
        """A task will not be done again: what it read may go, and what comes after it need not wait any more."""
        for output in node.reads.values():
            output.readers.pop(node.id, None)
            if not output.claimed:
                self.tidy(output)
        followers, node.followers = node.followers, None
        for one in followers or ():
            if one.unended.pop(node.id, None) is not None:
                one.missing -= 1
                if not one.missing and one.state is TaskState.WAITING:
                    self._ready(one)

    def _work_off(self) -> None:
        """Do what follows from what was done: a list, as chains may be longer than the stack."""
        while self._agenda:
            step, what = self._agenda.popleft()
            step(what)
