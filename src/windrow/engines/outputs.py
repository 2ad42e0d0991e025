"""Outputs of graphs where all workers share the driver's memory: made in one place, read in all.

Single operations on dictionaries are atomic, so there is no lock: what one attempt made is under its id, and an attempt is
written to by one worker alone. The driver discards what nobody needs; reports that come later are discarded once more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windrow.core.events import Cancelled, Event, Failed, OutputReady
from windrow.core.records import Failure, FailureKind, Handle
from windrow.engines.base import Call

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from windrow.core.commands import Launch
    from windrow.engines.shelf import Shelf

__all__ = ["Outputs"]


class Outputs:
    """What tasks of a graph made, by attempt and name."""

    def __init__(self) -> None:
        self._made: dict[int, dict[str, Any]] = {}

    def get(self, handle: Handle) -> Any:
        """Give an output; it stays here until it is discarded."""
        return self._made[handle.id][handle.output]

    def discard(self, handle: Handle) -> None:
        """Forget an output, or all that an attempt made."""
        if not handle.output:
            self._made.pop(handle.id, None)
            return
        made = self._made.get(handle.id)
        if made is not None:
            made.pop(handle.output, None)
            if not made:
                self._made.pop(handle.id, None)

    def run(
        self,
        shelf: Shelf,
        command: Launch,
        workload: Any,
        tell: Callable[[Event], None],
        cancelled: Container[int] = (),
    ) -> Event:
        """Run a task; ``tell`` is given what is to be reported before its end."""
        number, worker, incarnation = command.attempt, command.worker, command.incarnation

        def release(name: str, value: Any) -> None:
            self._made.setdefault(number, {})[name] = value
            handle = Handle(number, number, worker, incarnation, (), 0, name, here=True)
            tell(OutputReady(number, worker, incarnation, handle))

        inputs = command.inputs
        try:
            values = tuple([self.get(handle) for handle in inputs]) if inputs else ()
            content = workload.content(command.task.id)
        except KeyError:
            # What it reads was not made after all, or was taken back just now, or nobody wants it any more and is gone.
            return self._without_inputs(command)
        if content is None:
            return Cancelled(number, worker, incarnation)
        call = Call(content, values, release, None, lambda: number in cancelled)
        event, outputs = shelf.call(command, call, here=True)
        if outputs:
            made = self._made.get(number)
            if made is None:
                self._made[number] = outputs
            else:
                made.update(outputs)
        return event

    def _without_inputs(self, command: Launch) -> Event:
        """Say that a task cannot run now; one that was not called off is launched again, a few times."""
        number, worker, incarnation = command.attempt, command.worker, command.incarnation
        if command.ahead:
            return Cancelled(number, worker, incarnation)
        message = f"what task {command.task.id} reads was gone when it began"
        return Failed(number, worker, incarnation, Failure(FailureKind.LOST, "OutputLost", message))
