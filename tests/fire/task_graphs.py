"""The graph that is set on fire: layers of tasks that read each other's numbers and arrays. Imported by worker processes.

What a task makes depends on all that it reads, so that one wrong value shows in every later layer. Trouble waits at some
tasks; it is looked up by name, so that a driver in another process can be told of it too.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import windrow as wr
from fire.analyses import hold

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BAD", "LAYERS", "PACE", "WIDTH", "called", "number", "plainly"]

LAYERS, WIDTH = 20, 100
#: Where trouble waits: a task of each of these layers.
BAD = {(3, 17), (9, 50), (15, 99)}
#: Seconds that a task takes where somebody is to be killed meanwhile.
PACE = 0.002
MODULUS = 1_000_003


def number(value: Any) -> int:
    """Make a number of a value; of an array all of it counts."""
    if isinstance(value, np.ndarray):
        return int(value.sum()) % MODULUS
    return int(value)


def made(layer: int, place: int, total: int) -> Any:
    """A number, a few kilobytes, or a megabyte."""
    value = (total * 31 + layer * 7 + place) % MODULUS
    if place % 50 == 0:
        return np.full(125_000, value)
    return np.full(500, value) if place % 3 == 0 else value


def before(place: int) -> tuple[int, int]:
    """Whom of the layer before a task reads."""
    return place, (place * 7 + 3) % WIDTH


def plainly(left_out: bool = False) -> list[list[Any]]:
    """All layers, one task after the other; None for what cannot be without the bad ones, if they are left out."""
    layers: list[list[Any]] = [[made(0, place, place) for place in range(WIDTH)]]
    for layer in range(1, LAYERS):
        row: list[Any] = []
        for place in range(WIDTH):
            one, other = (layers[-1][which] for which in before(place))
            if (left_out and (layer, place) in BAD) or one is None or other is None:
                row.append(None)
            else:
                row.append(made(layer, place, number(one) * 3 + number(other)))
        layers.append(row)
    return layers


# -- tasks -------------------------------------------------------------------------------------------


def leave(directory: str, name: str) -> None:
    os._exit(3)


def leave_once(directory: str, name: str) -> None:
    with contextlib.suppress(FileExistsError):
        Path(directory, name).touch(exist_ok=False)
        os._exit(3)


def hog(directory: str, name: str) -> None:
    hold(4000)
    raise AssertionError("nobody stopped it")


def raise_error(directory: str, name: str) -> None:
    raise ValueError(f"{name} is bad")


TROUBLES: dict[str, Callable[[str, str], None]] = {
    "exits": leave,
    "exits once": leave_once,
    "hogs": hog,
    "raises": raise_error,
}


def step(layer: int, place: int, reads: list[Any], trouble: str, pace: float, where: str) -> Any:
    if pace:
        time.sleep(pace)
    if trouble and (layer, place) in BAD:
        TROUBLES[trouble](where, f"task {layer}-{place}")
    total = place if layer == 0 else number(reads[0]) * 3 + number(reads[1])
    return made(layer, place, total)


def called(
    session: wr.Session, trouble: str = "", pace: float = 0.0, where: str = "", **options: Any
) -> list[list[Any]]:
    """Call all tasks; gives their futures by layer."""
    task = wr.task(step, **options)
    layers: list[list[Any]] = []
    for layer in range(LAYERS):
        layers.append(
            [
                session.submit(
                    task, layer, place, [layers[-1][one] for one in before(place)] if layer else [],
                    trouble, pace, where,
                )
                for place in range(WIDTH)
            ]
        )  # fmt: skip
    return layers
