"""What was granted, from fake machines."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.engines.machine_limits import granted_cores, granted_memory

if TYPE_CHECKING:
    from pathlib import Path

GB = 1 << 30

V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = (
    "31 23 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "32 23 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
)


class Machine:
    """A /proc and a /sys to write into."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, text: str) -> Machine:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return self

    def cores(self, **environ: str) -> int:
        return granted_cores(environ, str(self.root))

    def memory(self, **environ: str) -> int:
        return granted_memory(environ, str(self.root))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """64 cores, 256 GB, and nobody who limits."""
    made = Machine(tmp_path)
    made.write("proc/self/status", "Name:\tpython\nCpus_allowed_list:\t0-63\nThreads:\t1\n")
    made.write("proc/meminfo", f"MemTotal:       {256 * GB // 1024} kB\nMemFree: 1 kB\n")
    return made


@pytest.fixture
def v2(machine: Machine) -> Machine:
    machine.write("proc/self/mountinfo", V2)
    return machine.write("proc/self/cgroup", "0::/user.slice/job.scope\n")


@pytest.fixture
def v1(machine: Machine) -> Machine:
    machine.write("proc/self/mountinfo", V1)
    return machine.write("proc/self/cgroup", "4:memory:/batch/7\n3:cpu,cpuacct:/batch/7\n0::/\n")


def test_a_machine_without_limits_is_granted_whole(machine: Machine) -> None:
    assert machine.cores() == 64
    assert machine.memory() == 256 * GB


def test_nothing_known_is_one_core_and_no_memory(tmp_path: Path) -> None:
    empty = Machine(tmp_path)

    assert empty.cores() == 1
    assert empty.memory() == 0


def test_this_machine() -> None:
    assert 1 <= granted_cores({}) <= len(os.sched_getaffinity(0))
    assert 0 < granted_memory({}) <= os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(("allowed", "cores"), [("0", 1), ("0-3", 4), ("0-3,8", 5), ("1,3,5", 3), ("0-1,16-17", 4)])
def test_affinity(machine: Machine, allowed: str, cores: int) -> None:
    machine.write("proc/self/status", f"Cpus_allowed_list:\t{allowed}\n")

    assert machine.cores() == cores


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("max 100000", 64),
        ("200000 100000", 2),
        ("150000 100000", 2),
        ("1000 100000", 1),
        ("9900000 100000", 64),
        ("", 64),
        ("garbage", 64),
        ("100000", 64),
        ("0 100000", 64),
        ("9" * 5000 + " 100000", 64),
        ("1 2 3", 64),
    ],
)
def test_cpu_of_version_2(v2: Machine, text: str, cores: int) -> None:
    v2.write("sys/fs/cgroup/user.slice/job.scope/cpu.max", text)

    assert v2.cores() == cores


@pytest.mark.parametrize(
    ("quota", "period", "cores"),
    [
        ("-1", "100000", 64),
        ("400000", "100000", 4),
        ("410000", "100000", 5),
        ("50000", "100000", 1),
        ("400000", "", 64),
        ("x", "y", 64),
    ],
)
def test_cpu_of_version_1(v1: Machine, quota: str, period: str, cores: int) -> None:
    v1.write("sys/fs/cgroup/cpu,cpuacct/batch/7/cpu.cfs_quota_us", quota + "\n")
    v1.write("sys/fs/cgroup/cpu,cpuacct/batch/7/cpu.cfs_period_us", period + "\n")

    assert v1.cores() == cores


@pytest.mark.parametrize(
    ("text", "memory"),
    [
        ("max", 256 * GB),
        (f"{3 * GB}", 3 * GB),
        (f"{300 * GB}", 256 * GB),
        ("none", 256 * GB),
        ("-5", 256 * GB),
        ("", 256 * GB),
    ],
)
def test_memory_of_version_2(v2: Machine, text: str, memory: int) -> None:
    v2.write("sys/fs/cgroup/user.slice/job.scope/memory.max", text + "\n")

    assert v2.memory() == memory


@pytest.mark.parametrize(
    ("text", "memory"), [("9223372036854771712", 256 * GB), (f"{2 * GB}", 2 * GB), (str(1 << 60), 256 * GB)]
)
def test_memory_of_version_1(v1: Machine, text: str, memory: int) -> None:
    v1.write("sys/fs/cgroup/memory/batch/7/memory.limit_in_bytes", text + "\n")

    assert v1.memory() == memory


def test_absurd_limits_alone_are_none(tmp_path: Path) -> None:
    bare = Machine(tmp_path).write("proc/self/mountinfo", V1)
    bare.write("proc/self/cgroup", "4:memory:/\n")
    bare.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")

    assert bare.memory() == 0


def test_the_groups_around_us_limit_too(v2: Machine) -> None:
    v2.write("sys/fs/cgroup/user.slice/job.scope/cpu.max", "800000 100000")
    v2.write("sys/fs/cgroup/user.slice/cpu.max", "300000 100000")
    v2.write("sys/fs/cgroup/cpu.max", "max 100000")
    v2.write("sys/fs/cgroup/user.slice/job.scope/memory.max", "max")
    v2.write("sys/fs/cgroup/user.slice/memory.max", str(20 * GB))
    v2.write("sys/fs/cgroup/memory.max", str(10 * GB))
    v2.write("sys/fs/memory.max", str(GB))  # above the mount: not a group

    assert v2.cores() == 3
    assert v2.memory() == 10 * GB


def test_the_group_of_somebody_else_limits_nothing(v2: Machine) -> None:
    v2.write("sys/fs/cgroup/user.slice/other.scope/cpu.max", "100000 100000")
    v2.write("sys/fs/cgroup/user.slice/other.scope/memory.max", str(GB))

    assert v2.cores() == 64
    assert v2.memory() == 256 * GB


def test_a_container_sees_its_group_at_the_top(machine: Machine) -> None:
    machine.write("proc/self/mountinfo", "33 23 0:28 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n")
    machine.write("proc/self/cgroup", "4:memory:/docker/abc\n")
    machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", str(4 * GB))

    assert machine.memory() == 4 * GB


def test_a_path_that_leaves_the_container_is_its_top(machine: Machine) -> None:
    machine.write("proc/self/mountinfo", V2).write("proc/self/cgroup", "0::/../../other\n")
    machine.write("sys/fs/cgroup/memory.max", str(4 * GB))
    machine.write("other/memory.max", str(GB))

    assert machine.memory() == 4 * GB


def test_both_versions_at_once(v1: Machine) -> None:
    v1.write("proc/self/mountinfo", V1 + V2.replace("/sys/fs/cgroup ", "/sys/fs/cgroup/unified "))
    v1.write("sys/fs/cgroup/memory/batch/memory.limit_in_bytes", str(8 * GB))
    v1.write("sys/fs/cgroup/unified/memory.max", str(6 * GB))

    assert v1.memory() == 6 * GB


@pytest.mark.parametrize(
    ("environ", "cores"),
    [
        ({"SLURM_CPUS_PER_TASK": "4"}, 4),
        ({"SLURM_CPUS_ON_NODE": "16"}, 16),
        ({"SLURM_CPUS_PER_TASK": "4", "SLURM_CPUS_ON_NODE": "16"}, 4),
        ({"SLURM_CPUS_ON_NODE": "128"}, 64),
        ({"SLURM_CPUS_PER_TASK": "many"}, 64),
        ({"SLURM_CPUS_PER_TASK": "0"}, 64),
        ({"SLURM_CPUS_PER_TASK": ""}, 64),
    ],
)
def test_cores_of_slurm(machine: Machine, environ: dict[str, str], cores: int) -> None:
    assert machine.cores(**environ) == cores


@pytest.mark.parametrize(
    ("environ", "memory"),
    [
        ({"SLURM_MEM_PER_NODE": "8192"}, 8 * GB),
        ({"SLURM_MEM_PER_NODE": "0"}, 256 * GB),  # SLURM's way to say: all of it
        ({"SLURM_MEM_PER_CPU": "2048", "SLURM_CPUS_PER_TASK": "4"}, 8 * GB),
        ({"SLURM_MEM_PER_CPU": "2048", "SLURM_CPUS_ON_NODE": "8"}, 16 * GB),
        ({"SLURM_MEM_PER_CPU": "1024"}, 64 * GB),
        ({"SLURM_MEM_PER_NODE": "4096", "SLURM_MEM_PER_CPU": "1024"}, 4 * GB),
        ({"SLURM_MEM_PER_NODE": "lots"}, 256 * GB),
    ],
)
def test_memory_of_slurm(machine: Machine, environ: dict[str, str], memory: int) -> None:
    assert machine.memory(**environ) == memory


def test_everybody_who_limits_is_heard(v2: Machine) -> None:
    v2.write("sys/fs/cgroup/cpu.max", "600000 100000")
    v2.write("proc/self/status", "Cpus_allowed_list:\t0-4\n")
    v2.write("sys/fs/cgroup/memory.max", str(9 * GB))

    assert v2.cores(SLURM_CPUS_ON_NODE="7") == 5
    assert v2.cores(SLURM_CPUS_ON_NODE="3") == 3
    assert v2.memory(SLURM_MEM_PER_NODE="10240") == 9 * GB


@given(text=st.text())
def test_garbage_limits_nothing_and_breaks_nothing(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    machine = Machine(tmp_path_factory.mktemp("garbage"))
    files = ["status", "cgroup", "mountinfo"]
    for file in files:
        (machine.root / "proc/self").mkdir(parents=True, exist_ok=True)
        (machine.root / "proc/self" / file).write_bytes(text.encode("utf-8", "surrogatepass"))
    machine.write("proc/meminfo", "MemTotal: 4 kB\n")

    assert machine.cores(SLURM_CPUS_PER_TASK="") >= 1
    assert machine.memory() == 4096
