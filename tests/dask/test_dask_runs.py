"""Pipelines, tasks and processors on a Dask cluster of this machine: what they give is what they give in this process."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import CancelledError, ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import windrow as wr
from comparing import bits
from dask_cluster import local_client, own_client
from fire.analyses import BAD, PACE, UNIT, analysis, opened, said, write_file
from fire.leftovers import wait_until
from loading import load
from windrow.engines.dask import cluster as clusters
from windrow.engines.dask import node as nodes
from windrow.engines.dask.engine import DaskEngine
from windrow.engines.processes.transport import Lent
from windrow.errors import DependencyError, EngineError, NotYetError, StepError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.usefixtures("new_program", "no_thread_is_left")

UNITS = 40


@pytest.fixture
def client() -> Any:
    return local_client(3)


@cache
def quiet(units: int = UNITS, trouble: str = "none", on_error: str = "stop") -> Any:
    made = analysis(trouble)
    return made.run(opened(units), engine="inline", chunk=UNIT, on_error=on_error, progress=False)


def run(cluster: Any, made: wr.Pipeline | None = None, source: Any = None, **options: Any) -> wr.Result:
    asked = {"engine": "dask", "client": cluster, "chunk": UNIT, "progress": False, **options}
    return (made or analysis()).run(opened(UNITS) if source is None else source, **asked)


def check_ledger(result: Any, units: int = UNITS, failed: tuple[tuple[int, int], ...] = ()) -> None:
    """Every row is there once: done, or failed for a reason."""
    place = 0
    for entry in result.ledger.entries:
        assert (entry.start, entry.state) == (place, "failed" if entry.reason else "done")
        place = entry.stop
    assert place == units * UNIT
    assert tuple((entry.start, entry.stop) for entry in result.ledger.problems) == failed


# -- pipelines


@pytest.mark.parametrize("chunk", [UNIT, 7 * UNIT, "auto"])
def test_a_pipeline_over_arrays_gives_the_same_bits(client: Any, chunk: Any) -> None:
    result = run(client, chunk=chunk)
    assert said(result) == said(quiet())
    assert result.complete
    check_ledger(result)
    assert any(line.endswith("of Dask took part") for line in result.decisions)


def test_a_pipeline_over_a_file_gives_the_same_bits(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is named as it is seen from where the program is, which is another directory than that of the workers."""
    write_file(tmp_path / "rows.parquet", UNITS)
    monkeypatch.chdir(tmp_path)
    result = run(client, source=opened(UNITS, "rows.parquet"))
    assert said(result) == said(quiet())
    check_ledger(result)


def test_the_selection_of_the_case_study_gives_the_same_bits(client: Any, tmp_path: Path) -> None:
    """The ttH example: 18 cuts with random numbers of their own in a step, in the order that the run finds."""
    tth, generator = load("examples/tth/analysis.py"), load("examples/tth/events.py")
    pq.write_table(pa.table(generator.events(20_000, seed=3)), tmp_path / "events.parquet", row_group_size=2_000)
    data = {"tth": [str(tmp_path / "events.parquet")]}
    here = tth.build("sci", samples=2).run(data, order="written", engine="inline", progress=False)
    there = tth.build("sci", samples=2).run(data, engine="dask", client=client, progress=False)
    assert bits(there.outputs) == bits(here.outputs)
    assert there.ledger == here.ledger
    assert any(line.endswith("of Dask took part") for line in there.decisions)


def test_an_address_is_a_cluster_too(client: Any) -> None:
    result = run(None, engine=client.scheduler.address, timeout="1 min")
    assert said(result) == said(quiet())
    assert any(line.startswith("cluster: ") for line in result.decisions)


# -- what errors and ends are


@pytest.mark.parametrize("trouble", ["an exception that cannot be pickled", "an exception of every row of a unit"])
def test_a_step_that_raises_is_told_as_by_processes(client: Any, trouble: str) -> None:
    caught = []
    for options in ({}, {"engine": "processes", "client": None, "workers": 2}):
        with pytest.raises(StepError) as error:
            run(client, analysis(trouble), **options)
        caught.append(error.value)
    assert str(caught[0]) == str(caught[1])
    assert type(caught[0].__cause__) is type(caught[1].__cause__)
    assert "hard" in str(caught[0])


def test_rows_are_left_out_as_they_are_here(client: Any) -> None:
    trouble = "an exception that cannot be made again"
    result = run(client, analysis(trouble), on_error="skip")
    check_ledger(result, failed=((BAD, BAD + 1),))
    assert said(result) == said(quiet(UNITS, trouble, "skip"))


def test_rows_that_end_their_process_are_left_out(client: Any) -> None:
    result = run(client, analysis("an exit"), on_error="skip")
    check_ledger(result, failed=((BAD // UNIT * UNIT, BAD // UNIT * UNIT + UNIT),))
    assert "exited with code 3" in result.ledger.problems[0].reason
    assert said(result) == said(quiet(UNITS, "an exception of every row of a unit", "skip"))


def test_a_run_that_is_interrupted_is_resumed(client: Any, tmp_path: Path) -> None:
    (tmp_path / "driver").write_text(str(os.getpid()))
    made, units = analysis("an interrupt", pace=PACE, place=str(tmp_path)), 100
    result = run(client, made, opened(units), rundir=tmp_path / "run")
    assert result.interrupted
    done = [
        row for entry in result.ledger.entries if entry.state == "done" for row in range(entry.start, entry.stop or 0)
    ]
    assert result["everything"][:2].tolist() == [len(done), sum(done)]
    assert len(done) + result.ledger.missing == units * UNIT
    whole = run(client, made, opened(units), rundir=tmp_path / "run", resume=True)
    assert said(whole) == said(quiet(units))
    check_ledger(whole, units)
    assert sum(stop - start for _, name, start, stop in whole.reads if name == "row") == units * UNIT - len(done)


def test_a_workload_that_cannot_be_sent_is_refused_at_once(client: Any) -> None:
    made, lock = analysis(), threading.Lock()

    @made.output(region=None)
    def locked(x: Any) -> int:
        with lock:
            return len(x)

    with pytest.raises(EngineError, match=r"cannot be sent to worker processes: .*'lock'.* cannot be pickled"):
        run(client, made)


# -- code that others do not have

SCRIPT = """
import sys
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import windrow as wr

SCALE = 3

class Odd(Exception):
    pass

def scaled(x):
    return x * SCALE

def broken(x):
    raise Odd(f"{x} of {SCALE}")

if __name__ == "__main__":
    made = wr.Pipeline("script")
    made.column(scaled)
    made.cut(lambda x: x > 10, name="some")
    made.region("A", "some")

    @made.output
    def total(scaled):
        return int(scaled.sum())

    result = made.run({"x": np.arange(1000)}, engine="dask", client=sys.argv[1], progress=False)
    with wr.Session(engine=sys.argv[1]) as session:
        values = session.gather([session.submit(scaled, 4), session.submit(lambda x: scaled(x) + 1, 5)])
        error = session.submit(broken, 7).exception()
    print(result["total"], values, type(error) is Odd, error)
"""


def test_what_a_script_defines_reaches_the_workers(client: Any, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-W", "error", str(tmp_path / "script.py"), client.scheduler.address]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (done.stdout, done.stderr) == (f"{3 * sum(range(11, 1000))} [12, 16] True 7 of 3\n", "")


@pytest.fixture
def local_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A module beside the program, which is not there where workers of Dask look for modules."""
    (tmp_path / "local_numbers.py").write_text("SCALE = 3\n")
    (tmp_path / "local_steps.py").write_text(
        "import local_numbers\ndef scaled(x):\n    return x * local_numbers.SCALE\ndef read(name):\n    return open(name).read()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield importlib.import_module("local_steps")
    for name in ("local_steps", "local_numbers"):
        del sys.modules[name]


def test_modules_beside_the_program_reach_the_workers(client: Any, local_steps: Any) -> None:
    made = wr.Pipeline("local")
    made.column(local_steps.scaled)

    @made.output(region=None)
    def total(scaled: Any) -> int:
        return int(scaled.sum())

    assert run(client, made, {"x": np.arange(1000)})["total"] == 3 * sum(range(1000))
    with wr.Session(engine=client) as session:
        assert session.submit(local_steps.scaled, 4).result() == 12
        assert session.submit(lambda x: local_steps.scaled(x), 5).result() == 15


def test_workers_work_where_the_program_does(client: Any, local_steps: Any) -> None:
    Path("words.txt").write_text("in a row")
    with wr.Session(engine=client) as session:
        assert session.submit(os.getcwd).result() == str(Path.cwd())
        assert session.submit(local_steps.read, "words.txt").result() == "in a row"


# -- processors of coffea


@pytest.mark.filterwarnings("ignore::RuntimeWarning:coffea", "ignore:Missing cross-reference:RuntimeWarning")
def test_a_processor_gives_the_same_bits(client: Any, tmp_path: Path) -> None:
    pytest.importorskip("coffea", reason="coffea is not installed: pip install 'windrow[coffea]'")
    uproot = pytest.importorskip("uproot")
    from coffea.nanoevents import BaseSchema

    rng = np.random.default_rng(3)
    with uproot.recreate(tmp_path / "events.root") as file:
        file["Events"] = {"x": rng.normal(size=3000) * 10.0 ** rng.integers(-8, 8, 3000)}

    def processor(events: Any) -> dict[str, Any]:
        values = np.asarray(events["x"])
        return {"n": len(values), "sum": float(values.sum()), "squares": float((values**2).sum())}

    asked: dict[str, Any] = {"schema": BaseSchema, "grid": 250}
    fileset = {"data": [str(tmp_path / "events.root")]}
    expected = wr.run_processor(processor, fileset, engine="inline", **asked)
    assert wr.run_processor(processor, fileset, engine=client, timeout="1 min", **asked) == expected
    assert wr.run_processor(processor, fileset, engine=client, **asked) == expected  # too little: stays here
    assert expected["n"] == 3000


# -- tasks


def count(words: list[str]) -> dict[str, int]:
    return dict(Counter(words))


@wr.task
def write(path: wr.OutFile, words: list[str]) -> None:
    Path(path).write_text(" ".join(words))


@wr.task
def read(path: wr.InFile) -> list[str]:
    return Path(path).read_text().split()


def merge(counts: list[dict[str, int]]) -> dict[str, int]:
    return dict(sum((Counter(one) for one in counts), Counter[str]()))


def test_a_graph_of_tasks_with_files(client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WINDROW_STORE", str(tmp_path / "store"))
    texts = ["so it goes", "it is so", "and so on", "it never ends", "so so"]
    with wr.Session(engine=client) as session:
        for number, text in enumerate(texts):
            write(f"words-{number}.txt", text.split())
        parts = [session.submit(count, read(f"words-{number}.txt")) for number in range(len(texts))]
        found = session.submit(merge, parts).result()
    assert found == dict(Counter(" ".join(texts).split()))
    assert {path.name for path in tmp_path.glob("*.txt")} == {f"words-{number}.txt" for number in range(len(texts))}


def test_a_task_that_raises_fails_what_needs_it_alone(client: Any) -> None:
    def invert(x: float) -> float:
        return 1 / x

    with wr.Session(engine=client) as session:
        inverted = [session.submit(invert, x) for x in (4, 0, 2)]
        assert session.submit(sum, [inverted[0], inverted[2]]).result() == 0.75
        with pytest.raises(DependencyError, match=r"it needs .*invert.* which failed: ZeroDivisionError"):
            session.submit(sum, inverted).result()
        with pytest.raises(ZeroDivisionError):
            inverted[1].result()


def test_tasks_are_cancelled(client: Any, tmp_path: Path) -> None:
    def wait() -> None:
        (tmp_path / f"begun-{os.getpid()}").touch()
        while True:
            time.sleep(0.01)

    with wr.Session(engine=client) as session, session.group("all") as group:
        tasks = [session.submit(wait) for _ in range(8)]
        wait_until(lambda: any(tmp_path.iterdir()), "a task has begun")
        group.cancel()
        assert all(one.cancelled() or isinstance(one.exception(), CancelledError) for one in tasks)
        assert session.submit(pow, 2, 3).result() == 8


def test_outputs_come_one_by_one(client: Any) -> None:
    @wr.task(outputs=3)
    def blocks(n: int) -> Iterator[list[int]]:
        for start in range(0, 3 * n, n):
            yield list(range(start, start + n))

    @wr.task(outputs="stream")
    def countdown(n: int) -> Iterator[Any]:
        while n:
            yield np.full(200_000, n)
            n -= 1

    with wr.Session(engine=client) as session:
        assert session.gather([session.submit(sum, one) for one in blocks(4)]) == [6, 22, 38]
        assert [int(future.result()[0]) for future in countdown(3)] == [3, 2, 1]


LARGE = 2_500_000  # numbers: 20 MB


def fill(number: int) -> Any:
    return np.full(LARGE, number)


def add(one: Any, other: Any) -> Any:
    return one + other


@pytest.mark.parametrize("how", ["lent", "whole", "lent in vain"])
def test_large_values_go_from_node_to_node(client: Any, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    if how == "whole":  # as between machines
        monkeypatch.setattr(DaskEngine, "_is_near", lambda *_: False)
    elif how == "lent in vain":
        monkeypatch.setattr(Lent, "arrive", _not_there)
    brought: list[Any] = []
    ask_for = DaskEngine._ask_for

    def asked(*args: Any) -> None:
        brought.append(args)
        ask_for(*args)

    monkeypatch.setattr(DaskEngine, "_ask_for", asked)
    with wr.Session(engine=client) as session:
        made = [session.submit(fill, number) for number in range(6)]
        while len(made) > 1:
            made = [session.submit(add, *made[n : n + 2]) for n in range(0, len(made) - 1, 2)] + made[len(made) & ~1 :]
        total = made[0].result()
        assert (total.shape, total.min(), total.max()) == ((LARGE,), 15, 15)
    assert len(brought) == 1 + (how == "lent in vain")  # of eleven: the others have not been here


def _not_there(_: Any) -> Any:
    raise FileNotFoundError


def test_a_large_value_is_given_to_all(client: Any) -> None:
    values = np.arange(LARGE)
    with wr.Session(engine=client) as session:
        made = session.submit(fill, 2)
        sums = [session.submit(add_up, values, made, n) for n in range(9)]
        assert session.gather(sums) == [int(values.sum()) + 2 * LARGE + n for n in range(9)]
        shared = session.share(values)
        assert session.gather([session.submit(add_up, shared[:n], made, 0) for n in (10, 20, 30)]) == [
            n * (n - 1) // 2 + 2 * LARGE for n in (10, 20, 30)
        ]


def add_up(one: Any, other: Any, number: int) -> int:
    return int(one.sum() + other.sum()) + number


def ask(place: str, number: int) -> int:
    """Ask a server, and count who is at it meanwhile, in whatever process."""
    mine = Path(place, f"asks-{number}")
    mine.touch()
    time.sleep(0.1)
    found = len(list(Path(place).glob("asks-*")))
    mine.unlink()
    return found


def meet(place: str, number: int) -> None:
    """Wait until three are at it."""
    Path(place, f"meets-{number}").touch()
    wait_until(lambda: len(list(Path(place).glob("meets-*"))) == 3, "three are there at once")


def test_what_a_session_has_is_counted_over_all_workers(client: Any, tmp_path: Path) -> None:
    with wr.Session(engine=client, resources={"database": 2}) as session:
        at_once = wr.task(ask, resources={"database": 1})
        assert max(session.gather([at_once(str(tmp_path), number) for number in range(12)])) <= 2
        session.gather([session.submit(meet, str(tmp_path), number) for number in range(3)])  # they need nothing


# -- several at a time


def test_several_runs_and_sessions_at_once(client: Any) -> None:
    with wr.Session(engine=client) as session, ThreadPoolExecutor(2) as threads:
        tasks = [session.submit(pow, n, 2) for n in range(20)]
        runs = [threads.submit(run, client) for _ in range(2)]
        with wr.Session(engine=client) as other:
            assert other.submit(sum, [1, 2]).result() == 3
        assert session.gather(tasks) == [n * n for n in range(20)]
        for one in runs:
            assert said(one.result()) == said(quiet())


# -- where it runs


def test_too_little_data_stays_here_and_says_so(client: Any) -> None:
    result = run(None, engine=client)
    assert "engine: inline, because the data is too small for a cluster to pay" in result.decisions
    assert said(result) == said(quiet())


# -- bad input


def test_a_client_that_is_closed(client: Any) -> None:
    other = type(client)(client.scheduler.address, set_as_default=False)
    other.close()
    with pytest.raises(EngineError, match="the Dask client is closed: make a new one"):
        run(other)
    with pytest.raises(EngineError, match="the Dask client is closed: make a new one"):
        wr.Session(engine=other)


def test_a_client_of_coroutines(client: Any) -> None:
    async def program() -> None:
        async with type(client)(client.scheduler.address, asynchronous=True, set_as_default=False) as other:
            with pytest.raises(UsageError, match="the Dask client is an asynchronous one"):
                run(other)

    asyncio.run(program())


def test_an_address_where_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "ANSWER_S", 0.2)
    with pytest.raises(EngineError, match=r"no Dask scheduler answers at tcp://127.0.0.1:9 within 0 s"):
        run("tcp://127.0.0.1:9")
    with pytest.raises(EngineError, match=r"no Dask scheduler answers at tcp://127.0.0.1:9"):
        wr.Session(engine="tcp://127.0.0.1:9")
    with pytest.raises(UsageError, match=r"tls://127.0.0.1:9 wants certificates"):
        wr.Session(engine="tls://127.0.0.1:9")


def test_what_does_not_go_together(client: Any) -> None:
    with pytest.raises(UsageError, match="workers= is about this machine"):
        run(client, workers=2)
    with pytest.raises(UsageError, match="workers= is about this machine"):
        wr.Session(engine=client, workers=2)
    with pytest.raises(UsageError, match="engine= and client= both name a Dask cluster"):
        run(client, engine=client)
    with pytest.raises(UsageError, match='engine= is "auto" or "dask", got \'threads\''):
        run(client, engine="threads")
    with pytest.raises(UsageError, match='engine="dask" needs the cluster too'):
        run(None)
    with pytest.raises(UsageError, match=r"engine= is one of .*'threads', 'inline'.*, a client of a Dask cluster"):
        wr.Session(engine="dask")
    with pytest.raises(UsageError, match=r"client= is a Dask client, .* got int"):
        run(3)


def test_a_stream_is_not_run_on_a_cluster(client: Any) -> None:
    with pytest.raises(NotYetError, match="in the memory of one process"):
        run(client, source=wr.data.stream([{"x": np.ones(1)}]), chunk="auto")


def test_nodes_with_other_versions_are_named(client: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    here = nodes.versions()
    monkeypatch.setattr(nodes, "versions", lambda: {**here, "numpy": "0.1"})
    with pytest.raises(EngineError) as caught:
        run(client)
    for address in client.scheduler_info()["workers"]:
        assert f"  {address}: numpy {here['numpy']} (the driver has 0.1)" in str(caught.value).splitlines()
    with pytest.raises(EngineError, match=r"numpy .* \(the driver has 0.1\)"), wr.Session(engine=client) as session:
        session.submit(pow, 2, 3).result()


def test_a_node_with_another_version_is_not_used(client: Any) -> None:
    one = min(client.scheduler_info()["workers"])
    client.run(set_version, "0.1", workers=[one])
    told = f"cluster: {one} was not used: windrow 0.1 (the driver has "
    try:
        for _ in range(20):  # a run may be over before all nodes have answered
            result = run(client)
            if any(line.startswith(told) for line in result.decisions):
                break
    finally:
        client.run(set_version, "", workers=[one])
    assert said(result) == said(quiet())
    check_ledger(result)
    assert any(line.startswith(told) for line in result.decisions)
    assert "cluster: 3 workers of Dask took part" not in result.decisions


def set_version(version: str) -> None:
    """In a worker of Dask: have another version of Windrow, or (empty) the one it has."""
    from windrow.engines.dask import node

    node.versions = partial(_other_version, version) if version else real_versions


real_versions = nodes.versions


def _other_version(version: str) -> dict[str, str]:
    return {**real_versions(), "windrow": version}


def test_a_scheduler_that_does_not_answer_is_not_one_without_workers(client: Any) -> None:
    """Dask's own ``scheduler_info`` gives what it heard last, which may be of no workers at all."""

    class Deaf:
        scheduler = client.scheduler
        scheduler_info = staticmethod(lambda **_: {"workers": {}})

        def sync(self, function: Any, **_: Any) -> Any:
            raise OSError("nobody listens")

    with pytest.raises(EngineError, match=r"does not answer \(OSError: nobody listens\)"):
        clusters.present(Deaf())


# -- MPI

MPI_ANALYSIS = """
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import windrow as wr

analysis = wr.Pipeline("mpi")
analysis.cut(lambda x: x > 0, name="positive")
analysis.region("kept", "positive")

@analysis.output
def total(x):
    return x.sum()

data = {"x": np.random.default_rng(1).normal(size=500_000)}
"""


@pytest.mark.slow
def test_processes_of_mpi_are_a_cluster(tmp_path: Path) -> None:
    pytest.importorskip("dask_mpi", reason="dask-mpi is not installed: pip install 'windrow[mpi]'")
    if shutil.which("mpiexec") is None:
        pytest.skip("there is no mpiexec")
    (tmp_path / "mine.py").write_text(MPI_ANALYSIS)
    windrow = [sys.executable, "-m", "windrow", "run", "--quiet", "mine.py"]
    of_openmpi = ("ALLOW_RUN_AS_ROOT", "ALLOW_RUN_AS_ROOT_CONFIRM", "MCA_rmaps_base_oversubscribe")
    environment = {
        **os.environ, **{f"OMPI_{name}": "1" for name in of_openmpi}, "PYTHONPATH": os.pathsep.join(map(str, sys.path)),
    }  # fmt: skip
    for command in (
        [*windrow, "--engine", "inline", "--out", "here.json"],
        ["mpiexec", "-n", "4", *windrow, "--engine", "dask-mpi", "--out", "there.json", "--json", "about.json"],
    ):
        subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=300)
    about, here, there = ((tmp_path / name).read_text() for name in ("about.json", "here.json", "there.json"))
    assert json.loads(here)["outputs"] == json.loads(there)["outputs"]
    assert "cluster: 2 workers of Dask took part" in about


def test_mpi_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dask_mpi", None)
    with pytest.raises(EngineError, match=r"dask-mpi cannot be used .*: pip install 'windrow\[mpi\]'"):
        run("dask-mpi")
    monkeypatch.setitem(sys.modules, "dask_mpi", ModuleType("dask_mpi"))
    alone: Any = ModuleType("mpi4py")
    alone.MPI = SimpleNamespace(COMM_WORLD=SimpleNamespace(Get_size=lambda: 1))
    monkeypatch.setitem(sys.modules, "mpi4py", alone)
    with pytest.raises(EngineError, match=r"needs 3 processes or more, .* and there is 1: begin it with mpiexec"):
        wr.Session(engine="dask-mpi")


# -- over networks that others use


def test_all_goes_encrypted_and_nothing_of_ours_listens(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("certificates are made with openssl")
    psutil, security = pytest.importorskip("psutil"), pytest.importorskip("distributed.security")
    made = "req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=windrow -keyout key.pem -out cert.pem"
    subprocess.run(["openssl", *made.split()], cwd=tmp_path, capture_output=True, check=True)
    cert, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    certificates = {
        f"tls_{side}_{name}": path
        for side in ("scheduler", "worker", "client")
        for name, path in (("cert", cert), ("key", key))
    }

    def listening() -> set[tuple[int, Any]]:
        programs = [psutil.Process(), *psutil.Process().children(recursive=True)]
        found = [(one.pid, socket) for one in programs for socket in one.net_connections("inet")]
        return {(pid, socket.laddr) for pid, socket in found if socket.status == psutil.CONN_LISTEN}

    asked = security.Security(tls_ca_file=cert, require_encryption=True, **certificates)
    with own_client(2, security=asked) as client:
        addresses = [client.scheduler.address, *client.scheduler_info()["workers"]]
        assert all(one.startswith("tls://") for one in addresses)
        before = listening()
        result = run(client)
        assert said(result) == said(quiet())
        check_ledger(result)
        with wr.Session(engine=client) as session:
            pids = session.gather([session.submit(os.getpid) for _ in range(4)])
            assert set(pids) <= {one.pid for one in psutil.Process().children(recursive=True)}
            sums = [session.submit(add, session.submit(fill, n), n) for n in range(3)]
            assert [one.result().max() for one in sums] == [0, 2, 4]
            assert listening() == before
