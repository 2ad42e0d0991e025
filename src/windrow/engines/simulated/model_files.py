"""Models as files: devices and workloads in TOML, with the sources of their numbers beside them.

Models that policies are compared on come with the package (``MODELS``), so that they are the same
for everybody and were there before the policies.
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from windrow.engines.simulated.devices import Device
from windrow.engines.simulated.model import AffineCosts, Driver, Fleet, Model, SimulatedInput, drawn, normal
from windrow.errors import CorruptFileError, MissingFileError, SpecError, UsageError, nearest
from windrow.units import parse_bytes, parse_rate, parse_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["MODELS", "load_devices", "load_model"]

MODELS = Path(__file__).resolve().parent / "models"

#: The file of devices that all models may name.
DEVICES = "devices.toml"

#: What a key of a file is called in the code, and how it is read.
Reader: TypeAlias = "tuple[str, Callable[[Any], Any]]"


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UsageError(f"a number is expected, but got {value!r}")
    return float(value)


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise UsageError(f"a whole number is expected, but got {value!r}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise UsageError(f"a text is expected, but got {value!r}")
    return value


def _all(one: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...]]:
    def read(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list):
            raise UsageError(f"a list is expected, but got {value!r}")
        return tuple(one(item) for item in value)

    return read


def _when(value: Any) -> tuple[float, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise UsageError(f'a time and a worker are expected, such as ["90 s", 3]; got {value!r}')
    return parse_seconds(value[0]), _count(value[1])


_DEVICE: dict[str, Reader] = {
    "streams": ("streams", _all(_count)),
    "rates": ("rates", _all(parse_rate)),
    "latency": ("latency_s", parse_seconds),
}
_COSTS: dict[str, Reader] = {
    **{
        name: (f"{name}_s", parse_seconds)
        for name in ("fixed", "per_row", "cold", "inspect", "merge", "fetch")
    },
    **{
        name: (name, _number)
        for name in (
            "sigma", "input_sigma", "straggler_share", "straggler_factor", "lock_share", "overlap",
        )
    },
    **{name: (name, parse_bytes) for name in ("read_per_row", "memory_fixed", "memory_per_row")},
    "device": ("device", _text),
    "requests": ("requests", _count),
}  # fmt: skip
_INPUTS: dict[str, Reader] = {
    "category": ("category", _text),
    "inputs": ("inputs", _count),
    "rows": ("rows", _count),
    "rows_sigma": ("rows_sigma", _number),
    "unit": ("unit", _count),
}
_DRIVER: dict[str, Reader] = {name: (f"{name}_s", parse_seconds) for name in ("event", "command", "latency")}
_FLEET: dict[str, Reader] = {
    "speeds": ("speeds", _all(_number)),
    "joins": ("joins", _all(parse_seconds)),
    "leaves": ("leaves", _all(_when)),
    "losses": ("losses", _all(_when)),
    "life": ("life_s", parse_seconds),
    "rejoin": ("rejoin_s", parse_seconds),
    "start": ("start_s", parse_seconds),
}
_SECTIONS = ("device", "workload", "driver", "fleet", "cores")


def load_devices(path: str | Path = MODELS / DEVICES) -> dict[str, Device]:
    """Read the devices of a file."""
    return _devices(_read(Path(path)), Path(path).name)


def load_model(path: str | Path, *, device: str | None = None, seed: int = 0) -> Model:
    """Read a model; a bare name is one that comes with the package.

    Parameters
    ----------
    device
        Let all tasks read from this device instead.
    seed
        Of the sizes of inputs.
    """
    place = Path(path)
    if place.suffix != ".toml" and place.name == str(path):
        place = MODELS / f"{path}.toml"
        if not place.is_file():
            known = sorted(p.stem for p in MODELS.glob("*.toml") if p.name != DEVICES)
            raise MissingFileError(
                f"no model {str(path)!r} comes with Windrow{nearest(str(path), known)} "
                f"(there are {', '.join(known)}); a file is named with .toml"
            )
    content = _read(place)
    _known(content, _SECTIONS, place.name)
    devices = {**load_devices(), **_devices(content, place.name)}
    workloads = content.get("workload")
    if not isinstance(workloads, list) or not workloads:
        raise SpecError(f"{place.name} has no [[workload]], so there is nothing to simulate")
    inputs: list[SimulatedInput] = []
    costs: dict[str, AffineCosts] = {}
    for number, section in enumerate(workloads):
        where = f"{place.name}, workload {number + 1}"
        category, found, mine = _workload(section, where, seed, len(inputs))
        if category in costs:
            raise SpecError(f"{where}: the category {category!r} is there twice")
        costs[category] = mine if device is None else replace(mine, device=device)
        inputs += found
    cores = content.get("cores")
    try:
        return Model(
            inputs=tuple(inputs),
            costs=costs,
            devices=devices,
            driver=_made(Driver, content.get("driver", {}), _DRIVER, f"{place.name}, driver"),
            fleet=_made(Fleet, content.get("fleet", {}), _FLEET, f"{place.name}, fleet"),
            cores=None if cores is None else _count(cores),
            name=place.stem,
        )
    except SpecError:
        raise
    except UsageError as error:
        raise SpecError(f"{place.name}: {error.message}") from error


def _workload(section: Any, where: str, seed: int, first: int) -> tuple[str, list[SimulatedInput], AffineCosts]:
    _known(section, (*_INPUTS, *_COSTS), where)
    about = _values({k: v for k, v in section.items() if k in _INPUTS}, _INPUTS, where)
    for name in ("category", "inputs", "rows", "unit"):
        if not about.get(name):
            raise SpecError(f"{where}: {name} is missing or 0")
    mine = {key: value for key, value in section.items() if key in _COSTS}
    costs: AffineCosts = _made(AffineCosts, mine, _COSTS, where)
    sigma = about.get("rows_sigma", 0.0)
    inputs = []
    for number in range(about["inputs"]):
        size = sigma * (normal(*drawn(seed, 5, first + number)) - sigma / 2)
        rows = max(1, round(about["rows"] * math.exp(size)))
        label = f"{about['category']}-{number}"
        inputs.append(SimulatedInput.even(about["category"], rows, about["unit"], label))
    return about["category"], inputs, costs


def _devices(content: Mapping[str, Any], where: str) -> dict[str, Device]:
    sections = content.get("device", {})
    if not isinstance(sections, dict):
        raise SpecError(f"{where}: devices are written [device.NAME]")
    return {name: _made(Device, section, _DEVICE, f"{where}, device {name}") for name, section in sections.items()}


def _made(kind: type[Any], section: Any, readers: Mapping[str, Reader], where: str) -> Any:
    """Make a record of a section."""
    _known(section, tuple(readers), where)
    values = _values(section, readers, where)
    try:
        return kind(**{readers[key][0]: value for key, value in values.items()})
    except TypeError as error:
        raise SpecError(f"{where}: {error}") from error
    except UsageError as error:
        raise SpecError(f"{where}: {error.message}") from error


def _values(section: Mapping[str, Any], readers: Mapping[str, Reader], where: str) -> dict[str, Any]:
    values = {}
    for key, value in section.items():
        try:
            values[key] = readers[key][1](value)
        except UsageError as error:
            raise SpecError(f"{where}, {key}: {error.message}") from error
    return values


def _known(section: Any, names: tuple[str, ...], where: str) -> None:
    if not isinstance(section, dict):
        raise SpecError(f"{where}: a table is expected, but got {section!r}")
    for key in section:
        if key not in names:
            raise SpecError(f"{where}: nobody knows {key!r}{nearest(key, names)} (known: {', '.join(names)})")


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise MissingFileError(f"no model file {path}", file=str(path)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CorruptFileError(f"{path} is not TOML: {error}", file=str(path)) from error
