"""What a call reads, in its worker: the version it was promised, even if that was overwritten since.

A task may have to run again, when a worker was lost and what it made with it. Then files may have been overwritten by tasks
that were called later. Their writers keep the versions that others read.
"""

# ruff: noqa: PTH103, PTH110, PTH112, PTH113, PTH114, PTH118, PTH119, PTH120, PTH211
# Paths are text here: they stay as they were given, links and all.

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from windrow.errors import MissingFileError, TaskFileError
from windrow.globs import matching
from windrow.tasks.file_paths import as_given, is_remote, like, text_of
from windrow.tasks.file_places import kept, make_private, remove_private
from windrow.tasks.file_stamps import OURS, Stamp, files_in, matches, places_in, stamp, stamps_of, there

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from windrow.tasks.file_claims import Claim
    from windrow.tasks.file_kinds import FileKind
    from windrow.tasks.worker import RunningCall

__all__ = ["Maker", "Read", "Reading", "each_path", "given_path", "put_paths"]


class Maker(NamedTuple):
    """The task whose future says which file is read."""

    name: str
    written: int  #: how many outputs it has that are files
    only: str = ""  #: the path, if it writes just one
    may_fail: bool = False  #: then its value is None
    slot: int | None = None  #: where it says what it wrote, if it may fail


class Read(NamedTuple):
    """A path that the body reads."""

    parameter: str
    kind: FileKind
    place: int | str
    item: int | None
    path: str  #: "" where a future says it
    claims: tuple[Claim, ...] = ()
    stamps: tuple[Stamp, ...] = ()  #: what was there at the call
    slots: tuple[int, ...] = ()  #: where earlier tasks say what they wrote, in the order of calls
    maker: Maker | None = None  #: where a future says the path


class Where(Protocol):
    """Where a path is among the arguments."""

    @property
    def parameter(self) -> str: ...
    @property
    def kind(self) -> FileKind: ...
    @property
    def place(self) -> int | str: ...
    @property
    def item(self) -> int | None: ...
    @property
    def path(self) -> str: ...


def put_paths(going: RunningCall, paths: Iterable[tuple[Where, str]]) -> None:
    """Give the body its paths."""
    lists: dict[int | str, list[Any]] = {}
    for where, text in paths:
        given = going.get(where.place)
        if where.item is None:
            going.put(where.place, as_given(given, text))
            continue
        items = lists[where.place] if where.place in lists else list(given)
        lists[where.place] = items
        items[where.item] = as_given(given[where.item], text)
    for place, items in lists.items():
        going.put(place, like(going.get(place), items))


def given_path(going: RunningCall, where: Where, base: str) -> str:
    """Say which path a call was given, as text; a future may have said it."""
    if where.path:
        return where.path
    value = going.get(where.place)
    value = value if where.item is None else value[where.item]
    if not isinstance(value, (str, os.PathLike)):
        raise TaskFileError(
            f"task {going.name!r}: parameter {where.parameter!r} is annotated with wr.{where.kind.name}, so the future it was "
            f"given has to be of a path; it is {value!r}"
            + ("; lists in a list are not looked into, give one list" if where.item is not None else "")
        )
    text = os.fspath(value)
    return text if is_remote(text) else text_of(text, base)


def each_path(going: RunningCall, read: Read) -> list[Read]:
    """Take a list of paths apart that a future was of."""
    if read.path:
        return [read]
    value = going.get(read.place)
    value = value if read.item is None else value[read.item]
    if value is None:
        return _meant_by_none(going, read)
    if read.item is None and isinstance(value, (list, tuple)):
        return [read._replace(item=number) for number in range(len(value))]
    return [read]


def _meant_by_none(going: RunningCall, read: Read) -> list[Read]:
    """Say what is read if the value of a future is None: the one file that its task writes.

    A task that failed, and may, gives none.
    """
    maker = read.maker
    assert maker is not None
    failed = maker.may_fail and (maker.slot is None or going.values[maker.slot] is None)
    if maker.only and not failed:
        return [read._replace(path=maker.only)]
    if failed or read.kind.may_be_none:
        return []
    written = "no file" if not maker.written else f"{maker.written} files" if maker.written > 1 else "a file that has its path from a future"  # fmt: skip
    raise TaskFileError(
        f"task {going.name!r}: parameter {read.parameter!r} is annotated with wr.{read.kind.name}, but the future it was given "
        f"is of task {maker.name!r}, which returns None and writes {written}, so that it is not known which file is meant; "
        f"return the path in {maker.name!r}, or give {going.name!r} the path itself"
    )


def _several(read: Read) -> bool:
    return read.kind.directory or bool(read.kind.pattern)


class Reading:
    """All that one attempt of a call reads."""

    def __init__(self, going: RunningCall, token: str, base: str) -> None:
        self._going = going
        self._token = token
        self._base = base  #: the working directory at the call
        self._relied: list[Stamp] = []  #: files that the body reads in place
        self._views: list[str] = []
        self.names: dict[str, str] = {}  #: what stands for something else, and for what

    def source(self, read: Read) -> str:
        """Find the version of what is read that was promised."""
        path = given_path(self._going, read, self._base)
        said = [one for slot in read.slots for one in stamps_of(self._going.values[slot])]
        made = {one.path: one for one in said}
        self._note(read, path, made)
        if is_remote(path):
            return path
        promised = {one.path: one for one in read.stamps} | made
        several = _several(read)
        if not several and path in promised:
            promised = {path: promised[path]}
        elif not several:
            promised = {}
        changed = [one for one in promised.values() if not matches(one)]
        if not changed:
            self._see(read, path, bool(promised))
            self._relied += promised.values()
            return self._without_ours(path) if read.kind.name == "InDir" else path
        if several:
            return self._view(read, path, list(promised.values()))
        former, _ = self._former(read, changed[0])
        self.names[former] = path
        return former

    def _note(self, read: Read, path: str, made: Mapping[str, Stamp]) -> None:
        """Note what files are like of which the lineage of the call says no more than who made them.

        Their maker may run again, in another session, and make others: under the same key, as its inputs are the same.
        """
        if not self._going.keeps:
            return
        seen = self._going.seen
        if read.maker is not None and read.kind.pattern:
            seen += [stamp(one) for one in there(read.claims)]
        elif read.maker is not None or (read.slots and not _several(read) and path not in made):
            exists = not is_remote(path) and os.path.exists(path)
            seen.append(stamp(path) if exists else Stamp(path, 0, 0))
        seen += [one for one in made.values() if any(claim.covers(one.path) for claim in read.claims)]
        if read.slots and any(one.shape != "file" for one in read.claims):
            # What is there beside it: made along with it, or left by earlier runs and not written anew.
            for name in there(read.claims):
                with suppress(FileNotFoundError):  # somebody may just be moving it
                    seen += [] if name in made else [stamp(name)]

    def _see(self, read: Read, path: str, known: bool) -> None:
        """Check that there is something where nobody said what it is like."""
        patterns = [one.path for one in read.claims if one.shape == "glob"]
        if known or os.path.exists(path) or any(matching(one) for one in patterns):
            return
        why = "if another task writes it, annotate the path there with wr.OutFile"
        if read.slots and all(self._going.values[one] is None for one in read.slots):
            why = "the task that writes it has failed, and may: without on_failure='ignore' this one would not have run"
        raise MissingFileError(
            f"task {self._going.name!r} reads {path} (parameter {read.parameter!r}, {read.kind.name}), but there is no such "
            f"file; {why}"
        )

    def _former(self, read: Read, wanted: Stamp) -> tuple[str, str]:
        """Find a version that was overwritten since."""
        found = kept(wanted, self._token)
        if found is not None:
            return found
        if not os.path.exists(wanted.path):
            raise MissingFileError(
                f"task {self._going.name!r} reads {wanted.path} (parameter {read.parameter!r}, {read.kind.name}), which was "
                "there before and is gone: something removed it while the session was open"
            )
        raise TaskFileError(
            f"task {self._going.name!r} reads {wanted.path} (parameter {read.parameter!r}, {read.kind.name}), which has "
            f"changed: it had {wanted.size} bytes and has {stamp(wanted.path).size}, or is younger. If a task writes it, "
            "annotate the path there with wr.OutFile or wr.InOutFile; if another program does, as a second run of this one would, "
            "let that end first"
        )

    def _view(self, read: Read, path: str, promised: list[Stamp]) -> str:
        """Show several files as they were, some of which were overwritten since, by links in a directory of its own."""
        sources = {one.path: (one.path, "") if matches(one) else self._former(read, one) for one in promised}
        top = next(top for _, top in sources.values() if top)
        return self._shown(path, os.path.dirname(top), {a: b for a, (b, _) in sources.items()})

    def _without_ours(self, path: str) -> str:
        """Show a directory as its writers made it, if it has something of a session in it: bodies take all there is."""
        if not any(_has_ours(place) for place, _, _ in places_in(path, follow=True)):
            return path
        sources = {one: one for one in files_in(path, follow=True)}
        try:
            return self._shown(path, os.path.dirname(os.path.realpath(path)), sources)
        except PermissionError:
            return path

    def _shown(self, path: str, place: str, sources: Mapping[str, str]) -> str:
        """Make links, by the names they should have, to what is to be read; give the path at which the body finds it."""
        above = os.path.dirname(path)
        view, _ = make_private(place, self._token, self._going.task)
        self._views.append(view)
        self.names[view] = above
        shown = os.path.join(view, os.path.basename(path))
        if os.path.isdir(path):
            _show_places(path, shown)
        for name, source in sources.items():
            if not name.startswith(above.rstrip(os.sep) + os.sep):
                continue  # which the body does not find by its path
            link = os.path.join(view, os.path.relpath(name, above))
            os.makedirs(os.path.dirname(link), exist_ok=True)
            try:
                os.link(os.path.realpath(source), link)
            except OSError:  # of another owner, or file system
                os.symlink(source, link)
        return shown

    def check(self) -> None:
        """See that nothing was changed while the body read it; if so, it is worth another attempt."""
        for one in self._relied:
            if not matches(one):
                raise TaskFileError(
                    f"task {self._going.name!r} read {one.path}, which was changed meanwhile; if it changes it itself, "
                    "annotate the parameter with wr.InOutFile",
                    again=True,
                )

    def clean(self) -> None:
        """Remove what was made to be read."""
        for view in self._views:
            remove_private(view, [])


def _has_ours(place: str) -> bool:
    with suppress(OSError), os.scandir(place) as found:
        return any(one.name.startswith(OURS) for one in found)
    return False


def _show_places(path: str, shown: str) -> None:
    """Make the directories that are below one, also those that are empty, and the links that lead nowhere or in circles."""
    links: list[tuple[str, str]] = []
    for place, directories, names in places_in(path, follow=True):
        there_too = os.path.normpath(os.path.join(shown, os.path.relpath(place, path)))
        os.makedirs(there_too, exist_ok=True)
        both = [(os.path.join(place, one), os.path.join(there_too, one)) for one in (*directories, *names)]
        links += [one for one in both if os.path.islink(one[0]) and not os.path.isfile(one[0])]
    for source, link in links:
        if not os.path.lexists(link):  # else it was followed
            os.symlink(os.path.realpath(source), link)
