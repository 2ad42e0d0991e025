"""Files of one call that have to do with each other: what it reads and overwrites, and what it would write twice."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from windrow.errors import UsageError
from windrow.tasks.file_claims import Claim, meet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from windrow.tasks.call import Call
    from windrow.tasks.file_reading import Read
    from windrow.tasks.file_work import Write


def keeping(writes: list[Write], reads: list[Read]) -> Iterator[Write]:
    """A call that reads what it overwrites may have to read it again."""
    read = {claim for one in reads for claim in one.claims}
    several = [claim for claim in read if claim.shape != "file"]
    for write in writes:
        claim = write.claim
        if claim is None or write.keeping:
            yield write
            continue
        others = several if claim.shape == "file" else read
        again = claim in read or any(meet(claim, other) for other in others)
        yield write._replace(keeping=again)


def check_apart(calling: Call, writes: list[Write]) -> None:
    """Refuse a call that writes something twice; in the order of paths only neighbours can be that."""
    last: Write | None = None
    tree: Write | None = None
    for one in sorted(writes, key=lambda one: one.claim.path + os.sep if one.claim else ""):
        claim = one.claim
        if claim is None:
            continue
        for other in (last, tree):
            if other and other.claim and _clash(claim, other.claim):
                raise UsageError(
                    f"task {calling.declared.name!r} is given {other.path} and {one.path} to write (parameters "
                    f"{other.parameter!r} and {one.parameter!r}): give each output a path of its own"
                )
        last = one
        tree = one if claim.shape == "tree" else tree


def _clash(one: Claim, other: Claim) -> bool:
    if one.shape == "glob" or other.shape == "glob":
        return one == other
    return meet(one, other)
