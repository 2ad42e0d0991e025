"""Tiny tasks for Windrow's worker processes: by the engine's own words, and through scheduler and loop."""

from __future__ import annotations

import os
import socket
import time
from itertools import count as numbers
from itertools import islice
from typing import Any

import numpy as np
from processes_common import MEGABYTE, WINDOW, WORKERS, double, make, timed, tiny
from protocol import serve
from row_work import RowWork

from windrow.core.commands import Discard, Fetch, Launch
from windrow.core.events import Finished, Held, Started, WorkerJoined
from windrow.core.policies import Policies
from windrow.core.records import DRIVER, Handle, InputSpec, Life, Plan, Rows, RunRows, Task
from windrow.core.rows import RowFeeder
from windrow.core.scheduler import Scheduler
from windrow.engines.processes.engine import ProcessesEngine
from windrow.engines.processes.transport import Link, pack
from windrow.run.loop import run as run_loop
from windrow.shape.fixed import Fixed

PLAN = Plan(id=0, category="data")
TINY, MAKE, IMPORTING = range(3)
UNIT = 10


class Work(RowWork):
    """Tiny tasks; one that makes a megabyte; one that needs the usual libraries."""

    def run_rows(self, part: Rows) -> Any:
        if part.input == MAKE:
            return make(part.start)
        if part.input == IMPORTING:
            import awkward  # noqa: F401
            import hist  # noqa: F401
            import uproot  # noqa: F401
        return tiny(part.start)


_engines: dict[bool, ProcessesEngine] = {}
_number = numbers(1)


def engine_with(metering: bool) -> ProcessesEngine:
    if metering not in _engines:
        engine = _engines[metering] = ProcessesEngine(WORKERS, metering=metering)
        engine.start(Work())
        ready = 0
        while ready < WORKERS:
            ready += sum(isinstance(event, WorkerJoined) for event in engine.wait(None))
    return _engines[metering]


def launch(worker: int, source: int, start: int) -> Launch:
    number = next(_number)
    task = Task(number, "data", 1, RunRows((Rows(source, start, start + 1),)), makes=("p",))
    return Launch(task, number, Life(worker, 0), PLAN)


def results(engine: ProcessesEngine) -> list[tuple[Life, Any]]:
    """Results of tasks that have ended, and where: small ones come with the report, others are asked for."""
    found: list[tuple[Life, Any]] = []
    while not found:
        for event in engine.wait(None):
            if isinstance(event, Finished):
                handle = Handle("p", event.attempt)
                if event.made[0].here:
                    found.append((event.life, engine.take(handle, mine=True)))
                    engine.do([Discard(handle, (event.life,))])
                else:
                    engine.do([Fetch(handle, event.life, open=True), Discard(handle, (event.life,))])
            elif isinstance(event, Held):
                found.append((Life(0, 0), engine.take(event.handle, mine=True)))
    return found


def finished(engine: ProcessesEngine) -> list[Finished]:
    found: list[Finished] = []
    while not found:
        found = [event for event in engine.wait(None) if isinstance(event, Finished)]
    return found


def round_trips(engine: ProcessesEngine, count: int) -> None:
    for number in range(count):
        engine.do([launch(number % WORKERS, TINY, number)])
        ((_, result),) = results(engine)
        assert result == number + 1


def throughput(engine: ProcessesEngine, count: int) -> None:
    """All results are wanted here."""
    starts = iter(range(count))
    commands = [launch(worker, TINY, start) for worker in range(WORKERS) for start in islice(starts, WINDOW)]
    total = done = 0
    while done < count:
        engine.do(commands)
        commands = []
        for life, result in results(engine):
            done += 1
            total += result
            commands += [launch(life.worker, TINY, start) for start in islice(starts, 1)]
    assert total == count * (count + 1) // 2


def kept(engine: ProcessesEngine, count: int) -> None:
    """Results are not looked at."""
    starts = iter(range(count))
    commands: list[Any] = [launch(worker, TINY, start) for worker in range(WORKERS) for start in islice(starts, WINDOW)]
    done = 0
    while done < count:
        engine.do(commands)
        commands = []
        for event in finished(engine):
            done += 1
            commands.append(Discard(Handle("p", event.attempt), (event.life, DRIVER)))
            commands += [launch(event.life.worker, TINY, start) for start in islice(starts, 1)]
    engine.do(commands)


def out(engine: ProcessesEngine, count: int) -> None:
    for number in range(count):
        engine.do([launch(number % WORKERS, MAKE, number)])
        ((_, result),) = results(engine)
        assert result.sum() == number * MEGABYTE


def both(count: int) -> dict[str, float]:
    """Parcels alone: arrays are no part of a launch."""
    ours, theirs = (Link(one) for one in socket.socketpair())
    pid = os.fork()
    if pid == 0:
        ours.close()
        while not theirs.ended:
            for arrival in theirs.receive() or ():
                theirs.send(pack(double(arrival.open())))
        os._exit(0)
    theirs.close()
    values = np.ones(MEGABYTE)

    def work() -> None:
        for _ in range(count):
            ours.send(pack(values))
            while not (found := ours.receive()):
                pass
            assert found[0].open().sum() == 2 * MEGABYTE

    seconds = timed(work)
    ours.close()
    os.waitpid(pid, 0)
    return seconds


def whole_run(count: int) -> dict[str, float]:
    """From the first task's start to the end of the run, through scheduler and loop."""
    rows = count * UNIT
    borders = tuple(range(0, rows + 1, UNIT))
    source = InputSpec(id=TINY, category="data", rows=rows, borders=borders)
    began: list[float] = []

    def watch(events: Any, commands: Any, now: float) -> None:  # noqa: ARG001 - an observer's
        if not began and any(isinstance(event, Started) for event in events):
            began.append(now)
        watch.last = now  # type: ignore[attr-defined]

    scheduler = Scheduler(RowFeeder([source], Policies(Fixed(UNIT))))
    outcome = run_loop(scheduler, ProcessesEngine(WORKERS), Work(), observers=[watch])
    assert outcome.status == "complete"
    assert outcome.ledger.done_rows == rows
    return {"seconds": watch.last - began[0], "driver_us": outcome.driver_cpu_s / count * 1e6}  # type: ignore[attr-defined]


def begin(preload: list[str] | None, importing: bool) -> dict[str, float]:
    """From nothing to the first finished task of every worker."""
    start = time.perf_counter()
    engine = ProcessesEngine(WORKERS, preload=preload)
    engine.start(Work())
    try:
        done = 0
        while done < WORKERS:
            for event in engine.wait(None):
                if isinstance(event, WorkerJoined):
                    engine.do([launch(event.worker.life.worker, IMPORTING if importing else TINY, 0)])
                done += isinstance(event, Finished)
        return {"seconds": time.perf_counter() - start}
    finally:
        engine.stop()


def run(what: str, count: int = 0, metering: bool = True, **more: Any) -> dict[str, float]:
    if what == "begin":
        if more["importing"]:  # what a process that defined such an analysis has loaded
            import awkward  # noqa: F401
            import hist  # noqa: F401
            import uproot  # noqa: F401
        return begin(**more)
    if what == "run":
        return whole_run(count)
    if what == "1 MB in and out":
        return both(count)
    engine = engine_with(metering)
    job = {"round trips": round_trips, "throughput": throughput, "kept": kept, "1 MB out": out}[what]
    return timed(lambda: job(engine, count))


if __name__ == "__main__":
    try:
        serve(run, "numpy", "cloudpickle")
    finally:
        for engine in _engines.values():
            engine.stop()
