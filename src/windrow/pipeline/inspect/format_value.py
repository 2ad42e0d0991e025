"""Values in short: one line of text for whatever a row holds, as tables and stories of single rows need it."""

from __future__ import annotations

from typing import Any

import awkward as ak
import numpy as np

__all__ = ["ROOM", "short"]

#: Letters for one value: three or four numbers of a list, and several columns still fit a terminal.
ROOM = 40


def short(value: Any, room: int = ROOM) -> str:
    """Write a value in about ``room`` letters; what is left out of a list or record is counted."""
    if isinstance(value, float | np.floating):
        return f"{float(value):.6g}"
    if value is None or isinstance(value, bool | np.bool_ | int | np.integer):
        return str(value)
    if isinstance(value, ak.Record):
        return _joined(_fields(value, value.fields), len(value.fields), room, "{}")
    if isinstance(value, dict):
        return _joined(_fields(value, list(value)), len(value), room, "{}")
    if isinstance(value, ak.Array | np.ndarray | list | tuple) and np.ndim(_shell(value)):
        return _joined((lambda left, item=item: short(item, left) for item in value), len(value), room, "[]")
    if isinstance(value, str | bytes):
        return _cut(repr(value), room)
    return _cut(" ".join(str(value).split()), room)


def _shell(value: Any) -> Any:
    """Return something NumPy can count the dimensions of; jagged arrays have one at least."""
    return value if isinstance(value, np.ndarray) else np.empty(1)


def _fields(record: Any, names: list[str]) -> Any:
    for name in names:
        yield lambda left, name=name: f"{name}: {short(record[name], left - len(name))}"


def _joined(parts: Any, count: int, room: int, brackets: str) -> str:
    """Join as many parts as there is room for; at least one, so that something is seen."""
    shown: list[str] = []
    used = 2
    for number, part in enumerate(parts):
        text = part(max(8, room - used))
        # The last one needs no room for saying that more follow.
        reserve = 0 if number == count - 1 else 11
        if shown and used + len(text) + reserve > room:
            break
        shown.append(text)
        used += len(text) + 2
    if len(shown) < count:
        shown.append(f"… {count - len(shown)} more")
    return brackets[0] + ", ".join(shown) + brackets[1]


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: max(1, room - 1)] + "…"
