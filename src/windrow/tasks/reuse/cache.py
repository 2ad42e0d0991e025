"""Reuse of results: identical calls of a session are one task, and results of earlier runs are taken from the store.

A call is known by its lineage. A result that is found becomes futures that are done at once, whose values are read when
they are asked for; nothing is submitted, so that all that led to it need not be there either.
"""

from __future__ import annotations

import concurrent.futures
import os
import sys
import time
from bisect import bisect_left
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from windrow.errors import UsageError
from windrow.store.disk import keep_others_out
from windrow.store.results import Results, Usage, evict
from windrow.tasks.call import Call, has_no_futures, map_nested
from windrow.tasks.files.stamps import Stamp, content_digest, stamp
from windrow.tasks.future import Future
from windrow.tasks.reuse.code import Codes, NotReusable
from windrow.tasks.reuse.key import copied, key_of, makers_of_paths
from windrow.tasks.reuse.save import (
    FILES,
    WHY_NOT,
    Keep,
    KeptValue,
    beside_in,
    is_as_it_was_made,
    look_for_room_again,
    still_as_read,
    still_there,
)
from windrow.units import parse_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from windrow.store.results import Entry
    from windrow.tasks.call import FileArgument
    from windrow.tasks.session import Session


#: What results may take in a store. A laptop has that to spare, and a day's work of small results fits in.
BUDGET = "10 GB"
#: Calls that are made before it is looked again how much was written.
_LOOK_AFTER = 256

#: Calls whose reasons are remembered one by one, and different reasons that are counted.
_MOST = 100_000

_CHOICES = (None, True, False, "content")
_COUNTS = ("found_in_session", "found_in_store", "missed", "not_reusable", "bytes_written", "bytes_read")


@dataclass(frozen=True, slots=True)
class ReuseStats:
    """What a session has reused, and why not more."""

    found_in_session: int = 0  #: calls that were the same as one before
    found_in_store: int = 0  #: calls whose result an earlier run had kept
    missed: int = 0  #: calls that ran, and whose result could have been there
    not_reusable: int = 0  #: calls that could not be compared
    bytes_written: int = 0
    bytes_read: int = 0
    #: By task: why one of its calls was not reusable, or not kept.
    reasons: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()  #: about the store as a whole


def results_directory(store: str | os.PathLike[str] | None = None) -> Path:
    """Say where results are kept: in the store that is named here, or by WINDROW_STORE, or in ``.windrow``."""
    named = os.fspath(store) if store is not None else os.environ.get("WINDROW_STORE") or ".windrow"
    return Path(named).absolute() / "results"


class Reuse:
    """What a session knows of calls whose results may be used again."""

    def __init__(
        self,
        session: Session,
        *,
        store: str | os.PathLike[str] | bool | None = None,
        budget: str | float = BUDGET,
        files: str = "stamp",
        isolated: bool = True,
    ) -> None:
        if session.reuse not in _CHOICES:
            raise UsageError(f"reuse= is True, False or 'content', got {session.reuse!r}")
        if files not in ("stamp", "content"):
            raise UsageError(f"files= is 'stamp' (size and time) or 'content', got {files!r}")
        #: Why calls were not reusable, or not kept: the first reason of each task, that of each call, and how often which.
        self._by_task: dict[str, str] = {}
        self._by_call: dict[int, str] = {}
        self._refused: Counter[tuple[str, str]] = Counter()
        self.notes: list[str] = []
        self._directory = None if store is False else results_directory(None if store is True else store)
        self._budget = parse_bytes(budget)
        self._by_content = files == "content"
        self.by_stamp = not self._by_content  #: files are known by size and time
        self._isolated = isolated
        self._session = session
        self._counts = dict.fromkeys(_COUNTS, 0)
        self._codes = Codes()
        self._results: Results | None = None  #: None until the store is used, or if it cannot be
        self._usage: Usage | None = None
        self._known: WeakValueDictionary[str, Call] = WeakValueDictionary()
        #: Of tasks that have not ended: the next identical call gets them.
        self._held: set[Future] = set()
        #: By key: tasks whose results may have been written meanwhile, and the numbers of the calls.
        self._missed: dict[str, tuple[str, int]] = {}
        #: By key: calls that run as they read files that are, or may be, others than before; the latest of each.
        self._remade: dict[str, int] = {}
        self._look_at = _LOOK_AFTER
        self._files = ReusedFiles(session, partial(self._opened, to_write=False), by_content=self._by_content)

    # -- what calls ask

    def find(self, calling: Call) -> Any:
        """Give what an identical call gave its caller; None if there was none. Notes the lineage with the call."""
        asked: Any = calling.declared.reuse
        if asked is None:
            asked = self._session.reuse
            if asked is None:
                # A file that is there need not be written again: that is what one expects of files.
                asked = any(one.writes and not one.reads for one in calling.declared.files.values())
        if not asked:
            return None
        content = asked == "content"
        try:
            known = self._codes.look(calling.declared, content=content)
            key = key_of(calling, known, self._files.stated(calling), content=content)
            calling.key = key
            found = self._in_session(calling, key)
            if found is None:
                found = self._in_store(calling, key)
            if found is None and not self._isolated:
                # What the program does with the arguments from now on must not matter.
                given = (calling.arguments, calling.keywords)
                calling.arguments, calling.keywords = copied(given, calling.session.latest)
        except NotReusable as refused:
            why = str(refused), calling.declared.name
            if why in self._refused or len(self._refused) < _MOST:
                self._refused[why] += 1
            self._note(calling.id, calling.declared.name, f"not reusable: {refused}")
            self._counts["not_reusable"] += 1
            calling.key = None
            return None
        if found is None:
            packer = self._session._packer
            if packer is not None and self._codes.must_be_sent(calling.declared, known):
                packer.send_again(calling.declared.function)
            self._miss(calling, key, "" if known.opaque else known.digest)
        return found

    def _in_session(self, calling: Call, key: str) -> Any:
        record = self._known.get(key)
        if record is None or record.state in ("failed", "cancelled"):
            return None
        if record.state == "done" and (calling.files or self._files.makers(calling)):
            return None  # the files may have changed: the store knows what they were like
        if calling.files and not self._files.is_latest(calling, record):
            return None
        futures = [self._session.futures.get(f"{record.id}.{n}") for n in range(int(record.declared.outputs))]  # fmt: skip
        if any(one is None or one.cancelled() for one in futures):
            return None
        self._counts["found_in_session"] += 1
        return _given(record, futures)

    def _in_store(self, calling: Call, key: str) -> Any:
        results = self._opened(to_write=False)
        if self._is_given_remade(calling, key):
            self._remade[key] = calling.id
            if results is not None:
                results.remove(key)  # the next run could not tell that it was made from others
            return None
        if self._files.are_being_made(calling):
            self._remade[key] = calling.id
            return None
        entry = results.find(key) if results is not None else None
        if entry is None or results is None:
            return None
        outputs = int(calling.declared.outputs)
        if WHY_NOT in entry.facts or len(entry.outputs) != outputs:
            results.remove(key)  # what comes next is to be told from it
            return None
        if not self._files.are_as_read(calling, entry):
            self._remade[key] = calling.id
            return None
        if calling.files and not self._files.are_there(calling, entry, key):
            return None
        if not results.touch(key):
            return None
        self._counts["found_in_store"] += 1
        self._session.files.note_written(calling)
        calling.reads.clear()  # nobody has to be waited for
        calling.made()
        calling.state = "done"
        calling.outputs = tuple([f"{calling.id}.{n}" for n in range(outputs)])
        futures: list[Future] = []
        for n, name in enumerate(calling.outputs):
            value = KeptValue(str(results.directory), key, f"{n}")
            size = sum(entry.outputs[f"{n}"].lengths)
            futures.append(KeptFuture(self._session, calling, name, value, size))
        self._session.calls[calling.id] = calling
        for output, future in zip(calling.outputs, futures, strict=True):
            self._session.futures[output] = future
        self._known[key] = calling
        return _given(calling, futures)

    def _is_given_remade(self, calling: Call, key: str) -> bool:
        """Whether a call is given values that are made anew in this session, from other files than before perhaps."""
        given = (*calling.arguments, *calling.keywords.values())
        if not self._remade or has_no_futures(given):
            return False
        # What is read is compared with the files themselves.
        read = {one.output for one in makers_of_paths(calling)} if calling.declared.files else ()
        latest, own = self._session.latest, self._remade.get(key, 0)
        newer = False

        def look(thing: Any) -> Any:
            nonlocal newer
            found = latest(thing)
            if isinstance(found, Future) and found.call.key and found.output not in read:
                newer = newer or self._remade.get(found.call.key, 0) > own
            return thing

        map_nested(given, look)
        return newer

    def _miss(self, calling: Call, key: str, code: str) -> None:
        self._counts["missed"] += 1
        results = self._opened(to_write=True)
        if results is None:
            return
        name = calling.declared.name
        made_by = tuple(one.call.key or "" for one in makers_of_paths(calling))
        keep = Keep(str(results.directory), key, name, code, made_by, self._by_content, self._budget)
        calling.around.insert(0, keep)
        self._missed[key] = (name, calling.id)
        if len(self._missed) >= self._look_at:
            self._look()
            self._look_at = 2 * len(self._missed) + _LOOK_AFTER

    def submitting(self, record: Call, futures: list[Future]) -> None:
        """A call is being made: the same call made again is given its futures."""
        assert record.key is not None
        self._known[record.key] = record
        self._held.update(futures)
        for future in futures:
            # Not as users add one: the value may stay where it is.
            concurrent.futures.Future.add_done_callback(future, self._held.discard)

    # -- the store

    def _opened(self, *, to_write: bool) -> Results | None:
        if self._directory is None or self._results is not None:
            return self._results
        if not to_write and not self._directory.is_dir():
            return None
        try:
            self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            keep_others_out(self._directory, ours=True)
            self._usage = Usage(self._directory)
            ignored = self._directory / ".gitignore"
            if to_write and not ignored.exists():
                ignored.write_text("*\n")  # nobody wants to commit these
        except (OSError, UsageError) as error:
            self.notes.append(f"no results are kept, and none are found, in {self._directory}: {error}")
            self._directory = None
            return None
        self._results = Results(self._directory)
        return self._results

    def _look(self) -> None:
        if self._results is None:
            return
        for key, (name, number) in list(self._missed.items()):
            entry = self._results.find(key)
            if entry is None or self._missed.pop(key, None) is None:
                continue
            if WHY_NOT in entry.facts:
                self._note(number, name, f"not kept: {entry.facts[WHY_NOT]}")
                if not entry.facts.get(FILES):  # else it says what they are like
                    self._results.remove(key)
            else:
                self._counts["bytes_written"] += entry.size

    def read(self, size: int) -> None:
        self._counts["bytes_read"] += size

    def stats(self) -> ReuseStats:
        return ReuseStats(reasons=dict(self.reasons), **self._counts, notes=tuple(self.notes))

    @property
    def reasons(self) -> dict[str, str]:
        self._look()
        return self._by_task

    def reason(self, call: int) -> str:
        self._look()
        return self._by_call.get(call, "")

    def _note(self, call: int, task: str, why: str) -> None:
        self._by_task.setdefault(task, why)
        self._by_call[call] = why
        if len(self._by_call) > _MOST:
            del self._by_call[next(iter(self._by_call))]

    def in_words(self) -> list[str]:
        lines = []
        same, kept, refused = (self._counts[one] for one in ("found_in_session", "found_in_store", "not_reusable"))  # fmt: skip
        if kept:
            lines.append(f"{kept} calls were answered by results of earlier runs")
        if same:
            lines.append(f"{same} calls were answered by the same ones before")
        for (why, task), calls in self._refused.most_common(3):
            some = f"{calls} of {refused}" if calls < refused else f"{calls}"
            lines.append(f"{some} calls were not reusable: {why} (task {task!r})")
        return lines

    def close(self) -> None:
        self._held.clear()
        if self._results is None or self._directory is None:
            return
        self._look()
        if self._usage is not None:
            self._usage.end()
            self._usage = None
        # A budget of its own may be smaller than that of the sessions before. With the usual one, nobody who has only
        # read has to wait until all results are listed.
        if self._counts["bytes_written"] or self._budget != parse_bytes(BUDGET):
            evict(self._directory, self._budget)
        look_for_room_again()


def _given(record: Call, futures: list[Any]) -> Any:
    return futures[0] if record.declared.outputs == 1 else tuple(futures)


class KeptFuture(Future):
    """The future of a result that an earlier run has kept: done, and its value read when it is asked for."""

    def __init__(self, session: Session, record: Call, output: str, value: KeptValue, size: int) -> None:
        super().__init__(session, record, output)
        self.kept: KeptValue = value
        self._size = size
        self.set_result(value)

    def __del__(self) -> None:
        """The graph does not know of it."""

    def result(self, timeout: float | None = None) -> Any:
        """Read the value; CorruptFileError if it was damaged or removed since it was found."""
        with self._condition:
            if self._exception is None and self._result is self.kept:
                try:
                    self._result = self.kept.load()
                except Exception as error:
                    self._exception = error
                    raise
                self._session.reusing.read(self._size)
        return concurrent.futures.Future.result(self, timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Say whether the value can be read: only reading it tells."""
        with suppress(Exception):
            self.result(timeout)
        return self._exception

    def add_done_callback(self, fn: Any) -> None:
        concurrent.futures.Future.add_done_callback(self, fn)


# -- files: what they say of a call that reads them, and whether they are what calls left

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
        by_path = [one.maker for one in calling.files if one.maker is not None]
        return [one.call for one in (*makers_of_paths(calling), *by_path)]

    def are_being_made(self, calling: Call) -> bool:
        """Whether a task of the session is about to make a file that a call reads: what that will be like is not known."""
        return bool(calling.declared.files) and any(one.state != "done" for one in self.makers(calling))

    def are_as_read(self, calling: Call, entry: Entry) -> bool:
        """Whether files that tasks made, and a call read, are as they were then, and will be."""
        if not calling.declared.files:
            return True
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
        """Whether all that a call writes is there as it left it, and no task is about to write it."""
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
