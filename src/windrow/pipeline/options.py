"""What a user asked of a run, checked: what does not exist is refused rather than ignored."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from windrow.errors import NotYetError, UsageError, nearest

__all__ = ["Options"]

ENGINES = ("auto", "inline", "threads")
LATER_ENGINES = ("processes", "dask", "simulated")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a user asked for, checked."""

    order: str | tuple[str, ...]
    chunk: int | None
    engine: str
    workers: int
    cutflow: Mapping[str, str]
    nminus1: bool | tuple[str, ...]  #: for all regions, or those named
    max_rows: int | None
    on_error: str
    seed: int
    rundir: Any
    progress: Any
    save: bool
    block_rows: int | None

    @classmethod
    def checked(
        cls,
        *,
        order: Any = "adaptive",
        chunk: Any = "auto",
        engine: Any = "auto",
        workers: Any = None,
        memory: Any = None,
        cutflow: Any = "estimated",
        nminus1: Any = False,
        max_rows: Any = None,
        on_error: Any = "stop",
        seed: Any = 0,
        rundir: Any = None,
        resume: Any = False,
        progress: Any = None,
        save: Any = True,
        block_rows: Any = None,
    ) -> Options:
        """Check every option, refusing what does not exist rather than ignoring it."""
        for name, value, what in (
            ("memory", memory, "limits need monitored processes"),
            ("resume", resume, "continuing needs the journal"),
        ):
            if value:
                raise NotYetError(f"{name}= does not exist yet ({what}); leave it out")
        if engine in LATER_ENGINES:
            raise NotYetError(
                f"engine={engine!r} does not exist yet; there are {', '.join(ENGINES)}"
            )
        _one_of("engine", engine, ENGINES)
        _one_of("on_error", on_error, ("stop", "skip"))
        if isinstance(order, str):
            _one_of("order", order, ("adaptive", "written"))
        elif isinstance(order, Sequence) and all(isinstance(name, str) for name in order):
            order = tuple(order)
        else:
            raise UsageError(
                f'order= is "adaptive", "written" or a list of step names, got {order!r}'
            )
        return cls(
            order=order,
            chunk=None if chunk == "auto" else _count("chunk", chunk, '"auto" or '),
            engine=engine,
            workers=_granted_cores() if workers is None else _count("workers", workers),
            cutflow=_cutflow(cutflow),
            nminus1=_nminus1(nminus1),
            max_rows=None if max_rows is None else _count("max_rows", max_rows, least=0),
            on_error=on_error,
            seed=_seed(seed),
            rundir=rundir,
            progress=progress,
            save=bool(save),
            block_rows=None if block_rows is None else _count("_block_rows", block_rows),
        )


def _granted_cores() -> int:
    # What this process may use, not what the machine has.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _one_of(option: str, value: Any, allowed: Sequence[str]) -> None:
    if value not in allowed:
        hint = nearest(value, allowed) if isinstance(value, str) else ""
        choices = ", ".join(map(repr, allowed))
        raise UsageError(f"{option}= must be one of {choices}, got {value!r}{hint}")


def _count(option: str, value: Any, or_else: str = "", least: int = 1) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__") or value.__index__() < least:
        raise UsageError(
            f"{option}= must be {or_else}a whole number of at least {least}, got {value!r}"
        )
    return int(value.__index__())


def _seed(value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise UsageError(f"seed= must be a whole number, got {value!r}")
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
        raise UsageError(
            f"cutflow= is one of {kinds} or a mapping of datasets to them, got {value!r}"
        )
    for kind in value.values():
        _one_of("cutflow", kind, kinds)
    return dict(value)
