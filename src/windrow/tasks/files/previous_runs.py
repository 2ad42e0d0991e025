"""Files in the reuse of results: what they say of a call that reads them, and whether they are what calls left."""

from __future__ import annotations

import sys
import time
from bisect import bisect_left
from typing import TYPE_CHECKING

from windrow.tasks.files.stamps import Stamp, content_digest, stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from windrow.store.results import Entry, Results
    from windrow.tasks.call import Call, FileArgument
    from windrow.tasks.session import Session


#: Times of files go by steps of so many seconds, on a local disk: what is written twice within one has the same.
STEP_S = time.clock_getres(5) if sys.platform == "linux" else 0.01  # 5: CLOCK_REALTIME_COARSE


class ReusedFiles:
    """What a session knows of files whose writers, or readers, may have been called in an earlier run."""

    def __init__(self, session: Session, results: Callable[[], Results | None], *, by_content: bool) -> None:
        self._session = session
        self._results = results  #: opens the store to be read
        self._by_content = by_content
        #: By path: a file that an earlier run wrote, what it is like, and the key of the call.
        self._known: dict[str, tuple[Stamp, str]] = {}

    def stated(self, calling: Call) -> list[bytes]:
        """Say what the files are that a call reads, in one order.

        Of what a task makes it says who that is: what it was like is noted when it is read. So it is with other files that
        are read along with it, as those may be left by earlier runs and written anew.
        """
        from windrow.tasks.reuse.code import NotReusable
        from windrow.tasks.reuse.key import makers_of_paths
        from windrow.tasks.reuse.save import is_as_it_was_made

        found: set[str] = set()
        results = self._results()
        for future in makers_of_paths(calling):
            made = future.call
            key = made.key if made.state == "done" else None
            if key and (results is None or not is_as_it_was_made(results, key)):
                raise NotReusable(f"it reads what {made.name!r} wrote, which has been changed since, or was not kept")
            found.add("by future, as it was read")
        made_in_part = self._made_in_part(calling)
        for one in calling.files:
            if not one.kind.reads:
                continue
            where = f"{one.parameter} {one.kind.name}"
            maker = self._maker(one)
            if maker is None:
                assert one.maker is not None
                name = one.maker.call.name
                raise NotReusable(f"it reads {one.path}, which task {name!r} writes, and that is not reused itself")
            if maker:
                # Which of the maker's files it is, is said by the arguments.
                found.add(f"{where} as it was read, made by {maker}")
            elif (one.parameter, one.among) not in made_in_part:
                found.add(f"{where} {one.path} {self._said(one)}")
        return [one.encode("utf-8", "surrogateescape") for one in sorted(found)]

    def _made_in_part(self, calling: Call) -> set[tuple[str, str]]:
        """Find those of the paths that stand for several files of which tasks make some, by parameter and path."""
        return {(one.parameter, one.among) for one in calling.files if one.among and self._maker(one) != ""}

    def _said(self, one: FileArgument) -> object:
        from windrow.tasks.reuse.code import NotReusable

        if one.stamp is None:
            raise NotReusable(
                f"it reads all of {one.path}, which has so many files that they are not looked at one by one"
            )
        try:
            if not _is_settled(one.stamp):
                raise NotReusable(f"it reads {one.path}, which is being written")
            return content_digest(one.path) if self._by_content else one.stamp[1:]
        except OSError as error:
            raise NotReusable(f"it reads {one.path}, which cannot be read ({error})") from error

    def _maker(self, one: FileArgument) -> str | None:
        """Give the key of the call that writes a file, or has in an earlier run; None if it has no key, empty if there is none."""
        if one.maker is not None:
            return one.maker.call.key
        known, key = self._known.get(one.path, (None, ""))
        return key if known == one.stamp else ""

    def is_latest(self, calling: Call, record: Call) -> bool:
        writers = [self._session.files.latest(one.path) for one in calling.files if one.kind.writes]
        return all(one is None or one.call is record for one in writers)

    def makers(self, calling: Call) -> list[Call]:
        from windrow.tasks.reuse.key import makers_of_paths

        by_path = [one.maker for one in calling.files if one.maker is not None]
        return [one.call for one in (*makers_of_paths(calling), *by_path)]

    def are_being_made(self, calling: Call) -> bool:
        """Whether a task of the session is about to make a file that a call reads: nobody knows what that will be like."""
        return bool(calling.declared.files) and any(one.state != "done" for one in self.makers(calling))

    def are_as_read(self, calling: Call, entry: Entry) -> bool:
        """Whether files that tasks made, and a call read, are as they were then, and will be."""
        if not calling.declared.files:
            return True
        from windrow.tasks.reuse.save import still_as_read

        stamps = still_as_read(entry)
        if stamps is None or self._are_being_written(one.path for one in stamps):
            return False
        known, made_in_part = {one.path for one in stamps}, self._made_in_part(calling)
        beside = [one for one in calling.files if (one.parameter, one.among) in made_in_part and one.stamp is not None]
        return all(one.path in known for one in beside)

    def _are_being_written(self, paths: Iterable[str]) -> bool:
        for path in dict.fromkeys(paths):
            writer = self._session.files.latest(path)
            if writer is not None and writer.call.state in ("waiting", "running"):
                return True
        return False

    def are_there(self, calling: Call, entry: Entry, key: str) -> bool:
        """Whether all that a call writes is there as it left it, and nobody is about to write it."""
        from windrow.tasks.reuse.save import beside_in, still_there

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
        # What it made beside them is its work too, as it was while it ran: who reads that notes what it was like.
        beside = beside_in(entry)
        self._known.update({said.path: (said, key) for said in (*stamps, *beside)})
        return True


def _is_settled(known: Stamp) -> bool:
    """Wait until a file that changes from now on gets another time; False if it has changed meanwhile."""
    age = time.time() - known.mtime_ns / 1e9
    if not 0 <= age < STEP_S:
        return True
    time.sleep(STEP_S - age)
    return stamp(known.path) == known
