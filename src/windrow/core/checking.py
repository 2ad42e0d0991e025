"""Which tasks can belong to a graph: looked at before any of them is taken in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow.core.circles import find_circle
from windrow.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windrow.core.graph import Graph
    from windrow.core.records import Task

__all__ = ["check"]


def check(graph: Graph, tasks: Sequence[Task]) -> None:
    """Raise UsageError for tasks that cannot belong to a graph; nothing has changed then."""
    nodes, outputs = graph.nodes, graph.outputs
    makers: dict[str, Task] = {}
    ids: dict[int, Task] = {}
    unmade: set[str] = set()
    forward = False  # tasks submitted before may wait for one of these
    for task in tasks:
        number = task.id
        if number in nodes or number in ids:
            raise UsageError(f"task {number} was submitted twice; each needs an id of its own")
        if task.after:
            _check_after(graph, task, ids)
        ids[number] = task
        if task.reads:
            unmade.update(task.reads)
        if task.inputs:
            raise UsageError(
                f"task {number} has rows {task.inputs[0]}; a task of a graph has none, and "
                "names what it reads in reads="
            )
        for name in task.outputs:
            known = outputs.get(name)
            forward = forward or known is not None or name in unmade
            maker = makers.get(name) or (known and known.maker and known.maker.task)
            if not name or maker:
                other = f"task {maker.id} makes that too" if maker else "it needs a name"
                raise UsageError(f"task {number} makes output {name!r}, but {other}")
            makers[name] = task
    if forward:  # else everybody waits for those that came before
        _refuse_circles(graph, tasks, makers, ids)


def _check_after(graph: Graph, task: Task, ids: dict[int, Task]) -> None:
    for one in task.after:
        # One that is not known any more has ended, and nobody can need it.
        if one not in graph.nodes and one not in ids and one > graph.largest:
            raise UsageError(f"task {task.id} comes after task {one}, which was not submitted before it")


def _refuse_circles(graph: Graph, tasks: Sequence[Task], makers: dict[str, Task], ids: dict[int, Task]) -> None:
    def maker_of(name: str) -> Task | None:
        if name in makers:
            return makers[name]
        known = graph.outputs.get(name)
        maker = known.maker if known else None
        return maker.task if maker and maker.id in graph.open else None

    def task_of(number: int) -> Task | None:
        known = graph.open.get(number)
        return ids.get(number) if known is None else known.task

    circle = find_circle(tasks, maker_of, task_of)
    if circle:
        links = [f"task {one.id} {words}" for one, words in circle]
        raise UsageError(
            f"tasks wait for each other in a circle: {', '.join(links)}, and task "
            f"{circle[0][0].id} is the one that the last waits for; one of them must do without"
        )
