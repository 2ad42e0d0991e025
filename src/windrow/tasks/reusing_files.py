"""Files in the reuse of results: what they say of a call that reads them, and whether they are what calls left."""

from __future__ import annotations

import sys
import time
from bisect import bisect_left
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from windrow.store.results import Entry, Results
    from windrow.tasks.calling import Calling, FileArgument
    from windrow.tasks.file_stamps import Stamp
    from windrow.tasks.record import Record
    from windrow.tasks.session import Session

__all__ = ["ReusedFiles"]

#: Times of files go by steps of so many seconds, on a local disk: what is written twice within one has the same.
STEP_S = time.clock_getres(5) if sys.platform == "linux" else 0.01  # 5: CLOCK_REALTIME_COARSE


class ReusedFiles:
    """What a session knows of files whose writers, or readers, may have been called in an earlier run."""

    def __init__(
        self, session: Session, results: Callable[[], Results | None], *, by_content: bool
    ) -> None:
        self._session = session
        self._results = results  #: opens the store to be read
        self._by_content = by_content
        #: By path: a file that an earlier run wrote, what it is like, and the key of the call.
        self._known: dict[str, tuple[Stamp, str]] = {}

    def stated(self, calling: Calling) -> list[bytes]:
        """Say what the files are that a call reads, in one order."""
        from windrow.tasks.file_stamps import content_digest
        from windrow.tasks.lineage import NotReusable, makers_of_paths

        for future in makers_of_paths(calling):
            made = future.record
            if made.key and made.state == "done" and not self._is_as_it_was_made(made.key):
                raise NotReusable(
                    f"it reads what {made.name!r} wrote, which has been changed since, or was not kept"
                )
        found: set[str] = set()
        for one in calling.files:
            if not one.kind.reads:
                continue
            where = f"{one.parameter} {one.kind.name}"
            maker = self._maker(one)
            if maker is None:
                assert one.maker is not None
                name = one.maker.record.name
                raise NotReusable(
                    f"it reads {one.path}, which task {name!r} writes, and that is not reused itself"
                )
            if maker:
                # Which of the maker's files it is, is said by the arguments.
                found.add(f"{where} made by {maker}")
                continue
            try:
                if not _is_settled(one.stamp):
                    raise NotReusable(f"it reads {one.path}, which is being written")
                said = content_digest(one.path) if self._by_content else one.stamp[1:]
            except OSError as error:
                raise NotReusable(f"it reads {one.path}, which cannot be read ({error})") from error
            found.add(f"{where} {one.path} {said}")
        return [one.encode("utf-8", "surrogateescape") for one in sorted(found)]

    def _maker(self, one: FileArgument) -> str | None:
        """Give the key of the call that writes a file, or has in an earlier run; None if it has no key, empty if there is none."""
        if one.maker is not None:
            return one.maker.record.key
        known, key = self._known.get(one.path, (None, ""))
        return key if known == one.stamp else ""

    def _is_as_it_was_made(self, key: str) -> bool:
        """Whether the files that a call wrote are what it left."""
        from windrow.tasks.keeping import is_as_it_was_made

        results = self._results()
        return results is not None and is_as_it_was_made(results, key)

    def is_latest(self, calling: Calling, record: Record) -> bool:
        """Whether no other task of the session writes what a call writes."""
        writers = [self._session.files.latest(one.path) for one in calling.files if one.kind.writes]
        return all(one is None or one.record is record for one in writers)

    def makers(self, calling: Calling) -> list[Record]:
        """List the calls of tasks, not of commands, whose futures say which files a call reads."""
        from windrow.tasks.lineage import is_of_command, makers_of_paths

        return [one.record for one in makers_of_paths(calling) if not is_of_command(one)]

    def are_as_read(self, calling: Calling, entry: Entry) -> bool:
        """Whether files that a call read, and of which only futures knew the paths, are as they were then, and will be."""
        if not calling.declared.files:
            return True
        from windrow.tasks.keeping import still_as_read

        if any(one.state != "done" for one in self.makers(calling)):
            return False  # what it is about to say, and to write, is not known
        stamps = still_as_read(entry)
        return stamps is not None and not self._are_being_written(one.path for one in stamps)

    def _are_being_written(self, paths: Iterable[str]) -> bool:
        """Whether a task of the session is about to write one of some files."""
        for path in dict.fromkeys(paths):
            writer = self._session.files.latest(path)
            if writer is not None and writer.record.state in ("waiting", "running"):
                return True
        return False

    def are_there(self, calling: Calling, entry: Entry, key: str) -> bool:
        """Whether all that a call writes is there as it left it, and nobody is about to write it."""
        from windrow.tasks.keeping import still_there

        stamps = still_there(entry)
        if stamps is None:
            return False
        paths = [one.path for one in calling.files if one.kind.writes]
        there = sorted(one.path for one in stamps)
        if self._are_being_written((*paths, *there)):
            return False
        for path in paths:
            # In order, those that begin with it come right after where it would be.
            number = bisect_left(there, path)
            if number == len(there) or not there[number].startswith(path):
                return False
        self._known.update({said.path: (said, key) for said in stamps})
        return True


def _is_settled(known: Stamp) -> bool:
    """Wait until a file that changes from now on gets another time; False if it has changed meanwhile."""
    from windrow.tasks.file_stamps import stamp

    age = time.time() - known.mtime_ns / 1e9
    if not 0 <= age < STEP_S:
        return True
    time.sleep(STEP_S - age)
    return stamp(known.path) == known
