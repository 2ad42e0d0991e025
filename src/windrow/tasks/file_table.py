"""The files of a session: which task writes a path, who reads it, and what that means for the next call."""

# ruff: noqa: PTH100, PTH109, PTH110, PTH112, PTH113, PTH119, PTH120, PTH207, PTH208
# Paths are text here: they stay as they were given, links and all.

from __future__ import annotations

import glob
import os
import threading
from typing import TYPE_CHECKING

from windrow.errors import MissingFileError, UsageError, nearest
from windrow.tasks.calling import FileArgument
from windrow.tasks.calls import Slot
from windrow.tasks.file_claims import Claim, Claims, meet
from windrow.tasks.file_paths import given_paths, is_remote, pattern_of
from windrow.tasks.file_places import new_token, remove_dead, remove_session
from windrow.tasks.file_reading import Read
from windrow.tasks.file_stamps import OURS, Stamp, files_in, matches, stamp
from windrow.tasks.file_work import FileWork, Write
from windrow.tasks.future import Future

if TYPE_CHECKING:
    from windrow.tasks.calling import Calling
    from windrow.tasks.file_claims import Entry
    from windrow.tasks.file_paths import GivenPath
    from windrow.tasks.record import Record

__all__ = ["FileTable"]

#: Files of a directory that are looked at one by one when it is read; of larger ones nothing is promised.
MOST_IN_A_DIRECTORY = 1000


class FileTable:
    """By path: the latest writer and its readers.

    A call that reads a file depends on the call that wrote it last. One that writes a file comes after the call that wrote
    it last and after all that read that version. Who may have to run again reads the version it was promised.
    """

    def __init__(self) -> None:
        self._claims = Claims()
        self._token = ""
        self._places: set[str] = set()  #: directories that tasks write to
        self._lock = threading.Lock()

    # -- calls

    def enter(self, calling: Calling) -> None:
        """Look at the paths of a call: fill its files, what it comes after, what it makes, and what is done around it."""
        with self._lock:
            self._token = self._token or new_token()
            given = given_paths(calling)
            reads = [
                self._read(calling, one) for one in given if one.kind.reads and not one.kind.writes
            ]
            writes = [
                self._write(calling, one, number)
                for number, one in enumerate(one for one in given if one.kind.writes)
            ]
            if not given:
                return
            self._check_apart(calling, writes)
            work = FileWork(
                self._token,
                os.getcwd() if any(isinstance(one.path, Future) for one in given) else "",
                tuple(reads),
                tuple(self._keeping(one, reads) for one in writes),
            )
            calling.made += [one.output for one in writes]
            calling.around.append(work)

    def submitted(self, calling: Calling, record: Record) -> None:
        """A call is about to be made: from now on what it writes is known as its work."""
        work = next((one for one in calling.around if isinstance(one, FileWork)), None)
        if work is None:
            return
        with self._lock:
            changed = [one.read for one in work.writes if one.read is not None]
            for read in (*work.reads, *changed):
                for claim in read.claims:
                    self._claims.read(claim, record.id, calling.session.open)
            for number, write in enumerate(work.writes):
                future = calling.session.promise(record, f"f{number}")
                if write.claim is not None:
                    self._claims.write(write.claim, record.id, future)

    # -- what is read

    def _read(self, calling: Calling, given: GivenPath) -> Read:
        where = (given.parameter, given.kind, given.place, given.item)
        if isinstance(given.path, Future):
            return Read(*where, "")
        path = os.fspath(given.path)
        if is_remote(path):
            return Read(*where, path)
        claims = self._claims_of(calling, given, path)
        makers = {
            one.writer: one for claim in claims for one in self._claims.makers(claim) if one.future
        }
        if claims == [Claim("file", path)] and _are_overtaken(list(makers.values()), path):
            makers = {}
        slots = []
        for _, maker in sorted(makers.items()):
            assert maker.future is not None
            slot = calling.read(maker.future)
            assert isinstance(slot, Slot)  # what is said of files is never taken from a store
            slots.append(slot.number)
            calling.files.append(FileArgument(given.parameter, given.kind, path, maker.future))
        stamps = self._there(claims) if given.kind.pattern or not makers else ()
        written = [one.claim for one in makers.values() if one.claim.shape != "glob"]
        stamps = tuple(one for one in stamps if not any(two.covers(one.path) for two in written))
        if not makers and not stamps and not os.path.isdir(path):
            raise self._missing(calling, given, path, claims)
        calling.files += [
            FileArgument(given.parameter, given.kind, one.path, None, one) for one in stamps
        ]
        # What a task makes beside its declared outputs may replace what is there now.
        promised = () if makers else stamps
        return Read(*where, path, tuple(claims), promised, tuple(slots))

    def _claims_of(self, calling: Calling, given: GivenPath, path: str) -> list[Claim]:
        if given.kind.pattern:
            pattern, begins = pattern_of(calling, given)
            return [Claim("glob", pattern), *([Claim("file", path)] if begins else [])]
        tree = given.kind.directory or os.path.isdir(path)
        if given.kind.name == "InDir":
            self._prepare(os.path.dirname(os.path.realpath(path)))  # where it may be shown
        return [Claim("tree" if tree else "file", path)]

    def _there(self, claims: list[Claim]) -> tuple[Stamp, ...]:
        """Look at what is there now of what is read."""
        found: list[str] = []
        for claim in claims:
            if claim.shape == "file":
                found += [claim.path] if os.path.exists(claim.path) else []
            elif claim.shape == "glob":
                found += [one for one in glob.glob(claim.path) if os.path.isfile(one)]
            else:
                for number, one in enumerate(files_in(claim.path)):
                    if number == MOST_IN_A_DIRECTORY:
                        return ()
                    found.append(one)
        return tuple(stamp(one) for one in dict.fromkeys(found))

    def _missing(
        self, calling: Calling, given: GivenPath, path: str, claims: list[Claim]
    ) -> MissingFileError:
        what = next((one.path for one in claims if one.shape == "glob"), path)
        place = os.path.dirname(path)
        known = [os.path.basename(one) for one in self._claims.written_in(place)]
        if os.path.isdir(place):
            known += [one for one in os.listdir(place) if not one.startswith(OURS)]
        return MissingFileError(
            f"task {calling.declared.name!r} reads {what} (parameter {given.parameter!r}, {given.kind.name}), but there is "
            "no such file, and no task called before writes it: if one does, call it before, and annotate the path there "
            f"with wr.OutFile{nearest(os.path.basename(path), known)}"
        )

    # -- what is written

    def _write(self, calling: Calling, given: GivenPath, number: int) -> Write:
        where = (given.parameter, given.kind, given.place, given.item)
        output = f"{calling.id}.f{number}"
        if isinstance(given.path, Future):
            if given.kind.pattern or given.kind.reads:
                raise UsageError(
                    f"task {calling.declared.name!r}: parameter {given.parameter!r} is annotated with wr.{given.kind.name}, whose path has "
                    "to be known at the call; give the value of the future"
                )
            return Write(*where, "", output)
        path, begins = os.fspath(given.path), False
        self._refuse_directory(calling, given, path)
        claim = Claim("tree" if given.kind.directory else "file", path)
        if given.kind.pattern:
            pattern, begins = pattern_of(calling, given)
            claim = Claim("glob", pattern)
        read = self._read(calling, given) if given.kind.reads else None
        meeting = self._claims.meeting(claim)
        before = {one for entry in meeting for one in (entry.writer, *entry.readers)}
        known = calling.session.open
        calling.after += sorted(one for one in before if one in known and one not in calling.after)
        keeping = read is not None or any(
            entry.was_read or (entry.writer and entry.claim != claim) for entry in meeting
        )
        self._prepare(os.path.dirname(os.path.realpath(path)))
        calling.files.append(FileArgument(given.parameter, given.kind, path))
        return Write(*where, path, output, claim, begins, keeping, read)

    def _refuse_directory(self, calling: Calling, given: GivenPath, path: str) -> None:
        there = os.path.lexists(path) and not os.path.isfile(path)
        if given.kind.directory and os.path.isfile(path) and given.kind.name == "OutDir":
            raise UsageError(
                f"task {calling.declared.name!r} writes a directory to {path} (parameter {given.parameter!r}, OutDir), where "
                "a file is; remove that, or annotate with wr.OutFile"
            )
        if not given.kind.directory and there and os.path.isdir(path):
            raise UsageError(
                f"task {calling.declared.name!r} writes a file to {path} (parameter {given.parameter!r}, "
                f"{given.kind.name}), where a directory is; name a file in it, or annotate with wr.OutDir"
            )

    def _keeping(self, write: Write, reads: list[Read]) -> Write:
        """A call that reads what it overwrites may have to read it again."""
        claim = write.claim
        if write.keeping or claim is None:
            return write
        return write._replace(
            keeping=any(meet(claim, other) for one in reads for other in one.claims)
        )

    def _check_apart(self, calling: Calling, writes: list[Write]) -> None:
        for number, one in enumerate(writes):
            for other in writes[:number]:
                if one.claim and other.claim and _clash(one.claim, other.claim):
                    raise UsageError(
                        f"task {calling.declared.name!r} is given {one.path} and {other.path} to write (parameters "
                        f"{other.parameter!r} and {one.parameter!r}): give each output a path of its own"
                    )

    def _prepare(self, place: str) -> None:
        """Begin to write to a directory."""
        if place not in self._places:
            self._places.add(place)
            remove_dead(place)

    # -- the user's side

    def latest(self, path: str | os.PathLike[str]) -> Future | None:
        """Give the future of what a task of the session makes of a path; None if none does."""
        text = os.path.abspath(path)
        with self._lock:
            makers = self._claims.makers(Claim("file", text))
            return makers[-1].future if makers else None

    def wait(self, path: str | os.PathLike[str]) -> str:
        """Wait for the tasks that write a path, if any do, and return it as absolute text; raises what they raised."""
        text = os.path.abspath(path)
        with self._lock:
            shape = "tree" if os.path.isdir(text) else "file"
            makers = [*self._claims.makers(Claim("file", text))]
            if shape == "tree":
                makers += self._claims.makers(Claim("tree", text))
        for one in makers:
            if one.future is not None:
                one.future.result()
        return text

    def close(self) -> None:
        """The session has ended: leave nothing private behind."""
        for place in self._places:
            remove_session(place, self._token)
        self._places.clear()


def _are_overtaken(makers: list[Entry], path: str) -> bool:
    """Whether a file has changed since the task that wrote it ended: the program itself did that, before this call."""
    if len(makers) != 1 or makers[0].future is None or makers[0].claim.shape != "file":
        return False
    said = makers[0].future._result
    return isinstance(said, tuple) and os.path.exists(path) and not matches(said)


def _clash(one: Claim, other: Claim) -> bool:
    if one.shape == "glob" or other.shape == "glob":
        return one == other
    return meet(one, other)
