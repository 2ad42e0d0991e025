"""Tasks that may follow others in the queue of a worker: what it costs to find that they may not yet."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from windrow.core.ahead import Ahead
from windrow.core.nodes import Node, Output
from windrow.core.records import Handle, Task

MANY = 500


class Watched(Output):
    """Counts how often it is asked whether it exists."""

    looks = 0
    exists: Handle | None = None

    @property
    def handle(self) -> Any:
        Watched.looks += 1
        return self.exists

    @handle.setter
    def handle(self, handle: Handle | None) -> None:
        self.exists = handle


def test_not_all_that_a_task_reads_is_looked_at_with_each_that_begins() -> None:
    reader = Node(Task(MANY, "reader", (), 1), MANY)
    reader.reads = {}
    makers = [Node(Task(number, "maker", (), 1), number) for number in range(MANY)]
    for maker in makers:
        output = Watched(f"{maker.id}")
        output.maker, output.readers = maker, {reader.id: reader}
        maker.outputs[output.name] = reader.reads[output.name] = output
    running: dict[int, Any] = {}
    chain: Any = SimpleNamespace(kind=None, attempts={})
    chains: Any = SimpleNamespace(are_short=lambda _: True, has_room=lambda *_: True)
    ahead = Ahead(running, chains, lambda _: chain.kind)
    worker = SimpleNamespace(id=7)
    found: list[tuple[Node, int]] = []
    Watched.looks = 0
    for number, maker in enumerate(makers):
        assert not found
        attempt = SimpleNamespace(chain=chain, recalled=False, node=maker, worker=worker)
        running[maker.id] = chain.attempts[number] = attempt
        ahead.launched(maker)
        found += ahead.places()
        if number < MANY - 1:  # it ends at once
            made: Any = maker.outputs[f"{maker.id}"]
            made.handle, made.here = Handle(0, 0, 7, 0, (), 0, made.name), True
            del running[maker.id]
    assert found == [(reader, 7)]
    assert Watched.looks < 5 * MANY
