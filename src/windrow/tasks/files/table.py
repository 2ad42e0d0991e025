"""The files of a session: which task writes a path, who reads it, and what that means for the next call."""

# ruff: noqa: PTH109, PTH110, PTH112, PTH113, PTH118, PTH119, PTH120, PTH208
# Paths are text here: they stay as they were given, links and all.

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import threading
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING

from windrow.errors import MissingFileError, UsageError, nearest
from windrow.tasks.call import FileArgument, Slot
from windrow.tasks.files.claims import Claim, Claims, meet
from windrow.tasks.files.paths import given_paths, is_remote, one_name, pattern_of
from windrow.tasks.files.reading import Maker, Read
from windrow.tasks.files.scratch import new_token, remove_dead, session_directory
from windrow.tasks.files.stamps import OURS, Stamp, matches, stamp, there
from windrow.tasks.files.writing import FileWork, Write, publish
from windrow.tasks.future import Future

if TYPE_CHECKING:
    from windrow.tasks.call import Call
    from windrow.tasks.files.claims import Entry
    from windrow.tasks.files.paths import GivenPath


#: Files of a directory that are looked at one by one when it is read; of larger ones nothing is promised.
MOST_IN_A_DIRECTORY = 1000


class FileTable:
    """By path: the latest writer and its readers.

    A call that reads a file depends on the call that wrote it last. One that writes a file comes after the call that wrote
    it last, and its files are put into place after all have ended that read that version, whose values are brought home: they
    cannot be made again after that.
    """

    def __init__(self) -> None:
        self._claims = Claims()
        self._token = ""
        self._places: dict[str, str] = {}  #: directories that tasks write to, and our name in them
        #: By call: what it writes, to which its futures lead.
        self._written: weakref.WeakKeyDictionary[Call, tuple[Write, ...]] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()
        # Sessions of executors are ended by nobody, if those are forgotten.
        self._process = os.getpid()
        weakref.finalize(self, _remove_all, self._process, self._places).atexit = False
        _living.add(self)

    # -- calls

    def enter(self, calling: Call) -> None:
        with self._lock:
            self._token = self._token or new_token()
            given = given_paths(calling)
            if not given:
                return
            reads = [self._read(calling, one) for one in given if not one.kind.writes]
            written = [one for one in given if one.kind.writes]
            writes = [self._write(calling, one, f"{calling.id}.f{number}") for number, one in enumerate(written)]
            _check_apart(calling, writes)
            calling.more += [one.output for one in writes]
            if calling.beside and not (all(one.plain for one in writes) and calling.session.reusing.by_stamp):
                calling.after += [one for one in calling.beside if one not in calling.after]
                calling.beside.clear()
            later = bool(calling.beside)
            calling.around.append(FileWork(self._token, os.getcwd(), tuple(reads), tuple(writes), later))

    def publish(self, calling: Call) -> None:
        """Put into place what a call has made while other tasks read the former files."""
        publish(self._token, calling.id, calling.name, self._written[calling])

    def submitted(self, calling: Call) -> None:
        """A call is about to be made: from now on what it writes is known as its work."""
        work = self.note_written(calling)
        if work is None:
            return
        session = calling.session
        with self._lock:
            changed = [one.read for one in work.writes if one.read is not None]
            for read in (*work.reads, *changed):
                for claim in read.claims:
                    self._claims.read(claim, calling.id)
            for number, write in enumerate(work.writes):
                for entry in self._claims.meeting(write.claim):
                    for reader in entry.readers:
                        _bring_home(session.calls.get(reader))
                self._claims.write(write.claim, calling.id, session.promise(calling, f"f{number}"))

    def note_written(self, calling: Call) -> FileWork | None:
        """Remember what a call writes, or has written in an earlier run: its futures may be given as paths."""
        work = next((one for one in calling.around if isinstance(one, FileWork)), None)
        if work is not None and work.writes:
            self._written[calling] = work.writes
        return work

    # -- what is read

    def _read(self, calling: Call, given: GivenPath) -> Read:
        if isinstance(given.path, Future):
            return self._read_of(calling, given, given.path.call)
        path = os.fspath(given.path)
        if is_remote(path):
            return Read(given)
        claims = self._claims_of(calling, given, path)
        makers = {one.writer: one for claim in claims for one in self._claims.makers(claim)}
        several = claims[0].shape != "file"
        if not several and _are_overtaken(list(makers.values()), path):
            makers = {}
        slots = []
        for _, maker in sorted(makers.items()):
            assert maker.future is not None
            slot = calling.read(maker.future)
            assert isinstance(slot, Slot)  # what is said of files is never taken from a store
            slots.append(slot.number)
            calling.files.append(FileArgument(given.parameter, given.kind, path, maker.future, among=path * several))
        found = _there(claims) if several or not makers else ()
        if found is None:  # it is a dependency of which nothing is said
            calling.files.append(FileArgument(given.parameter, given.kind, path))
        stamps = found or ()
        if not makers and not stamps and not os.path.isdir(path):
            raise self._missing(calling, given, path, claims)
        calling.files += [
            FileArgument(given.parameter, given.kind, one.path, None, one, among=path * several) for one in stamps
        ]
        # What a task makes, beside its declared outputs too, may replace what is there now.
        return Read(given, tuple(claims), () if makers else stamps, tuple(slots))

    def _read_of(self, calling: Call, given: GivenPath, record: Call) -> Read:
        """A future says which file is read: perhaps any of those that its task writes."""
        writes = self._written.get(record, ())
        claims = tuple(one.claim for one in writes)
        slot = None
        for one in [one for claim in claims for one in self._claims.makers(claim)]:
            if one.future is None or one.writer < record.id:
                continue
            if one.writer != record.id:  # it was overwritten since: that is what is there to be read
                calling.read(one.future)
                calling.files.append(FileArgument(given.parameter, given.kind, one.claim.path, one.future))
            elif record.rule == "ignore":
                said = calling.read(one.future)
                slot = said.number if isinstance(said, Slot) else None
        only = os.fspath(writes[0].given.path) if len(writes) == 1 and not writes[0].given.kind.pattern else ""
        maker = Maker(record.name, len(writes), only, record.rule == "ignore", slot)
        return Read(given._replace(path=""), claims, maker=maker)

    def _claims_of(self, calling: Call, given: GivenPath, path: str) -> list[Claim]:
        if given.kind.pattern:
            pattern, begins = pattern_of(calling, given)
            return [Claim("glob", pattern), *([Claim("file", path)] if begins else [])]
        tree = given.kind.directory or os.path.isdir(path)
        return [Claim("tree" if tree else "file", path)]

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

    def _write(self, calling: Call, given: GivenPath, output: str) -> Write:
        if isinstance(given.path, Future):
            raise UsageError(
                f"task {calling.declared.name!r} is given a future as the path of what it writes (parameter "
                f"{given.parameter!r}, {given.kind.name}), which has to be known at the call, as who reads the file comes "
                "after this task: give the path itself, or the future's result()"
            )
        path, begins = os.fspath(given.path), False
        _refuse_directory(calling, given, path)
        claim = Claim("tree" if given.kind.directory else "file", path)
        if given.kind.pattern:
            pattern, begins = pattern_of(calling, given)
            claim = Claim("glob", pattern)
        read = self._read(calling, given) if given.kind.reads else None
        meeting = self._claims.meeting(claim)
        known = calling.session.open
        # Those who read a directory would find what is private to the call there.
        plain = claim.shape == "file" and read is None and all(one.claim == claim for one in meeting)
        readers = {one for entry in meeting for one in entry.readers}
        before = {entry.writer for entry in meeting} | (set() if plain else readers)
        calling.after += sorted(one for one in before if one in known and one not in calling.after)
        calling.beside += sorted(one for one in readers - before if one in known)
        files = [one.claim.path for one in meeting if one.writer and one.claim.shape == "file"]
        self._prepare(os.path.dirname(os.path.realpath(path)))
        calling.files.append(FileArgument(given.parameter, given.kind, path))
        inside = frozenset(files if claim.shape == "tree" else ())
        return Write(given, output, claim, begins, read, inside, plain)

    def _prepare(self, place: str) -> None:
        if place not in self._places:
            self._places[place] = self._token
            remove_dead(place)

    # -- the user's side

    def latest(self, path: str | os.PathLike[str]) -> Future | None:
        text = one_name(os.fspath(path))
        with self._lock:
            makers = self._claims.makers(Claim("file", text))
            return makers[-1].future if makers else None

    def wait(self, path: str | os.PathLike[str]) -> str:
        """Wait for the tasks that write a path, if any do, and return it as absolute text; raises what they raised."""
        text = one_name(os.fspath(path))
        with self._lock:
            makers = self._claims.makers(Claim("file", text))
            if os.path.isdir(text):
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
        return os.path.join(session_directory(place, self._token), "tmp")

    def close(self) -> None:
        _remove_all(self._process, self._places)


#: Tables of sessions that nobody has closed; see ``_close_all``.
_living: weakref.WeakSet[FileTable] = weakref.WeakSet()


def _remove_all(process: int, places: dict[str, str]) -> None:
    if os.getpid() == process:
        for place, token in places.items():
            shutil.rmtree(session_directory(place, token), ignore_errors=True)
    places.clear()


@atexit.register  # before executors are known, so after they have finished what was submitted
def _close_all() -> None:
    for one in list(_living):
        one.close()


def _bring_home(reader: Call | None) -> None:
    """What a task has read is about to be overwritten, so that its values could not be made again: bring them home."""
    for name in reader.outputs if reader is not None else ():
        assert reader is not None
        future = reader.session.futures.get(name)
        if future is not None:
            reader.session.prepare(future)


def _check_apart(calling: Call, writes: list[Write]) -> None:
    """Refuse a call that writes something twice; in the order of paths only neighbours can be that."""
    last: Write | None = None
    tree: Write | None = None
    for one in sorted(writes, key=lambda one: one.claim.path + os.sep):
        for other in (last, tree):
            if other is not None and _clash(one.claim, other.claim):
                raise UsageError(
                    f"task {calling.declared.name!r} is given {other.given.path} and {one.given.path} to write (parameters "
                    f"{other.given.parameter!r} and {one.given.parameter!r}): give each output a path of its own"
                )
        last = one
        tree = one if one.claim.shape == "tree" else tree


def _clash(one: Claim, other: Claim) -> bool:
    if one.shape == "glob" or other.shape == "glob":
        return one == other
    return meet(one, other)


def _refuse_directory(calling: Call, given: GivenPath, path: str) -> None:
    writes = f"task {calling.declared.name!r} writes a"
    where = f"to {path} (parameter {given.parameter!r}, {given.kind.name})"
    if given.kind.name == "OutDir" and os.path.isfile(path):
        raise UsageError(f"{writes} directory {where}, where a file is; remove that, or annotate with wr.OutFile")
    if not given.kind.directory and os.path.isdir(path):
        raise UsageError(f"{writes} file {where}, where a directory is; name a file in it, or annotate with wr.OutDir")


def _there(claims: list[Claim]) -> tuple[Stamp, ...] | None:
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
