"""The files of a session: which task writes a path, who reads it, and what that means for the next call."""

# ruff: noqa: PTH109, PTH110, PTH112, PTH113, PTH119, PTH120, PTH208
# Paths are text here: they stay as they were given, links and all.

from __future__ import annotations

import atexit
import os
import tempfile
import threading
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING

from windrow.errors import MissingFileError, UsageError, nearest
from windrow.tasks.call import FileArgument, Slot
from windrow.tasks.file_claims import Claim, Claims
from windrow.tasks.file_leftovers import Leftovers
from windrow.tasks.file_overlaps import check_apart, keeping
from windrow.tasks.file_paths import given_paths, is_remote, one_name, pattern_of
from windrow.tasks.file_places import new_token, remove_dead, remove_session, session_directory
from windrow.tasks.file_reading import Maker, Read
from windrow.tasks.file_stamps import OURS, Stamp, matches, stamp, stamps_of, there
from windrow.tasks.file_work import FileWork, Write, moved_by
from windrow.tasks.future import Future

if TYPE_CHECKING:
    from windrow.tasks.call import Call
    from windrow.tasks.file_claims import Entry
    from windrow.tasks.file_paths import GivenPath
    from windrow.tasks.session import Session


#: Files of a directory that are looked at one by one when it is read; of larger ones nothing is promised.
MOST_IN_A_DIRECTORY = 1000
#: Tasks at a time that write where only a future knows: who names a file comes after each of them, one by one.
MOST_LATE = 64


class FileTable:
    """By path: the latest writer and its readers.

    A call that reads a file depends on the call that wrote it last. One that writes a file comes after the call that wrote
    it last and after all that read that version. Who may have to run again reads the version it was promised.
    """

    def __init__(self) -> None:
        self._claims = Claims()
        self._left = Leftovers()
        self._token = ""
        self._places: dict[str, str] = {}  #: directories that tasks write to, and our name in them
        #: By call: what it writes, to which its futures lead.
        self._written: weakref.WeakKeyDictionary[Call, tuple[Write, ...]] = weakref.WeakKeyDictionary()
        #: Tasks that write where only a future knows: those that may not have ended, and all.
        self._late: dict[int, weakref.ref[Call]] = {}
        self._all_late: set[int] = set()
        self._followers: dict[int, int] = {}  #: of such tasks: one that comes after it
        self._lock = threading.Lock()
        # Sessions of executors are ended by nobody, if those are forgotten.
        self._process = os.getpid()
        weakref.finalize(self, _remove_all, self._process, self._places).atexit = False
        _living.add(self)

    # -- calls

    def enter(self, calling: Call) -> None:
        """Look at the paths of a call: fill its files, what it comes after, what it makes, and what is done around it."""
        with self._lock:
            self._token = self._token or new_token()
            given = given_paths(calling)
            calling.after += self._open_late(calling, given)
            reads = [self._read(calling, one) for one in given if one.kind.reads and not one.kind.writes]
            writes = [
                self._write(calling, one, number) for number, one in enumerate(one for one in given if one.kind.writes)
            ]
            if not given:
                return
            check_apart(calling, writes)
            here = any(isinstance(one.path, Future) or one.kind.directory for one in given)
            work = FileWork(self._token, os.getcwd() if here else "", tuple(reads), tuple(keeping(writes, reads)))
            calling.more += [one.output for one in writes]
            calling.around.append(work)

    def submitted(self, calling: Call) -> None:
        """A call is about to be made: from now on what it writes is known as its work."""
        work = next((one for one in calling.around if isinstance(one, FileWork)), None)
        if work is None:
            return
        self.note_written(calling)
        with self._lock:
            changed = [one.read for one in work.writes if one.read is not None]
            for read in (*work.reads, *changed):
                for claim in read.claims:
                    self._claims.read(claim, calling.id, calling.session.open)
            for number, write in enumerate(work.writes):
                future = calling.session.promise(calling, f"f{number}")
                if write.claim is not None:
                    self._claims.write(write.claim, calling.id, future)
                elif calling.id not in self._late:
                    self._late[calling.id] = weakref.ref(calling)
                    self._all_late.add(calling.id)

    def note_written(self, calling: Call) -> None:
        """Remember what a call writes, or has written in an earlier run: its futures may be given as paths."""
        work = next((one for one in calling.around if isinstance(one, FileWork)), None)
        if work is not None and work.writes:
            self._written[calling] = work.writes

    def are_known(self, calling: Call) -> bool:
        """Whether it was known, when the files of a call were looked at, where all tasks write that it comes after."""
        return self._all_late.isdisjoint(calling.after)

    def _open_late(self, calling: Call, given: list[GivenPath]) -> list[int]:
        """List the tasks that may yet write any file: who reads or writes a path that is known comes after them.

        Those that write where only futures know are not kept apart from each other, but for those of long before: so a
        few stand for all. One that has failed or was cancelled does not stand for the one before it any more.
        """
        if not (self._late and given):
            return []
        known = calling.session.open
        # One that another thread is just handing over is not known yet, and has not ended.
        self._late = {one: record for one, record in self._late.items() if _is_open(record())}
        last = [one for one in self._late if one in known and self._followers.get(one) not in known]
        if not all(isinstance(one.path, Future) and not one.kind.reads for one in given):
            return last
        if len(last) < MOST_LATE:
            return []
        self._followers[last[0]] = calling.id
        return last[:1]

    # -- what is read

    def _read(self, calling: Call, given: GivenPath) -> Read:
        where = (given.parameter, given.kind, given.place, given.item)
        if isinstance(given.path, Future):
            return self._read_of(calling, given, given.path.call)
        path = os.fspath(given.path)
        if is_remote(path):
            return Read(*where, path)
        claims = self._claims_of(calling, given, path)
        written = [one for claim in claims for one in self._claims.makers(claim) if one.future is not None]
        makers = {one.writer: one for one in written}
        if claims == [Claim("file", path)] and _are_overtaken(list(makers.values()), path):
            makers = {}
        slots = []
        for _, maker in sorted(makers.items()):
            assert maker.future is not None
            slot = calling.read(maker.future)
            assert isinstance(slot, Slot)  # what is said of files is never taken from a store
            slots.append(slot.number)
            calling.files.append(FileArgument(given.parameter, given.kind, path, maker.future))
        found = _there(claims) if claims[0].shape != "file" or not makers else ()
        if found is None:  # it is a dependency of which nothing is said
            calling.files.append(FileArgument(given.parameter, given.kind, path))
        stamps = found or ()
        if makers:
            stamps = self._made_by_nobody(calling.session, stamps, written)
        if not makers and not stamps and not os.path.isdir(path) and not self._late:
            raise self._missing(calling, given, path, claims)
        calling.files += [FileArgument(given.parameter, given.kind, one.path, None, one) for one in stamps]
        # What a task makes beside its declared outputs may replace what is there now.
        promised = () if makers or self._late else stamps
        if max(self._late, default=0) > max(makers, default=0):
            slots = []  # nor is anything promised that may be overwritten before
        return Read(*where, path, tuple(claims), promised, tuple(slots))

    def _read_of(self, calling: Call, given: GivenPath, record: Call) -> Read:
        """A future says which file is read: perhaps any of those that its task writes."""
        writes = self._written.get(record, ())
        claims = tuple(one.claim for one in writes if one.claim is not None)
        slot = None
        for one in [one for claim in claims for one in self._claims.makers(claim)]:
            if one.future is None or one.writer < record.id:
                continue
            if one.writer != record.id:  # it was overwritten since: that is what is there to be read
                calling.read(one.future)
                path = one.claim.path
                calling.files.append(FileArgument(given.parameter, given.kind, path, one.future))
            elif record.rule == "ignore":
                said = calling.read(one.future)
                slot = said.number if isinstance(said, Slot) else None
        only = writes[0].path if len(writes) == 1 and not writes[0].kind.pattern else ""
        maker = Maker(record.name, len(writes), only, record.rule == "ignore", slot)
        return Read(given.parameter, given.kind, given.place, given.item, "", claims, maker=maker)

    def _claims_of(self, calling: Call, given: GivenPath, path: str) -> list[Claim]:
        if given.kind.pattern:
            pattern, begins = pattern_of(calling, given)
            return [Claim("glob", pattern), *([Claim("file", path)] if begins else [])]
        tree = given.kind.directory or os.path.isdir(path)
        if given.kind.name == "InDir":
            self._prepare(os.path.dirname(os.path.realpath(path)))  # where it may be shown
        return [Claim("tree" if tree else "file", path)]

    def _made_by_nobody(self, session: Session, stamps: tuple[Stamp, ...], written: list[Entry]) -> tuple[Stamp, ...]:
        """Find the files that are none of what earlier tasks write, or have left in earlier runs."""
        files = {one.claim.path for one in written if one.claim.shape == "file"}
        trees = [one.claim for one in written if one.claim.shape == "tree"]
        # Which files match a pattern is known when their writer puts them into place.
        said: set[Stamp] = set()
        writers: list[tuple[Claim, Call]] = []
        for claim, future in [(one.claim, one.future) for one in written]:
            if future is None:
                continue
            writers.append((claim, future.call))
            if claim.shape != "glob":
                continue
            if type(future._result) is tuple:
                said.update(stamps_of(future._result))
                continue
            for write in self._written.get(future.call, ()):
                if write.claim == claim:
                    files.update(moved_by(future.call.id, write, self._token))
        own = [
            one
            for one in stamps
            if not (one.path in files or one in said or any(two.covers(one.path) for two in trees))
        ]
        left = self._left.among(session, writers, own)
        return tuple(one for one in own if one not in left)

    def _missing(
        self, calling: Call, given: GivenPath, path: str, claims: list[Claim]
    ) -> MissingFileError | UsageError:
        directory = given.kind.name == "InDir"
        if directory and os.path.exists(path):
            return UsageError(
                f"task {calling.declared.name!r} reads the directory {path} (parameter {given.parameter!r}, InDir), where a "
                "file is; name a directory, or annotate with wr.InFile"
            )
        what = next((one.path for one in claims if one.shape == "glob"), path)
        # What is made beside outputs is known to be there afterwards only.
        kind = "OutDir" if directory else "OutFiles" if given.kind.pattern else "OutFile"
        place = os.path.dirname(path)
        known = [os.path.basename(one) for one in self._claims.written_in(place)]
        if os.path.isdir(place):
            known += [one for one in os.listdir(place) if not one.startswith(OURS)]
        return MissingFileError(
            f"task {calling.declared.name!r} reads {what} (parameter {given.parameter!r}, {given.kind.name}), but there is "
            f"no such {'directory' if directory else 'file'}, and no task called before writes it: if one does, call it "
            f"before, and annotate the path there with wr.{kind}{nearest(os.path.basename(path), known)}"
        )

    # -- what is written

    def _write(self, calling: Call, given: GivenPath, number: int) -> Write:
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

    def _refuse_directory(self, calling: Call, given: GivenPath, path: str) -> None:
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

    def _prepare(self, place: str) -> None:
        """Begin to write to a directory."""
        if place not in self._places:
            self._places[place] = self._token
            remove_dead(place)

    # -- the user's side

    def latest(self, path: str | os.PathLike[str]) -> Future | None:
        """Give the future of what a task of the session makes of a path; None if none does."""
        text = one_name(os.fspath(path))
        with self._lock:
            makers = self._claims.makers(Claim("file", text))
            return makers[-1].future if makers else None

    def wait(self, path: str | os.PathLike[str]) -> str:
        """Wait for the tasks that write a path, if any do, and return it as absolute text; raises what they raised."""
        text = one_name(os.fspath(path))
        with self._lock:
            shape = "tree" if os.path.isdir(text) else "file"
            makers = [*self._claims.makers(Claim("file", text))]
            if shape == "tree":
                makers += self._claims.makers(Claim("tree", text))
        for one in makers:
            if one.future is not None:
                one.future.result()
        return text

    def forget(self, path: str | os.PathLike[str]) -> None:
        """From now on the program itself has written a file, or removed it: no task's work counts any more."""
        claim = Claim("file", one_name(os.fspath(path)))
        with self._lock:
            self._claims.forget(claim)

    def scratch(self) -> str:
        """Give a directory for what lasts no longer than a task; what tasks leave in it goes with the session."""
        place = tempfile.gettempdir()
        with self._lock:
            self._token = self._token or new_token()
            self._prepare(place)
        return session_directory(place, self._token)

    def close(self) -> None:
        """The session has ended: leave nothing private behind."""
        _remove_all(self._process, self._places)


#: Tables of sessions that nobody has closed; see ``_close_all``.
_living: weakref.WeakSet[FileTable] = weakref.WeakSet()


def _is_open(record: Call | None) -> bool:
    return record is not None and record.state in ("waiting", "running")


def _remove_all(process: int, places: dict[str, str]) -> None:
    """Remove what a session keeps, unless this is a fork of its process."""
    if os.getpid() == process:
        for place, token in places.items():
            remove_session(place, token)
    places.clear()


@atexit.register  # before executors are known, so after they have finished what was submitted
def _close_all() -> None:
    for one in list(_living):
        one.close()


def _there(claims: list[Claim]) -> tuple[Stamp, ...] | None:
    """Look at what is there now of what is read; None if that is too much."""
    stamps = []
    for number, one in enumerate(there(claims)):
        if number == MOST_IN_A_DIRECTORY and any(claim.shape == "tree" for claim in claims):
            return None
        with suppress(FileNotFoundError):  # a task that writes there may just be moving it
            stamps.append(stamp(one))
    return tuple(stamps)


def _are_overtaken(makers: list[Entry], path: str) -> bool:
    """Whether a file has changed since the task that wrote it ended: the program itself did that, before this call."""
    if len(makers) != 1 or makers[0].future is None or makers[0].claim.shape != "file":
        return False
    said = makers[0].future._result
    return isinstance(said, tuple) and os.path.exists(path) and not matches(said)
