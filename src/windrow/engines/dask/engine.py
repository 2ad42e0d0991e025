"""Workers on a Dask cluster: each worker of Dask is a node with processes of our own, and what they do is decided here.

A task of Dask carries a batch of orders to a node and its reports back, pinned to that worker, so that Dask never runs anything a second
time. Nodes come and go while the run goes on. One thread asks who is there, one takes in what tasks of Dask gave; all else happens in
the thread of the run.
"""

from __future__ import annotations

import math
import pickle
import queue
import sys
import threading
import warnings
import weakref
from collections import deque
from functools import partial
from pathlib import Path
from secrets import token_hex
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any

from windrow.core.commands import Discard, Fetch, Launch, StartWorker
from windrow.core.events import (
    Cancelled,
    CopyLost,
    DrainRequested,
    Event,
    FetchFailed,
    Finished,
    Held,
    OutputReady,
    PoolChanged,
    WorkerJoined,
    WorkerLost,
)
from windrow.core.records import DRIVER, Failure, FailureKind, Handle, Life, Needs
from windrow.engines.base import Capabilities
from windrow.engines.dask import node as nodes
from windrow.engines.dask.cluster import HUNG_S, Member, left_s, present
from windrow.engines.dask.remote import ENDING_S, GONE, DaskTasks, RemoteNode, all_of
from windrow.engines.dask.words import (
    ALONG,
    Content,
    Forgotten,
    LaunchOrder,
    NewWorkload,
    NotComing,
    PackedCall,
    Report,
    Setup,
    TooLarge,
    Value,
)
from windrow.engines.processes import messages
from windrow.engines.processes.messages import News, Packed
from windrow.engines.processes.serialize import dumps
from windrow.engines.processes.startup import pack_workload, preload
from windrow.engines.processes.transport import APART, Arrival, Lent, Parcel
from windrow.engines.processes.values import own_copy
from windrow.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from windrow.core.commands import EngineCommand
    from windrow.engines.base import Workload

#: Seconds between two looks who is there; more where that are many.
LOOK_S, LOOK_S_EACH = 0.5, 0.005
#: Seconds without any worker after which that is said.
ALONE_S = 5.0
#: Seconds that something takes of which nothing is known: more than nothing.
LITTLE_S = 0.001
#: Why a worker gets no more work whose worker of Dask is retired.
RETIRED = "its worker of Dask is retired"


class DaskEngine:
    """Processes on the workers of a Dask cluster."""

    capabilities = Capabilities(can_kill=True, can_restart=True, isolates=True)
    work_cpu_s = 0.0

    def __init__(
        self,
        client: Any,
        *,
        number: int = 0,
        memory: int | None = None,
        load: Sequence[str] | None = None,
        pooled: bool = False,
    ) -> None:
        self._alone_since: float | None = None  #: when the last node had gone; infinite: that was said
        self._client = client
        self._memory = memory  #: of each node at most
        self._load = load
        self._pooled = pooled  #: tasks may need several cores, so these are a node's and not a worker's
        self._run = token_hex(4)
        self._nodes: dict[str, RemoteNode] = {}  #: by address
        self._by_life: dict[Life, RemoteNode] = {}
        self.seen: set[str] = set()  #: addresses of nodes that took part
        self.lost = self.left = 0  #: of these, and those that handed over what they had before they went
        self.unfit: dict[str, str] = {}  #: nodes that are of no use, and why
        self.left_s: Callable[[], float | None] = lambda: None  #: of one core: the work that is left
        self._cluster = ""  #: by which its scheduler is known
        self._ended, self._took_s = 0, 0.0  #: tasks, and what they took
        self._count = 0
        self._next_worker = number
        self._workload: Any = None
        self._packed: Content | None = None  #: the workload as it is now
        #: of a large workload: the address of the node that hands it to further nodes, and its task of Dask
        self._shared: tuple[str, Any] | None = None
        self._events: list[Event] = []
        self._outputs: dict[Handle, Any] = {}  #: that are here
        self._opened: dict[Handle, Any] = {}
        self._where: dict[Handle, set[Life]] = {}
        self._fetching: dict[Handle, list[Fetch]] = {}
        #: outputs on their way to a node: where they come from, and the task of Dask that takes them in
        self._moving: dict[tuple[Handle, str], tuple[Any, Any]] = {}
        self._lends = True  #: outputs to those on the same machine
        self._gone: deque[int] = deque()  #: of what calls share: what none needs any more
        self._heard: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._tasks = DaskTasks(client, self._heard)
        self._submit = self._tasks.submit
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []

    # -- beginning

    def start(self, workload: Workload) -> None:
        self._workload = workload
        self._content()  # what cannot be sent is refused before anybody is asked for
        self._cluster = self._client.scheduler_info()["id"]
        self._see(present(self._client))
        for name, target in (("watch", self._watch), ("receive", self._tasks.receive)):
            thread = threading.Thread(target=target, name=f"windrow-dask-{name}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def _watch(self) -> None:
        pause, answered = LOOK_S, monotonic()
        while not self._over.wait(pause):
            try:
                found: Any = present(self._client)
                pause, answered = max(LOOK_S, LOOK_S_EACH * len(found)), monotonic()
            except EngineError as error:
                if self._client.status == "connecting" and monotonic() - answered < HUNG_S:
                    continue  # Dask tries for a while
                found = error
            if self._client.status not in ("running", "connecting") and not self._over.is_set():
                found = EngineError(
                    f"the connection to the Dask scheduler is {self._client.status}: it has stopped, or the client was closed; "
                    "what was done is kept where rundir= was given, and resume=True goes on with it"
                )
            self._heard.put(found)
            if isinstance(found, EngineError):
                return

    def _see(self, present: Mapping[str, Member]) -> None:
        """Take in who is there now, and say what is left to do for more."""
        left_s.setdefault(self._cluster, {})[self._run] = _or_little(self.left_s())
        for lost in [one for address, one in self._nodes.items() if address not in present]:
            self._lose(lost, "is gone: it was ended, it crashed, or the connection to it broke")
        for address, member in present.items():
            node = self._nodes.get(address)
            if node is None:
                if not (member.leaving or address in self.unfit):
                    self._begin(address, member.cores, member.memory)
            elif member.leaving and not node.leaving:
                self._let_go(node)
        now = monotonic()
        if self._nodes:
            self._alone_since = None
        elif self._alone_since is None:
            self._alone_since = now
        elif now - self._alone_since > ALONE_S:
            self._alone_since = math.inf
            warnings.warn(
                "the Dask cluster has no workers that can be used: the run waits until some come (cluster.scale(...)); Ctrl-C ends it",
                RuntimeWarning,
                stacklevel=2,
            )

    def _begin(self, address: str, cores: int, memory: int) -> None:
        limits = [one for one in (memory, self._memory or 0) if one]
        node = self._nodes[address] = RemoteNode(
            self._run, self._count, address, self._next_worker, cores, min(limits, default=0)
        )
        self._count += 1
        self._next_worker += cores
        for worker in range(node.first, node.first + cores):
            self._by_life[Life(worker, 0)] = node
            node.lives.add(Life(worker, 0))
        load = list(preload() if self._load is None else self._load)
        place = str(Path.cwd()), list(map(str, sys.path))
        self._exchange(node, Setup(node.first, cores, load, nodes.versions(), place), self._share(node))
        node.anchor = self._submit(node, "anchor", None, nodes.anchor)

    def _let_go(self, node: RemoteNode) -> None:
        """The worker of Dask of a node is retired: have what the node has brought away, while Dask waits for it."""
        if not node.joined:
            self._lose(node, "was to go before it had begun")
            return
        node.leaving = True
        for handle, address in list(self._moving):
            if address == node.address:
                self._tasks.forget(self._moving.pop((handle, address))[1])
                node.orders.append(NotComing(handle))
        # Dask may not have begun the tasks that were to bring these.
        for number, (orders, task) in list(node.unanswered.items()):
            self._submit(node, "", partial(self._heard_late, node, number, task), nodes.hear, number, orders)
        self._events += [DrainRequested(life, RETIRED) for life in sorted(node.lives)]

    def _heard_late(self, node: RemoteNode, number: int, task: Any, new: bool | None, why: str) -> None:
        if new:  # nobody else answers
            self._tasks.forget(task)
            self._reported(node, Report(number, b""), "")
        elif why:
            self._reported(node, None, why)

    def _depart(self, node: RemoteNode) -> None:
        """A node has handed over what it had: its worker of Dask may go."""
        del self._nodes[node.address]
        self.left += 1
        self._submit(node, "", lambda *_: node.anchor.release(), nodes.end)

    def _content(self) -> Content:
        if self._packed is None:
            self._packed = Content.of(pack_workload(self._workload).arrive())
            self._shared = None
        return self._packed

    def _share(self, node: RemoteNode) -> Any:
        """Give what brings the workload to a node: a large one goes from the first node that has it to the others."""
        content = self._content()
        if len(content.body) <= ALONG:
            return content
        if self._shared is None:
            self._shared = node.address, self._submit(node, "work", None, nodes.keep, content)
        node.brought_by = self._shared[0]
        return self._shared[1]

    def _exchange(self, node: RemoteNode, setup: Setup | None = None, workload: Any = None) -> None:
        """Send a node its orders; the answer comes when something has happened there."""
        orders, node.orders = pickle.dumps(node.orders, 5), []
        number = node.sent
        node.sent += 1
        task = self._submit(
            node, "orders", partial(self._reported, node), nodes.exchange, number, orders, setup, workload
        )
        node.unanswered[number] = orders, task

    # -- commands

    def do(self, commands: Sequence[EngineCommand]) -> None:
        """Write orders down for nodes and send them; those for a life that is over are dropped, as its loss is reported."""
        self._tell_gone()
        for command in commands:
            if isinstance(command, Launch):
                self._launch(command)
            elif isinstance(command, Discard):
                self._discard(command)
            elif isinstance(command, Fetch):
                self._fetch(command)
            elif isinstance(command, StartWorker):
                self._start_worker(command)
            else:
                node = self._by_life.get(command.life)
                if node is not None:
                    node.orders.append(command)
        for node in list(self._nodes.values()):
            if node.orders:
                self._exchange(node)

    def _start_worker(self, command: StartWorker) -> None:
        life = command.life
        former = [one for one in self._nodes.values() if one.first <= life.worker < one.first + one.cores]
        known = [one for one in self._nodes.values() if any(life.worker == other.worker for other in one.lives)]
        able = former or known or sorted(self._nodes.values(), key=lambda one: len(one.lives))
        able = [one for one in able if not one.leaving]
        if not able:
            self._events.append(WorkerLost(life, _lost("there is no node for it"), final=True))
            return
        node = able[0]
        node.lives.add(life)
        self._by_life[life] = node
        if node.stale:
            node.orders.append(NewWorkload(self._content()))
            node.stale = False
        node.orders.append(command)

    def _launch(self, launch: Launch) -> None:
        node = self._by_life.get(launch.life)
        if node is None:
            return
        task = launch.task
        content = self._workload.content(task)
        if content is None:
            self._events += [CopyLost(launch.inputs[position], launch.life) for position in launch.bring]
            self._events.append(Cancelled(launch.attempt, launch.life))
            return
        call, common = None, dict[int, Content]()
        if content is not task.payload:
            if not isinstance(content, Packed):
                content = messages.pack_call(task.id, *dumps(content, apart=APART), {})
            call = PackedCall(
                content.small,
                None if content.parcel is None else Content.of(content.parcel.arrive()),
                tuple(content.common),
                content.apart,
            )
            common = self._missing_common(node, content.common)
            task = task._replace(payload=None)
        along: dict[Handle, Any] = {}
        awaited: list[tuple[Handle, Life | None]] = []
        for position in launch.bring:
            handle = launch.inputs[position]
            self._bring(node, handle, along, awaited)
            self._where.setdefault(handle, set()).add(launch.life)
        node.orders.append(
            LaunchOrder(
                launch._replace(task=task, plan=None),  # type: ignore[arg-type] # it is put back there
                node.name_plan(launch.plan), self._workload.describe(launch.task), call, common, along, tuple(awaited),
            )
        )  # fmt: skip
        if node.leaving:  # Dask brings it nothing any more
            node.orders += [NotComing(handle) for handle, source in awaited if source is None]

    def _missing_common(self, node: RemoteNode, common: Mapping[int, Parcel]) -> dict[int, Content]:
        missing = {number: parcel for number, parcel in common.items() if number not in node.common}
        for number, parcel in missing.items():
            weakref.finalize(parcel, self._gone.append, number).atexit = False
        node.common.update(missing)
        return {number: Content.of(parcel.arrive()) for number, parcel in missing.items()}

    def _tell_gone(self) -> None:
        numbers = set()
        while self._gone:
            numbers.add(self._gone.popleft())
        for node in self._nodes.values():
            if numbers & node.common:
                node.orders.append(Forgotten(tuple(numbers & node.common)))
                node.common -= numbers

    def _bring(
        self, node: RemoteNode, handle: Handle, along: dict[Handle, Any], awaited: list[tuple[Handle, Life | None]]
    ) -> None:
        """See to it that a node has an output that a launch reads."""
        holders = self._where.get(handle, set())
        there = next((life for life in sorted(holders) if life in node.lives), None)
        if there is not None:
            awaited.append((handle, there))
            return
        output = self._outputs.get(handle)
        if handle in self._outputs and not (type(output) is Arrival and output.bytes > ALONG):
            along[handle] = Content.of(output) if type(output) is Arrival else output
            return
        awaited.append((handle, None))
        if node.leaving or (handle, node.address) in self._moving:
            return
        source: Any
        if type(output) is Arrival:
            source = (output.lend() if self._is_near(node) else None) or Content.of(output)
        else:
            source = self._hand_out(handle, sorted(holders), node)

        def arrived(_: Any, why: str) -> None:
            self._moving.pop((handle, node.address), None)
            if why and self._nodes.get(node.address) is node:
                if type(source) is Lent or getattr(source, "key", "").startswith("windrow-lend-"):
                    self._lends = self._lends and why == GONE  # else the next time it is brought whole
                node.orders.append(NotComing(handle))

        self._moving[handle, node.address] = source, self._submit(node, "take", arrived, nodes.take_in, handle, source)

    def _hand_out(self, handle: Handle, holders: Sequence[Life], to: RemoteNode) -> Any:
        """Have a node give an output to another one, of the same machine if there is one there; None if none has it."""
        able = [(self._by_life[life], life) for life in holders if life in self._by_life]
        able = sorted((one for one in able if not one[0].leaving), key=lambda one: not self._is_near(one[0], to))
        if not able:
            return None  # as the one who waits for it finds out
        (node, life), near = able[0], self._is_near(able[0][0], to)
        if near:
            return self._submit(node, "lend", None, nodes.hand_out, handle, life, near)
        given = [source for (what, _), (source, _) in self._moving.items() if what == handle]
        moving = next((one for one in given if getattr(one, "key", "").startswith("windrow-give-")), None)
        return moving or self._submit(node, "give", None, nodes.hand_out, handle, life)

    def _is_near(self, node: RemoteNode, other: RemoteNode | None = None) -> bool:
        """Say whether a node is on the same machine as another one, or as the driver, which then need no copies."""
        return self._lends and (node.is_here if other is None else node.host == other.host)

    def _fetch(self, command: Fetch) -> None:
        node = self._by_life.get(command.source)
        if node is not None:
            self._fetching.setdefault(command.handle, []).append(command)
            node.orders.append(command._replace(open=False))

    def _discard(self, command: Discard) -> None:
        handle = command.handle
        told: dict[str, list[Life]] = {}
        for holder in command.holders:
            if isinstance(holder, Life):
                self._where.get(handle, set()).discard(holder)
                node = self._by_life.get(holder)
                if node is not None:
                    told.setdefault(node.address, []).append(holder)
            else:
                self._outputs.pop(handle, None)
                self._opened.pop(handle, None)
                self._fetching.pop(handle, None)
        if not self._where.get(handle):
            self._where.pop(handle, None)
        for address, lives in told.items():
            self._nodes[address].orders.append(Discard(handle, tuple(lives)))

    # -- events

    def wait(self, timeout: float | None) -> list[Event]:
        deadline = None if timeout is None else monotonic() + timeout
        woken = False
        while not (self._events or woken):
            for node in list(self._nodes.values()):
                if node.orders or node.answered == node.sent:
                    self._exchange(node)
            left = None if deadline is None else max(0.0, deadline - monotonic())
            for heard in all_of(self._heard, left):
                woken = self._take_note(heard) or woken
            if deadline is not None and monotonic() >= deadline:
                break
        events, self._events = self._events, []
        return events

    def _take_note(self, heard: Any) -> bool:
        """Take in what a thread has heard; True if somebody only rang."""
        if heard is None:
            return True
        if isinstance(heard, EngineError):
            raise heard
        if isinstance(heard, dict):
            self._see(heard)
        else:
            self._tasks.settle(*heard)
        return False

    def wake(self) -> None:
        self._heard.put(None)  # allowed in a signal handler

    def _reported(self, node: RemoteNode, report: Report | None, why: str) -> None:
        if self._nodes.get(node.address) is not node:
            return
        if why == GONE:
            self._lose(node, "does not answer: the connection to it broke, or to the scheduler")
            return
        if report is None:
            self._break(node, why)
            return
        node.reports[report.number] = report
        node.unanswered.pop(report.number, None)
        while node.answered in node.reports:
            next_one = node.reports.pop(node.answered)
            node.answered += 1
            for said in pickle.loads(next_one.said) if next_one.said else ():  # noqa: S301 - from our own nodes
                self._hear(node, said)
            if next_one.broken == nodes.FORGOTTEN:
                self._lose(node, "was begun again")
                return
            if next_one.broken:
                self._break(node, next_one.broken)
                return
        if node.leaving and not node.lives:
            self._depart(node)

    def _hear(self, node: RemoteNode, said: Any) -> None:
        kind = type(said)
        if kind is Value:
            self._outputs[said.handle] = said.value.arrive() if type(said.value) is Content else said.value
        elif kind is News:
            self._workload.hear(said.news)
            self._packed = None
            for one in self._nodes.values():
                one.stale = True
        elif kind is TooLarge:
            fetches = self._fetching.get(said.handle)
            if fetches:
                self._ask_for(node, said, fetches[0].source)
            else:
                self._events.append(Held(said.handle))
        elif kind is Held:
            self._arrived(said)
        else:
            if kind is WorkerJoined:
                said = self._joined(node, said)
            elif kind is WorkerLost:
                self._forget(said.life)
            elif kind is Finished:
                self._ended += 1
                self._took_s += said.measurement.wall
                for made in said.made:
                    self._where.setdefault(Handle(made.output, said.attempt), set()).add(said.life)
            elif kind is OutputReady:
                self._where.setdefault(Handle(said.made.output, said.attempt), set()).add(said.life)
            elif kind is FetchFailed:
                self._fetching.pop(said.handle, None)
            elif kind is CopyLost:
                self._where.get(said.handle, set()).discard(said.life)
            self._events.append(said)
            if kind is WorkerJoined and node.leaving:
                self._events.append(DrainRequested(said.worker.life, RETIRED))

    def _joined(self, node: RemoteNode, event: WorkerJoined) -> WorkerJoined:
        self.seen.add(node.address)
        offers = Needs.of({"memory": node.memory, "cores": node.cores if self._pooled else 0})
        if offers.amounts and not node.joined:
            self._events.append(PoolChanged(node.pool, offers))
        node.joined = True
        return WorkerJoined(event.worker._replace(pools=(node.pool,) if offers.amounts else ()))

    def _ask_for(self, node: RemoteNode, told: TooLarge, source: Life) -> None:
        begin = perf_counter()

        def arrived(content: Content | Lent | None, why: str) -> None:
            if content is not None:
                try:
                    self._outputs[told.handle] = arrival = content.arrive()
                except OSError:  # it was lent, and is not to be had
                    self._lends = False
                    self._ask_for(node, told, source)
                    return
                self._arrived(Held(told.handle, DRIVER, arrival.bytes, told.seconds + perf_counter() - begin))
            elif node.address in self._nodes:
                failure = Failure(FailureKind.LOST, "OutputLost", f"{told.handle.output} did not arrive: {why}")
                self._events.append(FetchFailed(told.handle, source, failure))

        self._submit(node, "give", arrived, nodes.hand_out, told.handle, source, self._is_near(node))

    def _arrived(self, held: Held) -> None:
        """An output that was asked for is here: open it if the program itself wants it."""
        handle = held.handle
        fetches = self._fetching.pop(handle, [])
        if not fetches:  # nobody wants it any more
            self._outputs.pop(handle, None)
        output = self._outputs.get(handle)
        if type(output) is Arrival and fetches[0].open:
            try:
                self._opened[handle] = output.open(own=True)
            except Exception as error:  # noqa: BLE001 - a user's object that cannot be made again
                message = (
                    f"a result of worker {fetches[0].source.worker} was pickled there but cannot be unpickled here "
                    f"({type(error).__name__}: {error}); return something that can be"
                )
                failure = Failure(FailureKind.USER, type(error).__name__, message, "", error)
                self._events.append(FetchFailed(handle, fetches[0].source, failure))
                return
        self._events.append(held)

    def mean_s(self) -> float:
        """What a task has taken so far."""
        return _or_little(self._took_s / self._ended if self._ended else None)

    def has(self, handle: Handle) -> bool:
        return handle in self._outputs

    def give(self, handle: Handle, value: Any) -> None:
        self._outputs[handle] = value

    def take(self, handle: Handle, *, mine: bool = False) -> Any:
        output = self._outputs.pop(handle) if mine else self._outputs[handle]
        if type(output) is not Arrival:
            return output if mine else own_copy(output, {})
        return self._opened.pop(handle) if handle in self._opened else output.open(own=not mine)

    # -- ends

    def _forget(self, life: Life) -> None:
        node = self._by_life.pop(life, None)
        if node is not None:
            node.lives.discard(life)
        for handle in [one for one, holders in self._where.items() if life in holders]:
            self._where[handle].discard(life)

    def _break(self, node: RemoteNode, why: str) -> None:
        """A node is of no use, though its worker of Dask may live on."""
        self.unfit[node.address] = why
        self._lose(node, f"cannot be used: {why}")
        if not (self._nodes or self.seen):
            table = "\n".join(f"  {address}: {reason}" for address, reason in self.unfit.items())
            raise EngineError(
                f"no worker of the Dask cluster can be used:\n{table}\nInstall the same versions there, and begin it again"
            )

    def _lose(self, node: RemoteNode, how: str) -> None:
        if self._nodes.pop(node.address, None) is None:
            return  # with the one that was to hand it the workload
        self.lost += node.joined
        if self._shared is not None and self._shared[0] == node.address:
            self._shared = None
            for other in [one for one in self._nodes.values() if one.brought_by == node.address and not one.joined]:
                self._lose(other, "could not be begun")  # it is begun again when it is seen the next time
        for life in sorted(node.lives):
            self._forget(life)
            self._events.append(
                WorkerLost(life, _lost(f"worker {life.worker} was lost, as its node {how}"), final=True)
            )
        self._tasks.forget_all(node)
        for (handle, address), (source, taking) in list(self._moving.items()):
            if address == node.address:
                del self._moving[handle, address]
            elif f"-{node.run}-" in getattr(source, "key", ""):
                del self._moving[handle, address]
                self._nodes[address].orders.append(NotComing(handle))
                self._tasks.forget(taking)

    def stop(self) -> None:
        """End the nodes' processes, and leave nothing with Dask."""
        if self._over.is_set():
            return
        self._over.set()
        left_s.get(self._cluster, {}).pop(self._run, None)
        self._tasks.end(list(self._nodes.values()))
        for thread in self._threads:
            thread.join(ENDING_S)
        self._shared = None  # what is not held is not kept by Dask either
        self._moving.clear()
        self._nodes.clear()
        self._outputs.clear()
        self._opened.clear()
        self._events.clear()


def _or_little(seconds: float | None) -> float:
    return LITTLE_S if seconds is None else seconds


def _lost(message: str) -> Failure:
    return Failure(FailureKind.LOST, "WorkerLost", message)
