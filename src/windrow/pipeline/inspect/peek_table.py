"""``Peek``: a few rows of a few columns, with where they come from, as values and as a table."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.errors import UnknownNameError, nearest
from windrow.pipeline.inspect.format_value import ROOM, short

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray


#: A table is read, not scrolled through; values are all there.
SHOWN_ROWS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Peek:
    """Rows that reach a step, and what it gives for them: ``peek["mass"]``."""

    title: str
    values: Mapping[str, Any]  #: NumPy or awkward arrays, one entry per row
    identity: Mapping[str, Any]  #: the pipeline's identity columns
    file: tuple[str, ...]  #: label of each row's file
    entry: NDArray[np.int64]  #: number of each row in its file
    dataset: tuple[str, ...]
    asked: int
    looked_at: int  #: rows that were looked at to find these
    notes: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> Any:
        for known in (self.values, self.identity):
            if name in known:
                return known[name]
        names = self.keys()
        raise UnknownNameError(f"peek has no {name!r}{nearest(name, names)} (it has {', '.join(names)})")

    def __contains__(self, name: object) -> bool:
        return name in self.values or name in self.identity

    def __len__(self) -> int:
        return len(self.entry)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def keys(self) -> tuple[str, ...]:
        """Return the names that values can be had by."""
        return tuple(dict.fromkeys([*self.values, *self.identity]))

    def summary(self) -> str:
        """Say how many rows were found and how many had to be looked at for it."""
        rows = "row" if len(self) == 1 else "rows"
        if len(self) < self.asked:
            text = f"only {len(self):,} of the {self.asked:,} rows asked for"
        else:
            text = f"{len(self):,} {rows}"
        looked = "row was" if self.looked_at == 1 else "rows were"
        return f"{text}; {self.looked_at:,} {looked} looked at"

    def __repr__(self) -> str:
        lines = [self.title]
        if len(self):
            heads, body, numeric = self._cells()
            widths = [max(map(len, column)) for column in zip(heads, *body, strict=True)]
            for cells in (heads, *body):
                padded = (
                    cell.rjust(width) if right else cell.ljust(width)
                    for cell, width, right in zip(cells, widths, numeric, strict=True)
                )
                lines.append(("  " + "  ".join(padded)).rstrip())
        return "\n".join([*lines, *self._footer()])

    def _repr_html_(self) -> str:
        parts = [f"<div><strong>{escape(self.title)}</strong>"]
        if len(self):
            heads, body, numeric = self._cells()
            align = ["right" if right else "left" for right in numeric]
            parts.append("<table><thead><tr>")
            parts += [
                f'<th style="text-align:{side}">{escape(head)}</th>' for head, side in zip(heads, align, strict=True)
            ]
            parts.append("</tr></thead><tbody>")
            for cells in body:
                row = "".join(
                    f'<td style="text-align:{side}">{escape(cell)}</td>'
                    for cell, side in zip(cells, align, strict=True)
                )
                parts.append(f"<tr>{row}</tr>")
            parts.append("</tbody></table>")
        parts += [f"<div>{escape(line)}</div>" for line in self._footer()]
        return "".join([*parts, "</div>"])

    def _footer(self) -> list[str]:
        lines = [self.summary(), *self.notes]
        if len(self) > SHOWN_ROWS:
            lines.insert(0, f"… {len(self) - SHOWN_ROWS:,} more rows")
        return lines

    def _cells(self) -> tuple[list[str], list[list[str]], list[bool]]:
        """Return heads, rows of text, and which columns are numbers, to be aligned at their end."""
        count = min(len(self), SHOWN_ROWS)
        columns: dict[str, Any] = {"file": [_tail(label) for label in self.file], "row": self.entry}
        if len(set(self.dataset)) > 1:
            columns = {"dataset": self.dataset, **columns}
        # A column shown for its own sake need not be shown as identity too.
        columns.update({n: v for n, v in self.identity.items() if n not in self.values})
        columns.update(self.values)
        texts, numeric = [], []
        for values in columns.values():
            cells = [values[number] for number in range(count)]
            numeric.append(all(_is_number(cell) for cell in cells))
            plain = isinstance(values, tuple | list)  # files and datasets
            texts.append([str(cell) if plain else short(cell, ROOM) for cell in cells])
        return list(columns), [list(row) for row in zip(*texts, strict=True)], numeric


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool))


def _tail(label: str) -> str:
    """The end of a path: its beginning is the same for all rows, and long."""
    name = label.rsplit("/", 1)[-1] or label
    return name if len(name) <= ROOM else "…" + name[1 - ROOM :]
