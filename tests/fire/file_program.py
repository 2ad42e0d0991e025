"""A program that writes files as tasks, small and large, over and over; killed at any moment by a test.

Every file ends with a checksum of what is before it, so that anybody can say whether it is complete.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import windrow as wr

SMALL, LARGE, PIECE = 30, 3, 1 << 16
#: Pieces of a large file: 2 MB.
PIECES = 32


def written(path: Path, seed: str, pieces: int) -> None:
    """Write a file piece by piece, as slowly as real ones are."""
    whole = hashlib.sha256()
    with path.open("wb") as stream:
        for number in range(pieces):
            size = PIECE // 32 if pieces > 1 else 8
            piece = hashlib.sha256(f"{seed} {number}".encode()).digest() * size
            whole.update(piece)
            stream.write(piece)
            stream.flush()
        stream.write(whole.hexdigest().encode())


def is_complete(path: Path) -> bool:
    content = path.read_bytes()
    return len(content) > 64 and hashlib.sha256(content[:-64]).hexdigest().encode() == content[-64:]


@wr.task
def one(out: wr.OutFile, seed: str, pieces: int = 1) -> None:
    written(Path(out), seed, pieces)
    written(Path(out).with_suffix(".side"), seed, 1)


@wr.task
def several(directory: wr.OutDir, seed: str) -> None:
    for number in range(3):
        written(Path(directory, f"{number}.bin"), f"{seed} {number}", 1)


@wr.task
def again(path: wr.InOutFile, seed: str) -> str:
    """Change a file that is complete into another one."""
    assert is_complete(Path(path))
    written(Path(path), seed, 2)
    return seed


@wr.task
def joined(out: wr.OutFile, *parts: wr.InFile) -> None:
    assert all(is_complete(Path(part)) for part in parts)
    written(Path(out), "".join(Path(part).read_bytes()[-64:].decode() for part in parts), 1)


def write_all(place: Path, seed: str) -> None:
    """Call tasks that write everything once; what is there is overwritten."""
    for number in range(LARGE):
        one(place / "large" / f"{number}.bin", f"{seed} large {number}", PIECES)
        again(place / "large" / f"{number}.bin", f"{seed} again {number}")
    for number in range(SMALL):
        one(place / f"{number}.bin", f"{seed} {number}")
    several(place / "tree", seed)
    joined(place / "all.bin", *[place / f"{number}.bin" for number in range(SMALL)], place / "tree" / "1.bin")  # fmt: skip


def run(place: Path, times: int) -> None:
    """Write everything some times in one session."""
    with wr.Session(engine="processes", workers=2, reuse=False) as session:
        for time in range(times):
            write_all(place, f"time {time}")
            session.barrier()


if __name__ == "__main__":
    run(Path(sys.argv[1]), int(sys.argv[2]))
