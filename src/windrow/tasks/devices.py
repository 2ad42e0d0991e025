"""Which devices a task may see: claimed by its worker for the time of the body, and named to libraries in the environment.

The scheduler sees to it that never more are taken than there are. Which ones is settled among the workers by locks on small
files of the session: the kernel frees those of a worker that dies, however it does.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
import weakref
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from windrow.core.records import IO
from windrow.errors import TaskError, UsageError
from windrow.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from windrow.core.records import Needs
    from windrow.tasks.declare import Declared
    from windrow.tasks.worker import RunningCall


#: As it is called among resources.
GPU = "gpu"

#: What libraries look at: CUDA's own, and HIP's, which reads both. ROCR_VISIBLE_DEVICES is left as it is, since HIP counts
#: within what that leaves: naming the second device in both would leave none.
VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")

DRIVER = Path("/proc/driver/nvidia/gpus")

#: Seconds between two looks. What is claimed is free but for the moment in which an attempt that was called off returns.
LOOK_S = 0.005
_last: list[int] = []  #: devices that this process had last

#: After so long something else holds them: better a failure than a task that never begins.
PATIENCE_S = 60.0


def visible_devices(environment: Mapping[str, str]) -> tuple[str, ...] | None:
    """List the devices that this process may use, as libraries name them; None if nothing says which there are."""
    for variable in VARIABLES:
        if variable in environment:
            named = [one.strip() for one in environment[variable].split(",")]
            # As the libraries do: what follows an entry that is none does not count.
            end = next((n for n, one in enumerate(named) if one in ("", "-1")), len(named))
            return tuple(named[:end])
    if "ROCR_VISIBLE_DEVICES" in environment:
        count = len([one for one in environment["ROCR_VISIBLE_DEVICES"].split(",") if one.strip()])
        return tuple(map(str, range(count)))
    try:
        count = sum(1 for _ in DRIVER.iterdir())
    except OSError:
        return None
    return tuple(map(str, range(count)))


class Devices:
    """The devices of one session."""

    def __init__(self, engine: str, workers: int | None, resources: dict[str, float]) -> None:
        found = visible_devices(os.environ)
        wanted = resources.get(GPU)
        if wanted is None:
            self._names = found or ()
            if self._names:
                resources[GPU] = len(self._names)
        else:
            self._names = _first(wanted, found)
        # All threads of a process have one environment.
        self._shared = engine == "threads" and workers != 1
        self._directory: str | None = None

    def fit(self, declared: Declared, offers: Needs) -> float:
        """Refuse a task that could never run in the session; return how many devices it needs."""
        has = dict(offers.amounts)
        for name, amount in declared.needs.amounts:
            if name == IO:
                continue  # a place that the scheduler makes when it is needed
            if name == GPU and not has.get(GPU):
                self.claim(declared.name, amount)  # knows what to do about that
            if amount > has.get(name, 0) * (1 + 1e-9):
                raise _does_not_fit(declared.name, name, amount, has.get(name, 0))
        return dict(declared.needs.amounts).get(GPU, 0)

    def claim(self, task: str, amount: float) -> ClaimDevices:
        """Give what claims devices for a call of a task; refuse what cannot work."""
        if amount != int(amount):
            raise UsageError(
                f"task {task!r}: gpus= is a whole number of devices, got {amount:g}; tasks that share a device can "
                'share a resource of another name: resources={"part of a gpu": 1}'
            )
        if not self._names:
            raise UsageError(
                f"task {task!r} needs gpus={amount:g}, but the session has none: no device was found by "
                f"{', '.join(VARIABLES)} or the driver; say how many there are with "
                f'wr.Session(resources={{"gpu": {amount:g}}})'
            )
        if self._shared:
            raise UsageError(
                f"task {task!r} needs gpus={amount:g}: which devices a task sees is said in the environment, which "
                'threads share; use wr.Session(engine="processes"), or workers=1'
            )
        if self._directory is None:
            self._directory = tempfile.mkdtemp(prefix="windrow-devices-")
            self._remove = weakref.finalize(self, shutil.rmtree, self._directory, ignore_errors=True)
        return ClaimDevices(task, self._directory, int(amount), self._names)

    def close(self) -> None:
        if self._directory is not None:
            self._remove()


def _does_not_fit(task: str, name: str, amount: float, has: float) -> UsageError:
    more = {"cores": "workers=...", "memory": 'resources={"memory": "..."}'}.get(name, f'resources={{"{name}": ...}}')
    asked, there = (format_bytes(amount), format_bytes(has)) if name == "memory" else (f"{amount:g}", f"{has:g}")
    return UsageError(
        f"task {task!r} needs {name}={asked}, but the session has {name}={there}; give it more with "
        f"wr.Session({more}), or let the task need less"
    )


def _first(wanted: float, found: tuple[str, ...] | None) -> tuple[str, ...]:
    if wanted != int(wanted) or wanted < 0:
        raise UsageError(f'resources={{"gpu": {wanted:g}}}: devices are counted in whole numbers from 0 on')
    if found is None:
        return tuple(map(str, range(int(wanted))))
    if len(found) < wanted:
        raise UsageError(
            f'resources={{"gpu": {wanted:g}}}, but only {len(found)} can be seen '
            f"({', '.join(found) or 'none'}; see {' and '.join(VARIABLES)})"
        )
    return found[: int(wanted)]


class ClaimDevices(NamedTuple):
    """Around a body: the devices that it may see."""

    task: str
    directory: str
    amount: int
    names: tuple[str, ...]

    @contextmanager
    def around(self, going: RunningCall) -> Iterator[None]:  # noqa: ARG002
        with self._held() as numbers:
            visible = ",".join(self.names[number] for number in numbers)
            before = {name: os.environ.get(name) for name in VARIABLES}
            os.environ.update(dict.fromkeys(VARIABLES, visible))
            try:
                yield
            finally:
                for name, value in before.items():
                    if value is None:
                        os.environ.pop(name, None)
                    else:
                        os.environ[name] = value

    @contextmanager
    def _held(self) -> Iterator[list[int]]:
        until = time.monotonic() + PATIENCE_S
        while True:
            with ExitStack() as stack:
                numbers = self._try(stack)
                if len(numbers) == self.amount:
                    _last[:] = numbers
                    yield sorted(numbers)
                    return
            if time.monotonic() > until:
                raise TaskError(
                    f"task {self.task!r}: {self.amount} devices were not free after {PATIENCE_S:g} s, although the "
                    "session counts them as free; something that an earlier task started may hold them"
                )
            time.sleep(LOOK_S)

    def _try(self, stack: ExitStack) -> list[int]:
        got: list[int] = []
        # One worker at a time: two that each had half of what they need would wait for each other.
        with _locked(self.directory, "all", wait=True):
            # Those it had before come first: a library that has opened a device keeps to that.
            order = dict.fromkeys([*_last, *range(len(self.names))])
            for number in order:
                if len(got) < self.amount and number < len(self.names):
                    lock = _locked(self.directory, str(number), wait=False)
                    if stack.enter_context(lock):
                        got.append(number)
        return got


@contextmanager
def _locked(directory: str, name: str, *, wait: bool) -> Iterator[bool]:
    file = os.open(f"{directory}/{name}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        try:
            yield True
        finally:
            # Said explicitly: a process that the body has forked may still have the file open.
            fcntl.flock(file, fcntl.LOCK_UN)
    finally:
        os.close(file)
