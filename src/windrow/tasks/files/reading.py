"""What a call reads, in its worker: the files have to be those that it was promised at the call."""

# ruff: noqa: PTH110, PTH118
# Paths are text here: they stay as they were given, links and all.

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.errors import MissingFileError, TaskFileError
from windrow.globs import matching
from windrow.tasks.files.ownership import maker_of
from windrow.tasks.files.paths import as_given, is_remote, like, one_name
from windrow.tasks.files.stamps import Stamp, matches, stamp, stamps_of, there

if TYPE_CHECKING:
    from collections.abc import Iterable

    from windrow.tasks.files.claims import Claim
    from windrow.tasks.files.paths import GivenPath
    from windrow.tasks.worker import RunningCall


class Maker(NamedTuple):
    """The task whose future says which file is read."""

    name: str
    written: int  #: how many outputs it has that are files
    only: str = ""  #: the path, if it writes just one
    may_fail: bool = False  #: then its value is None
    slot: int | None = None  #: where it says what it wrote, if it may fail


class Read(NamedTuple):
    """A path that the body reads."""

    given: GivenPath
    claims: tuple[Claim, ...] = ()
    stamps: tuple[Stamp, ...] = ()  #: what was there at the call
    slots: tuple[int, ...] = ()  #: where earlier tasks say what they wrote, in the order of calls
    maker: Maker | None = None  #: where a future says the path


def put_paths(going: RunningCall, paths: Iterable[tuple[GivenPath, str]]) -> None:
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


def find_paths(going: RunningCall, read: Read, base: str) -> list[tuple[GivenPath, str]]:
    """Say which paths are read; where a future was given, its value says so, which may be a list."""
    given = read.given
    if read.maker is None:
        return [(given, os.fspath(given.path))]
    value = _value(going, given)
    if value is None:
        return _meant_by_none(going, read)
    places = [given]
    if given.item is None and isinstance(value, (list, tuple)):
        places = [given._replace(item=number) for number in range(len(value))]
    return [(one, _said_path(going, one, base)) for one in places]


def _value(going: RunningCall, given: GivenPath) -> Any:
    value = going.get(given.place)
    return value if given.item is None else value[given.item]


def _said_path(going: RunningCall, given: GivenPath, base: str) -> str:
    value = _value(going, given)
    if not isinstance(value, (str, os.PathLike)):
        raise TaskFileError(
            f"task {going.name!r}: parameter {given.parameter!r} is annotated with wr.{given.kind.name}, so the future it was "
            f"given has to be of a path; it is {value!r}"
            + ("; lists in a list are not looked into, give one list" if given.item is not None else "")
        )
    text = os.fspath(value)
    return text if is_remote(text) else one_name(os.path.join(base, text))


def _meant_by_none(going: RunningCall, read: Read) -> list[tuple[GivenPath, str]]:
    """Say what is read if the value of a future is None: the one file that its task writes.

    A task that failed, and may, gives none.
    """
    maker, given = read.maker, read.given
    assert maker is not None
    failed = maker.may_fail and (maker.slot is None or going.values[maker.slot] is None)
    if maker.only and not failed:
        return [(given, maker.only)]
    if failed or given.kind.may_be_none:
        return []
    written = f"{maker.written} files" if maker.written else "no file"
    raise TaskFileError(
        f"task {going.name!r}: parameter {given.parameter!r} is annotated with wr.{given.kind.name}, but the future it was given "
        f"is of task {maker.name!r}, which returns None and writes {written}, so that it is not known which file is meant; "
        f"return the path in {maker.name!r}, or give {going.name!r} the path itself"
    )


def check_promised(going: RunningCall, read: Read, path: str) -> list[Stamp]:
    if is_remote(path):
        if read.maker is not None and going.keeps:
            going.seen.append(Stamp(path, 0, 0))
        return []
    said = [one for slot in read.slots for one in stamps_of(going.values[slot])]
    promised = {one.path: one for one in (*read.stamps, *said)}
    if not read.given.kind.directory and not read.given.kind.pattern:
        promised = {path: promised[path]} if path in promised else {}
    where = f"(parameter {read.given.parameter!r}, {read.given.kind.name})"
    for one in promised.values():
        if not matches(one):
            raise _changed(f"task {going.name!r} reads {one.path} {where}", one)
    patterns = [one.path for one in read.claims if one.shape == "glob"]
    if not (promised or os.path.exists(path) or any(matching(one) for one in patterns)):
        why = "if another task writes it, annotate the path there with wr.OutFile"
        if read.slots and all(going.values[one] is None for one in read.slots):
            why = "the task that writes it has failed, and may: without on_failure='ignore' this one would not have run"
        raise MissingFileError(f"task {going.name!r} reads {path} {where}, but there is no such file; {why}")
    if going.keeps:
        _note(going, read, path)
    return list(promised.values())


def _note(going: RunningCall, read: Read, path: str) -> None:
    """Note what files are like: of those that tasks make the lineage of a call says no more than who does.

    Their maker may run again, in another session, and make other ones: under the same key, as its inputs are the same. Beside
    them may be what was made along with them, or was left by earlier runs.
    """
    by_claims = read.given.kind.pattern or (read.maker is None and read.claims[0].shape != "file")
    for name in there(read.claims) if by_claims else [path]:
        with suppress(FileNotFoundError):  # somebody may just be moving it
            going.seen.append(stamp(name))


def _changed(reads: str, wanted: Stamp) -> MissingFileError | TaskFileError:
    if not os.path.exists(wanted.path):
        return MissingFileError(
            f"{reads}, which was there before and is gone: something removed it while the session was open"
        )
    maker = maker_of(wanted.path)
    if maker:
        return TaskFileError(
            f"{reads}, but its input was overwritten by task {maker!r}. Where a value was lost with a worker and has to "
            "be made again, that needs the input: take result() before the file is overwritten, or write another file; "
            "if a second run of the program writes it, let that end first"
        )
    return TaskFileError(
        f"{reads}, which has changed: it had {wanted.size} bytes and has {stamp(wanted.path).size}, or is younger. If a "
        "task writes it, annotate the path there with wr.OutFile or wr.InOutFile; if another program does, let that end "
        "first"
    )


def check_unchanged(going: RunningCall, relied: Iterable[Stamp]) -> None:
    """See that nothing was changed while the body read it; if so, it is worth another attempt."""
    for one in relied:
        if not matches(one):
            raise TaskFileError(
                f"task {going.name!r} read {one.path}, which was changed meanwhile; if it changes it itself, "
                "annotate the parameter with wr.InOutFile",
                again=True,
            )
