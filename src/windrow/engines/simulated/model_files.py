"""Models as files: devices and workloads in TOML, with the sources of their numbers beside them.

Keys and how their values are read follow from the fields of the records. Models that policies are compared on come with the package
(``MODELS``), so that they are the same for everybody and were there before the policies.
"""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windrow.engines.simulated.devices import Device
from windrow.engines.simulated.model import AffineCosts, DriverCosts, Fleet, Model, SimulatedInput, drawn, normal
from windrow.errors import CorruptFileError, MissingFileError, SpecError, UsageError, nearest
from windrow.units import parse_bytes, parse_rate, parse_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

MODELS = Path(__file__).resolve().parent / "models"

#: The file of devices that all models may name.
DEVICES = "devices.toml"

#: Draws of the rows of an input before ``rows_most`` is found to be too few.
DRAWS = 1000

_SECTIONS = ("device", "workload", "driver", "fleet", "cores")


@dataclass(frozen=True, slots=True, kw_only=True)
class _InputsSection:
    """The keys of a workload that are about its inputs; the other keys are about costs."""

    category: str
    inputs: int
    rows: int
    unit: int
    rows_sigma: float = 0.0
    rows_most: int = 0  #: of an input: larger ones are drawn again; 0: as they come


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


def _reader(name: str, kind: str) -> Callable[[Any], Any]:
    """Say how the value of a field is read, by its name and type."""
    if kind.startswith("tuple[tuple["):
        return _all(_when)
    if kind.startswith("tuple["):
        return _all(_reader(name, kind.removeprefix("tuple[")))
    if name.endswith("_s") or name == "joins":
        return parse_seconds
    if name == "rates":
        return parse_rate
    if name.startswith(("read_", "memory_")) and not name.endswith("_sigma"):
        return parse_bytes
    if kind.startswith("int"):
        return _count
    return _text if kind.startswith("str") else _number


def _keys(kind: type[Any]) -> dict[str, str]:
    """Give the keys of a section and the fields of its record: seconds are written without ``_s``."""
    return {field.name.removesuffix("_s"): field.name for field in fields(kind)}


def load_devices(path: str | Path = MODELS / DEVICES) -> dict[str, Device]:
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
    _check_keys(content, _SECTIONS, place.name)
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
            driver=_made(DriverCosts, content.get("driver", {}), f"{place.name}, driver"),
            fleet=_made(Fleet, content.get("fleet", {}), f"{place.name}, fleet"),
            cores=None if cores is None else _count(cores),
            name=place.stem,
        )
    except SpecError:
        raise
    except UsageError as error:
        raise SpecError(f"{place.name}: {error.message}") from error


def _workload(section: Any, where: str, seed: int, first: int) -> tuple[str, list[SimulatedInput], AffineCosts]:
    names = _keys(_InputsSection)
    _check_keys(section, (*names, *_keys(AffineCosts)), where)
    for name in ("category", "inputs", "rows", "unit"):
        if not section.get(name):
            raise SpecError(f"{where}: {name} is missing or 0")
    about: _InputsSection = _made(_InputsSection, {k: v for k, v in section.items() if k in names}, where)
    costs: AffineCosts = _made(AffineCosts, {k: v for k, v in section.items() if k not in names}, where)
    inputs = []
    for number in range(about.inputs):
        for again in range(DRAWS):
            size = about.rows_sigma * (normal(*drawn(seed, 5, first + number, again)) - about.rows_sigma / 2)
            rows = max(1, round(about.rows * math.exp(size)))
            if rows <= (about.rows_most or rows):
                break
        else:
            raise SpecError(f"{where}: inputs of rows={about.rows} are hardly ever under rows_most={about.rows_most}")
        inputs.append(SimulatedInput.even(about.category, rows, about.unit, f"{about.category}-{number}"))
    return about.category, inputs, costs


def _devices(content: Mapping[str, Any], where: str) -> dict[str, Device]:
    sections = content.get("device", {})
    if not isinstance(sections, dict):
        raise SpecError(f"{where}: devices are written [device.NAME]")
    return {name: _made(Device, section, f"{where}, device {name}") for name, section in sections.items()}


def _made(kind: type[Any], section: Any, where: str) -> Any:
    names = _keys(kind)
    _check_keys(section, tuple(names), where)
    types = {field.name: str(field.type) for field in fields(kind)}
    values = {}
    for key, value in section.items():
        name = names[key]
        try:
            values[name] = _reader(name, types[name])(value)
        except UsageError as error:
            raise SpecError(f"{where}, {key}: {error.message}") from error
    try:
        return kind(**values)
    except TypeError as error:
        raise SpecError(f"{where}: {error}") from error
    except UsageError as error:
        raise SpecError(f"{where}: {error.message}") from error


def _check_keys(section: Any, names: tuple[str, ...], where: str) -> None:
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
