"""How tasks use files, as annotations of their parameters: only annotated paths are dependencies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, get_args

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "FileKind",
    "InDir",
    "InFile",
    "InFiles",
    "InOutFile",
    "OutDir",
    "OutFile",
    "OutFiles",
    "file_parameters",
]


@dataclass(frozen=True, slots=True)
class FileKind:
    """What a task does with the path that a parameter has."""

    name: str  #: as users write it
    reads: bool = False
    writes: bool = False
    directory: bool = False
    pattern: str = ""  #: of several files, with ``{parameter}`` for what was given


#: A file that the body reads, or a list of such; it may be one that an earlier task writes.
InFile = Annotated[Any, FileKind("InFile", reads=True)]
#: A file that the body writes, to the path it is given: that is in a private directory until it is complete.
OutFile = Annotated[Any, FileKind("OutFile", writes=True)]
#: A file that the body changes; it works on a copy that replaces the file when it is complete.
InOutFile = Annotated[Any, FileKind("InOutFile", reads=True, writes=True)]
#: A directory of which the body reads what is in it.
InDir = Annotated[Any, FileKind("InDir", reads=True, directory=True)]
#: A directory that the body fills.
OutDir = Annotated[Any, FileKind("OutDir", writes=True, directory=True)]


def InFiles(pattern: str) -> Any:  # noqa: N802 - reads as a type where it is used
    """All files that match a pattern, such as "{ref}.*" for those beside what the parameter ``ref`` names."""
    return Annotated[Any, FileKind("InFiles", reads=True, pattern=pattern)]


def OutFiles(pattern: str) -> Any:  # noqa: N802
    """Files whose names are known when they are there, such as "part-*.fa", in the directory that was given."""
    return Annotated[Any, FileKind("OutFiles", writes=True, directory=True, pattern=pattern)]


def file_parameters(function: Callable[..., Any]) -> dict[str, FileKind]:
    """Find the parameters of a function that are files, by name."""
    return {
        name: kind
        for name, annotation in _annotations(function).items()
        if (kind := _kind(annotation)) is not None
    }


def _kind(annotation: Any) -> FileKind | None:
    if isinstance(annotation, FileKind):
        return annotation
    return next((one for one in get_args(annotation)[1:] if isinstance(one, FileKind)), None)


def _annotations(function: Callable[..., Any]) -> dict[str, Any]:
    """Give annotations as they are meant, also where they are kept as text; others than ours need not make sense."""
    found: dict[str, Any] = dict(getattr(function, "__annotations__", None) or {})
    found.pop("return", None)
    names = getattr(function, "__globals__", {})
    for name, annotation in found.items():
        if isinstance(annotation, str) and any(word in annotation for word in _WORDS):
            found[name] = eval(annotation, names)  # noqa: S307 - what the interpreter would do
    return found


_WORDS = ("InFile", "OutFile", "InDir", "OutDir", "FileKind")
