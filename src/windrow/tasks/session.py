"""A session: tasks that are called in it become a graph, which runs while the program goes on."""

from __future__ import annotations

import sys
import threading
from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from dataclasses import replace
from itertools import count
from time import monotonic
from typing import TYPE_CHECKING, Any, Self

from windrow.core.events import CancelRequested, Closed, Wanted
from windrow.core.records import Task, make_record
from windrow.engines.dask.cluster import ITS_OWN_WORKERS, connect, is_cluster
from windrow.errors import UsageError
from windrow.tasks.body import STREAM
from windrow.tasks.call import MOST, Call, Content, DeclaredFunctions, TaskTraits, has_no_futures, map_nested
from windrow.tasks.declare import Declared, current
from windrow.tasks.devices import Devices
from windrow.tasks.driver import ISOLATED, Driver
from windrow.tasks.failures import last_error, root_of
from windrow.tasks.files.paths import places_of
from windrow.tasks.files.table import FileTable
from windrow.tasks.future import Future, StreamFuture, refuse_in_fork, wait_for
from windrow.tasks.groups import Group, current_group
from windrow.tasks.inout import Versions
from windrow.tasks.options import NamedOptions, check_options
from windrow.tasks.resident import Residents
from windrow.tasks.reuse.cache import BUDGET, Reuse
from windrow.tasks.watched import Watched
from windrow.tasks.weak_table import WeakTable
from windrow.units import parse_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from contextvars import Token
    from os import PathLike
    from pathlib import Path
    from types import TracebackType

    from windrow.tasks.declare import OnFailure
    from windrow.tasks.explain import Explanation
    from windrow.tasks.pack import Packer
    from windrow.tasks.reuse.cache import ReuseStats
    from windrow.watch.progress import SessionSnapshot
    from windrow.watch.task_graph import TaskGraph

#: Seconds without the end of a task after which a program that makes large things goes on.
PATIENCE_S = 5.0

_FUTURE = frozenset((Future,))


class Session(NamedOptions):
    """Where tasks run; as a context it waits for all of them in the end.

    Parameters
    ----------
    engine
        "processes" (isolated, can be limited and killed), "threads" (shared memory), "inline" (one after the other) or
        "auto" (as processes, but on threads where bodies let go of the interpreter's lock).
    workers
        Tasks at a time; by default as many as there are cores.
    resources
        What there is of other things, such as ``{"gpu": 2, "licence": 1}``; of memory, if not all: ``{"memory": "8 GB"}``.
    on_failure
        What becomes of other tasks when one fails, unless the task says so itself.
    reuse
        True: identical calls are one task, and results of earlier runs are used again; "content": also where arrays are
        among the arguments, whose content is hashed then. By default so for tasks that write files alone; False: for none.
    store, store_budget
        The directory where results are kept (by default ``.windrow``, or what WINDROW_STORE says; False: nowhere), and how
        much they may take: those that were used longest ago go first.
    files
        How a file is known to be the same: "stamp" (size and time) or "content".
    initializer
        Called in each worker before its first task. If it raises, nothing can run: the session is over.
    rundir
        A directory for the log of all tasks, from which ``windrow report`` makes a page; without one the latest are
        remembered.
    progress
        None: shown on a terminal, while in the ``with`` block, or in a notebook if it takes long; True: always, as plain
        lines where there is no terminal; False: never; a callable gets a record of numbers now and then.
    """

    tells = True  #: of failures that nobody has looked at

    def __init__(
        self,
        *,
        engine: Any = "processes",
        workers: int | None = None,
        resources: Mapping[str, float | str] | None = None,
        on_failure: OnFailure = "cancel_successors",
        reuse: bool | str | None = None,
        store: str | PathLike[str] | bool | None = None,
        store_budget: str | float = BUDGET,
        files: str = "stamp",
        initializer: Callable[[], object] | None = None,
        rundir: str | PathLike[str] | None = None,
        progress: bool | Callable[[SessionSnapshot], Any] | None = None,
        name: str = "session",
    ) -> None:
        if isinstance(resources, Mapping) and isinstance(resources.get("memory"), str):
            resources = {**resources, "memory": parse_bytes(resources["memory"])}
        check_options("wr.Session", workers=workers, resources=resources, on_failure=on_failure)
        has: dict[str, Any] = dict(resources or {})
        client = None
        if is_cluster(engine):
            engine, client = "dask", connect(engine)
            if workers is not None:
                raise UsageError(ITS_OWN_WORKERS)
        self.name = str(name)
        self.watched = Watched(self.name, engine, rundir, progress)
        self.initializer = initializer
        self.on_failure = on_failure
        self.reuse = reuse
        self.calls: WeakTable[int, Call] = WeakTable()
        self.futures: WeakTable[str, Future] = WeakTable()
        self.open: dict[int, Call] = {}  #: tasks that have not ended
        self.awaited: set[Future] = set()  #: those that call somebody when they are done
        self.changed = threading.Condition()
        self.files = FileTable()
        self._isolated = engine in ISOLATED  #: values may stay where they were made
        self.reusing = Reuse(self, store=store, budget=store_budget, files=files, isolated=self._isolated)
        self.versions = Versions()
        self._numbers = count(1)
        self._groups = count(1)
        self._token: Token[Session | None] | None = None
        self._leaving = False  #: its block has ended
        self._devices = Devices(engine, workers, has)
        self._traits: dict[int, TaskTraits] = {}  #: by the identity of what was declared
        self._functions = DeclaredFunctions()
        self._driver = Driver(self, engine, workers, has, client)
        self.forget = self._driver.forget  #: an output, of which nobody has a future any more
        self._packer = self._driver._packer

    # -- life

    def __enter__(self) -> Self:
        self._token = current.set(self)
        self.watched.watch.within = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            current.reset(self._token)
            self._token = None
        self._leaving = True
        self.close(cancel=error is not None)
        if error is None:
            failed = last_error(list(self._driver.unseen.values()), self._driver.stopped)
            if failed is not None:
                raise failed

    def close(self, *, cancel: bool = False) -> None:
        """Wait for all tasks, or cancel them, and end the workers; in a fork of its process nothing is to be done."""
        if self._driver.forked:
            return
        if cancel:
            why = "its session was left by an exception" if self._leaving else "its session was closed"
            self._driver.tell(CancelRequested(why))
        else:
            self._want_what_is_held()
        self._driver.tell(Closed())
        try:
            self._driver.join()
        finally:
            self.files.close()
            self.reusing.close()
            self._devices.close()
            left = "the program left it by an exception" if cancel else None
            self.watched.close(self._driver.error or self._driver.stopped or left)
        if self.tells and not (cancel or self._leaving):
            error = last_error(list(self._driver.unseen.values()), self._driver.stopped)
            if error is not None:
                notes = "".join(f"; {one}" for one in getattr(error, "__notes__", ())[-1:])
                sys.stderr.write(f"windrow: nobody has looked at {type(error).__name__}: {error}{notes}\n")

    def end_later(self) -> None:
        """End when all tasks have, without waiting for that."""
        self._want_what_is_held()
        self._driver.tell(Closed())

    def _want_what_is_held(self) -> None:
        """Values of futures that the program still has come home before the workers end."""
        for future in self.futures.values():
            if not future.is_here and future.output.rpartition(".")[2].isdigit():
                self.expect(future)

    # -- calls

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Any:
        """Call a plain function as a task, as executors do."""
        known = self._functions.known.get(id(function))
        if known is not None:  # by far the most
            return self.call(known[1], arguments, keywords)
        own = getattr(function, "declared", None)
        if isinstance(own, Declared):
            return self.call(own, arguments, keywords)
        declared = self._functions.declare(function)
        try:
            future = self.call(declared, arguments, keywords)
        finally:
            if id(function) not in self._functions.known:
                self._traits.pop(id(declared), None)
        if self._packer is not None and type(future) is Future and future.call.key is None:
            # It was packed: a future does not keep what a function sees that was made for one call.
            future.call.declared = replace(declared, function=abs)
        return future

    def call(
        self, declared: Declared, arguments: tuple[Any, ...], keywords: Mapping[str, Any], kind: type[Future] = Future
    ) -> Any:
        self._driver.check()
        call = Call(self, next(self._numbers), declared)
        traits = self._traits.get(id(declared))
        plain = traits is not None and traits.plain and not self.versions.any and has_no_futures(arguments)
        if plain and (not keywords or has_no_futures(keywords.values())):
            return self._call_plainly(call, arguments, keywords, kind)
        call.begin(arguments, keywords)
        self.versions.refuse(f"task {declared.name!r}", (arguments, keywords))
        if declared.files:
            self.files.enter(call)
        if declared.reuse or (declared.reuse is None and (self.reuse or declared.files)):
            found = self.reusing.find(call)
            if found is not None:
                self.watched.watch.reused[declared.name] += 1
                return found
        if traits is None:
            traits = self._find_traits(declared)
        self._surround(call, traits.devices)
        changed = self._places(call) if declared.inout else ()
        things = [call.get(place) for place in changed]
        call.take_futures_out()
        futures = self._futures(call, len(changed), kind)
        self._pack(call, call.arguments, call.keywords, changed, tuple(call.around))
        if things:  # not before: what cannot be sent changes nothing
            self._rename(things, call)
        if call.key is not None:
            self.reusing.submitting(call, futures)
        if declared.files:
            self.files.submitted(call)
        after, beside, read = tuple(call.after), tuple(call.beside), call.reads
        call.made()
        self._submit(call, after, beside)
        del read  # not before: an output that is let go before the scheduler knows who reads it has to be made again
        if declared.outputs == STREAM:
            return StreamFuture(self, call, futures[0])
        return futures[0] if declared.outputs == 1 else tuple(futures)

    def share(self, thing: Any) -> Any:
        """Give a thing whose arrays lie where all tasks read them: to be used, and given to tasks, in place of the thing itself.

        An array, or what is made of arrays, such as a dictionary of them or a DataFrame. In processes it is copied once, now;
        parts of it are shared too. It cannot be written to, neither here nor in a task. It is gone with the last reference to it.
        """
        from windrow.tasks.shared_arrays import share

        return share(thing, None if self._packer is None else self._packer.arrays)

    def _call_plainly(
        self, call: Call, arguments: tuple[Any, ...], keywords: Mapping[str, Any], kind: type[Future]
    ) -> Future:
        """Make a task of a call of which nothing is special, as most are: all else takes longer than a short task."""
        name = f"{call.id}.0"
        future = self.futures[name] = kind(self, call, name)
        call.outputs = (name,)
        self._pack(call, arguments, keywords, (), ())
        self._submit(call)
        return future

    def _pack(
        self,
        call: Call,
        arguments: tuple[Any, ...],
        keywords: Mapping[str, Any],
        changed: tuple[int | str, ...],
        around: tuple[Any, ...],
    ) -> None:
        """Say what becomes of other calls if one fails, and make of it what travels to a worker."""
        packer = self._packer
        if packer is not None and packer.is_full():
            self._wait_for_room(packer)
        declared, group = call.declared, current_group(self)
        if group is None:
            call.rule = rule = declared.on_failure or self.on_failure
        else:
            call.rule = rule = declared.on_failure or group.on_failure or self.on_failure
            call.group = group.number
        content = make_record(Content, (
            declared.name, declared.function, arguments, keywords, declared.outputs, changed, rule == "ignore", around,
        ))  # fmt: skip
        call.content = content if packer is None else packer.pack(call.id, content)

    def _submit(self, call: Call, after: tuple[int, ...] = (), beside: tuple[int, ...] = ()) -> None:
        declared = call.declared
        self._driver.submit(
            call,
            make_record(Task, (
                call.id, declared.name, 1, None, call.slots, after, call.outputs, False, declared.needs,
                declared.priority, call.group, None if declared.deadline is None else monotonic() + declared.deadline,
                declared.retries if call.rule == "retry" else 0, declared.restartable and not (declared.files and call.writes_files),
                False, None, beside,
            )),
        )  # fmt: skip

    def _find_traits(self, declared: Declared) -> TaskTraits:
        """Find out what every call of a task needs; refuse one that could never run."""
        if len(self._traits) >= MOST:
            self._traits.clear()
        devices = self._devices.fit(declared, self._driver.offers)
        special = declared.files or declared.reuse or declared.resident or declared.inout or devices
        special = special or declared.command is not None or declared.deadline is not None
        unused = not self.reuse or declared.reuse is False
        traits = TaskTraits(declared, devices, declared.outputs == 1 and unused and not special)
        self._traits[id(declared)] = traits
        return traits

    def _surround(self, call: Call, devices: float) -> None:
        declared = call.declared
        if devices:
            call.around.append(self._devices.claim(declared.name, devices))
        if declared.resident:
            missing = [one for one in declared.resident if call.place(one) is None]
            call.around.append(Residents(tuple(missing)))
        if declared.command is not None:
            call.around.insert(0, declared.command.in_session(call))

    def _futures(self, call: Call, changed: int, kind: type[Future]) -> list[Future]:
        outputs, prefix = call.declared.outputs, f"{call.id}."
        names = [f"{prefix}end"] if outputs == STREAM else [f"{prefix}{n}" for n in range(int(outputs))]
        futures = [kind(self, call, name) for name in names]
        call.outputs = (*names, *[f"{prefix}v{number}" for number in range(changed)], *call.more)
        for future in futures:
            self.futures[future.output] = future
        return futures

    # -- what bodies change

    def _places(self, call: Call) -> tuple[int | str, ...]:
        places = tuple(place for name in call.declared.inout for place in places_of(call, name))
        self.versions.refuse_views(call.name, [call.get(one) for one in places])
        return places

    def _rename(self, things: list[Any], call: Call) -> None:
        for number, thing in enumerate(things):
            self.versions.follow(thing, self.promise(call, f"v{number}"))
        self.versions.note_parts(things, call.name)

    def promise(self, call: Call, name: str) -> Future:
        """Make the future of an output of a task that its caller is not given."""
        future = Future(self, call, f"{call.id}.{name}")
        self.futures[future.output] = future
        return future

    def latest(self, thing: Any) -> Any:
        return self.versions.latest(thing)

    # -- waiting

    def gather(self, things: Any) -> Any:
        """Wait for all futures in a structure of lists, tuples and dictionaries; return it with their values.

        Of what can be walked through only once, as a generator, it makes a list.
        """
        if isinstance(things, Iterator | ValuesView | ItemsView):
            things = list(things)
        self.versions.refuse("session.gather", things)

        asked: list[Future] = []

        # All are asked for before the first is waited for.
        def ask(thing: Any) -> Any:
            latest = self.latest(thing)
            if isinstance(latest, Future):
                self.prepare(latest)
                asked.append(latest)
            return thing

        def value(thing: Any) -> Any:
            if isinstance(thing, StreamFuture):
                return [future.result() for future in thing]
            latest = self.latest(thing)
            return latest.result() if isinstance(latest, Future) else thing

        plain = type(things) is list and not self.versions.any and _FUTURE.issuperset(map(type, things))
        if plain and not self._isolated:  # by far the most: nothing to ask for, and nothing to look into
            asked = things
        else:
            map_nested(things, ask)
        try:
            return [one.result() for one in things] if plain else map_nested(things, value)
        except KeyboardInterrupt as error:
            for one in () if hasattr(error, "__notes__") else asked:  # of the user, not of a task
                one.cancel()
            raise

    def barrier(self, timeout: float | None = None) -> None:
        """Wait until every task that was called has ended, well or badly."""
        self.refuse_to_wait("all tasks")
        with self.changed:
            if not wait_for(self.changed, lambda: not self.open, timeout):
                raise TimeoutError(f"{len(self.open)} tasks had not ended after {timeout} s")

    def group(self, name: str = "", *, on_failure: OnFailure | None = None) -> Group:
        """Tasks called in this context belong together: they can be waited for and cancelled."""
        return Group(self, next(self._groups), name, on_failure)

    @property
    def reuse_stats(self) -> ReuseStats:
        """What was reused so far, and why not more."""
        return self.reusing.stats()

    # -- what happened

    def __repr__(self) -> str:
        counts = self.watched.watch.counts
        more = "".join(f", {counts[one]:,} {one}" for one in ("failed", "cancelled") if counts[one])
        over = ", closed" if self.watched.watch.over else ""
        done = f"{counts['done']:,} of {counts['called']:,} tasks done"
        return f"<session {self.watched.watch.name!r}: {done}{more}{over}>"

    def report(self, path: Any = None) -> Path:
        """Write one HTML page about the tasks so far, and a trace beside it; return where the page is."""
        return self.watched.report(path)

    def graph(self, most: int = 200) -> TaskGraph:
        """Give the tasks called so far as a graph: data, drawing and text; alike ones joined if more than ``most``."""
        from windrow.watch.task_graph import task_graph

        return task_graph(self.watched.run(), most)

    def explain(self, what: Any = None) -> Explanation:
        """Say why a task (a future of it, or its number) took as long as it did, or the whole session."""
        from windrow.tasks.explain import explain

        return explain(self, what)

    # -- the side of futures

    def expect(self, future: Future) -> None:
        """A future will want the value: have it brought when it is there."""
        if future.kept is None:
            self._driver.tell(Wanted(future.output))

    def refuse_to_wait(self, what: str) -> None:
        """Raise where a wait would never end: in the thread that runs the session, or where no thread does."""
        refuse_in_fork(self._driver, f"{what} cannot be waited for")
        if threading.get_ident() == self._driver.thread.ident:
            raise UsageError(
                f"{what} cannot be waited for in the session's own thread, which would wait for itself: done-callbacks run there, and "
                'bodies with engine="inline"; give the future to a task, or wait for it where the task was called'
            )

    def _wait_for_room(self, packer: Packer) -> None:
        """Wait until less of what calls were given waits for being sent, as long as tasks end meanwhile."""
        driver = self._driver
        if driver.forked or threading.get_ident() == driver.thread.ident:
            return
        with self.changed:
            while packer.is_full() and self.open and not driver.over:
                before = len(self.open)
                if not self.changed.wait_for(lambda: len(self.open) < before or driver.over, PATIENCE_S):  # noqa: B023
                    return  # they may wait for the program

    def prepare(self, future: Future) -> None:
        """A thread will wait for the value: have it brought if it does not come by itself."""
        if self._isolated and not future.is_here:
            self.expect(future)

    def seen(self, future: Future) -> None:
        """The program has looked at the end of a task, and so of all that led to it."""
        if future.done():
            self._driver.unseen.pop(future.call.id, None)
            self._driver.unseen.pop(root_of(future.call).id, None)

    def unwanted(self) -> bool:
        return self._driver.unwanted

    def cancel_task(self, call: Call) -> None:
        self._driver.tell(CancelRequested("cancel() was called", task=call.id))

    def cancel_groups(self, numbers: Iterable[int]) -> None:
        """Cancel the tasks of groups; those that run are told before this returns, so that they publish no file later."""
        groups, driver = frozenset(numbers), self._driver
        driver.tell(CancelRequested("its group was cancelled", groups))
        if driver.forked or threading.get_ident() == driver.thread.ident:
            return
        mine = [one.id for one in list(self.open.values()) if one.group in groups]
        with self.changed:
            self.changed.wait_for(lambda: driver.over or not any(one in self.open for one in mine), PATIENCE_S)
