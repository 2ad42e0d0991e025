"""Collections: the columns ``Muon_*`` as one array of records whose fields are read when they are touched.

The records are awkward's own virtual arrays, so everything awkward can do works on them. They are never packed or
pickled: both would read every field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np

from windrow.blocks.program import length_columns
from windrow.errors import CorruptFileError

if TYPE_CHECKING:
    from windrow.blocks.columns import ColumnStore, Ranges
    from windrow.blocks.selection import Selection
    from windrow.data.base import ColumnInfo


def field_name(column: str, prefix: str) -> str:
    """Return the field that ``column`` is in the collection ``prefix``: ``Muon_pt`` and ``Muon.pt`` are both ``pt``."""
    return column[len(prefix) + 1 :]


def collection(
    store: ColumnStore,
    prefix: str,
    members: tuple[str, ...],
    columns: Mapping[str, ColumnInfo],
    selection: Selection,
    touch: Callable[[str], Ranges],
) -> Any:
    """Build the records of one collection for the rows of ``selection``.

    ``touch`` is called when a field is used for the first time, perhaps much later, and says for which rows it is
    still wanted: units that have died since then are not read, and hold zeros that no row ever looks at.
    """
    ranges = store.ranges(selection)
    lengths = length_columns(members, columns)
    fields = tuple(field_name(member, prefix) for member in members)
    dtypes = tuple(columns[member].dtype for member in members)
    positions = store.locate(selection, ranges)
    if lengths:
        offsets = _offsets(store, lengths[0], members, columns, ranges)
        picked, objects = _pick_objects(offsets, positions)
    else:
        offsets, picked, objects = None, None, positions
    buffers: dict[str, Any] = {"list-offsets": picked}
    for number, member in enumerate(members):
        part = _Field(store, columns[member], ranges, offsets, objects, touch)
        buffers[f"field{number}-data"] = part.content
    form = _form(fields, dtypes, bool(lengths), _record_name(fields))
    return ak.from_buffers(form, selection.count, buffers, behavior=_behavior())


def _offsets(
    store: ColumnStore, column: str, members: tuple[str, ...], columns: Mapping[str, ColumnInfo], ranges: Ranges
) -> Any:
    """Where the objects of each row begin: from a field that was read already, else from ``column``."""
    for member in (column, *members):
        if columns[member].kind == "jagged" and (member == column or store.has(member, ranges)):
            values = store.over(member, ranges)
            return np.asarray(ak.to_packed(values).layout.offsets, dtype=np.int64)
    values = store.over(column, ranges)
    offsets = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum(values, out=offsets[1:])
    return offsets


def _pick_objects(offsets: Any, positions: Any) -> tuple[Any, Any]:
    """Offsets of the selected rows packed together, and where their objects stand; None if all are selected.

    Packed once here, every operation of the user works on contiguous numbers; as views, each would pack them again.
    """
    if positions is None:
        return offsets, None
    firsts = offsets[positions]
    counts = offsets[positions + 1] - firsts
    packed = np.zeros(len(positions) + 1, dtype=np.int64)
    np.cumsum(counts, out=packed[1:])
    objects = np.arange(packed[-1])
    objects += np.repeat(firsts - packed[:-1], counts)
    return packed, objects


@dataclass(frozen=True, slots=True)
class _Field:
    """One field of a collection over ``ranges``, not read yet."""

    store: ColumnStore
    info: ColumnInfo
    ranges: Ranges
    offsets: Any  #: of the rows of ``ranges``; None for one number per row
    objects: Any  #: which of their objects are selected; None for all
    touch: Callable[[str], Ranges]

    def content(self) -> Any:
        """Read the field where it is still wanted and take the selected objects; the rest is zeros."""
        wanted = _common(self.touch(self.info.name), self.ranges)
        if wanted == self.ranges:
            content = self._part(self.ranges, 0, self._place(self.ranges[-1][1]) if wanted else 0)
        else:
            content = np.zeros(self._place(self.ranges[-1][1]), dtype=self.info.dtype)
            for first, last in wanted:
                start, stop = self._place(first), self._place(last)
                content[start:stop] = self._part(((first, last),), start, stop)
        content = content.view() if self.objects is None else content[self.objects]
        content.flags.writeable = False  # every step that has these records reads the same numbers
        return content

    def _part(self, ranges: Ranges, start: int, stop: int) -> Any:
        values = self.store.over(self.info.name, ranges)
        content = np.asarray(values if self.offsets is None else ak.flatten(values, axis=1))
        if len(content) != stop - start:
            raise CorruptFileError(
                f"column {self.info.name!r} has {len(content)} objects in rows {ranges} where the counter of its "
                f"collection says {stop - start}: name the column as an argument of its own instead"
            )
        return content

    def _place(self, row: int) -> int:
        """Where the objects of chunk row ``row`` begin in the content."""
        before = 0
        for first, last in self.ranges:
            if first <= row <= last:
                before += row - first
                break
            before += last - first
        return before if self.offsets is None else int(self.offsets[before])


def _common(wanted: Ranges, mine: Ranges) -> Ranges:
    """Rows in both; more may be alive than were asked for when this collection was made."""
    if wanted == mine:
        return mine
    parts = [(max(a, c), min(b, d)) for a, b in wanted for c, d in mine]
    return tuple((first, last) for first, last in parts if first < last)


@cache
def _form(fields: tuple[str, ...], dtypes: tuple[Any, ...], jagged: bool, record: str | None) -> Any:
    contents = [
        ak.forms.NumpyForm(ak.types.numpytype.dtype_to_primitive(dtype), form_key=f"field{number}")
        for number, dtype in enumerate(dtypes)
    ]
    parameters = None if record is None else {"__record__": record}
    records = ak.forms.RecordForm(contents, list(fields), form_key="records", parameters=parameters)
    return ak.forms.ListOffsetForm("i64", records, form_key="list") if jagged else records


def _record_name(fields: tuple[str, ...]) -> str | None:
    """Name the vector behaviour that the fields allow: four-vectors where there is a mass or energy, and so on."""
    have = set(fields)
    if {"pt", "eta", "phi"} <= have or {"px", "py", "pz"} <= have:
        return "Momentum4D" if have & {"mass", "m", "energy", "e", "E"} else "Momentum3D"
    return "Momentum2D" if {"pt", "phi"} <= have or {"px", "py"} <= have else None


def _behavior() -> dict[Any, Any]:
    from windrow.blocks.vectors import BEHAVIOR

    return BEHAVIOR
