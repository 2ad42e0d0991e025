"""A graph of tasks as plain data: nodes and edges, those alike joined where there are too many to be looked at."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windrow.watch.graph_runs import maker_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from windrow.watch.graph_runs import Ran

__all__ = ["GraphEdge", "GraphNode", "levels_of", "nodes_and_edges", "state_of"]

#: States of a node that stands for many: the first that any of them is in.
_WORST_FIRST = ("failed", "running", "waiting", "cancelled", "done")


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A task, or several of one name that are equally far from the beginning."""

    key: str
    name: str
    level: int  #: the longest way from a task that needs no other
    states: Mapping[str, int]
    seconds: float  #: of work
    tasks: tuple[int, ...]

    @property
    def count(self) -> int:
        """How many tasks it stands for."""
        return len(self.tasks)

    @property
    def label(self) -> str:
        """Its name, with how many there are."""
        return self.name if self.count == 1 else f"{self.name} x {self.count:,}"


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """One needs what another makes ("data"), or comes after it because of files ("after")."""

    source: str
    target: str
    kind: str = "data"
    count: int = 1


def state_of(node: GraphNode) -> str:
    """Say which state a node is shown in."""
    return next((state for state in _WORST_FIRST if node.states.get(state)), "waiting")


def levels_of(tasks: Mapping[int, Ran]) -> dict[int, int]:
    """Say how far each task is from the beginning; a task needs only such as were called before it."""
    levels: dict[int, int] = {}
    for number in sorted(tasks):
        task, level = tasks[number], 0
        for output in task.reads:
            level = max(level, levels.get(maker_of(output), -1) + 1)
        for before in task.after:
            level = max(level, levels.get(before, -1) + 1)
        levels[number] = level
    return levels


def nodes_and_edges(tasks: Mapping[int, Ran], most: int) -> tuple[tuple[GraphNode, ...], tuple[GraphEdge, ...]]:
    """Give one node per task, or, for more than ``most``, one per name and level, then per name and several levels."""
    levels = levels_of(tasks)
    keys = {number: str(number) for number in tasks}
    if len(tasks) > most:
        kinds = {(task.name, levels[number]) for number, task in tasks.items()}
        together = _together(kinds, most)
        keys = {number: f"{task.name}@{levels[number] // together}" for number, task in tasks.items()}
    members: dict[str, list[int]] = defaultdict(list)
    for number in sorted(tasks):
        members[keys[number]].append(number)
    nodes = tuple(_node(key, ids, tasks, levels) for key, ids in members.items())
    counts: Counter[tuple[str, str, str]] = Counter()
    for number, task in tasks.items():
        for source in {maker_of(output) for output in task.reads} if task.reads else ():
            if source in keys:
                counts[keys[source], keys[number], "data"] += 1
        for source in task.after:
            if source in keys:
                counts[keys[source], keys[number], "after"] += 1
    return nodes, tuple(GraphEdge(*ends, count) for ends, count in counts.items())


def _together(kinds: set[tuple[str, int]], most: int) -> int:
    """Say how many levels to join so that there are few enough nodes; names are never joined."""
    together, highest = 1, max(level for _, level in kinds)
    while together <= highest and len({(name, level // together) for name, level in kinds}) > most:
        together *= 2
    return together


def _node(key: str, ids: list[int], tasks: Mapping[int, Ran], levels: Mapping[int, int]) -> GraphNode:
    work = sum([one.end - one.begin for number in ids for one in tasks[number].tries])
    return GraphNode(
        key=key,
        name=tasks[ids[0]].name,
        level=min(levels[number] for number in ids),
        states=dict(Counter([tasks[number].state for number in ids])),
        seconds=work / 1e6,
        tasks=tuple(ids),
    )
