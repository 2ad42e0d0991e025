"""What workers in other processes learn on the way, brought home: what the driver needs to put a result together.

In one process all workers share the workload and nothing has to travel. In another process a worker has a copy of it;
what changed there since the last time goes along with its reports.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windrow.pipeline.workload import PipelineWorkload


@dataclass(slots=True)
class News:
    """What is new in one process."""

    reads: dict[tuple[int, str], list[tuple[int, int]]] = field(default_factory=dict)
    opened: dict[int, tuple[tuple[int, ...], str]] = field(default_factory=dict)
    defaults: tuple[tuple[int, str], ...] = ()
    requests: int = 0
    keeping: bool = True
    checked: frozenset[str] = frozenset()
    touched: dict[str, frozenset[str]] = field(default_factory=dict)
    twins: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Told:
    """What home knows already."""

    opened: set[int] = field(default_factory=set)
    defaults: set[tuple[int, str]] = field(default_factory=set)
    requests: int = 0
    keeping: bool = True
    unchecked: frozenset[str] = frozenset()
    touched: dict[str, frozenset[str]] = field(default_factory=dict)
    twins: int = 0


def news(workload: PipelineWorkload, told: Told) -> News | None:
    """Gather what home does not know yet; None if there is nothing."""
    definition = workload.definition
    found = News(
        reads=dict(workload.reads),
        opened={
            index: (borders, workload.identities.get(index, ""))
            for index, borders in workload.borders.items()
            if index not in told.opened
        },
        defaults=tuple(key for key in workload.defaults if key not in told.defaults),
        requests=workload.requests - told.requests,
        keeping=workload.keeping,
        checked=told.unchecked - definition.unchecked,
        touched={n: f for n, f in definition.touched.items() if told.touched.get(n) != f},
        twins=dict(workload.twins) if len(workload.twins) > told.twins else {},
    )
    nothing = (
        not (found.reads or found.opened or found.defaults or found.requests)
        and found.keeping == told.keeping
        and not (found.checked or found.touched or found.twins)
    )
    if nothing:
        return None
    workload.reads.clear()
    told.opened.update(found.opened)
    told.defaults.update(found.defaults)
    told.requests = workload.requests
    told.keeping = found.keeping
    told.unchecked = frozenset(definition.unchecked)
    told.touched = dict(definition.touched)
    told.twins = len(workload.twins)
    return found


def hear(workload: PipelineWorkload, found: News) -> None:
    """Take in what a worker in another process learned."""
    for (index, column), ranges in found.reads.items():
        workload.note_reads(index, [(column, start, stop) for start, stop in ranges])
    for index, (borders, identity) in found.opened.items():
        workload.know_borders(index, borders)
        workload.identities.setdefault(index, identity)
    for key in found.defaults:
        workload.defaults[key] = None
    workload.requests += found.requests
    workload.keeping &= found.keeping
    workload.definition.unchecked.difference_update(found.checked)
    workload.twins.update(found.twins)
    for step, fields in found.touched.items():
        known = workload.definition.touched.get(step, frozenset())
        workload.definition.touched[step] = known | fields
