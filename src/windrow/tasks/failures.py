"""Why a task has no value: what it raised itself, or the way to the task that did."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow.core.records import FailureKind
from windrow.errors import CommandError, DependencyError, TaskError, TaskLostError
from windrow.units import format_seconds

if TYPE_CHECKING:
    from windrow.core.records import Failure
    from windrow.tasks.call import Call

#: Of tasks that failed too, or that are on the way to the one that is to blame.
MOST_NAMES = 10


def blamed(record: Call) -> Call | None:
    """Give the task that did not make what it needed; None if it has failed by itself.

    That another one failed is not enough: it may have released before what was read of it.
    """
    since = 0 if record.failure is None else record.failure.since
    return next((one for one in record.parents if one.id == since), None) if since else None


def root_of(record: Call) -> Call:
    """Give the task that is to blame: itself, if what it needed went well."""
    way, one = [], record
    while True:
        # Each remembers it, so that a long chain is not walked once for every task in it.
        known: Call | None = getattr(one, "root", None)
        before = known or blamed(one)
        if before is None:
            break
        way.append(one)
        one = before
    for each in way:
        each.root = one
    return one


def _way(record: Call) -> list[Call]:
    """List the tasks from one that did not run to the one that is to blame; of a long way the first ones and that one."""
    way = [record]
    while (bad := blamed(way[-1])) is not None:
        if len(way) > MOST_NAMES:
            return [*way, root_of(record)]
        way.append(bad)
    return way


def error_of(record: Call, failure: Failure) -> BaseException:
    """Make what ``result()`` raises: the task's own exception, or one that names the way to it."""
    way = _way(record)
    root = way[-1]
    cause = (root.failure or failure).exception
    if len(way) == 1:
        if cause is None:
            lost = failure.kind in (FailureKind.LOST, FailureKind.CRASHED)
            kind = TaskLostError if lost else TaskError
            return kind(_words(record, failure))
        if isinstance(cause, CommandError):
            # Its message is the whole story; with the traceback of its worker it would be told twice.
            cause.__notes__ = [one for one in getattr(cause, "__notes__", ()) if cause.message not in one]
        note = f"raised in task {record.name!r} ({record.id})"
        if note not in getattr(cause, "__notes__", ()):
            cause.add_note(note)
        return cause
    links = [f"{one.name!r} ({one.id})" for one in way]
    if len(way) > MOST_NAMES + 1 and blamed(way[-2]) is not root:
        links.insert(-1, "...")
    verb = "was cancelled" if root.state == "cancelled" else "failed"
    why = root.failure or failure
    words = f"{why.type}: {why.message}" if cause is not None else _words(root, why)
    error = DependencyError(
        f"task {links[0]} did not run: it needs " + ", which needs ".join(links[1:]) + f", which {verb}: {words}"
    )
    error.__cause__ = cause
    return error


def _words(record: Call, failure: Failure) -> str:
    name = f"task {record.name!r} ({record.id})"
    deadline = record.declared.deadline
    if failure.type == "TimeoutError" and deadline is not None:
        after = f"{format_seconds(deadline)} after its call (deadline={deadline:g})"
        return f"{name} was not done by its deadline, {after}"
    return failure.message if failure.message.startswith(name) else f"{name} failed: {failure.message}"


def _is_of(record: Call, error: BaseException) -> bool:
    failure = record.failure
    assert failure is not None
    if failure.exception is not None:
        return failure.exception is error
    return str(error_of(record, failure)) == str(error)


def _tamed(error: BaseException) -> TaskError:
    """Make an error of what would end the program, perhaps without a word: a task meant its own end at most."""
    notes = getattr(error, "__notes__", ())
    where = next((one.removeprefix("raised in ") for one in notes if one.startswith("raised in task")), "a task")
    if isinstance(error, SystemExit):
        code = "" if error.code is None else repr(error.code)
        words = f"{where} called sys.exit({code}), which ends no program but the task: return from its function, or raise an error"
    else:
        words = f"{where} raised {type(error).__name__}: {error}"
    made = TaskError(words)
    made.__cause__ = error
    return made


def last_error(failed: list[Call], first: BaseException | None) -> BaseException | None:
    """Make what a session raises in the end: what has stopped it or the first failure, with the names of the other tasks."""
    if first is None:
        if not failed:
            return None
        assert failed[0].failure is not None
        first = error_of(failed[0], failed[0].failure)
        others = failed[1:]
    else:
        others = [one for one in failed if not _is_of(one, first)]
    if not isinstance(first, Exception):
        first = _tamed(first)
    if others:
        names = ", ".join(f"{one.name!r} ({one.id})" for one in others[:MOST_NAMES])
        more = ", ..." if len(others) > MOST_NAMES else ""
        tasks = "task" if len(others) == 1 else "tasks"
        first.add_note(f"and {len(others)} more {tasks} failed: {names}{more}")
    return first
