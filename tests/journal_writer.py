"""Writes blobs as fast as it can until it is killed, and tells about each: ``journal_writer.py DIRECTORY SEED``.

``try`` stands in the protocol before a write begins, ``done`` after it returned; a line is written by one system call,
so that a kill does not take it away.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

from windrow.store.journal.journal import Journal, KnownInput

ROWS = 1000
INPUTS = ("a", "b", "c")


def content(key: str, stop: int) -> bytes:
    """What a partial over the first rows of an input is; some are large, so that a kill meets a write."""
    return random.Random(f"{key}{stop}").randbytes(200_000 if stop % 3 == 0 else 100)


def main(directory: Path, seed: int) -> None:
    rng = random.Random(seed)
    journal = Journal.open(directory) if Journal.exists(directory) else Journal.create(directory)
    journal.know([KnownInput(key, "tt", key, "1", ROWS, (ROWS,), None, None) for key in INPUTS])
    with (directory / "protocol").open("ab", buffering=0) as protocol:
        while True:
            key = rng.choice(INPUTS)
            old = journal.blobs_of(key)
            stop = 1 + (old[0].rows[0][1] if old else 0)
            if stop > ROWS:
                return
            protocol.write(f"try {key} {stop}\n".encode())
            whole = content(key, stop)
            pieces: list[bytes | memoryview] = [whole[:50], memoryview(whole)[50:]]
            journal.write(key, ["p", "q"], [(0, stop)], pieces, [blob.id for blob in old])
            protocol.write(f"done {key} {stop}\n".encode())


if __name__ == "__main__":
    os.umask(0)
    main(Path(sys.argv[1]), int(sys.argv[2]))
