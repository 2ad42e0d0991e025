"""What a run ran with: versions, cores and memory, and the commit of the analysis. No host, user or path."""

from __future__ import annotations

import os
import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path
from typing import Any

#: What answers may depend on.
PACKAGES = (
    "awkward", "boost-histogram", "correctionlib", "hist", "numba", "numpy", "pyarrow", "scipy",
    "uproot", "vector", "windrow",
)  # fmt: skip


@cache
def environment() -> dict[str, Any]:
    """Return what matters for reading a report later; the same all through a process."""
    import psutil

    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": cores,
        "memory": int(psutil.virtual_memory().total),
        "packages": versions,
    }


@cache
def installed_packages() -> tuple[str, ...]:
    """List every installed package with its version, as ``name==version``; looked up once, as it takes a while."""
    # Each look at a distribution's metadata reads its file again.
    read = [item.metadata for item in distributions()]
    found = {f"{facts['Name']}=={facts['Version']}" for facts in read if facts["Name"]}
    return tuple(sorted(found, key=str.lower))


def commit_of(directory: Path | None = None) -> str | None:
    """Return the commit checked out where the analysis is; None outside a git repository."""
    here = (directory or Path()).resolve()
    for folder in (here, *here.parents):
        git = folder / ".git"
        if git.is_dir():
            return _head(git, git)
        if git.is_file():  # a further checkout of a repository, or one inside another
            return _elsewhere(folder, git)
    return None


def _elsewhere(folder: Path, pointer: Path) -> str | None:
    try:
        git = folder / pointer.read_text().removeprefix("gitdir:").strip()
        common = git / "commondir"
        return _head(git, git / common.read_text().strip() if common.is_file() else git)
    except OSError:
        return None


def _head(git: Path, common: Path) -> str | None:
    try:
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head
        name = head.removeprefix("ref: ")
        if (common / name).is_file():
            return (common / name).read_text().strip()
        for line in (common / "packed-refs").read_text().splitlines():
            commit, _, packed = line.partition(" ")
            if packed == name:
                return commit
    except OSError:
        return None
    return None
