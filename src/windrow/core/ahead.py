"""Short tasks behind those that they read from, in the queue of one worker: nobody waits for the driver between them.

A task whose inputs are all there, or are being made in the queue of one worker, may join that queue: when it comes up, what
it reads has been made. If one of those came to nothing the worker finds that something is missing, and gives it back.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from windrow.core.records import Handle
from windrow.core.transitions import TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from windrow.core.chains import Chain, Chains
    from windrow.core.nodes import Node, TaskAttempt
    from windrow.core.ready import Kind

__all__ = ["Ahead", "expected_inputs"]


class Ahead:
    """Tasks that wait for others, and could be launched behind them."""

    def __init__(self, running: dict[int, TaskAttempt], chains: Chains, kind: Callable[[Node], Kind]) -> None:
        self._running = running  #: by task: the attempt that counts
        self._chains = chains
        self._kind = kind
        self._candidates: deque[Node] = deque()

    def submitted(self, nodes: Iterable[Node]) -> None:
        """Tasks may wait for others that run already."""
        self._candidates.extend(nodes)

    def launched(self, node: Node) -> None:
        """A task was given to a worker: what reads from it may follow it there."""
        for output in node.outputs.values():
            if output.readers:
                self._candidates.extend(output.readers.values())

    def places(self) -> Iterator[tuple[Node, int]]:
        """Give tasks that can follow others, with their workers; whoever takes one launches it before the next is asked for."""
        candidates = self._candidates
        while candidates:
            node = candidates.popleft()
            chain = self._queue_of_all(node)
            if chain is not None:
                yield node, next(iter(chain.attempts.values())).worker.id

    def _queue_of_all(self, node: Node) -> Chain | None:
        """Find the queue in which all is being made that a task lacks, if it may join that."""
        # What may be taken back, and what comes after others for another reason, waits for its turn.
        if node.state is not TaskState.WAITING or node.fragile or node.unended:
            return None
        chain: Chain | None = None
        # The last first: what is read is mostly made in that order, and one that nobody makes yet is enough to know.
        for output in reversed(node.reads.values()):
            if output.handle is not None:
                continue
            maker = output.maker
            attempt = None if maker is None else self._running.get(maker.id)
            if attempt is None or attempt.recalled:
                return None
            if chain is not None and attempt.chain is not chain:
                return None
            chain = attempt.chain
            if not self._chains.are_short(attempt.node.task.category):
                return None
        if chain is None or node.task.priority < 0 or self._kind(node) is not chain.kind:
            return None
        worker = next(iter(chain.attempts.values())).worker.id
        for output in node.reads.values():
            handle = output.handle
            if handle is not None and not (output.here or (output.kept and handle.worker == worker)):
                return None  # it would have to be brought first
        return chain if self._chains.has_room(chain, worker, node.task.category) else None


def expected_inputs(node: Node, running: dict[int, TaskAttempt]) -> tuple[tuple[Handle, ...], tuple[int, ...]]:
    """Give the handles of what a task reads, those of what is being made included, and which of them are for it alone."""
    found: list[Handle] = []
    mine: list[int] = []
    retried = node.task.budget > 0  # what a failed attempt has changed would be read once more
    for name in node.task.reads:
        output = node.reads[name]
        handle = output.handle
        if handle is None and output.maker is not None:
            attempt = running[output.maker.id]
            handle = Handle(attempt.id, attempt.id, *attempt.life, (), 0, name)
        if handle is not None:
            if not retried and output.is_only_for(node):
                mine.append(len(found))
            found.append(handle)
    return tuple(found), tuple(mine)
