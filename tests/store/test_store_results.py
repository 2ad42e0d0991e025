"""Results that are kept by key: whole or not there, whoever writes, reads, damages or removes them."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.errors import CorruptFileError, DataError
from windrow.store.results import SHORT, Results

if TYPE_CHECKING:
    from pathlib import Path

KEY = "ab" * 20


def test_each_output_is_read_by_itself(tmp_path: Path) -> None:
    results = Results(tmp_path / "results")
    numbers = np.arange(3 * SHORT, dtype=np.float32)
    size = results.write(KEY, {"0": [b"first"], "1": [b"second", numbers.data, b""]}, {"task": "f"})
    entry = results.find(KEY)
    assert entry is not None
    assert entry.size == size == results.path(KEY).stat().st_size
    assert entry.facts == {"task": "f"}
    assert set(entry.outputs) == {"0", "1"}
    assert results.load(KEY, "0") == [b"first"]
    words, content, nothing = results.load(KEY, "1")
    assert bytes(words) + bytes(nothing) == b"second"
    again = np.frombuffer(content, np.float32)
    assert np.array_equal(again, numbers)
    assert again.flags.writeable


def test_nothing_is_made_before_something_is_written(tmp_path: Path) -> None:
    results = Results(tmp_path / "results")
    assert results.find(KEY) is None
    assert not results.touch(KEY)
    results.remove(KEY)
    assert list(tmp_path.iterdir()) == []


@given(where=st.floats(0, 1, exclude_max=True), long=st.booleans())
def test_one_wrong_byte_is_noticed(tmp_path_factory: pytest.TempPathFactory, where: float, long: bool) -> None:
    results = Results(tmp_path_factory.mktemp("store") / "results")
    results.write(KEY, {"0": [b"word", bytes(2 * SHORT if long else 100)]}, {"task": "f"})
    path = results.path(KEY)
    content = bytearray(path.read_bytes())
    at = int(where * len(content))
    content[at] ^= 0x10
    path.write_bytes(content)
    if 16 <= at < 20:  # the format: as if another version had written it
        assert results.find(KEY) is None
        return
    if results.find(KEY) is not None:
        assert long  # what is short is checked at once
        with pytest.raises(CorruptFileError, match="run the program again"):
            results.load(KEY, "0")
    assert not path.exists()
    assert results.find(KEY) is None


@given(where=st.floats(0, 1, exclude_max=True), long=st.booleans())
def test_a_file_that_is_cut_off_is_not_found(
    tmp_path_factory: pytest.TempPathFactory, where: float, long: bool
) -> None:
    results = Results(tmp_path_factory.mktemp("store") / "results")
    size = results.write(KEY, {"0": [b"word", bytes(2 * SHORT if long else 100)]}, {})
    os.truncate(results.path(KEY), int(where * size))
    assert results.find(KEY) is None


def test_one_that_goes_after_it_was_found_is_a_clear_error(tmp_path: Path) -> None:
    results = Results(tmp_path / "results")
    results.write(KEY, {"0": [b"word"]}, {})
    assert results.find(KEY) is not None
    results.remove(KEY)
    with pytest.raises(CorruptFileError, match="run the program again"):
        results.load(KEY, "0")


def test_results_of_another_version_are_left_alone(tmp_path: Path) -> None:
    results = Results(tmp_path / "results")
    results.write(KEY, {"0": [b"word"]}, {})
    path = results.path(KEY)
    content = bytearray(path.read_bytes())
    content[16] += 1  # the format, after the magic
    path.write_bytes(content)
    assert results.find(KEY) is None
    assert path.read_bytes() == content
    results.write(KEY, {"0": [b"other"]}, {})
    assert results.load(KEY, "0") == [b"other"]


def test_what_others_can_have_written_is_not_read(tmp_path: Path) -> None:
    results = Results(tmp_path / "results")
    results.write(KEY, {"0": [b"word"]}, {})
    path = results.path(KEY)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o666)
    with pytest.raises(DataError, match="other users"):
        results.load(KEY, "0")


def test_a_disk_that_is_full_leaves_nothing(tmp_path: Path) -> None:
    """Of the older result all is there, of the newer one nothing."""
    results = Results(tmp_path / "results")
    results.write(KEY, {"0": [b"word"]}, {})
    program = (
        "import resource, sys, pathlib\n"
        "from windrow.store.results import Results\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "try:\n"
        "    Results(pathlib.Path(sys.argv[1])).write(sys.argv[2], {'0': [bytes(10**6)]}, {})\n"
        "except OSError:\n"
        "    sys.exit(7)\n"
    )
    command = [sys.executable, "-c", program, str(results.directory), KEY]
    assert subprocess.run(command, check=False).returncode == 7
    assert [path.name for path in results.path(KEY).parent.iterdir()] == [results.path(KEY).name]
    assert results.load(KEY, "0") == [b"word"]


def test_many_writers_and_readers_of_one_key(tmp_path: Path) -> None:
    """Whoever reads sees one of the versions whole; nothing half written is left."""
    directory = tmp_path / "results"
    wrong: list[object] = []

    def write(number: int) -> None:
        results = Results(directory)
        for _ in range(20):
            results.write(KEY, {"0": [bytes([number]) * 50_000, bytes([number]) * 50_000]}, {})

    def read() -> None:
        results = Results(directory)
        for _ in range(60):
            if results.find(KEY) is not None:
                one, other = results.load(KEY, "0")
                if len(set(one + other)) != 1:
                    wrong.append(one)

    threads = [threading.Thread(target=write, args=(number,)) for number in (1, 2, 3)]
    threads += [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert [path.name for path in directory.rglob("*.part")] == []
