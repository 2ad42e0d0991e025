"""The cores of this machine, by the group - a processor or memory domain - whose memory is near."""

from __future__ import annotations

import os
from pathlib import Path


def read_cores(*, hyperthreads: bool = False, root: str = "/") -> list[tuple[int, int]]:
    """Read which cores this process may use, each with its group; without ``hyperthreads`` one of those that share a core.

    What cannot be read is one group.
    """
    folder = Path(root, "sys/devices/system/cpu")
    seen: set[tuple[int, int]] = set()
    found: list[tuple[int, int]] = []
    for number in sorted(allowed_cores(root)):
        here = folder / f"cpu{number}" / "topology"
        package, core = _number(here / "physical_package_id", 0), _number(here / "core_id", number)
        if (package, core) in seen and not hyperthreads:
            continue
        seen.add((package, core))
        nodes = sorted((folder / f"cpu{number}").glob("node[0-9]*"))
        found.append((int(nodes[0].name[4:]) if nodes else package, number))
    found.sort()
    names = {group: place for place, group in enumerate(dict.fromkeys(group for group, _ in found))}
    return [(names[group], number) for group, number in found]


def allowed_cores(root: str = "/") -> tuple[int, ...]:
    """Give the cores that this process may use, by their numbers."""
    if root == "/" and hasattr(os, "sched_getaffinity"):
        return tuple(os.sched_getaffinity(0))
    folders = Path(root, "sys/devices/system/cpu").glob("cpu[0-9]*")
    return tuple(int(one.name[3:]) for one in folders) or tuple(range(os.cpu_count() or 1))


def _number(path: Path, other: int) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return other
