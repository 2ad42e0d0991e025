"""Devices and other named resources: who gets how much of what, and which devices a task sees."""

from __future__ import annotations

import itertools
import os
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import windrow as wr
from windrow.errors import UsageError
from windrow.tasks import devices
from windrow.tasks.devices import visible_devices

if TYPE_CHECKING:
    from pathlib import Path

VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")


@pytest.fixture(autouse=True)
def _no_devices_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(devices, "DRIVER", tmp_path / "no driver")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


@wr.task(gpus=1)
def see() -> Any:
    return [os.environ.get(name) for name in VARIABLES]


@wr.task(gpus=2)
def see_two() -> Any:
    return os.environ["CUDA_VISIBLE_DEVICES"]


@wr.task
def see_none() -> Any:
    return [os.environ.get(name) for name in VARIABLES]


def use(diary: str, seconds: float) -> str:
    """Note what is held while it is; both ends of the time are in one line, so that lines are whole."""
    begin = time.monotonic()
    time.sleep(seconds)
    seen = os.environ["CUDA_VISIBLE_DEVICES"]
    line = f"{begin} {time.monotonic()} {seen}\n".encode()
    file = os.open(diary, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line)
    os.close(file)
    return seen


def never_shared(diary: Path) -> int:
    """Check that no device was used twice at a time; return how many uses there were."""
    uses = [line.split() for line in diary.read_text().splitlines()]
    by_device: dict[str, list[tuple[float, float]]] = {}
    for begin, end, seen in uses:
        for one in seen.split(","):
            by_device.setdefault(one, []).append((float(begin), float(end)))
    for times in by_device.values():
        times.sort()
        for (_, ended), (began, _) in itertools.pairwise(times):
            assert ended <= began
    return len(uses)


@pytest.mark.parametrize("engine", ["inline", "processes"])
def test_a_task_sees_its_device_and_only_while_it_runs(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "6,7")
    before = dict(os.environ)
    with wr.Session(engine=engine, workers=1, resources={"gpu": 2}) as session:
        assert session.gather([see_none(), see(), see_none(), see_two(), see_none()]) == [
            [None, None, "6,7"],
            ["0", "0", "6,7"],
            [None, None, "6,7"],
            "0,1",
            [None, None, "6,7"],
        ]
        assert [one.name for one in tmp_path.iterdir() if "devices" in one.name] != []
    assert dict(os.environ) == before
    assert [one.name for one in tmp_path.iterdir() if "devices" in one.name] == []


def test_devices_are_used_by_one_task_at_a_time(tmp_path: Path) -> None:
    diary = tmp_path / "uses"
    one, two = wr.task(use, gpus=1), wr.task(use, gpus=2)
    with wr.Session(engine="processes", workers=4, resources={"gpu": 3}) as session:
        seen = session.gather([(two if n % 3 == 0 else one)(str(diary), 0.01) for n in range(24)])
    assert never_shared(diary) == 24
    assert {len(one.split(",")) for one in seen} == {1, 2}
    assert {name for one in seen for name in one.split(",")} <= {"0", "1", "2"}


def test_a_worker_that_is_killed_gives_its_device_back(tmp_path: Path) -> None:
    diary, once = tmp_path / "uses", tmp_path / "once"

    @wr.task(gpus=1)
    def killed() -> str:
        if not once.exists():
            once.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return use(str(diary), 0.0)

    with wr.Session(engine="processes", workers=2, resources={"gpu": 1}) as session:
        assert session.gather([killed(), killed(), killed()]) == ["0"] * 3
    assert never_shared(diary) == 3


def test_the_devices_of_this_process_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-aa,GPU-bb,GPU-cc")
    with wr.Session(engine="inline", resources={"gpu": 2}):
        assert see_two().result(120) == "GPU-aa,GPU-bb"
    with wr.Session(engine="inline"):  # it has what there is
        assert see_two.options(gpus=3)().result(120) == "GPU-aa,GPU-bb,GPU-cc"
        with pytest.raises(UsageError, match="'see' needs gpu=4, but the session has gpu=3"):
            see.options(gpus=4)()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-aa,GPU-bb,GPU-cc"
    with pytest.raises(UsageError, match="only 3 can be seen"):
        wr.Session(engine="inline", resources={"gpu": 4})


def test_the_driver_tells_how_many_there_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(devices, "DRIVER", tmp_path / "gpus")
    for name in ("0000:01:00.0", "0000:02:00.0"):
        (tmp_path / "gpus" / name).mkdir(parents=True)
    with wr.Session(engine="inline"):
        assert see_two().result(120) == "0,1"


@given(
    before=st.lists(st.sampled_from(["0", "3", "GPU-x", "MIG-y"]), max_size=4),
    after=st.sampled_from([[], ["-1"], ["-1", "5"], [""]]),
    variable=st.sampled_from(VARIABLES[:2]),
)
def test_what_follows_an_entry_that_is_none_does_not_count(before: list[str], after: list[str], variable: str) -> None:
    assert visible_devices({variable: ", ".join(before + after)}) == tuple(before)


def test_without_devices_a_call_says_what_to_do() -> None:
    with wr.Session(engine="inline"):
        with pytest.raises(UsageError, match=r'needs gpus=1, but .*resources=\{"gpu": 1\}'):
            see()
        assert see_none().result(120) == [None] * 3


def test_threads_share_their_environment() -> None:
    with (
        wr.Session(engine="threads", workers=2, resources={"gpu": 2}),
        pytest.raises(UsageError, match='engine="processes"\\), or workers=1'),
    ):
        see()
    with wr.Session(engine="threads", workers=1, resources={"gpu": 2}):
        assert see().result(120)[0] == "0"


def test_half_a_device_is_refused() -> None:
    with (
        wr.Session(engine="inline", resources={"gpu": 2}),
        pytest.raises(UsageError, match=r"whole number of devices, got 0\.5"),
    ):
        see.options(gpus=0.5)()
    with pytest.raises(UsageError, match="whole numbers"):
        wr.Session(engine="inline", resources={"gpu": 1.5})


@pytest.mark.parametrize("engine", ["inline", "threads", "processes"])
def test_what_the_session_never_has_is_refused_at_the_call(engine: str) -> None:
    with wr.Session(engine=engine, workers=2, resources={"licence": 1}) as session:
        with pytest.raises(UsageError, match="'see_none' needs licence=2, but the session has licence=1"):
            see_none.options(resources={"licence": 2})()
        with pytest.raises(UsageError, match="needs robot=1, but the session has robot=0"):
            see_none.options(resources={"robot": 1})()
        with pytest.raises(UsageError, match=r"needs cores=3, .*workers="):
            see_none.options(cores=3)()
        ok = see_none.options(resources={"licence": 1}, cores=2)
        assert session.gather([ok(), ok()]) == [[None] * 3] * 2


def test_a_model_is_loaded_where_the_device_is_seen() -> None:
    def load() -> str:
        return os.environ["CUDA_VISIBLE_DEVICES"]

    @wr.task(gpus=1)
    def infer(*, model: Any = wr.resident(load)) -> Any:  # noqa: B008
        return model

    with wr.Session(engine="processes", workers=1, resources={"gpu": 1}):
        assert infer().result(120) == "0"
