"""Where the time of a run went: seconds of its workers by name, which add up to its wall time times its workers."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

from windrow.core.events import Exhausted, Failed, Finished, Started, WorkerJoined, WorkerLost
from windrow.core.records import Opened, RowsReport

if TYPE_CHECKING:
    from collections.abc import Mapping

    from windrow.core.accounts import Account
    from windrow.pipeline.results.result import Result
    from windrow.run.loop import RunOutcome


class TimeAccount:
    """Looks on while a run goes on, and adds up what its tasks took."""

    def __init__(self) -> None:
        self._began = perf_counter()
        self._starting: list[float] = []  #: of each worker, until it was there
        self._opening = self._rows = self._lock = self._merging = self._lost = 0.0
        self._begun: dict[int, float] = {}  #: attempts that run
        self._ended: dict[int, float] = {}  #: workers that were lost, until they are there again
        self._last: dict[int, float] = {}  #: by worker: the end of its last task

    def __call__(self, events: Any, commands: Any, now: float) -> None:  # noqa: ARG002 - an observer's
        for event in events:
            if type(event) is Started:
                self._begun[event.attempt] = now
            elif type(event) is WorkerLost:
                self._ended[event.life.worker] = now
            elif isinstance(event, (Exhausted, Failed)):
                self._lost += now - self._begun.pop(event.attempt, now)
            if type(event) is WorkerJoined:
                self._starting.append(perf_counter() - self._began)
                self._lost += now - self._ended.pop(event.worker.life.worker, now)
            elif type(event) is Finished:
                self._begun.pop(event.attempt, None)
                self._last[event.life.worker] = now
                used = event.measurement
                if isinstance(event.report, RowsReport):
                    self._rows += used.wall
                    self._lock += used.lock_wait
                elif isinstance(event.report, Opened):
                    self._opening += used.wall
                else:
                    self._merging += used.wall

    @property
    def tail_s(self) -> float:
        """Seconds at the end in which not all workers that had tasks had one."""
        return max(self._last.values(), default=0.0) - min(self._last.values(), default=0.0)

    def settle(self, result: Result, outcome: RunOutcome, before_s: float) -> dict[str, float]:
        """Give seconds by name; ``before_s`` is what went by before the first task could be given."""
        workers = max(result.workers, 1)
        costs = [cost for evidence in outcome.evidence.values() for _, cost in evidence.steps]
        reading = sum(cost.read_s for cost in costs)
        outputs = sum(step.seconds for step in result.steps.values() if step.kind == "output")
        steps = sum(step.seconds for step in result.steps.values()) - outputs
        # Reading blocks, so it is in what looks like waiting for the lock.
        lock = max(self._lock - reading, 0.0)
        named = {
            "setting up": before_s * workers,
            "starting workers": sum(self._starting[:workers]),
            "opening files": self._opening,
            "reading": reading,
            "steps": steps,
            "outputs": outputs,
            "waiting for the interpreter's lock": lock,
            "trials, checks and counts": max(self._rows - reading - steps - outputs - lock, 0.0),
            "adding up partial results": self._merging,
            "attempts that came to nothing": self._lost,
            "putting the result together": max(result.seconds - before_s - outcome.wall_s, 0.0) * workers,
        }
        left = result.seconds * workers - sum(named.values())
        named["deciding"] = max(min(outcome.driver_cpu_s, left), 0.0)
        named["waiting for work"] = left - named["deciding"]
        return named


def predicted_times(accounts: Mapping[str, Account]) -> dict[str, dict[str, float]]:
    """Say by dataset what chunks were predicted to take and took, of those of which something was predicted."""
    names = ("predicted", "predicted_s", "used_s", "off_s")
    return {
        dataset: {name: getattr(account, name) for name in names}
        for dataset, account in accounts.items()
        if account.predicted
    }
