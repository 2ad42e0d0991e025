"""A task that takes 1 GB/s until it is ended, and writes down how much it has taken in a file that outlives it."""

from __future__ import annotations

import mmap
import struct
import subprocess
import sys
import time
from pathlib import Path

__all__ = ["clear", "read", "resident", "take_in_a_child", "take_more_and_more"]

RATE = 1_000_000_000  #: bytes a second
STEP = 2_000_000
NOTES = "qqd"  #: bytes there at the beginning, bytes taken since, seconds


def clear(notes: Path) -> None:
    notes.write_bytes(bytes(struct.calcsize(NOTES)))


def read(notes: Path) -> tuple[int, int, float]:
    there, taken, seconds = struct.unpack(NOTES, notes.read_bytes())
    return there, taken, seconds


def resident() -> int:
    """Bytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE


def proportional() -> int:
    """Bytes of this process, shared pages divided among those who share them."""
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("the kernel does not tell")


def take_more_and_more(notes: Path, there: int) -> None:
    """Take memory at the given rate until somebody ends this."""
    with notes.open("r+b") as file, mmap.mmap(file.fileno(), struct.calcsize(NOTES)) as page:
        kept, taken, begin = [], 0, time.perf_counter()
        while True:
            piece = mmap.mmap(-1, STEP)  # no allocator's own idea of what to keep
            for place in range(0, STEP, mmap.PAGESIZE):
                piece[place] = 1
            kept.append(piece)
            taken += STEP
            seconds = time.perf_counter() - begin
            struct.pack_into(NOTES, page, 0, there, taken, seconds)
            time.sleep(max(0.0, taken / RATE - seconds))


def take_in_a_child(notes: Path) -> None:
    """The same in a process of its own."""
    command = [sys.executable, __file__, str(notes), str(proportional())]
    subprocess.run(command, check=False)


if __name__ == "__main__":
    take_more_and_more(Path(sys.argv[1]), int(sys.argv[2]) + proportional())
