"""A command that starts programs in many ways, and who of them is alive; loads nothing that tests alone need."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import windrow as wr

#: Has programs in a pipe, in the background, in another session and in none of its parents' (a daemon's way).
CROWD = (
    "sleep {number} & setsid sleep {number} & (setsid sleep {number} >/dev/null 2>&1 &); "
    "(env -i sleep {number} &); sleep {number} | sleep {number}; sleep {number}"
)
CROWD_SIZE = 6

#: Seconds that a cancelled attempt has to end by itself, where that is not what is tested.
GRACE_S = 0.2


def do_not_wait_long() -> None:
    """Have cancelled commands in processes ended soon."""
    from windrow.engines.processes.engine import ProcessesEngine

    defaults = ProcessesEngine.__init__.__kwdefaults__
    assert defaults is not None
    defaults["grace_s"] = GRACE_S


def alive(number: str) -> list[int]:
    """Find all programs that sleep so long."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[:2] == [b"sleep", number.encode()]:
                found.append(int(entry.name))
    return found


def wait_for(condition: Any, what: str) -> None:
    until = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < until, f"{what} did not happen"
        time.sleep(0.01)


def all_there(number: str, size: int = CROWD_SIZE) -> None:
    wait_for(lambda: len(alive(number)) == size, "the beginning of all programs")


def all_gone(number: str) -> None:
    wait_for(lambda: not alive(number), "the end of all programs")


@wr.command
def crowd(number: str) -> str:
    return CROWD
