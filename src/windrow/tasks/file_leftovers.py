"""Files that tasks of earlier runs left, as the store of results knows: what a task will write anew is nobody's input.

Of a pattern it is not known which files a task will write until it has, nor what it will make beside those that it declares.
What is there already would count as an input of whoever reads it after the task, in this run, and as that task's work in the
next one: all would be done once more then. So it is told by paths, as the files may have been changed since.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windrow.store.results import Entry
    from windrow.tasks.call import Call
    from windrow.tasks.file_claims import Claim
    from windrow.tasks.file_stamps import Stamp
    from windrow.tasks.session import Session


class Leftovers:
    """What earlier runs left, looked for when it is asked for first: the whole store is read for that."""

    def __init__(self) -> None:
        #: By task and path: the files that it declared, one of which this is, or beside which it made this.
        self._known: dict[tuple[str, str], tuple[str, ...]] | None = None
        self._ended: set[str] = set()  #: keys of calls of this session that are known too

    def among(self, session: Session, writers: Sequence[tuple[Claim, Call]], stamps: Sequence[Stamp]) -> set[Stamp]:
        """Find those of some files that earlier runs of tasks left where these write now, or that they have made meanwhile."""
        if not writers or not stamps:
            return set()
        known = self._look(session, {record for _, record in writers})
        # Of a thousand tasks, each with a file of its own, not all are looked at for each file.
        single = {(record.name, claim.path) for claim, record in writers if claim.shape == "file"}
        others = [(record.name, claim) for claim, record in writers if claim.shape != "file"]
        tasks = {record.name for _, record in writers}

        def is_one(path: str, task: str) -> bool:
            files = known.get((task, path), ())
            return any((task, one) in single for one in files) or any(
                claim.covers(one) for one in files for name, claim in others if name == task
            )

        return {one for one in stamps if any(is_one(one.path, task) for task in tasks)}

    def _look(self, session: Session, records: set[Call]) -> dict[tuple[str, str], tuple[str, ...]]:  # fmt: skip
        if self._known is None:
            self._known = {}
            self._look_through(session)
        for one in records:
            if one.key and one.state == "done" and one.key not in self._ended:
                self._ended.add(one.key)
                results = session.reusing._opened(to_write=False)
                self._take(results.find(one.key) if results is not None else None)
        return self._known

    def _look_through(self, session: Session) -> None:
        from windrow.store.results_budget import kept_results

        results = session.reusing._opened(to_write=False)
        if results is not None:
            for one in kept_results(results.directory):
                self._take(results.find(Path(one.path).stem))

    def _take(self, entry: Entry | None) -> None:
        from windrow.tasks.keeping import BESIDE, stamps_in

        if entry is None:
            return
        assert self._known is not None
        task, files = entry.facts.get("task", ""), tuple(one.path for one in stamps_in(entry))
        self._known.update({(task, one): files for one in entry.facts.get(BESIDE, ())})
        self._known.update({(task, one): (one,) for one in files})
