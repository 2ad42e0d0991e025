"""Outputs of a graph that come to the driver, or are lost before: what follows from that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow.core.commands import Discard
from windrow.core.records import FailureKind

if TYPE_CHECKING:
    from windrow.core import events as happened
    from windrow.core.graph import Graph
    from windrow.core.nodes import Output
    from windrow.core.whereabouts import Whereabouts

__all__ = ["Copies"]


class Copies:
    """The hand that takes reports of copies in."""

    def __init__(self, graph: Graph, places: Whereabouts) -> None:
        self._graph = graph
        self._places = places

    def fetched(self, event: happened.Fetched) -> None:
        """A copy of an output is here."""
        output = self._places.current(event.handle)
        if output is None:
            self._places.discard(event.handle)
        elif not output.here:
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
        else:
            self._places.drop(output)
            self._graph.fail_fetch(output, event.failure)

    def output_lost(self, event: happened.OutputLost) -> None:
        """A worker has lost an output."""
        output = self._places.current(event.handle)
        if output is not None and output.kept:
            self.lose(output)

    def lose(self, output: Output) -> None:
        """The worker's copy is gone."""
        if output.here:
            self._places.unkeep(output)
        else:
            self._places.forget(output)
            self._graph.lose(output)
