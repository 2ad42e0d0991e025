"""What worker processes are told to do in tests: an input is the name of a job. Imports little, as every worker loads it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import stat
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windrow.core.records import Failure, FailureKind, Measurement, MergePartials, Opened, OpenInput, RowsReport
from windrow.engines.base import NO_READING, Outcome, Reading

if TYPE_CHECKING:
    from types import ModuleType

    from windrow.core.records import Task
    from windrow.engines.base import Job

__all__ = ["Stubborn", "Work", "rows_of"]

MB = 1_000_000


class Stubborn:
    """Is pickled without complaint and cannot be made again by the driver."""

    def __init__(self) -> None:
        self.made_in = os.getpid()

    def __setstate__(self, state: dict[str, int]) -> None:
        if os.getpid() != state["made_in"]:
            raise ValueError("only at home")


class StubbornError(Exception):
    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


class LockedError(Exception):
    pass


def rows_of(part: Any) -> list[tuple[int, int]]:
    return [(part.input, row) for row in range(part.start, part.stop)]


def hold(megabytes: int) -> list[bytearray]:
    """Memory that is really there, page by page."""
    held = []
    for _ in range(megabytes):
        held.append(bytearray(MB))
        held[-1][::4096] = b"x" * len(held[-1][::4096])
    return held


def forked(function: Any, *arguments: Any) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            function(*arguments)
        finally:
            os._exit(0)
    return pid


def burn(seconds: float) -> None:
    while time.process_time() < seconds:
        pass


def hog(part: Any) -> Any:
    hold(4000)
    raise AssertionError("nobody stopped it")


def hog_in_a_child(part: Any) -> Any:
    os.waitpid(forked(hold, 4000), 0)
    raise AssertionError("nobody stopped it")


def burn_in_a_child(part: Any) -> Any:
    os.waitpid(forked(burn, 0.06), 0)
    return "burnt"


def hold_in_a_child(part: Any) -> Any:
    """A child that has 150 MB until its memory was seen: the server looks every 50 ms at who is there."""

    def child() -> None:
        held = hold(150)
        time.sleep(0.5)
        del held

    os.waitpid(forked(child), 0)
    return "held"


def leave_a_child(part: Any) -> Any:
    return os.getpid(), forked(time.sleep, 3600)


def hang(part: Any) -> Any:
    time.sleep(3600)


def hang_with_children(part: Any) -> Any:
    forked(time.sleep, 3600)
    time.sleep(3600)


def segfault(part: Any) -> Any:
    ctypes.string_at(0)


def raise_signal(number: int) -> Any:
    os.kill(os.getpid(), number)
    time.sleep(3600)


def raise_stubborn(part: Any) -> Any:
    raise StubbornError(1, 2)


def raise_locked(part: Any) -> Any:
    raise LockedError("has a lock", threading.Lock())


def raise_deep(part: Any) -> Any:
    try:
        int("seven")
    except ValueError as error:
        raise KeyError("deep") from error


def write_to_the_socket(part: Any) -> Any:
    """What a library might do that thinks a descriptor is its own."""
    for file in list(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(OSError):  # the one that listed them
            if stat.S_ISSOCK(os.fstat(int(file.name)).st_mode):
                os.write(int(file.name), b"garbage" * 100)
    time.sleep(3600)


def numpy_draw(part: Any) -> Any:
    import numpy as np

    return np.random.random(4).tolist()  # noqa: NPY002 - the old way is what must differ


def array(part: Any) -> Any:
    import numpy as np

    return {"values": np.arange(part.start, part.stop, dtype=np.int64)}


def peak(part: Any) -> Any:
    hold(100)
    return "freed"


def say(part: Any) -> Any:
    sys.stdout.write("a word from a step\n")


JOBS: dict[str, Any] = {
    "rows": rows_of,
    "exit": lambda part: os._exit(3),
    "system exit": lambda part: sys.exit(5),
    "abort": lambda part: os.abort(),
    "terminate": lambda part: raise_signal(signal.SIGTERM),
    "bus": lambda part: raise_signal(signal.SIGBUS),
    "stop": lambda part: raise_signal(signal.SIGSTOP),
    "lock": lambda part: {"in": [threading.Lock()]},
    "lambda": lambda part: lambda x: x + part.stop,
    "stubborn": lambda part: Stubborn(),
    "pid": lambda part: os.getpid(),
    "where": lambda part: (os.getpid(), os.getsid(0), signal.getsignal(signal.SIGINT)),
    "hog": hog,
    "hog in a child": hog_in_a_child,
    "burn in a child": burn_in_a_child,
    "hold in a child": hold_in_a_child,
    "leave a child": leave_a_child,
    "hang": hang,
    "hang with children": hang_with_children,
    "segfault": segfault,
    "raise stubborn": raise_stubborn,
    "raise locked": raise_locked,
    "raise deep": raise_deep,
    "write to the socket": write_to_the_socket,
    "numpy draw": numpy_draw,
    "array": array,
    "peak": peak,
    "say": say,
}
NAMES = list(JOBS)


class Work:
    """A workload whose inputs are jobs, and its workers' sides; ``extra`` goes along."""

    reading: Reading = NO_READING
    used: tuple[float, int] | None = None

    def __init__(self, extra: Any = None) -> None:
        self.extra = extra

    def open_worker(self, worker: int) -> Work:
        return self

    def content(self, task: Task) -> Any:
        return task.payload

    def classify(self, error: BaseException) -> Failure:
        return Failure(FailureKind.USER, type(error).__name__, str(error), "", error)

    def describe(self, task: Task) -> str:
        (part,) = task.payload.rows
        return f"rows {part.start}-{part.stop} of input {part.input}"

    def hear(self, news: Any) -> None:
        raise AssertionError("nobody has news")

    def is_own(self, module: ModuleType) -> bool:
        return False

    def run(self, job: Job) -> Outcome:
        payload = job.content
        if isinstance(payload, OpenInput):
            return Outcome({}, Opened(10, (0, 10)))
        (name,) = job.task.makes
        if isinstance(payload, MergePartials):
            return Outcome({name: [one for partial in job.values for one in partial]})
        (part,) = payload.rows
        if NAMES[part.input] == "lambda" and callable(self.extra):
            return Outcome({name: self.extra(part)})
        made = JOBS[NAMES[part.input]](part)
        return Outcome({name: made}, RowsReport(), Measurement(bytes_read=7))

    def prepare(self, task: Task, plan: Any) -> None:
        return None

    def news(self) -> Any:
        return None

    def close(self) -> None:
        if self.extra == "cannot close":
            raise OSError("a file that stays open")
