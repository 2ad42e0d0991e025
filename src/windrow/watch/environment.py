"""What a run ran with: versions, cores and memory, and the commit of the analysis. No host, user or path."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path
from typing import Any

#: What answers may depend on.
PACKAGES = (
    "awkward", "boost-histogram", "correctionlib", "hist", "numba", "numpy", "pyarrow", "scipy",
    "uproot", "vector", "windrow",
)  # fmt: skip

#: A commit is not worth more seconds, as on a file system that hangs.
GIT_S = 5.0


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
    """Return the commit checked out where the analysis is; None outside a git repository, and without git."""
    command = ["git", "rev-parse", "--verify", "--quiet", "HEAD"]
    try:
        # Nothing of the command comes from outside.
        found = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, timeout=GIT_S)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None
