"""Tasks that wait for each other can never run: they are found before they are taken in."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from windrow.core.records import Task

__all__ = ["find_circle"]


def find_circle(
    tasks: Sequence[Task], maker_of: Callable[[str], Task | None], task_of: Callable[[int], Task | None]
) -> list[tuple[Task, str]] | None:
    """Find tasks that wait for each other, each with words for what it waits for of the next."""

    def waits(task: Task) -> Iterator[tuple[str, Task | None]]:
        for name in task.reads:
            yield f"reads {name!r}", maker_of(name)
        for number in task.after:
            yield f"comes after task {number}", task_of(number)

    finished: set[int] = set()
    for start in tasks:
        path = [(start, waits(start))] if start.id not in finished else []
        on_path: dict[int, str] = {start.id: ""}  # task -> what it waits for of the next on the path
        while path:
            task, links = path[-1]
            found = next(links, None)
            if found is None:
                path.pop()
                on_path.pop(task.id)
                finished.add(task.id)
                continue
            words, other = found
            if other is None or other.id in finished:
                continue
            on_path[task.id] = words
            if other.id in on_path:
                first = [one.id for one, _ in path].index(other.id)
                return [(one, on_path[one.id]) for one, _ in path[first:]]
            path.append((other, waits(other)))
            on_path[other.id] = ""
    return None
