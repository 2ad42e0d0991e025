"""A place for what is not complete yet: a hidden directory beside the files that will be made of it.

It is locked while its run lives, so that the next run can tell what a killed one left behind and remove it.
"""

from __future__ import annotations

import contextlib
import secrets
import shutil
from typing import TYPE_CHECKING

from windrow.errors import UsageError
from windrow.store.lock import take_lock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from windrow.store.lock import DirectoryLock


PREFIX = ".windrow-staging-"

#: Another run may take a new directory for one of a dead run, but hardly this often.
TRIES = 100


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
        shutil.rmtree(place, ignore_errors=True)
        lock.release()


def _made(parent: Path) -> tuple[Path, DirectoryLock]:
    for _ in range(TRIES):
        place = parent / f"{PREFIX}{secrets.token_hex(4)}"
        place.mkdir(mode=0o700)
        with contextlib.suppress(FileNotFoundError):
            lock = take_lock(place)
            if lock is not None:
                return place, lock
    raise OSError("its staging directories disappear")


def _clear(parent: Path) -> None:
    for place in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            lock = take_lock(place)
            if lock is not None:
                # Where there are no locks nobody knows whether its run is dead.
                if lock.real:
                    shutil.rmtree(place, ignore_errors=True)
                lock.release()
