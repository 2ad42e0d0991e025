"""Outputs of a graph that come to the driver, or are lost before: what follows from that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow.core.commands import Discard
from windrow.core.failures import MOST_LOSSES
from windrow.core.records import Failure, FailureKind

if TYPE_CHECKING:
    from windrow.core import events as happened
    from windrow.core.graph import Graph
    from windrow.core.nodes import Output
    from windrow.core.provisional import Provisional
    from windrow.core.whereabouts import Whereabouts

__all__ = ["Copies"]


class Copies:
    """The hand that takes reports of copies in."""

    def __init__(self, graph: Graph, places: Whereabouts, provisional: Provisional, crashes: int) -> None:
        self._graph = graph
        self._places = places
        self._provisional = provisional
        self._most_crashes = crashes
        #: by name: how often a worker crashed, and went away, at sending it; as long as it did not come
        self._ends: dict[str, tuple[int, int]] = {}

    def fetched(self, event: happened.Fetched) -> None:
        """A copy of an output is here."""
        output = self._places.current(event.handle)
        if output is None:
            self._places.discard(event.handle)
        elif not output.here:
            self._ends.pop(output.name, None)
            self._places.arrived(output)
            self._graph.fetched(output)
            self._places.deliver(output)

    def fetch_failed(self, event: happened.FetchFailed) -> None:
        """An output is of no use elsewhere: that is held against its maker, unless it was lost."""
        output = self._places.current(event.handle)
        if output is None or output.here:
            return
        if event.failure.kind is FailureKind.LOST:
            self._places.out.append(Discard(event.handle))
            self.lose(output)
        elif output.maker is None or not self._provisional.when_sure(output.maker, self.fetch_failed, event):
            self._places.drop(output)
            self._graph.fail_fetch(output, event.failure)

    def output_lost(self, event: happened.OutputLost) -> None:
        """A worker has lost an output."""
        output = self._places.current(event.handle)
        if output is not None and output.kept:
            self.lose(output)

    def blame(self, life: tuple[int, int], failure: Failure) -> bool:
        """A worker is gone that ran nothing: the output it was sending may be the reason; False if there was none.

        It sends them in the order in which they were asked for. One that ends its worker again and again would be made
        for ever.
        """
        for output in self._places.fetching.values():
            handle = output.handle
            if output.kept and handle is not None and (handle.worker, handle.incarnation) == life:
                break
        else:
            return False
        crashes, losses = self._ends.get(output.name, (0, 0))
        crashed = failure.kind is FailureKind.CRASHED
        crashes, losses = crashes + crashed, losses + (not crashed)
        self._ends[output.name] = crashes, losses
        if crashes >= self._most_crashes or losses >= MOST_LOSSES:
            del self._ends[output.name]
            message = (
                f"output {output.name!r} cannot be sent to others: {failure.message}; that happened "
                f"{crashes + losses} times while it was being pickled"
            )
            self._places.forget(output)
            self._graph.fail_fetch(output, Failure(failure.kind, failure.type, message))
        return True

    def lose(self, output: Output) -> None:
        """The worker's copy is gone."""
        if output.here:
            self._places.unkeep(output)
        else:
            self._places.forget(output)
            self._graph.lose(output)
