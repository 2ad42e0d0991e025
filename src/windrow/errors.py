"""Every error Windrow raises, in one tree.

WindrowError
|-- UsageError (ValueError)            the call or the analysis is written wrongly
|   |-- DefinitionError                a step, region or pipeline cannot mean anything
|   |-- UnknownNameError               a name that is not defined; carries the nearest ones
|   |-- SpecError                      data that was asked for in a form that is not known
|   `-- NotYetError                    an option whose machinery does not exist yet
|-- DataError                          a file is at fault
|   |-- MissingFileError (FileNotFoundError)
|   |-- MissingTreeError (KeyError)
|   |-- CorruptFileError (OSError)
|   `-- MissingColumnError (KeyError)
|-- StepError (RuntimeError)           a user's function is at fault; carries step, file and rows
|   |-- StepResultError (TypeError)    it returned something of the wrong shape or type
|   |-- RowPurityError                 its answer for a row depends on other rows
|   `-- MergeError (TypeError)         its outputs cannot be added up
|-- TaskError (RuntimeError)           a task of a session has no value, or cannot have one
|   |-- TaskOutputError (TypeError)    it made other outputs than it declares
|   |-- TaskFileError (OSError)        a file that it reads has changed, or one that it writes was not written
|   |-- CommandError                   its command line failed; carries what ran, its status and last words
|   |   `-- CommandMemoryError (MemoryError)
|   |-- TaskLostError (BrokenExecutor) it ended its worker whenever it was tried
|   `-- DependencyError                it did not run, as something that it needs failed
|-- IncompleteError                    the run ended and rows are missing
|-- SaveError (OSError)                the run ended and a file could not be written; carries the result
|-- JournalError (OSError)             what a run has done so far could not be written down; the run goes on
|-- EngineError (RuntimeError)         a worker or its machinery failed
|   `-- InitializerError (BrokenExecutor)  what was to be done first in each worker failed: nothing can run
`-- InternalError (AssertionError)     a bug in Windrow

and warnings: RedefinitionNote (a step, region or save replaces an earlier one), LeftOutWarning (a file format could not
hold some outputs) and GlobalsWarning (a task changes what is not its own, or sees what takes long to compare).

A message names the thing, what was expected, what came, and what to do. All of them pickle.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from concurrent.futures import BrokenExecutor

__all__ = [
    "CommandError",
    "CommandMemoryError",
    "CorruptFileError",
    "DataError",
    "DefinitionError",
    "DependencyError",
    "EngineError",
    "GlobalsWarning",
    "IncompleteError",
    "InitializerError",
    "InternalError",
    "JournalError",
    "LeftOutWarning",
    "MergeError",
    "MissingColumnError",
    "MissingFileError",
    "MissingTreeError",
    "NotYetError",
    "RedefinitionNote",
    "RowPurityError",
    "SaveError",
    "SpecError",
    "StepError",
    "StepResultError",
    "TaskError",
    "TaskFileError",
    "TaskLostError",
    "TaskOutputError",
    "UnknownNameError",
    "UsageError",
    "WindrowError",
    "alternatives",
    "error_text",
    "nearest",
]


def nearest(name: str, known: Iterable[str], count: int = 3) -> str:
    """Say which known names are closest to ``name``, as the end of a sentence."""
    # Files have thousands of columns: the cut-off keeps the suggestions to likely typos.
    lowered = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower(), list(lowered), n=count, cutoff=0.6)
    if not close:
        return ""
    return "; did you mean " + " or ".join(repr(lowered[key]) for key in close) + "?"


def alternatives(called: str, name: object, known: Collection[str]) -> str:
    """Say which known names are closest to ``name``, and what all of them are, as the end of a sentence."""
    return f"{nearest(str(name), known)} ({called}: {', '.join(known) or 'none'})"


def error_text(error: BaseException) -> str:
    """Return what an exception says of itself, which is the user's code too and may raise."""
    try:
        return str(error)
    except Exception as again:  # noqa: BLE001 - whatever it raises, there is no text
        return f"(its text raised {type(again).__name__})"


class WindrowError(Exception):
    """The root of all errors Windrow raises; ``message`` is the whole sentence."""

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.message = message
        self.facts = facts

    def __str__(self) -> str:
        # KeyError, which some children also are, would print the repr of the message.
        return self.message

    def __reduce__(self) -> Any:
        return _rebuild, (type(self), self.message, self.facts)


def _rebuild(kind: type[WindrowError], message: str, facts: dict[str, Any]) -> WindrowError:
    return kind(message, **facts)


class UsageError(WindrowError, ValueError):
    """The call or the analysis is written wrongly."""


class DefinitionError(UsageError):
    """A step, region or pipeline that cannot mean anything."""


class UnknownNameError(UsageError):
    """A name that is not defined."""


class SpecError(UsageError):
    """Data asked for in a form that is not known."""


class NotYetError(UsageError):
    """An option whose machinery does not exist yet."""


class DataError(WindrowError):
    """A file is at fault."""


class MissingFileError(DataError, FileNotFoundError):
    """No such file."""


class MissingTreeError(DataError, KeyError):
    """The file has no such tree; the message lists those it has."""


class CorruptFileError(DataError, OSError):
    """The file is truncated or not of its format."""


class MissingColumnError(DataError, KeyError):
    """A required column is in neither the file nor the pipeline."""


class StepError(WindrowError, RuntimeError):
    """A user's function raised; ``facts`` has step, file, start and stop."""


class StepResultError(StepError, TypeError):
    """A user's function returned something of the wrong shape or type."""


class RowPurityError(StepError):
    """A step whose answer for a row depends on the other rows it was given."""


class MergeError(StepError, TypeError):
    """Outputs that cannot be added up."""


class TaskError(WindrowError, RuntimeError):
    """A task of a session has no value, or cannot have one."""


class TaskOutputError(TaskError, TypeError):
    """A task made other outputs than it declares."""


class CommandError(TaskError):
    """A command line failed; ``facts`` has command, status, stderr (its end), wall_s, cpu_s and peak_bytes."""


class CommandMemoryError(CommandError, MemoryError):
    """The processes of a command line used more memory together than it may."""


class TaskFileError(TaskError, OSError):
    """A file that a task reads is not what it was at the call, or one that it declares to write was not written."""


class DependencyError(TaskError):
    """A task did not run, as something that it needs failed; what that raised is its cause."""


class IncompleteError(WindrowError):
    """The run ended and rows are missing."""


class SaveError(WindrowError, OSError):
    """A file could not be written; at the end of a run ``facts["result"]`` has the result, which is complete."""


class JournalError(WindrowError, OSError):
    """What a run has done so far could not be written down, or not be read now; the run itself is not in danger."""


class EngineError(WindrowError, RuntimeError):
    """A worker or its machinery failed."""


class InternalError(WindrowError, AssertionError):
    """A bug in Windrow: please report it with the message."""


class RedefinitionNote(UserWarning):
    """A step, region or save was defined again and replaces the earlier one."""


class LeftOutWarning(UserWarning):
    """A file format could not hold some outputs."""


class GlobalsWarning(UserWarning):
    """A task changes globals or closures, of which a worker's process has a copy; or sees some that take long to compare."""


if TYPE_CHECKING:

    class TaskLostError(TaskError, BrokenExecutor):
        """A task that ended its worker's process, or was killed with it, as often as it was tried; other tasks go on."""

    class InitializerError(EngineError, BrokenExecutor):
        """What was to be done first in each worker failed, so that nothing can run."""

else:
    _BROKEN_EXECUTORS = {
        "TaskLostError": (
            TaskError,
            "A task that ended its worker's process, or was killed with it, as often as it was tried; other tasks go on.",
        ),
        "InitializerError": (EngineError, "What was to be done first in each worker failed, so that nothing can run."),
    }

    def __getattr__(name: str) -> Any:
        """Make the errors that are a BrokenExecutor too when they are first named: loading that takes longer than all else here."""
        if name not in _BROKEN_EXECUTORS:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from concurrent.futures import BrokenExecutor

        parent, words = _BROKEN_EXECUTORS[name]
        made = type(name, (parent, BrokenExecutor), {"__doc__": words, "__module__": __name__})
        # Of two threads that come at once both get the first one's.
        return globals().setdefault(name, made)
