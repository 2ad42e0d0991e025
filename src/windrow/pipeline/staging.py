"""A place for what is not complete yet: a hidden directory beside the files that will be made of it.

It is locked while its run lives, so that the next run can tell what a killed one left behind and remove it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from typing import TYPE_CHECKING

from windrow.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["staging"]

PREFIX = ".windrow-staging-"
LOCK = "lock"


@contextlib.contextmanager
def staging(parent: Path) -> Iterator[Path]:
    """Make a directory in ``parent`` that is gone afterwards, whatever happens; clear away those of dead runs."""
    try:
        parent.mkdir(parents=True, exist_ok=True)
        _clear(parent)
        place, lock = _made(parent)
    except OSError as error:
        raise UsageError(f"save: nothing can be written to {parent}: {error}") from error
    try:
        yield place
    finally:
        os.close(lock)
        shutil.rmtree(place, ignore_errors=True)


def _made(parent: Path) -> tuple[Path, int]:
    for _ in range(100):
        place = parent / f"{PREFIX}{secrets.token_hex(4)}"
        place.mkdir(mode=0o700)
        try:
            lock = os.open(place / LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        except FileNotFoundError:
            continue  # taken for one of a dead run before it had a lock
        if _locked(lock) and (place / LOCK).exists():
            return place, lock
        os.close(lock)
    raise OSError("its staging directories disappear")


def _clear(parent: Path) -> None:
    for place in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            lock = os.open(place / LOCK, os.O_RDWR)
            try:
                if _locked(lock):
                    shutil.rmtree(place, ignore_errors=True)
            finally:
                os.close(lock)


def _locked(lock: int) -> bool:
    """Take the lock if nobody has it."""
    import fcntl

    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
