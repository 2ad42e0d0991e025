"""Two engines one after the other: when a reason is asked for, and that nobody waits for the first where the second has come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windrow.core.events import DrainRequested, Event, Finished, WorkerJoined, WorkerLost
from windrow.core.records import Life, Measurement, Worker
from windrow.engines import switching
from windrow.engines.switching import SwitchingEngine

if TYPE_CHECKING:
    import pytest


class Scripted:
    """An engine that says what it is told to; a ``wait`` is noted."""

    def __init__(self, name: str, log: list[str], *says: list[Event]) -> None:
        self.name, self.log, self.says = name, log, list(says)

    def start(self, workload: Any) -> None:
        self.log.append(f"{self.name} starts")

    def wait(self, timeout: float | None) -> list[Event]:
        if not self.says:
            return []
        self.log.append(f"{self.name} works")
        return self.says.pop(0)

    def stop(self) -> None:
        self.log.append(f"{self.name} stops")


def joined(number: int) -> WorkerJoined:
    return WorkerJoined(Worker(Life(number, 0)))


def ended(attempt: int) -> Finished:
    return Finished(attempt, Life(0, 0), (), Measurement())


def test_a_reason_is_asked_for_when_what_has_ended_was_learned_from_and_who_comes_is_told_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(switching, "PATIENCE_S", 60.0)  # whatever else this machine does
    log: list[str] = []
    learned: list[int] = []
    first = Scripted("first", log, [joined(0)], [ended(1)], [ended(2), WorkerLost(Life(0, 0))])
    second = Scripted("second", log, [joined(1)], [joined(2)])

    def reason(_: Measurement, __: float) -> str:
        log.append(f"asked, knowing {learned}")
        return "rows take long"

    engine = SwitchingEngine(first, lambda number: second, reason)  # type: ignore[arg-type,return-value]
    engine.start(None)  # type: ignore[arg-type]
    assert engine.wait(None) == [joined(0)]
    assert engine.wait(None) == [ended(1)]
    learned.append(1)
    events = engine.wait(None)
    assert events == [joined(1), DrainRequested(Life(0, 0), "rows take long")]
    assert log == ["first starts", "first works", "first works", "asked, knowing [1]", "second starts", "second works"]
    assert engine.switched
    assert engine.wait(None) == [joined(2), ended(2), WorkerLost(Life(0, 0))]
    engine.stop()
    assert log[-2:] == ["second stops", "first stops"]
