"""Tasks that read each other's outputs: who waits for what, and what must be made again.

Dependencies are per output: a task is ready when every output it reads exists, and every task it must come ``after``
has ended once. An output lives as long as a task that has not ended reads it, or the user or a feeder may ask for it;
when it is lost before, the task that made it runs again, and so do the makers of what that one reads, as far as those
are gone. Outputs of a task that cannot be restarted are given out when it has ended and they are with the driver, so
that nothing is ever taken back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from windrow.core.commands import Discard, OutputFailed, OutputMade, Publish, TaskEnd, TaskEnded
from windrow.core.outputs import NOTHING, Output
from windrow.core.policies import NO_TRIES, Tries
from windrow.core.records import DRIVER, NO_LIMITS, Failure, FailureKind, Handle, Made, make_record
from windrow.core.retry import MISSED
from windrow.core.transitions import ENDS, TASK_MOVES, TaskState, move
from windrow.errors import InternalError, UsageError, nearest

if TYPE_CHECKING:
    from windrow.core.dispatch import Dispatch
    from windrow.core.outputs import Batch, Outputs
    from windrow.core.queues import Attempt, Queues
    from windrow.core.records import Holder, Task
    from windrow.core.resources import NeedsClass

_ENDS: dict[TaskState, TaskEnd] = {TaskState.DONE: "done", TaskState.FAILED: "failed", TaskState.CANCELLED: "cancelled"}
_WAITS = {
    TaskState.WAITING: "inputs",
    TaskState.FETCHING: "values",
    TaskState.DELAYED: "pause",
    TaskState.HOMING: "values",
}


class Node:
    """One task of the run."""

    __slots__ = (
        "ahead", "attempts", "begun", "beside", "cls", "doubt", "entry", "failure", "fed", "followers", "fresh", "homing", "id",
        "limits", "missing", "outputs", "pending", "publishing", "reads", "root", "since", "spent", "state", "task",
        "told", "tries", "unended", "void",
    )  # fmt: skip

    def __init__(self, task: Task, now: float, fed: bool) -> None:
        self.id = task.id
        self.task = task
        self.fed = fed  #: it came from a feeder
        self.state = TaskState.WAITING
        self.since = now  #: when it came to this state
        self.begun: float | None = None  #: when its attempt began
        self.spent: dict[str, float] = NOTHING if fed else {}  #: seconds by what it waited for or did
        self.cls: NeedsClass | None = None  #: of the needs of its next attempt; None: not looked up yet
        self.limits = NO_LIMITS  #: of its next attempt
        self.entry = -1  #: the entry in the queue of its class that counts; -1: none
        self.fresh = False  #: its next attempt needs a worker that has run nothing
        self.attempts: tuple[Attempt, ...] = ()  #: that count and have not ended
        self.void = 0  #: attempts that do not count and have not ended
        self.ahead = False  #: its attempt was launched before all that it reads was there
        self.reads: dict[str, Output] = NOTHING
        self.outputs: dict[str, Output] = {}
        self.unended: dict[int, Node] = NOTHING  #: tasks it comes after that have not ended
        self.followers: list[Node] | None = None  #: tasks that come after its first end, or are done after that
        self.beside: dict[int, Node] = NOTHING  #: tasks that have not ended before which nothing is put into place
        self.publishing = False  #: what it made is being put into place, or was
        self.missing = 0  #: outputs it reads that do not exist, and tasks it comes after
        self.pending: dict[str, Output] = NOTHING  #: outputs that are on their way while it is FETCHING
        self.homing: dict[str, Output] = NOTHING  #: outputs that are on their way while it is HOMING
        self.tries = NO_TRIES  #: bad ends since it was last done
        self.doubt: Failure | None = None  #: how one of two attempts ended, while the other goes on
        self.told = False  #: the user knows that it is done
        self.failure: Failure | None = None
        self.root: Node | None = None  #: the task that failed first, if that was not this one

    def move(self, state: TaskState, now: float) -> None:
        """Go to another state, if that is legal; the time since the last move is added to what it was spent on."""
        old = self.state
        if state not in TASK_MOVES[old]:
            move(TASK_MOVES, old, state, "task", self.id)  # tells the story
        if now > self.since and not self.fed:  # what a feeder's task waits for is nobody's question
            self._spend(old, now)
        self.begun = None
        self.state = state

    def _spend(self, old: TaskState, now: float) -> None:
        since, spent = self.since, self.spent
        self.since = now
        if old is TaskState.RUNNING:
            begun = now if self.begun is None else self.begun
            if begun > since:
                spent["queue"] = spent.get("queue", 0.0) + begun - since
            what, since = "run", begun
        elif old is TaskState.READY:
            what = "worker" if self.cls is None else self.cls.blocked_on
        elif old is TaskState.DONE:
            return
        else:
            what = _WAITS[old]
        if now > since:
            spent[what] = spent.get(what, 0.0) + now - since


class Graph:
    """All tasks and outputs of a run."""

    def __init__(self, batch: Batch, outputs: Outputs, queues: Queues, dispatch: Dispatch) -> None:
        self.nodes: dict[int, Node] = {}
        self.outputs: dict[str, Output] = {}
        self.open: dict[int, Node] = {}  #: tasks that have not ended
        self.failed = 0  #: tasks of the user
        self.frozen = False  #: the run ends: nothing is made again
        #: by name: outputs of streams that an attempt made once, and the one that counts did not
        self.lacking: dict[str, Failure] = {}
        self.on_lost: Callable[[str], None] | None = None  #: the feeder's, for outputs of its own
        self._largest = 0  #: id of a task
        self.garbage: list[Node] = []  #: tasks that perhaps nobody needs any more
        self._agenda: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._batch = batch
        self._outputs = outputs
        self._queues = queues
        self._dispatch = dispatch

    # -- submission

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise UsageError for tasks that cannot belong to a graph; nothing has changed then."""
        makers: dict[str, int] = {}
        ids: set[int] = set()
        for task in tasks:
            number = task.id
            if number in self.nodes or number in ids:
                raise UsageError(f"task {number} was submitted twice; each needs an id of its own")
            for one in task.after:
                # One that is not known any more has ended, and nobody can need it.
                if one not in self.nodes and one not in ids and one > self._largest:
                    raise UsageError(f"task {number} comes after task {one}, which was not submitted before it")
            for name in task.reads:
                if name not in self.outputs and name not in makers:
                    raise UsageError(
                        f"task {number} reads {name!r}, which no task makes"
                        f"{nearest(name, [*self.outputs, *makers])}; submit the task that makes it first, or correct the name"
                    )
            ids.add(number)
            for name in task.makes:
                maker = makers.get(name) or (self.outputs[name].maker.id if name in self.outputs else 0)
                if not name or maker:
                    other = f"task {maker} makes that too" if maker else "it needs a name"
                    raise UsageError(f"task {number} makes output {name!r}, but {other}")
                makers[name] = number

    def add(self, tasks: Sequence[Task], *, fed: bool = False) -> list[Node]:
        nodes = []
        for task in tasks:
            node = self.nodes[task.id] = self.open[task.id] = Node(task, self._batch.now, fed)
            if node.id > self._largest:
                self._largest = node.id
            for name in task.makes:
                node.outputs[name] = self.outputs[name] = Output(name, node)
            if task.reads:
                node.reads = {name: self.outputs[name] for name in task.reads}
                for output in node.reads.values():
                    output.consumers += 1
            if task.after:
                node.unended = self._follow(node, task.after)
            if task.beside:
                node.beside = self._follow(node, task.beside)
            nodes.append(node)
        for node in nodes:
            if node.reads or node.unended:
                if node.id in self.open:
                    self._enter(node)
            else:  # by far the most
                node.state = TaskState.READY
                self._dispatch.add(node)
        self._drain_agenda()
        return nodes

    def _follow(self, node: Node, numbers: tuple[int, ...]) -> dict[int, Node]:
        """Find those of some tasks that have not ended, and have their ends noted with a task that waits for them."""
        found = {number: self.open[number] for number in numbers if number in self.open}
        for former in found.values():
            former.followers = former.followers or []
            former.followers.append(node)
        return found or NOTHING

    def add_fed(self, task: Task) -> Node:
        """Take in a task of a feeder that reads nothing, for a worker that has room: it is ready, and in no queue."""
        number = task.id
        node = self.nodes[number] = self.open[number] = Node(task, self._batch.now, True)
        if number > self._largest:
            self._largest = number
        for name in task.makes:
            node.outputs[name] = self.outputs[name] = Output(name, node)
        node.state = TaskState.READY
        return node

    def adopt(self, node: Node, name: str) -> Output:
        """A task has made something that it had not announced, as streams do."""
        known = self.outputs.get(name)
        if known is not None and known.maker is not node:
            raise InternalError(f"task {node.id} made {name!r}, which task {known.maker.id} makes")
        output = self.outputs[name] = node.outputs[name] = Output(name, node)
        return output

    # -- what becomes of tasks

    def released(self, attempt: Attempt, made: Made) -> None:
        """A running task has made an output; one that cannot be restarted keeps it until its end."""
        node = attempt.node
        if made.output in attempt.reported:
            self._outputs.discard(attempt.id, attempt.life, (made,), shares=attempt.worker.shares)
            return
        attempt.reported = attempt.reported or {}
        attempt.reported[made.output] = made
        if node.task.restartable:
            self._make(node, attempt, made, eager=True)
            self._drain_agenda()

    def finish(self, attempt: Attempt, made: tuple[Made, ...], wall: float) -> None:
        node = attempt.node
        now = self._batch.now
        if node.begun is None or node.begun == now:  # its beginning was not told, or together with its end
            node.begun = max(node.since, now - wall)
        if not node.task.restartable:
            self._bring_home(attempt, (*attempt.reported.values(), *made))
            self._drain_agenda()
            return
        self._done(node, attempt.id, made)
        size = 0
        for one in made:
            self._make(node, attempt, one)
            size += one.bytes
        if size and not node.fed:
            self._outputs.expected[node.task.category] = size
        if len(made) + len(attempt.reported) != len(node.outputs) or self.lacking or attempt.reported:
            self._look_for_lacking(attempt, made)
        if self._agenda:
            self._drain_agenda()

    def finish_fed(self, attempt: Attempt, made: tuple[Made, ...]) -> None:
        """A feeder's task is done that reads nothing any more: its feeder alone may ask for what it made."""
        node = attempt.node
        node.state = TaskState.DONE
        del self.open[node.id]
        for one in made:
            output = node.outputs[one.output]
            self._outputs.keep(output, attempt.id, one, attempt.worker)
            if output.readers or output.asked:
                self._show(output)
            else:
                output.made = True
        if not made:
            self.garbage.append(node)

    def _look_for_lacking(self, attempt: Attempt, made: Sequence[Made]) -> None:
        """Outputs that were lost or dropped since they were reported are made again; some are not made any more."""
        node = attempt.node
        names = {one.output for one in made}
        for name, output in node.outputs.items():
            if output.made or not output.needed or name in names:
                continue
            if name in attempt.reported:
                self._ask(output)
            elif not node.fed:
                message = f"task {node.id} was done again and did not make {name!r}, as it had the first time"
                if name in node.task.makes:
                    message = f"task {node.id} ended and did not make {name!r}, which it announced"
                self.lacking[name] = Failure(FailureKind.USER, "TaskError", message)
                self._agenda.append((self._fail_readers, output))

    def _done(self, node: Node, attempt: int, made: tuple[Made, ...]) -> None:
        node.move(TaskState.DONE, self._batch.now)
        node.tries, node.doubt = NO_TRIES, None
        self._leave(node)
        self._tell(node, attempt, made)

    def _bring_home(self, attempt: Attempt, made: Sequence[Made]) -> None:
        """What a task that cannot be restarted has made goes to the driver before anybody reads it."""
        node = attempt.node
        node.move(TaskState.HOMING, self._batch.now)
        node.homing = {}
        for one in made:
            output = node.outputs.get(one.output) or self.adopt(node, one.output)
            self._outputs.keep(output, attempt.id, one, attempt.worker)
            if DRIVER not in output.holders and output.needed:
                node.homing[output.name] = output
                self._outputs.fetch(output)
        self._come_home(node)

    def published(self, task: int, failure: Failure | None) -> None:
        node = self.open.get(task)
        if node is None or node.state is not TaskState.HOMING:
            return  # it was called off meanwhile
        if failure is None:
            self._come_home(node)
        else:
            self._give_up(node, TaskState.FAILED, failure)
        self._drain_agenda()

    def _come_home(self, node: Node) -> None:
        """A task that cannot be restarted is done if all it made is with the driver, and in place if it is put anywhere."""
        if node.homing or node.beside:
            return
        if node.task.beside and not node.publishing:
            node.publishing = True
            self._batch.out.append(Publish(node.id))
            return
        outputs = [one for one in node.outputs.values() if one.holders]
        attempt = outputs[0].attempt if outputs else 0
        announced = node.task.makes
        made = tuple(Made(one.name, one.bytes, DRIVER in one.holders) for one in outputs)
        for one in made:
            if one.output not in announced:
                self._batch.out.append(OutputMade(node.id, Handle(one.output, attempt), one))
        self._done(node, attempt, tuple(one for one in made if one.output in announced))
        for output in outputs:
            self._show(output)

    def back(self, node: Node, *, delayed: bool = False) -> None:
        if node.state is TaskState.HOMING or not node.task.restartable:
            node.homing, node.publishing = NOTHING, False
            for output in node.outputs.values():
                self._outputs.drop(output)
        node.move(TaskState.DELAYED if delayed else TaskState.WAITING, self._batch.now)
        if not delayed:
            self._await(node)
        self._drain_agenda()

    def due(self, node: Node) -> None:
        node.move(TaskState.WAITING, self._batch.now)
        self._await(node)
        self._drain_agenda()

    def end(self, node: Node, state: TaskState, failure: Failure) -> None:
        self._give_up(node, state, failure)
        self._drain_agenda()

    def _give_up(self, node: Node, state: TaskState, failure: Failure) -> None:
        if node.state is TaskState.RUNNING:
            self._queues.call_off(node)
        elif node.state in (TaskState.READY, TaskState.FETCHING):
            self._dispatch.remove(node)
        for output in node.outputs.values():
            if not node.task.restartable and output.holders:
                self._outputs.drop(output)
        node.homing = NOTHING
        node.move(state, self._batch.now)
        node.failure = failure
        self._leave(node)
        if not node.fed:
            self.failed += state is TaskState.FAILED
        self._tell(node)
        self._agenda.extend((self._fail_readers, one) for one in node.outputs.values() if not one.made)

    def _fail_readers(self, output: Output) -> None:
        """No task will make an output: its readers end too; one that runs may have it, unless it was launched ahead."""
        maker = output.maker
        if output.made:
            return
        if maker.failure is None:
            if output.name in self.lacking:
                self._end_without(output, self.lacking[output.name])
            return
        root = maker.root or maker
        why = maker.failure if maker.root is None else root.failure or maker.failure
        verb = "failed" if maker.state is TaskState.FAILED else "was cancelled"
        if output.name not in maker.task.makes:
            self._fail_output(output, why)
        for reader in list(output.readers.values()):
            if reader.id in self.open and (reader.state is not TaskState.RUNNING or reader.ahead):
                reader.root = root
                message = f"task {reader.id} did not run because task {root.id} {verb}: {why.message}"
                failure = Failure(
                    FailureKind.USER, why.type, message, why.place, why.exception, since=maker.id
                )  # fmt: skip
                self._give_up(reader, maker.state, failure)

    def _end_without(self, output: Output, failure: Failure) -> None:
        self._fail_output(output, failure)
        for reader in list(output.readers.values()):
            if reader.id in self.open and reader.state is not TaskState.RUNNING:
                self._give_up(reader, TaskState.FAILED, failure)

    def _fail_output(self, output: Output, failure: Failure) -> None:
        """Tell the user of an output of a stream that it will not come; of other outputs the end of their task tells."""
        if output.asked and not output.fed:
            output.asked = False
            self._batch.out.append(OutputFailed(output.name, failure))

    def _tell(self, node: Node, attempt: int = 0, made: tuple[Made, ...] = ()) -> None:
        """Tell the end of a task; not that it was made again."""
        if not node.fed and (node.state is not TaskState.DONE or not node.told):
            spent = tuple(node.spent.items())
            end = (node.id, _ENDS[node.state], node.failure, attempt, made, spent)
            self._batch.out.append(make_record(TaskEnded, end))
        node.told = True
        for output in node.outputs.values():
            if output.claimed:  # whoever does lets it go later
                return
        self.garbage.append(node)

    # -- what becomes of outputs

    def _make(self, node: Node, attempt: Attempt, made: Made, *, eager: bool = False) -> None:
        """An output exists; one that did already is final, and this one is discarded."""
        output = node.outputs.get(made.output) or self.adopt(node, made.output)
        if output.holders:
            if output.attempt != attempt.id:
                self._outputs.discard(attempt.id, attempt.life, (made,), shares=attempt.worker.shares)
            return
        self._outputs.keep(output, attempt.id, made, attempt.worker)
        if eager:
            self._batch.out.append(OutputMade(node.id, output.handle, made))
        self._show(output)

    def _show(self, output: Output) -> None:
        output.made = True
        if self.lacking:
            self.lacking.pop(output.name, None)
        if output.readers:
            for reader in output.readers.values():
                reader.missing -= 1
                if not reader.missing:
                    reader.ahead = False
                    if reader.state is TaskState.WAITING:
                        self._ready(reader)
        if output.asked:
            self._outputs.deliver(output)
        elif not output.claimed:
            self.tidy(output)

    def lose(self, output: Output) -> None:
        """No holder of an output is left: make it again if a task or a future needs it."""
        maker = output.maker
        if output.fed:
            self._outputs.forget(output)
            output.claimed = output.asked = False
            self.garbage.append(maker)
            assert self.on_lost is not None
            self.on_lost(output.name)
            return
        if maker.state is TaskState.HOMING:
            self._outputs.forget(output)
            self.back(maker)
            return
        self._unmake(output)
        if output.needed:
            self._ask(output)
        self._drain_agenda()

    def want(self, output: Output) -> None:
        """The user or a feeder waits for an output: it is made again if it was dropped."""
        output.asked = output.claimed = True
        if output.made:
            self._outputs.deliver(output)
        else:
            self._ask(output)
        self._drain_agenda()

    def release(self, output: Output) -> None:
        output.asked = output.claimed = False
        self.tidy(output)
        self.garbage.append(output.maker)

    def tidy(self, output: Output) -> None:
        if output.holders and not (output.claimed or output.needed) and output.maker.state is not TaskState.HOMING:
            self._outputs.drop(output)

    def consume(self, node: Node, holder: Holder) -> None:
        """A task that works in place was launched at a holder of what it reads, which is gone; so are all copies."""
        for output in node.reads.values():
            if len(output.holders) > 1:
                copies = tuple(one for one in output.holders if one != holder)
                self._batch.out.append(Discard(output.handle, copies))
            output.readers.pop(node.id, None)
            output.consumers -= 1
            output.claimed = False
            self._outputs.forget(output)
            self.garbage.append(output.maker)
        node.reads = NOTHING

    def arrived(self, output: Output, size: int, seconds: float) -> None:
        """A copy is with the driver: tasks that waited for it can run anywhere."""
        self._outputs.arrived(output, size, seconds)
        maker = output.maker
        if maker.state is TaskState.HOMING:
            if maker.homing.pop(output.name, None) is not None:
                self._come_home(maker)
                self._drain_agenda()
            return
        for reader in list(output.readers.values()):
            if reader.pending.pop(output.name, None) is not None and not reader.pending:
                self._ready(reader)
        self._outputs.deliver(output)

    def fail_fetch(self, output: Output, failure: Failure) -> None:
        """An output is of no use but where it was made: its maker has failed."""
        maker = output.maker
        self._unmake(output)
        if maker.state in (TaskState.FAILED, TaskState.CANCELLED):
            self._agenda.append((self._fail_readers, output))
        else:
            self._give_up(maker, TaskState.FAILED, failure)
        self._drain_agenda()

    def _unmake(self, output: Output) -> None:
        was_made = output.made
        self._outputs.forget(output)
        if not was_made:
            return
        for reader in output.readers.values():
            reader.missing += 1
            if reader.state in (TaskState.READY, TaskState.FETCHING):
                self._dispatch.remove(reader)
                reader.pending = NOTHING
                reader.move(TaskState.WAITING, self._batch.now)

    # -- the steps of all this

    def _ready(self, node: Node) -> None:
        node.move(TaskState.READY, self._batch.now)
        self._dispatch.add(node)

    def _enter(self, node: Node) -> None:
        self.open[node.id] = node
        missing = len(node.unended)
        for output in node.reads.values():
            if not output.readers:
                output.readers = {}
            output.readers[node.id] = node
            missing += not output.made
        node.missing = missing
        self._await(node)

    def _await(self, node: Node) -> None:
        """A task can run, or everything it misses is asked for."""
        if not node.missing:
            self._ready(node)
            return
        for output in node.reads.values():
            if not output.made:
                self._ask(output)

    def _ask(self, output: Output) -> None:
        maker = output.maker
        if maker.state is TaskState.DONE and output.name not in self.lacking:
            if not self.frozen:
                self._agenda.append((self._again, maker))
        elif maker.state in ENDS:
            self._agenda.append((self._fail_readers, output))

    def _again(self, node: Node) -> None:
        if node.state is TaskState.DONE:
            node.move(TaskState.WAITING, self._batch.now)
            self._enter(node)

    def _leave(self, node: Node) -> None:
        """A task has ended: what it read may go, and what comes after it need not wait any more."""
        self.open.pop(node.id, None)
        node.unended = node.beside = NOTHING
        node.pending = NOTHING
        for output in node.reads.values():
            output.readers.pop(node.id, None)
            if not output.claimed:
                self.tidy(output)
        followers, node.followers = node.followers, None
        for one in followers or ():
            if one.beside.pop(node.id, None) is not None and one.state is TaskState.HOMING:
                self._come_home(one)
            if one.unended.pop(node.id, None) is not None:
                one.missing -= 1
                if not one.missing and one.state is TaskState.WAITING:
                    self._ready(one)

    def _drain_agenda(self) -> None:
        """Do what follows from what was done: a list, as chains may be longer than the stack."""
        while self._agenda:
            step, what = self._agenda.popleft()
            step(what)

    # -- letting go

    def attempt_over(self, node: Node) -> None:
        """An attempt that did not count has ended: its task may be forgotten now."""
        self.garbage.append(node)

    def collect_garbage(self) -> None:
        """Forget tasks that no reader and no future can need any more, so that a run does not grow with all it ever did.

        A task is needed while it has not ended or an attempt of it runs, while a future may ask for one of its
        outputs, and while one that reads from it is here, as that may have to be done again.
        """
        candidates = self.garbage
        while candidates:
            node = candidates.pop()
            if node.state not in ENDS or node.attempts or node.void or self.nodes.get(node.id) is not node:
                continue
            for output in node.outputs.values():
                if output.claimed or output.consumers:
                    break
            else:
                self._forget(node)

    def _forget(self, node: Node) -> None:
        del self.nodes[node.id]
        for name, output in node.outputs.items():
            del self.outputs[name]
            if output.grant:  # announced, and never made
                self._outputs.forget(output)
        node.outputs = NOTHING  # they name their maker: a circle would wait for Python's collector
        for read in node.reads.values():
            read.consumers -= 1
            if not read.consumers:
                self.tidy(read)
                self.garbage.append(read.maker)


def count_try(tries: Tries, failure: Failure) -> Tries:
    kind = failure.kind
    if failure.type == MISSED:
        return tries._replace(missed=tries.missed + 1)
    if kind is FailureKind.TRANSIENT_IO:
        return tries._replace(reads=tries.reads + 1)
    if kind is FailureKind.CRASHED:
        return tries._replace(crashes=tries.crashes + 1)
    if kind is FailureKind.LOST:
        return tries._replace(losses=tries.losses + 1)
    if kind is FailureKind.EXHAUSTED:
        return tries._replace(exhaustions=tries.exhaustions + 1)
    return tries._replace(errors=tries.errors + 1)
