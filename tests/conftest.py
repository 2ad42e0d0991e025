"""Fixtures for all tests."""

from __future__ import annotations

import compileall
import gc
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import awkward as ak
import pytest

import dask_cluster
import searching
import windrow
from windrow.core import rows
from windrow.engines.processes import engine as processes_engine
from windrow.engines.processes import startup
from windrow.engines.supervisor import kept
from windrow.pipeline.ordering import controller
from windrow.pipeline.run import engine_choice

if TYPE_CHECKING:
    from collections.abc import Iterator

# How long a run takes is no test result either: whether an order is looked for must not depend on it. Tests that want one
# looked for say so.
PRODUCTION_STAY_OUT_S, PRODUCTION_DECIDED_S = controller.STAY_OUT_S, controller.DECIDED_S
controller.STAY_OUT_S = controller.DECIDED_S = 1e9
# Nor whether rows are found to take long, and units are cut into parts, or one worker becomes several.
PRODUCTION_PART_S, PRODUCTION_SHORT_S, PRODUCTION_LONG_S = rows.PART_S, rows.SHORT_S, engine_choice.LONG_S
rows.PART_S = rows.SHORT_S = engine_choice.LONG_S = 1e9

# And who stops an engine finds nothing left of it; tests of what is kept say so.
kept.KEEPING = False

# Shells let what they start in the background ignore Ctrl-C, and all that it starts: tests of it would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

searching.load_profile()

# Failures of helpers are explained as those of tests are.
pytest.register_assert_rewrite("fire.leftovers")


#: What takes minutes is left out unless it is asked for, by its mark (``-m slow``) or by its own name.
LEFT_OUT = ("slow", "fire")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    unasked = [mark for mark in LEFT_OUT if mark not in config.getoption("markexpr")]
    named = tuple(argument for argument in config.args if "::" in argument)

    def is_left_out(item: pytest.Item) -> bool:
        return not item.nodeid.startswith(named) and any(item.get_closest_marker(mark) for mark in unasked)

    left_out = [item for item in items if is_left_out(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not is_left_out(item)]


def pytest_configure(config: pytest.Config) -> None:
    """Compile the package once: the tests start many processes, each of which would do it."""
    if not hasattr(config, "workerinput"):
        compileall.compile_dir(Path(windrow.__file__).parent, quiet=2)


def pytest_collection_finish() -> None:
    """Take what was imported, and ten thousand tests, out of the collector's sight: each look took half a second.

    From here on no bytecode is kept, here and in what tests start: they write modules again within a second and with as
    many bytes, which Python takes for the compiled ones.
    """
    sys.dont_write_bytecode = True
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def samples() -> Path:
    """Return the directory of the real sample files; their absence fails a CI run, skips others."""
    default = Path(__file__).resolve().parents[1].parent / "shared" / "data"
    directory = Path(os.environ.get("WINDROW_SAMPLES", default))
    if not (directory / "nanoaodv5_sample.root").is_file():
        reason = f"no sample files in {directory} (set WINDROW_SAMPLES)"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return directory


@pytest.fixture
def as_in_production(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for an order, and cut units, where a run of a user would."""
    monkeypatch.setattr(controller, "STAY_OUT_S", PRODUCTION_STAY_OUT_S)
    monkeypatch.setattr(controller, "DECIDED_S", PRODUCTION_DECIDED_S)
    monkeypatch.setattr(rows, "PART_S", PRODUCTION_PART_S)
    monkeypatch.setattr(rows, "SHORT_S", PRODUCTION_SHORT_S)
    monkeypatch.setattr(engine_choice, "LONG_S", PRODUCTION_LONG_S)


@pytest.fixture(autouse=True)
def no_client_is_left() -> Iterator[None]:
    """Close clients of the clusters that tests share."""
    yield
    dask_cluster.close_clients()


@pytest.fixture
def no_thread_is_left() -> Iterator[None]:
    """Fail where a test has left a thread of ours behind: who stops an engine waits for its threads."""
    yield
    assert [thread.name for thread in windrow_threads()] == []


@pytest.fixture
def no_thread_stays() -> Iterator[None]:
    """Fail where a thread of ours does not end; runs in the background may take a moment for it."""
    yield
    for thread in windrow_threads():
        thread.join(10)
    assert [thread.name for thread in windrow_threads()] == []


def windrow_threads() -> list[threading.Thread]:
    """Threads that Windrow has started, and that are still there."""
    # Helpers of loops are kept for the next one.
    ours = [thread for thread in threading.enumerate() if thread.name.startswith("windrow")]
    return [thread for thread in ours if not thread.name.startswith("windrow-loop")]


@pytest.fixture
def new_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nothing registered for awkward arrays, as in a program that has just begun.

    Other tests of the same worker may have registered something for the whole process, once and for all. A run is then
    rightly not the same as one in another process, which has not got it.
    """
    monkeypatch.setattr(ak, "behavior", {})


@pytest.fixture(scope="session", autouse=True)
def light_workers() -> Iterator[None]:
    """Make workers without what other tests of this process have imported: that took two seconds for every run."""
    needed = [*startup.FOR_TASKS, "windrow.pipeline.run.workload", "numpy"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes_engine, "preload", lambda: needed)
        yield


@pytest.fixture(scope="session", autouse=True)
def store_of_tests(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep results elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WINDROW_STORE", str(tmp_path_factory.mktemp("windrow-store")))
        yield
