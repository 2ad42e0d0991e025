"""How many cores and how much memory we were granted, which may be less than the machine has.

Batch systems and containers hand out a part of a machine. A program that counts the machine's cores instead
shares each of its own with several workers, and is killed for memory it never had. The grant is the
smallest of: the cores this process may run on; the quotas and limits of its control group (version
1 or 2) and of all groups around it; what SLURM says; and the machine.

Nothing here fails: what cannot be read or understood limits nothing.
"""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Version 1 says "no limit" with the largest multiple of a page.
ABSURD = 1 << 60
MEGABYTE = 1 << 20


def granted_cores(environ: Mapping[str, str], root: str = "/") -> int:
    """Cores this process may keep busy; at least one."""
    bounds = [os.cpu_count() or 1] if root == "/" else []
    bounds += _allowed_cores(Path(root))
    for version, group in _groups(Path(root), "cpu"):
        bounds += _quota(version, group)
    bounds += _slurm_cores(environ)
    return max(1, min(bounds, default=1))


def granted_memory(environ: Mapping[str, str], root: str = "/") -> int:
    """Bytes this process and its workers may use together; 0 if nothing is known."""
    bounds = _numbers(_line(Path(root, "proc/meminfo"), "MemTotal:").removesuffix("kB"))
    bounds = [kilobytes * 1024 for kilobytes in bounds]
    for version, group in _groups(Path(root), "memory"):
        name = "memory.max" if version == 2 else "memory.limit_in_bytes"
        bounds += _numbers(_text(group / name))
    bounds += [size * MEGABYTE for size in _numbers(environ.get("SLURM_MEM_PER_NODE", ""))]
    cores = min(_slurm_cores(environ), default=0) or granted_cores(environ, root)
    bounds += [cores * size * MEGABYTE for size in _numbers(environ.get("SLURM_MEM_PER_CPU", ""))]
    return min((bound for bound in bounds if bound < ABSURD), default=0)


def _allowed_cores(root: Path) -> list[int]:
    """The affinity, which cpusets narrow too: "0-3,8"."""
    ranges = _line(root / "proc/self/status", "Cpus_allowed_list:").split(",")
    count = 0
    for each in ranges:
        first, _, last = each.strip().partition("-")
        begin, end = _whole(first), _whole(last or first)
        if begin is None or end is None:
            return []
        count += max(0, end - begin + 1)
    return [count] if count else []


def _quota(version: int, group: Path) -> list[int]:
    """Cores' worth of time per period, rounded up: half a core more is worth a worker."""
    if version == 2:
        words = _text(group / "cpu.max").split()
    else:
        words = [_text(group / "cpu.cfs_quota_us"), _text(group / "cpu.cfs_period_us")]
    numbers = [number for word in words for number in _numbers(word)]
    return [math.ceil(numbers[0] / numbers[1])] if len(words) == len(numbers) == 2 else []


def _slurm_cores(environ: Mapping[str, str]) -> list[int]:
    names = ("SLURM_CPUS_PER_TASK", "SLURM_CPUS_ON_NODE")
    return [number for name in names for number in _numbers(environ.get(name, ""))]


def _groups(root: Path, controller: str) -> Iterator[tuple[int, Path]]:
    """The directories of our control group and of all around it, as far as we see them."""
    for version, top, above in _mounts(root, controller):
        path = _own_group(root, controller, version)
        if path is None:
            continue
        # A container sees its own group as the top, and may be told the path from outside.
        inside = path.removeprefix(above) if above != "/" else path
        if ".." in inside.split("/"):
            inside = ""
        group = Path(top, inside.strip("/"))
        while True:
            yield version, group
            if group == top or top not in group.parents:
                break
            group = group.parent


def _mounts(root: Path, controller: str) -> Iterator[tuple[int, Path, str]]:
    """Where control groups are mounted: version, directory, and which group that shows."""
    for line in _text(root / "proc/self/mountinfo").splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if len(fields) < 5 or not kind:
            continue
        top = Path(root, fields[4].lstrip("/"))
        if kind[0] == "cgroup2":
            yield 2, top, fields[3]
        elif kind[0] == "cgroup" and controller in kind[-1].split(","):
            yield 1, top, fields[3]


def _own_group(root: Path, controller: str, version: int) -> str | None:
    for line in _text(root / "proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if version == 2 and number == "0" and not controllers:
            return path
        if version == 1 and controller in controllers.split(","):
            return path
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _line(path: Path, start: str) -> str:
    """The rest of the line of a file that starts so."""
    for line in _text(path).splitlines():
        if line.startswith(start):
            return line.removeprefix(start).strip()
    return ""


def _numbers(text: str) -> list[int]:
    """The positive whole number a text holds, if it holds one: "max", "-1", "0" and garbage are none."""
    number = _whole(text.strip())
    return [number] if number else []


def _whole(text: str) -> int | None:
    # Longer ones are garbage, and Python refuses to read really long ones.
    return int(text) if text.isdecimal() and len(text) <= 20 else None
