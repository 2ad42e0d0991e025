"""Patterns of paths, as ``glob`` reads them, but for links that go in circles: glob walks through those for ever.

It ends a walk only where the system refuses a path with 40 links in it, so that one circle gives each file 40 names, and
two of them more than can ever be listed.
"""

# ruff: noqa: PTH116, PTH118, PTH206, PTH207
# Paths are text here: they stay as they were given, links and all.

from __future__ import annotations

import glob
import os
from collections.abc import Iterator

_ANY_DEPTH = "**"
_Directory = tuple[int, int]  #: device and number


def matching(pattern: str) -> list[str]:
    """List the paths that match, each once; ``**`` stands for any directories, as deep as links do not come back to them."""
    parts = pattern.split(os.sep)
    if _ANY_DEPTH not in parts:
        return glob.glob(pattern)
    number = parts.index(_ANY_DEPTH)
    head, rest = os.sep.join(parts[:number]), parts[number + 1 :]
    starts = [os.sep if number else ""] if not head else filter(os.path.isdir, glob.glob(head))
    found: dict[str, None] = {}
    for start in starts:
        if not rest and start:
            found[os.path.join(start, "")] = None
        for place, directories, names in _below(start, frozenset()):
            if rest:
                found |= dict.fromkeys(matching(os.path.join(glob.escape(place), *rest)))
            else:
                found |= dict.fromkeys(os.path.join(place, one) for one in directories + names)
    return list(found)


def _below(place: str, above: frozenset[_Directory]) -> Iterator[tuple[str, list[str], list[str]]]:
    try:
        status = os.stat(place or os.curdir)
        with os.scandir(place or os.curdir) as entries:
            shown = sorted((one.name, one.is_dir()) for one in entries if not one.name.startswith("."))
    except OSError:  # it has just gone, or nobody may look into it
        return
    here = (status.st_dev, status.st_ino)
    if here in above:
        return
    directories = [name for name, is_directory in shown if is_directory]
    yield place, directories, [name for name, is_directory in shown if not is_directory]
    for name in directories:
        yield from _below(os.path.join(place, name), above | {here})
