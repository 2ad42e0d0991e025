"""Paths among the arguments of a call: where they are, as text, and back in the form in which they were given."""

# ruff: noqa: PTH100, PTH109, PTH112, PTH117, PTH118
# Paths are text here: they stay as they were given, links and all.

from __future__ import annotations

import glob
import inspect
import os
import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.errors import UsageError, nearest
from windrow.tasks.files.annotations import parameters_of
from windrow.tasks.future import Future

if TYPE_CHECKING:
    from windrow.tasks.call import Call
    from windrow.tasks.files.annotations import FileKind


_WORD = re.compile(r"\{(\w+)\}")


class GivenPath(NamedTuple):
    """A path that a call was given."""

    parameter: str
    kind: FileKind
    place: int | str  #: of the argument
    item: int | None  #: in a list of paths
    path: Any  #: absolute; or a future


def given_paths(calling: Call) -> list[GivenPath]:
    """Find the paths of a call, also those that are defaults; makes relative ones absolute among the arguments."""
    found: list[GivenPath] = []
    signature = _signature(calling.declared.function)
    for parameter, kind in calling.declared.files.items():
        known = signature.get(parameter)
        places = places_of(calling, parameter)
        if not places and known is not None and known.kind is not known.POSITIONAL_ONLY:
            if known.default is known.empty:
                continue
            calling.keywords[parameter] = known.default
            places = [parameter]
        need_not_be_given = kind.may_be_none or known is None or known.default is None
        for place in places:
            value = calling.get(place)
            if value is None and need_not_be_given:
                continue
            several = isinstance(value, (list, tuple))
            paths = [_absolute(calling, parameter, kind, one) for one in (value if several else [value])]
            calling.put(place, like(value, paths) if several else paths[0])
            numbers = range(len(paths)) if several else [None]
            found += [GivenPath(parameter, kind, place, *one) for one in zip(numbers, paths, strict=True)]
    return found


_signature = lru_cache(maxsize=10_000)(parameters_of)


def places_of(calling: Call, parameter: str) -> list[int | str]:
    """Say where the arguments of a parameter are: of ``*args`` and ``**keywords`` several; nowhere if its default is used."""
    place = calling.place(parameter)
    if place is not None:
        return [place]
    signature = _signature(calling.declared.function)
    known = signature.get(parameter)
    if known is not None and known.kind is inspect.Parameter.VAR_POSITIONAL:
        return list(range(list(signature).index(parameter), len(calling.arguments)))
    if known is not None and known.kind is inspect.Parameter.VAR_KEYWORD:
        return [one for one in calling.keywords if one not in signature]
    return []


def _absolute(calling: Call, parameter: str, kind: FileKind, value: Any) -> Any:
    if isinstance(value, Future):
        return value
    if not isinstance(value, (str, os.PathLike)) or not isinstance(os.fspath(value), str):
        raise UsageError(
            f"task {calling.declared.name!r}: parameter {parameter!r} is annotated with wr.{kind.name}, so it is given a path (text or "
            f"pathlib.Path), a list of paths, or a future of these; got {value!r}"
            + (f"; if it need not be given, annotate it with wr.{kind.name} | None" if value is None else "")
        )
    text = os.fspath(value)
    if not text:
        raise UsageError(f"task {calling.declared.name!r}: the path of {parameter!r} is empty")
    if is_remote(text):
        if kind.writes:
            raise UsageError(
                f"task {calling.declared.name!r} writes {text} (parameter {parameter!r}), which is not in a file system: "
                "write it elsewhere, and copy it in a task that is given the address as plain text"
            )
        return value
    begins = f"{{{parameter}}}" in kind.pattern
    return as_given(value, one_name(text, whole=kind.directory and not begins))


def one_name(text: str, *, whole: bool = False) -> str:
    """Make a path absolute, by the one name that it has without links to directories: a file is known by that.

    A link to a file stays what it is, unless the ``whole`` path is that of a directory.
    """
    full = text if os.path.isabs(text) else os.path.join(os.getcwd(), text)
    above, last = os.path.split(full.rstrip(os.sep))
    if whole or last in ("", os.curdir, os.pardir) or os.path.isdir(text):
        return os.path.realpath(text)
    return os.path.join(os.path.realpath(above), last)


def is_remote(text: str) -> bool:
    return "://" in text


def as_given(value: Any, text: str) -> Any:
    if type(value) is str:
        return text
    try:
        return type(value)(text)
    except (TypeError, ValueError):
        return Path(text)


def like(value: Any, items: list[Any]) -> Any:
    return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)


def pattern_of(calling: Call, given: GivenPath) -> tuple[str, bool]:
    """Make the pattern of several files absolute; say whether the path is where the names begin, not a directory.

    Words in braces stand for arguments: "{ref}.*" are the files whose names begin with what ``ref`` was given.
    """
    names = {given.parameter: os.fspath(given.path)}
    words: list[str] = _WORD.findall(given.kind.pattern)
    for word in words:
        if word not in names:
            names[word] = _argument(calling, given, word)
    text = _WORD.sub(lambda word: glob.escape(names[word[1]]), given.kind.pattern)
    begins = given.parameter in words
    if not begins:
        text = os.path.join(glob.escape(names[given.parameter]), text)
    return os.path.abspath(text), begins


def _argument(calling: Call, given: GivenPath, word: str) -> str:
    place = calling.place(word)
    if place is None:
        signature = _signature(calling.declared.function)
        if word not in signature:
            raise UsageError(
                f"task {calling.declared.name!r}: {given.kind.name}({given.kind.pattern!r}) of parameter "
                f"{given.parameter!r} names {word!r}, which is no parameter{nearest(word, list(signature))}"
            )
        return str(signature[word].default)
    value = calling.get(place)
    if isinstance(value, Future):
        raise UsageError(
            f"task {calling.declared.name!r}: {given.kind.name}({given.kind.pattern!r}) needs {word!r} at the call, but it "
            "is a future; give its value"
        )
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)
