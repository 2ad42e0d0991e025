"""A cluster whose scheduler and workers are hosts of their own, with addresses of their own: links are cut, hosts die and come."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import windrow as wr
from windrow.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

distributed = pytest.importorskip("distributed", reason="distributed is not installed: pip install 'windrow[dask]'")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="hosts are made by root with ip(8)"),
]

#: Seconds that a link is cut: less than connections bear.
CUT_S = 20.0
PORT = 8786


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Hosts:
    """Hosts on a switch that this machine is on too; all are gone in the end, with what runs on them."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self.tag = f"wr{os.getpid() % 100_000}"
        self.net = f"10.213.{os.getpid() % 250}"
        self._count = 1
        self.programs: dict[int, subprocess.Popen[bytes]] = {}
        ip("link", "add", self.tag, "type", "bridge")
        stack.callback(ip, "link", "del", self.tag)
        ip("addr", "add", f"{self.net}.1/24", "dev", self.tag)
        ip("link", "set", self.tag, "up")

    def add(self) -> int:
        self._count += 1
        host, name, inner = self._count, f"{self.tag}h{self._count}", f"{self.tag}i{self._count}"
        ip("netns", "add", name)
        self._stack.callback(ip, "netns", "del", name)
        ip("link", "add", name, "type", "veth", "peer", "name", inner)
        ip("link", "set", inner, "netns", name)
        ip("link", "set", name, "master", self.tag)
        ip("link", "set", name, "up")
        for words in (
            ("addr", "add", f"{self.net}.{host}/24", "dev", inner),
            ("link", "set", inner, "up"),
            ("link", "set", "lo", "up"),
        ):
            ip("-n", name, *words)
        return host

    def address(self, host: int) -> str:
        return f"{self.net}.{host}"

    def run(self, host: int, *words: str) -> None:
        program = self.programs[host] = subprocess.Popen(
            ["ip", "netns", "exec", f"{self.tag}h{host}", sys.executable, "-m", "distributed.cli.dask_" + words[0], *words[1:]],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._stack.callback(self.end, program)

    def end(self, program: subprocess.Popen[bytes]) -> None:
        program.kill()
        program.wait(30)

    def cut(self, host: int, *, whole: bool = False) -> None:
        ip("link", "set", f"{self.tag}h{host}", "up" if whole else "down")


class Cluster:
    def __init__(self, hosts: Hosts) -> None:
        self.hosts = hosts
        self.scheduler = hosts.add()
        hosts.run(
            self.scheduler, "scheduler", "--host", hosts.address(self.scheduler), "--port", str(PORT), "--no-dashboard"
        )
        self.url = f"tcp://{hosts.address(self.scheduler)}:{PORT}"
        self.workers = [self.add() for _ in range(3)]

    def add(self) -> int:
        host = self.hosts.add()
        self.hosts.run(
            host, "worker", self.url, "--host", self.hosts.address(host), "--nthreads", "1", "--no-dashboard", "--no-nanny",
            "--memory-limit", "0",
        )  # fmt: skip
        return host


@contextmanager
def a_cluster() -> Iterator[tuple[Cluster, Any]]:
    with ExitStack() as stack:
        try:
            hosts = Hosts(stack)
        except subprocess.CalledProcessError as error:
            pytest.skip(f"hosts cannot be made here: {error.stderr.decode().strip()}")
        cluster = Cluster(hosts)
        client = distributed.Client(cluster.url, timeout=15)
        stack.callback(client.close, timeout=5)
        client.wait_for_workers(3, timeout=60)
        yield cluster, client


def analysis(row_s: float) -> wr.Pipeline:
    made = wr.Pipeline("hosts")

    @made.column
    def root(x: Any) -> Any:
        time.sleep(row_s * len(x))  # hosts share two cores here
        return np.sqrt(x)

    @made.output
    def total(root: Any) -> Any:
        return root.sum()

    @made.output
    def count(x: Any) -> Any:
        return len(x)

    return made


ROWS = 200_000


def data() -> Any:
    return wr.data.open({"x": np.random.default_rng(5).uniform(size=ROWS)}, grid=500)


class Trouble(threading.Thread):
    """What happens to a cluster once the run is well under way."""

    def __init__(self, what: Any) -> None:
        super().__init__(daemon=True)
        self._what, self._under_way = what, threading.Event()
        self.error: BaseException | None = None

    def progress(self, now: Any) -> None:
        if now.rows_done > ROWS // 20:
            self._under_way.set()

    def run(self) -> None:
        try:
            assert self._under_way.wait(120)
            self._what()
        except BaseException as error:  # noqa: BLE001 - raised again by the test
            self.error = error


def test_a_link_is_cut_a_host_dies_and_two_come() -> None:
    with a_cluster() as (cluster, client):
        expected = analysis(0.0).run(data(), engine="inline", progress=False)
        hosts = cluster.hosts

        def trouble() -> None:
            hosts.cut(cluster.workers[0])
            time.sleep(CUT_S)
            hosts.cut(cluster.workers[0], whole=True)
            hosts.end(hosts.programs[cluster.workers[1]])
            cluster.add()
            cluster.add()

        happens = Trouble(trouble)
        happens.start()
        result = analysis(6e-4).run(data(), engine="dask", client=client, progress=happens.progress)
        happens.join(60)
        assert happens.error is None
        assert not happens.is_alive()
    assert result.ledger.summary() == f"{ROWS:,} of {ROWS:,} rows done"
    assert (result["total"], result["count"]) == (expected["total"], ROWS)
    assert any("were lost" in said for said in result.decisions)


def test_the_scheduler_stops_and_the_run_is_continued(tmp_path: Path) -> None:
    expected = analysis(0.0).run(data(), engine="inline", progress=False)
    with a_cluster() as (cluster, client):
        happens = Trouble(lambda: cluster.hosts.end(cluster.hosts.programs[cluster.scheduler]))
        happens.start()
        with pytest.raises(EngineError, match="Dask scheduler"):
            analysis(6e-4).run(data(), engine="dask", client=client, progress=happens.progress, rundir=tmp_path / "run")
        happens.join(60)
        assert happens.error is None
    result = analysis(0.0).run(data(), engine="inline", progress=False, rundir=tmp_path / "run", resume=True)
    assert (result["total"], result["count"]) == (expected["total"], ROWS)
    assert result.ledger.summary() == f"{ROWS:,} of {ROWS:,} rows done"
