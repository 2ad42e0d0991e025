"""One small table, written as text for terminals and as HTML for notebooks.

Colours are those of the page: text inherits, lines are a translucent grey, so light and dark themes both work. Cells are
escaped here, and only here; a cell that is ``Html`` already stays as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from html import escape

from windrow.watch.report.tables import Html

FAINT = "opacity:.65"
_CELL = "padding:.15em .8em .15em 0;border-bottom:1px solid rgba(128,128,128,.35);text-align:"


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows of cells under a title, with notes below."""

    title: str
    heads: Sequence[str]  #: none: a table without a head
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    numbers: Collection[int] = ()  #: columns that are set to the right
    marked: int | None = None  #: the row that matters most

    def text(self) -> str:
        cells = [self.heads, *self.rows] if self.heads and self.rows else list(self.rows)
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        marked = None if self.marked is None else self.marked + len(cells) - len(self.rows)
        lines = [self.title] if self.title else []
        for number, row in enumerate(cells):
            padded = [
                cell.rjust(width) if column in self.numbers else cell.ljust(width)
                for column, (cell, width) in enumerate(zip(row, widths, strict=True))
            ]
            lines.append(f"{'>' if number == marked else ' '} {'  '.join(padded)}".rstrip())
        return "\n".join([*lines, *self.notes])

    def html(self) -> Html:
        parts = ['<table style="border-collapse:collapse;font-variant-numeric:tabular-nums">']
        if self.title:
            parts.append(f'<caption style="text-align:left;{FAINT}">{to_html(self.title)}</caption>')
        if self.heads:
            parts.append(f"<thead>{self._row('th', self.heads)}</thead>")
        body = [self._row("td", row, bold=number == self.marked) for number, row in enumerate(self.rows)]
        parts += ["<tbody>", *body, "</tbody></table>"]
        parts += [f'<p style="{FAINT}">{to_html(note)}</p>' for note in self.notes]
        return Html("".join(parts))

    def _row(self, tag: str, cells: Sequence[str], *, bold: bool = False) -> str:
        sides = ["right" if column in self.numbers else "left" for column in range(len(cells))]
        inner = "".join(
            f'<{tag} style="{_CELL}{side}">{to_html(cell)}</{tag}>' for cell, side in zip(cells, sides, strict=True)
        )
        weight = ";font-weight:bold" if bold else ""
        return f'<tr style="background:none{weight}">{inner}</tr>'


def to_html(text: str) -> str:
    return text if isinstance(text, Html) else escape(str(text))


def box(parts: Iterable[str]) -> str:
    inner = "".join(parts)
    return f'<div style="font-size:.95em;line-height:1.4;overflow-x:auto">{inner}</div>'


def folded(title: str, inner: str, *, shown: bool = False) -> str:
    state = ' open="open"' if shown else ""
    summary = f'<summary style="cursor:pointer">{to_html(title)}</summary>'
    return f'<details{state} style="margin:.3em 0">{summary}{inner}</details>'


def bullets(items: Iterable[str]) -> str:
    return "<ul>" + "".join(f"<li>{to_html(item)}</li>" for item in items) + "</ul>"
