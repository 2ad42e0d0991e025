"""Functions with a cache that live where a worker cannot import them from: they go along, with an empty cache."""

from __future__ import annotations

import functools
import subprocess
import sys
from typing import TYPE_CHECKING

from windrow.engines.processes.serialize import dumps

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import functools
import windrow as wr

@functools.lru_cache(maxsize=7)
def double(number):
    return 2 * number

@wr.task
def use(number):
    return double(number) + double(number), double.cache_info().maxsize, double.cache_info().hits > 0

if __name__ == "__main__":
    double(3)
    with wr.Session(workers=1) as session:
        print(session.gather([use(1), use(2)]))
"""


def test_a_cached_function_of_a_program_is_sent(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    ran = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=False, timeout=60)
    assert ran.stdout == "[(4, 7, True), (8, 7, True)]\n", ran.stderr


def test_one_that_can_be_imported_is_sent_by_its_name() -> None:
    import fnmatch

    assert isinstance(fnmatch._compile_pattern, functools._lru_cache_wrapper)  # type: ignore[attr-defined]
    content, _ = dumps(fnmatch._compile_pattern, apart=4096)  # type: ignore[attr-defined]
    assert b"_cached" not in bytes(content)
