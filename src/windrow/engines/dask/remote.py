"""A node as the driver sees it, and the tasks of Dask by which it is asked for something."""

from __future__ import annotations

import queue
import threading
import warnings
from contextlib import suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from windrow.engines.dask import node as nodes
from windrow.engines.dask.words import Content

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from windrow.core.records import Life, Plan
    from windrow.engines.dask.words import Report

#: Why a task of Dask gave nothing, if not because it failed.
GONE = "it was lost on the way"
#: Bytes of what a task of Dask is given of which Dask may say that they are many.
MANY = 1 << 20
#: Seconds that nodes have to end their processes when the run is over.
ENDING_S = 10.0


class RemoteNode:
    """A node as the driver sees it."""

    def __init__(self, run: str, number: int, address: str, first: int, cores: int, memory: int) -> None:
        self.run = f"{run}-{number}"  #: by which it is known there: one that is begun again has nothing of what it had
        self.number = number
        self.address = address
        self.host = address.partition("://")[2].rpartition(":")[0]
        self.first = first  #: number of its first worker
        self.cores = cores
        self.memory = memory  #: bytes that its workers may use together; 0: no limit is known
        self.lives: set[Life] = set()  #: that have begun or were told to
        self.orders: list[Any] = []  #: to be sent with the next batch
        self.sent = 0  #: batches
        self.answered = 0  #: of these, in order
        self.unanswered: dict[int, tuple[bytes, Any]] = {}  #: batches, with their tasks of Dask
        self.reports: dict[int, Report] = {}  #: whose turn has not come
        self.joined = False
        self.plans: dict[int, tuple[int, Plan]] = {}  #: that it was sent, by identity, with their numbers
        self.common: set[int] = set()  #: what calls share, that it was sent
        self.brought_by = ""  #: address of the node that hands it the workload
        self.stale = False  #: it has the workload as it was before news came
        self.leaving = False  #: its worker of Dask is retired and takes no tasks: it hands over what it has
        self.anchor: Any = None  #: the task of Dask that gave its ``Anchor``

    @property
    def is_here(self) -> bool:
        """Whether it is on the driver's machine, as far as its address tells."""
        with suppress(ValueError):  # a name
            return ip_address(self.host).is_loopback
        return False

    @property
    def pool(self) -> str:
        return f"node {self.number}"

    def name_plan(self, plan: Plan) -> Any:
        known = self.plans.get(id(plan))
        if known is not None:
            return known[0]
        self.plans[id(plan)] = (len(self.plans), plan)
        return self.plans[id(plan)]


class DaskTasks:
    """The tasks of Dask of a run. What they give is put into a queue, with what is to be done with it."""

    def __init__(self, client: Any, heard: queue.SimpleQueue[Any]) -> None:
        self._client = client
        self._heard = heard
        self._count = 0
        self._then: dict[Any, Callable[[Any, str], None]] = {}  #: by task: what is done with what it gives
        self._done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._talks: list[threading.Thread] = []  #: with nodes whose worker of Dask is retired

    def submit(
        self, node: RemoteNode, what: str, then: Callable[[Any, str], None] | None, function: Any, *args: Any
    ) -> Any:
        """Have a task of Dask run at a node; ``then`` is given what it gives, or why there is nothing. None: another task is.

        Where the worker of Dask runs none any more, the node is asked otherwise, and there is no task.
        """
        if node.leaving:
            name = f"windrow-dask-talk-{node.number}"
            self._talks.append(threading.Thread(target=self._talk, args=(node, then, function, args), name=name))
            self._talks[-1].start()
            return None
        self._count += 1
        key = f"windrow-{what}-{node.run}-{self._count}"
        if any(_size(one) > MANY for one in args):
            with warnings.catch_warnings():  # it is for all threads, so for what is rare only
                warnings.filterwarnings("ignore", "Sending large graph", UserWarning)  # it goes to one node, once
                task = self._submit(node, key, function, args)
        else:
            task = self._submit(node, key, function, args)
        if then is not None:
            self._then[task] = then
            task.add_done_callback(self._done.put)
        return task

    def _submit(self, node: RemoteNode, key: str, function: Any, args: Sequence[Any]) -> Any:
        return self._client.submit(
            function, node.run, *args, key=key, workers=[node.address], allow_other_workers=False, retries=0, pure=False
        )

    def _talk(self, node: RemoteNode, then: Any, function: Any, args: Sequence[Any]) -> None:
        """Ask a node whose worker of Dask runs no tasks any more."""
        value, why = None, ""
        try:
            value = self._client.run(nodes.talk, node.run, function, *args, workers=[node.address])[node.address].value
        except Exception:  # noqa: BLE001 - it is gone, or what it was asked for is
            why = GONE
        self._heard.put((then, value, why))

    def receive(self) -> None:
        """Take in what tasks of Dask gave, several at once, until the end."""
        while True:
            found = all_of(self._done, None)
            if None in found:
                return
            good = [one for one in found if one.status == "finished"]
            values: dict[Any, Any] = {}
            try:
                values.update(zip(good, self._client.gather(good), strict=True) if good else ())
            except Exception:  # noqa: BLE001 - the worker of one is gone: the others are still there
                for one in good:
                    with suppress(Exception):
                        values[one] = one.result()
            for one in found:
                self._heard.put((one, values.get(one), "" if one in values else _why(one)))

    def settle(self, task: Any, value: Any, why: str) -> None:
        """Do what is to be done with what a task gave, or somebody said without one."""
        then = task if callable(task) else self._then.pop(task, None)
        if then is not None:
            then(value, why)

    def forget(self, task: Any) -> None:
        if self._then.pop(task, None) is not None:
            task.release()

    def forget_all(self, node: RemoteNode) -> None:
        for task in [one for one in self._then if f"-{node.run}-" in one.key]:
            self.forget(task)

    def end(self, left: Sequence[RemoteNode]) -> None:
        """End the nodes' processes, and leave nothing with Dask."""
        ended: list[Any] = []
        with suppress(Exception):  # the cluster is gone, and its processes with it
            ended = [self.submit(node, "end", None, nodes.end) for node in left]
            from distributed import wait

            with self._client.as_current():
                # Of what is released before its end Dask complains there.
                wait([*filter(None, ended), *self._then], timeout=ENDING_S)
        self._done.put(None)
        for thread in self._talks:
            thread.join(ENDING_S)
        for task in (*self._then, *filter(None, ended), *(node.anchor for node in left)):
            with suppress(Exception):
                task.release()
        self._then.clear()


def all_of(waiting: queue.SimpleQueue[Any], timeout: float | None) -> list[Any]:
    """Take all that is in a queue, waiting for the first of it."""
    found = []
    with suppress(queue.Empty):
        found.append(waiting.get(timeout=timeout))
        while True:
            found.append(waiting.get_nowait())
    return found


def _why(task: Any) -> str:
    """Say why a task of Dask gave nothing."""
    problem = task.exception() if task.status == "error" else None
    return GONE if problem is None else f"{type(problem).__name__}: {problem}"


def _size(value: Any) -> int:
    return len(getattr(value, "body", value)) if isinstance(value, (bytes, Content)) else 0
