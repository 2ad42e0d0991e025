"""The options of a loop, checked."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING, Any

from windrow.engines.cores import allowed_cores, read_cores
from windrow.engines.machine_limits import granted_cores
from windrow.errors import UnknownNameError, UsageError, alternatives
from windrow.place.queues import LAYOUTS, VICTIMS, FilledQueues, RangeQueues
from windrow.place.topology import Topology, parse_topology
from windrow.shape.partition.partitioner import Partitioner
from windrow.shape.partition.schemes import FLAVOURS, STATIC_STEAL, is_adaptive, known_as

if TYPE_CHECKING:
    from collections.abc import Mapping

    from windrow.loops.loop_report import LoopReport
    from windrow.place.queues import Queues

ENGINES = ("auto", "threads", "processes", "inline")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopOptions:
    """What users may say of a loop; nothing of it has to be."""

    partition: Any = "auto"
    queues: str = "centralized"
    victims: str = "seq"
    workers: int | None = None
    grain: int = 1
    engine: str = "auto"
    flavour: str = "daphne"
    pre_partition: bool = False
    topology: Any = None
    pin: bool = False
    hyperthreads: bool = False
    seed: int = 0
    timing: bool = False
    report: LoopReport | None = None

    def __post_init__(self) -> None:
        for what, chosen, names in (
            ("engine for loops", self.engine, ENGINES),
            ("layout of queues", str(self.queues).lower(), LAYOUTS),
            ("way to choose victims", str(self.victims).lower(), VICTIMS),
            ("flavour", self.flavour, FLAVOURS),
        ):
            if chosen not in names:
                raise UnknownNameError(f"there is no {what} {chosen!r}{alternatives('known', chosen, names)}")
        for name, value in (("workers", self.workers), ("grain", self.grain)):
            if value is not None and (type(value) is not int or value < 1):
                raise UsageError(f"{name}= is a whole number, 1 or more; got {value!r}")

    def places(self) -> Topology:
        """Say where the workers are."""
        here = _read(self.hyperthreads, allowed_cores())
        if self.topology is not None:
            given = parse_topology(self.topology)
            if len(given) > len(here):
                raise UsageError(
                    f"topology= has {len(given)} workers, and {len(here)} cores are granted here; what a loop would take on such a "
                    "machine is what windrow.place.loop_simulation is for"
                )
            return given.first(self.workers or len(given))
        body = sys.modules.get("windrow.tasks.body")
        task_cores = body.cores_of_task() if body is not None else None
        workers = self.workers or task_cores or len(here)  # the other cores are for other tasks
        if workers <= len(here):
            return here.first(workers)
        return Topology(tuple(here.groups[number % len(here)] for number in range(workers)))

    def make_queues(self, rows: int, topology: Topology, grain: int | None = None, first: int = 0) -> Queues:
        """Fill the queues of a loop by a named partitioner; schemes that measure have rows divided among queues beforehand."""
        scheme, name, grain = self.partition, known_as(self.partition), self.grain if grain is None else grain
        if name == STATIC_STEAL:
            return RangeQueues(rows, topology.groups, grain)

        def cutter(count: int, start: int) -> Partitioner:
            return Partitioner(scheme, count, len(topology), grain=grain, flavour=self.flavour, start=first + start)

        return FilledQueues(
            rows,
            topology,
            cutter,
            layout=self.queues.lower(),
            victims=self.victims.lower(),
            pre_partition=self.pre_partition or callable(scheme) or is_adaptive(name),
            draw=Random(self.seed).randrange,  # noqa: S311 - nobody is to be kept from guessing victims
        )


def read_options(partition: Any, queues: str, victims: str, others: Mapping[str, Any]) -> LoopOptions:
    """Take in what users said."""
    fields = LoopOptions.__dataclass_fields__
    for name in others:
        if name not in fields:
            raise UnknownNameError(f"a loop has no option {name!r}{alternatives('options', name, list(fields))}")
    return LoopOptions(partition=partition, queues=queues, victims=victims, **others)


@lru_cache(4)
def _read(hyperthreads: bool, allowed: tuple[int, ...]) -> Topology:  # noqa: ARG001 - what is read depends on it
    """Read the cores here, which takes longer than a short loop."""
    found = read_cores(hyperthreads=hyperthreads)[: granted_cores(os.environ)]
    return Topology(tuple(group for group, _ in found), tuple(core for _, core in found))
