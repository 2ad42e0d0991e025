"""Where the outputs of a graph are: which worker keeps them, and which copies are here or on their way.

An output that exists is held under the id of the handle that made it so; a report of any other
handle of the same name does not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow.core.commands import Command, Discard, Fetch, Take
from windrow.core.transitions import TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from windrow.core.crew import Crew
    from windrow.core.nodes import Node, Output
    from windrow.core.records import Handle

__all__ = ["Whereabouts"]


class Whereabouts:
    """The outputs that exist."""

    def __init__(self, crew: Crew) -> None:
        self.held: dict[int, dict[str, Output]] = {}  #: by handle id
        self.kept: dict[tuple[int, int], dict[str, Output]] = {}  #: by life of a worker
        self.fetching: dict[str, Output] = {}
        self.out: list[Command] = []
        self.unsure: Callable[[Node], bool] = lambda _: False  #: what a task made may be taken back
        self._crew = crew

    def current(self, handle: Handle) -> Output | None:
        """Find the output that exists as this handle."""
        return self.held.get(handle.id, {}).get(handle.output)

    def made(self, output: Output) -> None:
        """An output exists, at the worker that made it."""
        handle = output.handle
        if handle is not None:
            number, _, worker, incarnation, _, _, name, here = handle
            held, kept = self.held.get(number), self.kept.get((worker, incarnation))
            if held is None:
                held = self.held[number] = {}
            if kept is None:
                kept = self.kept[worker, incarnation] = {}
            held[name] = kept[name] = output
            output.here = here
            if not here:
                self._crew.workers[worker].tied += 1
            if output.asked:
                self.deliver(output)

    def fetch(self, output: Output) -> None:
        """Have an output brought, once."""
        if output.handle is not None and not (output.here or output.fetching):
            output.fetching = True
            self.fetching[output.name] = output
            self.out.append(Fetch(output.handle))

    def bring_ahead(self, kept: dict[str, Output], node: Node) -> None:
        """A worker begins what may take long, and cannot be asked meanwhile: bring what tasks that could run now read.

        Of those that wait for something else too it is not known whether they will run elsewhere: a copy may be for nothing.
        """
        if len(self._crew.workers) < 2:
            return
        for output in kept.values():
            if not output.readers or output.here or output.fetching:
                continue  # by far the most: results that somebody holds
            if any(one.state is TaskState.READY and one is not node for one in output.readers.values()):
                self.fetch(output)

    def arrived(self, output: Output) -> None:
        """A copy is here: the worker is not the only one that has it."""
        self.fetching.pop(output.name, None)
        if output.kept and output.handle is not None:
            self._crew.workers[output.handle.worker].tied -= 1

    def deliver(self, output: Output) -> None:
        """Give the user what he waits for, or have it brought; not what may be withdrawn."""
        maker, handle = output.maker, output.handle
        if not output.asked or handle is None or maker is None:
            return
        if (maker.fragile or not maker.task.restartable) and self.unsure(maker):
            return
        if output.here:
            output.asked = False
            self.out.append(Take(handle))
        else:
            self.fetch(output)

    def unkeep(self, output: Output) -> None:
        """Its worker does not have an output any more."""
        handle = output.handle
        if output.kept and handle is not None:
            output.kept = False
            del self.kept[handle.worker, handle.incarnation][output.name]
            if not output.here:
                worker = self._crew.find(handle.worker, handle.incarnation)
                if worker is not None:
                    worker.tied -= 1

    def forget(self, output: Output) -> None:
        """An output's handle does not count any more."""
        if output.kept:
            self.unkeep(output)
        if output.fetching:
            self.fetching.pop(output.name, None)
        if output.handle is not None:
            held = self.held[output.handle.id]
            if len(held) == 1:
                del self.held[output.handle.id]
            else:
                del held[output.name]

    def drop(self, output: Output) -> None:
        """Nobody needs an output any more."""
        handle = output.handle
        if handle is not None:
            self.out.append(Discard(handle))
            self.forget(output)

    def discard(self, handle: Handle) -> None:
        """Answer a report that does not count; a second report of what is held is no such."""
        held = self.held.get(handle.id, {})
        if not held or (handle.output and handle.output not in held):
            self.out.append(Discard(handle))

    def discard_names(self, handle: Handle, names: Iterable[str]) -> None:
        """Discard some of what an attempt made."""
        self.out += [Discard(handle._replace(output=name)) for name in names]
