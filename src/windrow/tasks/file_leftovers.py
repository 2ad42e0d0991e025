"""Files that tasks of earlier runs left, as the store of results knows: what a task will write anew is nobody's input.

Of a pattern it is not known which files a task will write until it has. Those that match it already would count as inputs
of whoever reads them after it, in this run, and as that task's work in the next one: all would be done once more then.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windrow.tasks.file_stamps import Stamp
    from windrow.tasks.session import Session

__all__ = ["Leftovers"]


class Leftovers:
    """What earlier runs left, looked for when it is asked for first: the whole store is read for that."""

    def __init__(self) -> None:
        self._known: set[tuple[str, Stamp]] | None = None

    def are_of(self, session: Session, task: str, known: Stamp) -> bool:
        """Whether a file is what an earlier run of a task left."""
        if self._known is None:
            self._known = _found(session)
        return (task, known) in self._known


def _found(session: Session) -> set[tuple[str, Stamp]]:
    from windrow.store.results_budget import kept_results
    from windrow.tasks.keeping import stamps_in

    results = session.reusing._opened(to_write=False)
    if results is None:
        return set()
    entries = [results.find(Path(one.path).stem) for one in kept_results(results.directory)]
    return {
        (entry.facts.get("task", ""), one)
        for entry in entries
        if entry is not None
        for one in stamps_in(entry)
    }
