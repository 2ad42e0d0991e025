"""Groups that are entered by several threads at once, and inside themselves."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

import windrow as wr
from windrow.tasks.groups import current_group

if TYPE_CHECKING:
    from pathlib import Path


@wr.task
def double(x: int) -> int:
    return 2 * x


def test_several_threads_may_be_in_one_group() -> None:
    both = threading.Barrier(2)
    failed: list[BaseException] = []

    def call(session: wr.Session, group: object) -> None:
        try:
            with group:  # type: ignore[attr-defined]
                both.wait(120)
                assert current_group(session) is group
                both.wait(120)
            assert current_group(session) is None
        except BaseException as error:  # noqa: BLE001 - a thread that fails says so to nobody
            failed.append(error)

    with wr.Session(engine="inline") as session:
        group = session.group("both")
        threads = [threading.Thread(target=call, args=(session, group)) for _ in range(2)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    assert failed == []


def test_a_group_inside_itself() -> None:
    with wr.Session(engine="inline") as session:
        with session.group("one") as group:
            with group:
                assert current_group(session) is group
            assert current_group(session) is group
        assert current_group(session) is None
        assert double(1).result() == 2


@wr.task
def wait_for(gate: Path) -> None:
    while not gate.exists():
        pass


@pytest.mark.parametrize("engine", ["threads", "processes"])
def test_what_runs_is_told_before_cancel_returns(engine: str, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    with wr.Session(engine=engine, workers=1) as session:
        for _ in range(20):
            with session.group() as group:
                running, waiting = wait_for(gate), wait_for(gate)
            group.cancel()
            assert running.cancelled()
            assert waiting.cancelled()
        gate.touch()
