"""How tasks use files, as annotations of their parameters: only annotated paths are dependencies."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, replace
from types import NoneType
from typing import TYPE_CHECKING, Annotated, Any, get_args

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@dataclass(frozen=True, slots=True)
class FileKind:
    """What a task does with the path that a parameter has."""

    name: str  #: as users write it
    reads: bool = False
    writes: bool = False
    directory: bool = False
    pattern: str = ""  #: of several files, with ``{parameter}`` for what was given
    may_be_empty: bool = False  #: an output with nothing in it is no failure
    may_be_none: bool = False  #: as the annotation says: ``wr.InFile | None``
    keeps_nothing: str = ""  #: a directory is replaced as a whole; says what else would keep what is there


#: A file that the body reads, or a list of such; it may be one that an earlier task writes.
InFile = Annotated[Any, FileKind("InFile", reads=True)]
#: A file that the body writes, to the path it is given: that is in a private directory until it is complete.
OutFile = Annotated[Any, FileKind("OutFile", writes=True)]
#: A file that the body changes; it works on a copy that replaces the file when it is complete.
InOutFile = Annotated[Any, FileKind("InOutFile", reads=True, writes=True)]
#: A directory of which the body reads what is in it.
InDir = Annotated[Any, FileKind("InDir", reads=True, directory=True)]
_BESIDE = "annotate the parameter with wr.OutFiles, whose files come beside what is there"
#: A directory that the body fills.
OutDir = Annotated[Any, FileKind("OutDir", writes=True, directory=True, keeps_nothing=_BESIDE)]


def InFiles(pattern: str) -> Any:  # noqa: N802 - reads as a type where it is used
    """All files that match a pattern, such as "{ref}.*" for those beside what the parameter ``ref`` names."""
    return Annotated[Any, FileKind("InFiles", reads=True, pattern=pattern)]


def OutFiles(pattern: str) -> Any:  # noqa: N802
    """Files whose names are known when they are there, such as "part-*.fa", in the directory that was given."""
    return Annotated[Any, FileKind("OutFiles", writes=True, directory=True, pattern=pattern)]


def parameters_of(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (ValueError, TypeError):  # some builtins do not tell
        return {}


def file_parameters(function: Callable[..., Any]) -> dict[str, FileKind]:
    return {
        name: kind for name, annotation in _annotations(function).items() if (kind := _kind(annotation)) is not None
    }


def _kind(annotation: Any) -> FileKind | None:
    """Find what is said of files, also in ``wr.InFile | None`` and ``list[wr.InFile]``."""
    for one in getattr(annotation, "__metadata__", ()):
        if isinstance(one, FileKind):
            return one
    parts = get_args(annotation)
    kind = next((kind for one in parts if (kind := _kind(one)) is not None), None)
    return replace(kind, may_be_none=True) if kind is not None and NoneType in parts else kind


def _annotations(function: Callable[..., Any]) -> dict[str, Any]:
    """Give annotations as they are meant, also where they are kept as text; those of other packages need not make sense."""
    found: dict[str, Any] = dict(getattr(function, "__annotations__", None) or {})
    found.pop("return", None)
    for name, annotation in found.items():
        if isinstance(annotation, str) and _WORDS.search(annotation):
            found[name] = _meant(annotation, getattr(function, "__globals__", {}))
    return found


def _meant(annotation: str, names: dict[str, Any]) -> Any:
    """Make an annotation of its text, as the interpreter would; without the names that only its writer had, our words are
    still ours.
    """
    try:
        return eval(annotation, names)  # noqa: S307 - what the interpreter would do
    except (NameError, AttributeError):
        ours = _WORDS.search(annotation)
        assert ours is not None
        try:
            found = eval(ours[0], globals())  # noqa: S307
        except NameError:
            return None
        return found | None if _NONE.search(annotation) else found


_NONE = re.compile(r"\bNone\b|\bOptional\b")
_WORDS = re.compile(r"\b(?:In|Out|InOut)(?:Files?|Dir)\b(?:\((?P<q>[\"']).*?(?P=q)\))?|\bFileKind\b")
