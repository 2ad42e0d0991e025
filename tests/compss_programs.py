"""Running PyCOMPSs programs: on Windrow, and with a stand-in for PyCOMPSs that runs every task where it is called."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from windrow.tasks.declare import current

if TYPE_CHECKING:
    from collections.abc import Iterator

    import windrow as wr

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = sorted((ROOT / "examples" / "pycompss").glob("*.py"))
OURS, THEIRS = "windrow.compat.pycompss.api", "pycompss.api"

#: What PyCOMPSs does outside of its runtime: decorators do nothing, and there is nothing to wait for.
STAND_IN = {
    "task": "def task(*a, **k):\n    return lambda function: function\n",
    "constraint": "def constraint(**k):\n    return lambda function: function\n",
    "binary": "def binary(**k):\n    return lambda function: function\n",
    "reduction": "def reduction(**k):\n    return lambda function: function\n",
    "exceptions": "class COMPSsException(Exception):\n    pass\n",
    "parameter": "import sys\ndef __getattr__(name):\n    return name\n",
    "api": (
        "from contextlib import nullcontext as TaskGroup\n"
        "compss_open = open\n"
        "def compss_wait_on(*things):\n    return things[0] if len(things) == 1 else list(things)\n"
        "def compss_wait_on_file(*names):\n    return True\n"
        "def compss_barrier(*a):\n    pass\n"
    ),
}


def write_stand_in(directory: Path) -> None:
    package = directory / "pycompss" / "api"
    package.mkdir(parents=True)
    (directory / "pycompss" / "__init__.py").touch()
    (package / "__init__.py").touch()
    for name, text in STAND_IN.items():
        (package / f"{name}.py").write_text(text, encoding="utf-8")


def run_program(path: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program by itself; what it is linked to may not use several threads, which changes the last digits."""
    known = {name: value for name, value in os.environ.items() if not name.startswith("WINDROW")}
    return subprocess.run(
        [sys.executable, str(path), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**known, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", **environment},
    )


@contextmanager
def used(session: wr.Session) -> Iterator[wr.Session]:
    """Let tasks be called in a session that stays open."""
    token = current.set(session)
    try:
        yield session
    finally:
        current.reset(token)
