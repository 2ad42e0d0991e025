"""What decorators beside ``@task`` say of a function; they may stand above or below it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windrow.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["NOTES", "noting"]

#: Attribute of a function that ``@task`` has not seen yet.
NOTES = "__windrow_pycompss__"


def noting(decorator: str, options: Mapping[str, Any]) -> Callable[[Any], Any]:
    """Make a decorator that notes what was said, for the task that the function is or becomes."""

    def note(thing: Any) -> Any:
        if hasattr(thing, "with_note"):
            return thing.with_note(decorator, dict(options))
        if not callable(thing) or isinstance(thing, type):
            raise UsageError(f"@{decorator} is put on a function together with @task, got {thing!r}")
        setattr(thing, NOTES, {**getattr(thing, NOTES, {}), decorator: dict(options)})
        return thing

    return note
