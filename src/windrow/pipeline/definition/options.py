"""What a user asked of a run, checked: what does not exist is refused rather than ignored."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from windrow.engines.dask.cluster import ITS_OWN_WORKERS, connect, is_cluster
from windrow.engines.machine_limits import granted_cores
from windrow.errors import UsageError, nearest
from windrow.pipeline.ordering.policies import POLICIES
from windrow.shape.allocation.policy import LADDERS
from windrow.shape.allocation.strategies import BY_SIZE, STRATEGIES
from windrow.units import parse_bytes, parse_seconds

ENGINES = ("auto", "inline", "threads", "processes", "dask")
#: Options that are limits of a worker, which is a process then.
OF_PROCESSES = ("memory", "timeout", "task_memory", "target_memory")
#: Options that mean nothing without ``memory=``.
OF_MEMORY = ("task_memory", "target_memory", "allocation", "ladder")


@dataclass(slots=True, kw_only=True)
class Options:
    """The options of a run as ``Pipeline.run`` takes them; checked and brought to one form when they are made."""

    order: Any = "adaptive"  #: a policy's name or function, "written", step names, or step names by dataset
    chunk: Any = "auto"  #: then rows, or None
    partition: Any = None  #: a partitioner of loops by which rows are cut; None: by what they cost
    engine: Any = "auto"  #: then one of ``ENGINES``
    client: Any = None  #: then of the Dask cluster on which the run may take place, or None
    distribution: str = "dynamic"  #: or "static": each worker has its share of the rows from the beginning
    workers: Any = None  #: then how many
    cutflow: Any = "estimated"  #: then "estimated" or "exact" by pattern of datasets
    nminus1: Any = False  #: True for all regions, or those named
    max_rows: int | None = None
    on_error: Any = "stop"  #: or "skip"
    seed: int = 0
    rundir: Any = None
    progress: Any = None
    save: bool = True
    block_rows: int | None = None
    split: tuple[int, int] | None = None  #: threads that set up and that process; None: measured
    memory: Any = None  #: then bytes for all workers together, or None
    timeout: Any = None  #: then seconds a chunk may take, or None
    task_memory: Any = None  #: then bytes a chunk may use at most, or None: what its worker's share is
    target_memory: Any = None  #: then bytes a chunk is to use, or None: what it may use
    target_time: Any = None  #: then seconds a chunk is to take at most, or None: what the shape decision thinks best
    allocation: str = BY_SIZE  #: how much memory chunks are granted
    ladder: str = "windrow"  #: what is done about a chunk that used too much
    first_rows: int | None = None  #: of the first chunks at most
    resume: bool = False

    def __post_init__(self) -> None:
        if self.resume and self.rundir is None:
            raise UsageError("resume=True continues what is in a run directory: say which one with rundir=")
        self._find_cluster()
        _one_of("engine", self.engine, ENGINES)
        for name in OF_PROCESSES:
            if getattr(self, name) is not None and self.engine not in ("auto", "processes", "dask"):
                raise UsageError(
                    f'{name}= is enforced on processes: use engine="processes" or leave engine= out, got {self.engine!r}'
                )
        _one_of("on_error", self.on_error, ("stop", "skip"))
        self.order = _order(self.order)
        if self.on_error == "skip" and _is_own(self.order):
            raise UsageError(
                'on_error="skip" leaves out the rows on which a step raises in the written order, so it does not go together '
                "with an order of your own: leave order= or on_error= out"
            )
        self.chunk = None if self.chunk in ("auto", None) else check_count("chunk", self.chunk, '"auto" or ')
        self._find_scheme()
        self.workers = granted_cores(os.environ) if self.workers is None else check_count("workers", self.workers)
        self.cutflow = _cutflow(self.cutflow)
        self.nminus1 = _nminus1(self.nminus1)
        self.seed = check_count("seed", self.seed, least=None)
        self.save, self.resume = bool(self.save), bool(self.resume)
        if self.max_rows is not None:
            self.max_rows = check_count("max_rows", self.max_rows, least=0)
        if self.block_rows is not None:
            self.block_rows = check_count("_block_rows", self.block_rows)
        for name in (*OF_PROCESSES, "target_time"):
            if (value := getattr(self, name)) is not None:
                amount = parse_seconds(value) if name in ("timeout", "target_time") else parse_bytes(value)
                if amount <= 0:
                    raise UsageError(f"{name}= must be more than nothing, got {amount}")
                setattr(self, name, amount)
        if self.first_rows is not None:
            self.first_rows = check_count("first_rows", self.first_rows)
        fixed = "chunk" if self.chunk is not None else "partition" if self.partition is not None else ""
        for name in ("first_rows", "target_time"):
            if fixed and getattr(self, name) is not None:
                raise UsageError(
                    f"{name}= is about chunks that Windrow cuts, and {fixed}= says how large they are: leave one of them out"
                )
        _one_of("ladder", self.ladder, LADDERS)
        _one_of("allocation", self.allocation, tuple(STRATEGIES))
        for option in fields(self):
            if option.name in OF_MEMORY and self.memory is None and getattr(self, option.name) != option.default:
                raise UsageError(
                    f"{option.name}= is about how chunks share what memory= allows: say memory= too, or leave it out"
                )

    def _find_cluster(self) -> None:
        """Take ``engine=`` or ``client=`` for the Dask cluster that it may name."""
        if self.engine is not None and is_cluster(self.engine):
            if self.client is not None:
                raise UsageError("engine= and client= both name a Dask cluster: leave one of them out")
            self.engine, self.client = "auto", self.engine
        if self.client is not None:
            if self.workers is not None:
                raise UsageError(ITS_OWN_WORKERS)
            self.client = connect(self.client)
            if self.engine not in ("auto", "dask"):
                raise UsageError(f'client= names a Dask cluster, so engine= is "auto" or "dask", got {self.engine!r}')
        elif self.engine == "dask":
            raise UsageError(
                'engine="dask" needs the cluster too: say client=Client(...), or engine=client, or its address'
            )

    def _find_scheme(self) -> None:
        """Take ``partition=`` or ``distribution=`` for the partitioner that it may name."""
        _one_of("distribution", self.distribution, ("dynamic", "static"))
        if self.distribution == "static" and self.partition is None:
            self.partition = "STATIC"
        if self.partition is not None:
            if self.chunk is not None:
                raise UsageError("chunk= and partition= both say how rows are cut: leave one of them out")
            from windrow.shape.fixed import check_scheme

            self.partition = check_scheme(self.partition)


def check_names(called: str, given: Iterable[str]) -> None:
    """Refuse options that do not exist, as Python does, and those that are for tests."""
    known = [one.name for one in fields(Options) if one.name not in ("block_rows", "split")]
    for name in given:
        if name not in known:
            raise TypeError(f"{called}() got an unexpected keyword argument {name!r}{nearest(name, known)}")


def _order(order: Any) -> Any:
    if isinstance(order, os.PathLike) or (isinstance(order, str) and order.endswith(".json")):
        from windrow.pipeline.ordering.order_file import frozen_orders

        return frozen_orders(order)
    if isinstance(order, str):
        _one_of("order", order, ("adaptive", "written", *POLICIES))
        return order
    if isinstance(order, Mapping):
        return _by_dataset(order)
    return order if callable(order) else _names(order)


def _is_own(order: Any) -> bool:
    return any(map(_is_own, order.values())) if isinstance(order, Mapping) else isinstance(order, tuple)


def _by_dataset(order: Mapping[Any, Any]) -> dict[str, Any]:
    if not order:
        raise UsageError('order= is a mapping without any dataset; leave order= out, or say order="written"')
    for dataset, names in order.items():
        if not isinstance(dataset, str):
            raise UsageError(f"order= maps names of datasets to lists of names, got {dataset!r}")
        # A string is a sequence too, and its letters are no steps.
        if isinstance(names, str) and names != "written":
            raise UsageError(
                f'order= for the dataset {dataset!r} is a list of names of steps, or "written"; got {names!r}'
            )
    return {d: names if isinstance(names, str) else _names(names) for d, names in order.items()}


def _names(order: Any) -> tuple[str, ...]:
    if isinstance(order, Sequence) and all(isinstance(name, str) for name in order):
        return tuple(order)
    raise UsageError(
        'order= is "adaptive", "written", another policy\'s name, a list of step names, a mapping of datasets to '
        f"such lists, a function, or a file that freeze() wrote; got {order!r}"
    )


def _one_of(option: str, value: Any, allowed: Sequence[str]) -> None:
    if value not in allowed:
        hint = nearest(value, allowed) if isinstance(value, str) else ""
        choices = ", ".join(map(repr, allowed))
        raise UsageError(f"{option}= must be one of {choices}, got {value!r}{hint}")


def check_count(option: str, value: Any, or_else: str = "", least: int | None = 1) -> int:
    whole = hasattr(value, "__index__") and not isinstance(value, bool)
    if not whole or (least is not None and value.__index__() < least):
        bound = "" if least is None else f" of at least {least}"
        raise UsageError(f"{option}= must be {or_else}a whole number{bound}, got {value!r}")
    return int(value.__index__())


def _nminus1(value: Any) -> bool | tuple[str, ...]:
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return (value,)
    if isinstance(value, Sequence) and all(isinstance(name, str) for name in value):
        return tuple(value)
    raise UsageError(f"nminus1= is True, False or a list of regions, got {value!r}")


def _cutflow(value: Any) -> Mapping[str, str]:
    kinds = ("estimated", "exact")
    if isinstance(value, str):
        value = {"*": value}
    if not isinstance(value, Mapping):
        raise UsageError(f"cutflow= is one of {kinds} or a mapping of datasets to them, got {value!r}")
    for kind in value.values():
        _one_of("cutflow", kind, kinds)
    return dict(value)
