"""What runs in a worker of Dask, which is a node to us: an engine with processes of its own, told what to do by tasks of Dask.

Such a task (``exchange``) hands over a batch of orders and waits for something to report; it does not keep a thread of Dask's pool, and
makes room for the next one. What the processes do is measured and limited here, and survives their end.

Where its worker of Dask is retired, Dask gives that no more tasks, moves away what it has, and closes it. A node has an ``Anchor`` there,
which does not move before the node has handed over what it has.
"""

from __future__ import annotations

import asyncio
import pickle
import platform
import threading
from collections import Counter, deque
from concurrent.futures import Future
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from itertools import chain
from time import monotonic
from typing import TYPE_CHECKING, Any

from distributed import get_worker, secede
from distributed.comm.utils import OFFLOAD_THRESHOLD
from distributed.worker import thread_state

from windrow.core.commands import Cancel, Discard, Fetch, Launch, Recall
from windrow.core.events import (
    Cancelled,
    CopyLost,
    Event,
    Failed,
    FetchFailed,
    Finished,
    Held,
    OutputReady,
    WorkerJoined,
    WorkerLost,
)
from windrow.core.records import DRIVER, Failure, FailureKind, Handle, Life
from windrow.engines.dask.words import (
    ALONG,
    Content,
    Forgotten,
    LaunchOrder,
    NewWorkload,
    NotComing,
    Report,
    Setup,
    TooLarge,
    Value,
)
from windrow.engines.processes import messages
from windrow.engines.processes.engine import ProcessesEngine
from windrow.engines.processes.messages import News, Packed
from windrow.engines.processes.serialize import kept_sealed
from windrow.engines.processes.transport import Arrival, Lent, Parcel, pack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from windrow.core.records import Plan, Task

#: What has to be the same here and at the driver, for the same bits.
LIBRARIES = ("windrow", "numpy", "awkward", "cloudpickle")
#: Seconds that a report waits for others, unless a worker has nothing left to do.
TOGETHER_S = 0.02
#: Seconds after which there is a report although nothing happened.
PATIENCE_S = 10.0
#: Seconds without a word from the driver after which it is taken to be gone, with the run. It is unheard of for a while where a
#: connection breaks and comes back.
SILENCE_S = 120.0
#: Seconds that the worker of Dask waits for a node to hand over what it has.
LEAVE_S = 30.0
#: Seconds within which that worker hears that it is retired, when others take over what it has.
TOLD_S = 1.0

#: Said by a node that was begun again, or has heard nothing for long.
FORGOTTEN = "it does not know the run"
#: How a launch ends that waits for what does not come.
LOST = Failure(FailureKind.LOST, "OutputLost", "what it reads was lost with its node, or its process")
_nodes: dict[str, Node] = {}  #: by run
_making = threading.Lock()


# -- the tasks of Dask


def exchange(
    run: str, number: int, orders: bytes, setup: Setup | None = None, workload: Content | None = None
) -> Report:
    """Hand a batch of orders to the node of a run, and wait until there is something to report."""
    node = _nodes.get(run)
    if setup is not None and workload is not None:
        wrong = unlike(setup.versions)
        if wrong:
            return Report(number, b"", wrong)
        for name, former in list(_nodes.items()):
            if name != run and name.rpartition("-")[0] == run.rpartition("-")[0]:
                former.end()  # it was given up by the driver
        with _making:
            node = _nodes.get(run) or _nodes.setdefault(run, Node(run, setup, workload, get_worker()))
    if node is None:
        return Report(number, b"", FORGOTTEN)
    if not node.hear(number, orders):
        return Report(number, b"")
    _make_room()
    return node.report(number)


def hear(run: str, number: int, orders: bytes) -> bool:
    """Hand over a batch of orders once more; say whether it has not come before."""
    return _nodes[run].hear(number, orders)


def keep(run: str, workload: Content) -> Content:  # noqa: ARG001 - as all of them
    """Keep the workload for other nodes, which get it from here."""
    return workload


def hand_out(run: str, handle: Handle, source: Life, near: bool = False) -> Content | Lent:
    """Give an output that a worker of the node has: for another node, or the driver; lent to those on this machine, ``near``."""
    found = _nodes[run].ask_for(handle, source)
    _make_room()
    arrival = found.result()
    return (arrival.lend() if near else None) or Content.of(arrival)


def take_in(run: str, handle: Handle, content: Content | Lent | None) -> None:
    """Take an output that another node has handed out."""
    if content is None:
        raise LookupError(f"nobody has {handle.output!r}")
    _nodes[run].take_in(handle, content.arrive())


def end(run: str) -> None:
    """End the node of a run, if there is one."""
    node = _nodes.get(run)
    if node is not None:
        _make_room()
        node.end()


def _make_room() -> None:
    """Let other tasks of Dask have the thread, if this is one and not called by ``talk``."""
    if getattr(thread_state, "key", None) is not None:
        secede()


# -- where the worker of Dask is retired


class Answer:
    """What ``talk`` gives: small to Dask, however large it is, as large messages wait behind the anchor."""

    def __init__(self, value: Any) -> None:
        self.value = value


async def talk(run: str, function: Callable[..., Any], *args: Any) -> Answer:
    """Call one of the functions above where Dask runs no tasks any more."""
    return Answer(await asyncio.to_thread(function, run, *args))


class Anchor:
    """A thing that a worker of Dask has, and that a worker which is retired cannot move away before its node has ended."""

    def __init__(self, run: str) -> None:
        self._run = run

    def __sizeof__(self) -> int:
        """Be so large that Dask packs it in a thread of its own, which may wait, when it is to be moved."""
        return int(OFFLOAD_THRESHOLD) + 1

    def __reduce__(self) -> Any:
        node = _nodes.get(self._run)
        if node is not None and not _in_event_loop():  # where it would be written to a disk
            node.hold()
        return Anchor, (self._run,)


def _in_event_loop() -> bool:
    with suppress(RuntimeError):
        asyncio.get_running_loop()
        return True
    return False


def anchor(run: str) -> Anchor:
    return Anchor(run)


# -- what has to be the same


def versions() -> dict[str, str]:
    found = {"python": ".".join(platform.python_version_tuple()[:2])}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # run from a directory of sources
            found[name] = "none"
    return found


def unlike(wanted: dict[str, str]) -> str:
    """Say which versions differ from those of the driver."""
    here = versions()
    return ", ".join(
        f"{name} {here.get(name)} (the driver has {has})" for name, has in wanted.items() if has != here.get(name)
    )


# -- the node


class NodeEngine(ProcessesEngine):
    """Processes of a node; what they make is handed on without a look into it."""

    def raw(self, handle: Handle) -> Any:
        return self._outputs[handle]


class NodeWorkload:
    """The work of a run as a node has it: never opened here, as its functions may mean nothing to this process."""

    def __init__(self, content: Content) -> None:
        self.parcel = content.parcel(messages.WORKLOAD)
        self.contents: dict[int, Any] = {}  #: by task: what its launch has, until it is sent on
        self.described: dict[int, str] = {}  #: by task, in messages
        self.heard: list[Any] = []  #: for the driver

    def content(self, task: Task) -> Any:
        return self.contents.pop(task.id, task.payload)

    def describe(self, task: Task) -> str:
        return self.described.get(task.id, "")

    def hear(self, news: Any) -> None:
        self.heard.append(News(news))


class Node:
    """The part of a run that this process has."""

    def __init__(self, run: str, setup: Setup, workload: Content, member: Any = None) -> None:
        self._run = run
        self._member = member  #: the worker of Dask
        self._workload = NodeWorkload(workload)
        self._engine = NodeEngine(setup.cores, number=setup.first, preload=setup.preload)
        self._engine.place = setup.place
        self._changed = threading.Condition()
        self._batches: dict[int, bytes] = {}  #: by number: those whose turn has not come
        self._next = 0  #: number of the batch that is taken next
        self._latest = -1  #: of the batches that have come
        self._inbox: deque[Any] = deque()  #: for the node's thread
        self._said: list[Any] = []  #: to be reported
        self._since: float | None = None  #: when the first of it happened
        self._urgent = False  #: a worker has nothing to do, or something is waited for
        self._broken = ""
        self._ended = False
        self._over = False  #: its thread takes nothing in any more
        self._heard_at = monotonic()
        # What follows is the thread's own.
        self._plans: dict[int, Plan] = {}
        self._common: dict[int, Parcel] = {}
        self._left: Counter[Life] = Counter()  #: launches that have not ended
        self._attempts: dict[int, tuple[Life, int]] = {}  #: of those: where, and of which task
        self._held: dict[Life, deque[tuple[Launch, set[Handle]]]] = {}  #: launches that wait for what they read
        self._asked: set[Handle] = set()  #: outputs that the driver waits for
        self._wanted: dict[Handle, list[Future[Arrival]]] = {}  #: and other nodes
        self._coming: dict[Handle, Life] = {}  #: outputs that were asked of processes here
        self._owed: set[tuple[Handle, Life]] = set()  #: copies that launches which came to nothing were to bring
        self._dead: set[Life] = set()
        self._events: list[Event] = []  #: that happened here, and in no process
        self._thread = threading.Thread(target=self._work, name=f"windrow-node-{run}", daemon=True)
        self._thread.start()

    # -- from threads of Dask

    def hold(self) -> None:
        """Wait for the end, if the worker of Dask is being retired: what is told of that may come later than who takes over."""
        with self._changed:
            if not self._changed.wait_for(self._is_leaving, TOLD_S):
                return
            self._changed.wait_for(lambda: self._over, LEAVE_S)

    def _is_leaving(self) -> bool:
        return self._over or self._member.status.name == "closing_gracefully"

    def hear(self, number: int, orders: bytes) -> bool:
        """Take a batch of orders; False if it has come before."""
        with self._changed:
            self._heard_at = monotonic()
            if number < self._next or number in self._batches:
                return False
            self._batches[number] = orders
            self._latest = max(self._latest, number)
            while self._next in self._batches:
                self._inbox.extend(pickle.loads(self._batches.pop(self._next)))  # noqa: S301 - from our own driver
                self._next += 1
            self._changed.notify_all()
        self._engine.wake()
        return True

    def report(self, number: int) -> Report:
        """Wait for something to report, or for a newer batch, whose answer then has it."""
        until = monotonic() + PATIENCE_S
        with self._changed:
            while not (self._broken or self._ended or self._latest > number):
                now = monotonic()
                due = until if self._since is None else min(self._since + TOGETHER_S, until)
                if self._urgent or due <= now:
                    break
                self._changed.wait(due - now)
            self._heard_at = monotonic()
            said, self._said = self._said, []
            self._since, self._urgent = None, False
            return Report(number, pickle.dumps(said, 5), self._broken)

    def ask_for(self, handle: Handle, source: Life) -> Future[Arrival]:
        found: Future[Arrival] = Future()
        with self._changed:
            if self._over:
                found.cancel()
            else:
                self._put((handle, source, found))
        return found

    def take_in(self, handle: Handle, arrival: Arrival) -> None:
        self._put(Value(handle, arrival))

    def end(self) -> None:
        self._ended = True
        self._engine.wake()
        self._thread.join()

    def _put(self, order: Any) -> None:
        self._inbox.append(order)
        self._engine.wake()

    # -- the thread

    def _work(self) -> None:
        engine = self._engine
        try:
            with kept_sealed():
                engine.start(self._workload)  # type: ignore[arg-type] # it has what an engine asks for
                while not self._ended and monotonic() - self._heard_at < SILENCE_S:
                    while self._inbox:
                        self._obey(self._inbox.popleft())
                    happened = engine.wait(0.0 if self._events else SILENCE_S / 4)
                    events, self._events = self._events, []
                    self._tell([*events, *happened])
        except BaseException as error:  # noqa: BLE001 - told to the driver
            self._broken = f"{type(error).__name__}: {error}"
        finally:
            try:
                engine.stop()
            finally:
                _nodes.pop(self._run, None)
                with self._changed:
                    self._ended = self._over = True
                    asking = [order[2] for order in list(self._inbox) if type(order) is tuple]
                    self._changed.notify_all()
                for one in chain(asking, *self._wanted.values()):
                    one.cancel()

    def _obey(self, order: Any) -> None:
        kind = type(order)
        if kind is LaunchOrder:
            self._launch(order)
        elif kind is Value:  # from another node
            value = order.value
            self._engine.give(order.handle, value.arrive() if type(value) is Content else value)
            self._events.append(Held(order.handle))
        elif kind is NotComing:
            self._give_up(order.handle)
        elif kind is Fetch:
            self._asked.add(order.handle)
            self._fetch(order.handle, order.source)
        elif kind is tuple:  # another node asks
            handle, source, found = order
            self._wanted.setdefault(handle, []).append(found)
            self._fetch(handle, source)
        elif kind is Forgotten:
            for number in order.numbers:
                self._common.pop(number, None)
        elif kind is NewWorkload:
            self._workload.parcel = order.workload.parcel(messages.WORKLOAD)
        elif kind is Discard:
            self._engine.do([Discard(order.handle, (*order.holders, DRIVER))])
        elif kind in (Cancel, Recall) and self._take_back(order.attempt):
            self._go_on()
        else:
            self._engine.do([order])

    # -- launches

    def _launch(self, order: LaunchOrder) -> None:
        launch, task = order.launch, order.launch.task
        number = order.plan
        if not isinstance(number, int):
            number, plan = order.plan
            self._plans[number] = plan
        for name, content in order.common.items():
            self._common[name] = content.parcel(messages.COMMON, name)
        if order.call is not None:
            call = order.call
            parcel = None if call.content is None else call.content.parcel(messages.CONTENT, task.id)
            self._workload.contents[task.id] = Packed(
                call.small, parcel, {name: self._common[name] for name in call.common}, call.apart
            )
        self._workload.described[task.id] = order.described
        for handle, value in order.along.items():
            self._engine.give(handle, value.arrive() if type(value) is Content else value)
        missing = {handle for handle, _ in order.awaited if not self._engine.has(handle)}
        near = [(handle, source) for handle, source in order.awaited if source is not None and handle in missing]
        near = [one for one in near if not (one[0] in self._coming or self._is_awaited(one[0]))]
        launch = launch._replace(plan=self._plans[number])
        self._owed.difference_update((launch.inputs[position], launch.life) for position in launch.bring)
        self._left[launch.life] += 1
        self._attempts[launch.attempt] = launch.life, task.id
        waiting = self._held.get(launch.life)
        if waiting or missing:  # those behind it keep their turn
            self._held.setdefault(launch.life, deque()).append((launch, missing))
        else:
            self._engine.do([launch])
        for handle, source in near:
            self._ask(handle, source)

    def _is_awaited(self, handle: Handle) -> bool:
        return any(handle in missing for waiting in self._held.values() for _, missing in waiting)

    def _arrived(self, handle: Handle) -> None:
        """Something is here that launches may have waited for, and whoever asked for it."""
        self._coming.pop(handle, None)
        if not self._engine.has(handle):
            self._give_up(handle)  # it was forgotten on the way
            return
        for waiting in self._held.values():
            for _, missing in waiting:
                missing.discard(handle)
        self._go_on()
        wanted = self._wanted.pop(handle, None)
        if wanted:
            arrival = self._packed(handle)
            for one in wanted:
                one.set_result(arrival)

    def _go_on(self) -> None:
        for life, waiting in list(self._held.items()):
            while waiting and not waiting[0][1]:
                launch = waiting.popleft()[0]
                if all(self._engine.has(launch.inputs[position]) for position in launch.bring):
                    self._engine.do([launch])
                else:  # something was forgotten meanwhile
                    self._drop(launch, Failed(launch.attempt, life, LOST))
            if not waiting:
                del self._held[life]

    def _give_up(self, handle: Handle, failure: Failure = LOST) -> None:
        """Something does not come: who waits for it is told."""
        self._coming.pop(handle, None)
        self._asked.discard(handle)
        for one in self._wanted.pop(handle, ()):
            one.set_exception(LookupError(failure.message))
        for waiting in self._held.values():
            for entry in [one for one in waiting if handle in one[1]]:
                waiting.remove(entry)
                self._drop(entry[0], Failed(entry[0].attempt, entry[0].life, failure))
        self._go_on()

    def _drop(self, launch: Launch, end: Event) -> None:
        """A launch comes to nothing before its process has heard of it, and of what it was to bring."""
        for position in launch.bring:
            self._owed.add((launch.inputs[position], launch.life))
            self._events.append(CopyLost(launch.inputs[position], launch.life))
        self._events.append(end)

    def _take_back(self, attempt: int) -> bool:
        """Take back a launch that waits here; False if none does."""
        for waiting in self._held.values():
            for entry in waiting:
                if entry[0].attempt == attempt:
                    waiting.remove(entry)
                    self._drop(entry[0], Cancelled(attempt, entry[0].life))
                    return True
        return False

    # -- outputs

    def _fetch(self, handle: Handle, source: Life) -> None:
        if self._engine.has(handle):
            self._events.append(Held(handle, DRIVER, getattr(self._engine.raw(handle), "bytes", 0)))
        elif not (handle in self._coming or self._is_awaited(handle)):
            self._ask(handle, source)

    def _ask(self, handle: Handle, source: Life) -> None:
        """Have an output brought from a process here."""
        if source in self._dead or (handle, source) in self._owed:
            self._give_up(handle)  # the driver has been told why
        else:
            self._coming[handle] = source
            self._engine.do([Fetch(handle, source)])

    def _packed(self, handle: Handle) -> Arrival:
        found = self._engine.raw(handle)
        return found if type(found) is Arrival else pack(found).arrive()

    # -- what is reported

    def _tell(self, events: Iterable[Event]) -> None:
        said: list[Any] = []
        urgent = False
        for event in events:
            if isinstance(event, Held):
                urgent = event.handle in self._asked or urgent
                said += self._held_here(event)
            elif isinstance(event, FetchFailed):
                urgent = True
                if event.handle in self._asked:
                    said.append(event)
                self._give_up(event.handle, event.failure)
            else:
                if isinstance(event, (Finished, Failed, Cancelled)):
                    urgent = self._end_launch(event.attempt) or urgent
                if isinstance(event, Finished):
                    made = [self._with_driver(one, event.attempt, said) for one in event.made]
                    event = event._replace(made=tuple(made))
                elif isinstance(event, OutputReady):
                    event = event._replace(made=self._with_driver(event.made, event.attempt, said))
                elif isinstance(event, WorkerLost):
                    self._forget_life(event.life)
                urgent = urgent or isinstance(event, (WorkerJoined, WorkerLost, OutputReady))
                said.append(event)
        heard, self._workload.heard = self._workload.heard, []
        if not (said or heard):
            return
        with self._changed:
            self._said += heard + said
            if self._since is None:
                self._since = monotonic()
            self._urgent = self._urgent or urgent
            self._changed.notify_all()

    def _held_here(self, event: Held) -> list[Any]:
        """An output is here: give what is told of it to the driver, if that has asked."""
        said = []
        if event.handle in self._asked:
            self._asked.discard(event.handle)
            said = self._bring(event)
        self._arrived(event.handle)
        return said

    def _with_driver(self, made: Any, attempt: int, said: list[Any]) -> Any:
        """Give what is told of an output; one that this node has goes along if it is not too large."""
        if not made.here:
            return made
        handle = Handle(made.output, attempt)
        value = self._engine.raw(handle)
        if type(value) is Arrival:
            if value.bytes > ALONG:
                return made._replace(here=False)
            value = Content.of(value)
        said.append(Value(handle, value))
        return made

    def _bring(self, event: Held) -> list[Any]:
        """Give what is told of an output that the driver has asked for; it may have been forgotten meanwhile."""
        if not self._engine.has(event.handle):
            return [event]
        value = self._engine.raw(event.handle)
        if type(value) is not Arrival:
            return [Value(event.handle, value), event]
        if value.bytes > ALONG:
            return [TooLarge(event.handle, event.seconds)]
        return [Value(event.handle, Content.of(value)), event]

    def _end_launch(self, attempt: int) -> bool:
        """A launch has ended; say whether its worker has nothing left to do."""
        life, task = self._attempts.pop(attempt, (None, 0))
        if life is None:
            return False
        self._left[life] -= 1
        self._workload.described.pop(task, None)
        return not self._left[life]

    def _forget_life(self, life: Life) -> None:
        for attempt in [number for number, (where, _) in self._attempts.items() if where == life]:
            self._end_launch(attempt)
        self._left.pop(life, None)
        self._held.pop(life, None)  # its loss is told of all that it had
        self._dead.add(life)
        self._owed = {one for one in self._owed if one[1] != life}
        for handle in [one for one, source in self._coming.items() if source == life]:
            self._give_up(handle)
