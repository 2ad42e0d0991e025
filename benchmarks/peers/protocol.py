"""The worker's end of the benchmarks' protocol: JSON lines in on stdin, out on stdout.

Needs the standard library alone, because it runs in every peer's own environment. A worker imports
its libraries once, says it is ready, and then answers each request with one line.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from importlib import metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def versions(*packages: str) -> dict[str, str]:
    """The installed versions of some packages."""
    return {package: metadata.version(package) for package in packages}


def serve(run: Callable[..., Any], *packages: str) -> None:
    """Answer requests until stdin ends: each is a mapping of keyword arguments for ``run``."""
    # Libraries print; only the copy made here still leads to the benchmark.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    answers.write(json.dumps({"ready": True, "versions": versions(*packages)}) + "\n")
    for line in sys.stdin:
        request = json.loads(line)
        start = time.perf_counter()
        try:
            result = run(**request)
        except Exception:  # noqa: BLE001 - reported to the benchmark, which stops
            answer: dict[str, Any] = {"error": traceback.format_exc()}
        else:
            answer = {"wall": time.perf_counter() - start, "result": result}
        answers.write(json.dumps(answer) + "\n")
