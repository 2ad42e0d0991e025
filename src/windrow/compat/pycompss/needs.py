"""``@constraint`` and ``@IO``: what a task needs while it runs."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

from windrow.compat.pycompss.notes import noting
from windrow.core.records import IO as IO_PLACE
from windrow.core.records import Needs
from windrow.errors import NotYetError, UsageError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["IO", "constraint", "from_environment", "needs_of"]

GIGABYTE = 1_000_000_000
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_BANDWIDTH = {"storagebw"}
_COUNTED = {"computingunits", "memorysize", "processors", "processortype"}
#: About the machine that is chosen: there is one, and the answer is the same.
_HARMLESS = {
    "processorname", "processorspeed", "processorarchitecture", "processorpropertyname",
    "processorpropertyvalue", "processorinternalmemorysize", "memorytype", "storagesize", "storagetype",
    "operatingsystemtype", "operatingsystemdistribution", "operatingsystemversion", "appsoftware",
    "hostqueues", "wallclocklimit", "islocal",
}  # fmt: skip


def constraint(**said: Any) -> Callable[[Any], Any]:
    """Say what a task needs: ``computing_units`` are cores, ``memory_size`` is in gigabytes; values may be "$VARIABLE"."""
    known = _COUNTED | _HARMLESS | _BANDWIDTH
    options = {}
    for name, value in said.items():
        key = name.lower().replace("_", "")
        if key not in known:
            raise UsageError(f"@constraint has no {name!r}{nearest(key, known)}")
        if key in _BANDWIDTH:
            raise NotYetError(
                f"@constraint({name}={value!r}): bandwidth of storage as a resource does not exist yet in Windrow; leave it "
                "out to run the task without a limit"
            )
        options[key] = value
    return noting("constraint", options)


def IO() -> Callable[[Any], Any]:  # noqa: N802 - the name that programs have
    """Say that a task reads and writes rather than computes: it needs no core."""
    return noting("IO", {})


def from_environment(said: Any) -> Any:
    """Put the environment's values where "$NAME" or "${NAME}" stands; what is no text is given as it is."""

    def value(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        if name not in os.environ:
            raise UsageError(f"{said} was asked for, but the environment has no {name}")
        return os.environ[name]

    return _VARIABLE.sub(value, said) if isinstance(said, str) else said


def needs_of(task: str, notes: Mapping[str, Mapping[str, Any]]) -> Needs:
    """Say what a task needs while it runs."""
    said = notes.get("constraint", {})
    cores, gpus = 1.0, 0.0
    units = said.get("computingunits")
    if units is not None:
        amount = _number(task, "computing_units", units)
        if str(said.get("processortype", "CPU")).upper() == "GPU":
            gpus = amount
        else:
            cores = amount
    for one in said.get("processors", ()):
        keys = {name.lower().replace("_", ""): value for name, value in one.items()}
        amount = _number(task, "computing_units", keys.get("computingunits", 1))
        if str(keys.get("processortype", "CPU")).upper() == "GPU":
            gpus = amount
        else:
            cores = amount
    amounts = {"gpu": gpus, **({IO_PLACE: 1.0} if "IO" in notes else {"cores": cores})}
    if "memorysize" in said:
        amounts["memory"] = _number(task, "memory_size", said["memorysize"]) * GIGABYTE
    return Needs.of(amounts)


def _number(task: str, name: str, said: Any) -> float:
    value = from_environment(said)
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if number < 0:
        raise UsageError(
            f'task {task!r}: @constraint({name}=...) is a number, got {value!r}; it may be "$VARIABLE" of the environment, but '
            "not the name of a global or of a parameter yet"
        )
    return number
