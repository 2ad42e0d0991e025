"""A Dask cluster while everything goes wrong: the same bits, each row once, and Dask runs nothing of ours a second time."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pytest

import windrow as wr
from dask_cluster import Executions, own_client
from fire.analyses import BAD, PACE, UNIT, analysis, opened, said
from fire.leftovers import parent_of, wait_until, written_rows
from fire.task_graphs import LAYERS, called, plainly
from windrow.engines.dask import engine as engines
from windrow.engines.dask.cluster import left_s
from windrow.errors import EngineError
from windrow.shape import safety
from windrow.store.journal import journal

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.usefixtures("new_program", "no_thread_is_left")

UNITS = 150


@cache
def quiet(units: int = UNITS) -> Any:
    return analysis().run(opened(units), engine="inline", chunk=UNIT, progress=False)


def run(client: Any, made: wr.Pipeline, units: int = UNITS, **options: Any) -> wr.Result:
    asked = {"engine": "dask", "client": client, "chunk": UNIT, "progress": False, **options}
    return made.run(opened(units), **asked)


def check_whole(result: Any, units: int = UNITS) -> None:
    """Every row was done once, and the sums have the bits of a quiet run."""
    assert said(result) == said(quiet(units))
    place = 0
    for entry in result.ledger.entries:
        assert (entry.start, entry.state) == (place, "done")
        place = entry.stop
    assert place == units * UNIT


class Trouble(threading.Thread):
    """Something that happens to a cluster when some rows are done."""

    def __init__(self, what: Callable[[], Any], rows: int = UNITS * UNIT // 10) -> None:
        super().__init__(daemon=True)
        self._what, self._rows, self.begin = what, rows, threading.Event()
        self.error: BaseException | None = None

    def progress(self, now: Any) -> None:
        if now.rows_done >= self._rows:
            self.begin.set()

    def run(self) -> None:
        try:
            assert self.begin.wait(300)
            self._what()
        except BaseException as error:  # noqa: BLE001 - raised again by the test
            self.error = error

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.begin.set()
        self.join(300)
        assert self.error is None


def test_a_worker_of_dask_is_killed_and_another_begins(tmp_path: Path) -> None:
    with own_client() as client:
        executions = Executions(client, tmp_path / "ran")
        result = run(client, analysis("a node that is killed", pace=PACE, place=str(tmp_path)))
        assert executions.check() > 10
    check_whole(result)
    assert (tmp_path / "node killed").exists()
    assert any("1 were lost" in line for line in result.decisions)


def test_a_process_of_a_node_is_killed(tmp_path: Path) -> None:
    with own_client() as client:
        executions = Executions(client, tmp_path / "ran")
        result = run(client, analysis("a worker that is killed", pace=PACE, place=str(tmp_path)))
        executions.check()
    check_whole(result)
    assert (tmp_path / "killed").exists()
    assert any(line.endswith("of Dask took part") for line in result.decisions)  # none was lost


def test_the_connection_to_the_scheduler_breaks_and_comes_back(tmp_path: Path) -> None:
    """All tasks of Dask are gone with it: the nodes are begun again."""
    with own_client() as client:
        executions = Executions(client, tmp_path / "ran")
        with Trouble(lambda: client.loop.add_callback(client.scheduler_comm.comm.abort)) as trouble:
            result = run(client, analysis(pace=PACE), progress=trouble.progress)
        executions.check()
    check_whole(result)


def test_workers_join_all_go_and_some_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in figure 9 of the paper on task shaping, from no worker at all."""
    monkeypatch.setattr(engines, "ALONE_S", 0.0)
    units, done, alone = 300, [0], threading.Event()
    with own_client(0) as client:
        executions = Executions(client, tmp_path / "ran")

        def are_done(rows: float) -> bool:
            return done[-1] >= rows

        def come_and_go() -> None:
            for share, workers in ((0.0, 1), (0.1, 3), (0.5, 0), (0.5, 2)):
                wait_until(partial(are_done, share * units * UNIT), "so many rows are done")
                if workers in (1, 2):
                    wait_until(alone.is_set, "the run says that it waits")
                    alone.clear()
                client.cluster.scale(workers)

        with warnings.catch_warnings(), Trouble(come_and_go, rows=0) as trouble:
            warnings.simplefilter("always")
            warnings.showwarning = lambda *_: alone.set()
            trouble.begin.set()
            result = run(client, analysis(pace=PACE), units, progress=lambda now: done.append(now.rows_done))
        executions.check()
    check_whole(result, units)
    assert any("were lost" in line for line in result.decisions)


def test_a_worker_that_is_retired_hands_over_what_it_has(tmp_path: Path) -> None:
    """It takes what it runs to an end, and nothing of it is run again."""

    def retire() -> None:
        pids.update(client.run(os.getpid))
        retired.extend(client.retire_workers([max(pids)]))

    pids: dict[str, int] = {}
    retired: list[str] = []
    with own_client() as client:
        executions = Executions(client, tmp_path / "ran")
        with Trouble(retire) as trouble:
            result = run(client, analysis("notes", pace=PACE, place=str(tmp_path)), progress=trouble.progress)
        executions.check()
    check_whole(result)
    assert retired == [max(pids)]
    assert "cluster: 3 workers of Dask took part, 1 were retired and lost nothing" in result.decisions
    ran: dict[int, set[int]] = {pid: set() for pid in pids.values()}
    for pid, unit in (map(int, line.split()) for line in (tmp_path / "units").read_text().splitlines()):
        ran[pid].add(unit)
    there = ran.pop(pids[retired[0]])
    assert there
    assert not there & set().union(*ran.values())


@pytest.mark.slow
def test_workers_that_join_get_work() -> None:
    units = 1_200  # half a minute for one worker: others begin before that is over
    with own_client(1) as client, Trouble(lambda: client.cluster.scale(3)) as trouble:
        result = run(client, analysis(pace=PACE), units, progress=trouble.progress)
    check_whole(result, units)
    assert any(f"cluster: {count} workers of Dask took part" in result.decisions for count in (2, 3))


def test_an_adaptive_cluster_grows_from_nothing() -> None:
    from windrow.engines.dask.adaptive import Adaptive

    units, most = 200, [0]
    with own_client(0) as client:
        cluster = client.cluster
        cluster.adapt(Adaptive=Adaptive, minimum=0, maximum=3, interval="100ms", target_duration="1s", wait_count=20)
        result = run(
            client, analysis(pace=PACE), units, progress=lambda _: most.append(max(most[-1], len(cluster.worker_spec)))
        )
        with wr.Session(engine=client) as session:
            assert session.submit(pow, 2, 3).result() == 8
        assert left_s[client.scheduler_info()["id"]] == {}
        wait_until(lambda: not cluster.worker_spec, "no workers are asked for when nothing is left")
    check_whole(result, units)
    assert most[-1] == 3


def test_a_cluster_that_is_closed_is_named_and_what_was_done_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in ((journal, "SHARE"), (safety, "CHEAP")):
        monkeypatch.setattr(module, name, 0.5)  # it is written down often
    made, rundir = analysis(pace=PACE), tmp_path / "run"

    def close() -> None:
        wait_until(lambda: written_rows(rundir) > 0, "something is written down")
        client.cluster.close()

    with own_client() as client, Trouble(close) as trouble, pytest.raises(EngineError) as caught:
        run(client, made, progress=trouble.progress, rundir=rundir)
    assert "Dask scheduler" in str(caught.value)
    assert "resume=True goes on with it" in str(caught.value)
    result = made.run(opened(UNITS), engine="inline", rundir=rundir, resume=True, progress=False)
    check_whole(result)
    assert sum(stop - start for _, name, start, stop in result.reads if name == "row") < UNITS * UNIT


# -- memory


MEMORY = 600_000_000


def test_a_step_that_takes_too_much_is_made_smaller(tmp_path: Path) -> None:
    with own_client(2, memory_limit=MEMORY) as client:
        executions = Executions(client, tmp_path / "ran")
        result = run(client, analysis("a hog of large chunks"), 16, chunk=4 * UNIT)
        executions.check()
    check_whole(result, 16)


def test_a_row_that_no_node_can_hold_is_named() -> None:
    with own_client(2, memory_limit=MEMORY) as client:
        with pytest.raises(EngineError) as caught:
            run(client, analysis("a hog"), 40)
        pids = client.run(os.getpid)
    for word in ("memory", "600 MB", str(BAD), str(BAD + 1)):
        assert word in str(caught.value)
    assert len(pids) == 2


# -- tasks


def test_nodes_are_killed_while_tasks_run(tmp_path: Path) -> None:
    with own_client() as client:
        executions = Executions(client, tmp_path / "ran")
        with wr.Session(engine=client) as session:
            layers = called(session, pace=PACE / 10)
            for layer in (1, LAYERS // 2):
                layers[layer][0].result()
                os.kill(min(client.run(os.getpid).values()), signal.SIGKILL)
                client.wait_for_workers(3, timeout=300)
            found = [[one.result() for one in layer] for layer in layers]
        executions.check()
    for made, expected in zip(found, plainly(), strict=True):
        assert all(np.array_equal(one, other) for one, other in zip(made, expected, strict=True))


def test_a_large_value_is_made_again_where_its_node_was_killed(tmp_path: Path) -> None:
    with own_client() as client:
        executions = Executions(client, tmp_path / "ran")
        with wr.Session(engine=client) as session:
            made = [session.submit(fill, number, str(tmp_path)) for number in range(3)]
            session.barrier()
            os.kill(int((tmp_path / "made 1").read_text().split()[0]), signal.SIGKILL)
            total = session.submit(add, *made).result()
            assert (total.shape, total.min(), total.max()) == ((LARGE,), 3, 3)
        executions.check()
    assert len((tmp_path / "made 1").read_text().split()) == 2


def test_values_of_a_node_that_is_retired_are_brought_away(tmp_path: Path) -> None:
    with own_client() as client:
        executions = Executions(client, tmp_path / "ran")
        with wr.Session(engine=client) as session:
            made = [session.submit(fill, number, str(tmp_path)) for number in range(6)]
            session.barrier()
            pid = int((tmp_path / "made 1").read_text())
            address = next(one for one, other in client.run(os.getpid).items() if other == pid)
            assert list(client.retire_workers([address])) == [address]
            total = session.submit(add, *made).result()
            assert (total.shape, total.min(), total.max()) == ((LARGE,), 15, 15)
        executions.check()
    assert [len((tmp_path / f"made {number}").read_text().split()) for number in range(6)] == [1] * 6


def test_dask_does_not_wait_for_ever_for_a_node_that_is_retired(tmp_path: Path) -> None:
    with own_client() as client:
        client.run(wait_for_nodes, 0.5)
        with wr.Session(engine=client) as session:
            tasks = [session.submit(go_on, number, str(tmp_path)) for number in range(3)]
            wait_until(lambda: len(list(tmp_path.glob("at *"))) == 3, "three tasks run")
            address = min(client.scheduler_info()["workers"])
            assert list(client.retire_workers([address])) == [address]
            (tmp_path / "go on").touch()
            assert session.gather(tasks) == [0, 1, 2]  # one of them elsewhere


def wait_for_nodes(seconds: float) -> None:
    """In a worker of Dask: wait so long for a node when it is retired."""
    from windrow.engines.dask import node

    node.LEAVE_S = seconds


def go_on(number: int, place: str) -> int:
    Path(place, f"at {number}").touch()
    wait_until(Path(place, "go on").exists, "it may go on")
    return number


LARGE = 2_500_000  # numbers: 20 MB


def fill(number: int, place: str) -> Any:
    """Make a large value, and note which process of Dask it is that this node belongs to."""
    with Path(place, f"made {number}").open("a") as notes:
        notes.write(f"{parent_of(os.getppid())} ")
    return np.full(LARGE, number)


def add(*values: Any) -> Any:
    return sum(values)
