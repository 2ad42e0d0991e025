"""Values in short: one line of text for whatever a row holds, as tables and stories of single rows need it."""

from __future__ import annotations

from typing import Any

import awkward as ak
import numpy as np
from awkward.prettyprint import Formatter, valuestr

#: Letters for one value: three or four numbers of a list, and several columns still fit a terminal.
ROOM = 40

_SIX_DIGITS = Formatter(precision=6)


def short(value: Any, room: int = ROOM) -> str:
    """Write a value in about ``room`` letters; what is left out of a list or record shows as dots."""
    if isinstance(value, float | np.floating):
        return f"{float(value):.6g}"
    if isinstance(value, str | bytes):
        return _cut(repr(value), room)
    try:
        if isinstance(value, dict):
            value = ak.Record(value)
        elif isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim):
            value = ak.Array(value)
    except (TypeError, ValueError):
        pass  # objects that awkward does not know
    if isinstance(value, ak.Record):
        array, at = value.layout.array, value.layout.at
        value = ak.materialize(ak.Array(array[at : at + 1]))[0]
    elif isinstance(value, ak.Array):
        value = ak.materialize(value)
    if isinstance(value, ak.Array | ak.Record):
        return str(valuestr(value, 1, room, formatter=_SIX_DIGITS))
    return _cut(" ".join(str(value).split()), room)


def _cut(text: str, room: int) -> str:
    return text if len(text) <= room else text[: max(1, room - 1)] + "…"
