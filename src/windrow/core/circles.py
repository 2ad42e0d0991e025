"""Tasks that wait for each other can never run: they are found before they are taken in."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from windrow.core.records import Task

__all__ = ["find_circle"]


def find_circle(
    tasks: Sequence[Task], maker_of: Callable[[str], Task | None]
) -> list[tuple[Task, str]] | None:
    """Find tasks that wait for each other, each with the name of what it reads from the next."""
    finished: set[int] = set()
    for start in tasks:
        path = [(start, iter(start.reads))] if start.id not in finished else []
        on_path: dict[int, str] = {start.id: ""}  # task -> what it reads from the next on the path
        while path:
            task, reads = path[-1]
            name = next(reads, None)
            if name is None:
                path.pop()
                on_path.pop(task.id)
                finished.add(task.id)
                continue
            maker = maker_of(name)
            if maker is None or maker.id in finished:
                continue
            on_path[task.id] = name
            if maker.id in on_path:
                first = [one.id for one, _ in path].index(maker.id)
                return [(one, on_path[one.id]) for one, _ in path[first:]]
            path.append((maker, iter(maker.reads)))
            on_path[maker.id] = ""
    return None
