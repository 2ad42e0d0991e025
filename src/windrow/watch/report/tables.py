"""Tables, tiles and lists of a report as HTML: values are escaped here, and only here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from windrow.units import format_bytes, format_seconds

#: Lines of a table or a list that are shown; the others are counted.
MOST_LINES = 400

#: Looks of a cell that begin at the left.
_LEFT = {"name": "", "text": "left", "words": "left words", "state": "left kind", "remark": "remark"}


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def _show_some(value: float) -> str:
    return f"{value:,}" if value else "-"


def show_percent(share: float) -> str:
    return f"{100 * share:.1f} %" if 0 < share < 0.0995 else f"{100 * share:.0f} %"


def show_micros(micros: float) -> str:
    return format_seconds(micros / 1e6) if micros else "0 s"


def plural(count: int, thing: str) -> str:
    return f"{count:,} {thing}" if count == 1 else f"{count:,} {thing}s"


class Format(NamedTuple):
    """How the values of a column are written, and how its cells look.

    Looks are "name" (of the line), "text", "words" (that wrap), "state", "remark", "number", "bad" (a number that should
    be 0), "bar" (drawn against the largest of the column) and "share" (drawn against 1).
    """

    look: str = "number"
    show: Callable[[Any], str] = str

    def cell(self, value: Any, largest: float) -> str:
        text = value if isinstance(value, Html) else escape("-" if value is None else self.show(value))
        if self.look == "name":
            return f'<th scope="row">{text}</th>'
        if self.look in ("bar", "share"):
            width = 100 * (value or 0.0) / (largest if self.look == "bar" else 1.0)
            return f'<td class="barcell"><span class="bar" style="width:{width:.1f}%"></span><span>{text}</span></td>'
        look = _LEFT.get(self.look, "")
        if self.look == "state":
            look += f" {escape(str(value))}"
        elif self.look == "bad":
            look = "kind failed" if value else "kind"
        return f'<td class="{look}">{text}</td>' if look else f"<td>{text}</td>"


#: By the names that columns give.
_FORMATS = {
    **{look: Format(look) for look in ("name", "text", "words", "state", "remark", "number")},
    "count": Format(show="{:,}".format),
    "some": Format(show=_show_some),
    "bad": Format("bad", _show_some),
    "digits": Format(show="{:.6g}".format),
    "seconds": Format(show=format_seconds),
    "seconds bar": Format("bar", format_seconds),
    "micros": Format(show=show_micros),
    "micros bar": Format("bar", show_micros),
    "bytes": Format(show=format_bytes),
    "percent": Format(show=show_percent),  #: of a share
    "share": Format("share", show_percent),
    "%": Format(show="{:.0f} %".format),
    "exact %": Format(show="{:.2f} %".format),
}

#: Its head, where in a line its value is (a key, an attribute, a place or a function of the line), and its format.
Column = tuple[str, "str | int | Callable[[Any], Any]", str]


def _value(line: Any, where: Any) -> Any:
    if callable(where):
        return where(line)
    return line[where] if isinstance(where, int) or isinstance(line, Mapping) else getattr(line, where)


def table(
    lines: Iterable[Any],
    columns: Sequence[Column],
    *,
    name: str = "",
    most: int = MOST_LINES,
    total: int | None = None,
    things: str = "lines",
) -> str:
    """Write a table, and how many lines it does not show; ``total`` counts also those that are not in ``lines``."""
    every = list(lines)
    left_out = (len(every) if total is None else total) - len(every[:most])
    formats = [_FORMATS[form] for _, _, form in columns]
    rows = [[_value(line, where) for _, where, _ in columns] for line in every[:most]]
    largest = [
        max((row[place] or 0.0 for row in rows), default=0.0) or 1.0 if form.look == "bar" else 1.0
        for place, form in enumerate(formats)
    ]
    lefts = [" class=left" if form.look in _LEFT else "" for form in formats]
    heads = "".join(
        f'<th scope="col"{left}>{escape(head)}</th>' for left, (head, _, _) in zip(lefts, columns, strict=True)
    )
    body = "".join(f"<tr>{''.join(map(Format.cell, formats, row, largest))}</tr>" for row in rows)
    kind = f' class="{name}"' if name else ""
    return (
        f'<div class="scroll" tabindex="0"><table{kind}><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'
        f"{_more(left_out, things)}"
    )


def _more(count: int, things: str) -> str:
    return hint(f"and {count:,} more {things}") if count > 0 else ""


def hint(text: str) -> str:
    return f'<p class="hint">{escape(text)}</p>' if text else ""


def heading(text: str) -> str:
    return f"<h3>{escape(text)}</h3>"


def listed(items: Sequence[str], things: str = "lines", most: int = MOST_LINES) -> str:
    lines = "".join(f"<li>{escape(item)}</li>" for item in items[:most])
    return f"<ul>{lines}</ul>{_more(len(items) - most, things)}"


def details(summary: str, content: str, *, opened: bool = False, name: str = "") -> str:
    kind = f' class="{name}"' if name else ""
    return f"<details{kind}{' open' if opened else ''}><summary>{summary}</summary>{content}</details>"


def tiles(numbers: Iterable[tuple[str, ...]], name: str = "tiles") -> str:
    """Write numbers that are looked for first: of each the value, what it is, and perhaps a remark."""
    parts = []
    for value, label, *remarks in numbers:
        below = "".join(f'<span class="more">{escape(remark)}</span>' for remark in remarks if remark)
        parts.append(
            f'<div class="tile"><span class="value">{escape(value)}</span>'
            f'<span class="label">{escape(label)}</span>{below}</div>'
        )
    return f'<div class="{name}">{"".join(parts)}</div>'


def verdict(state: str, headline: str, words: str) -> str:
    return f'<p class="verdict {escape(state)}"><strong>{escape(headline)}</strong> {escape(words)}</p>'


def facts(value: Any, name: str = "") -> str:
    if isinstance(value, dict):
        items = "".join(
            f"<dt>{escape(str(key))}</dt><dd>{facts(item, str(key))}</dd>"
            for key, item in list(value.items())[:MOST_LINES]
        )
        return f"<dl>{items}</dl>" if items else ""
    if isinstance(value, list):
        if all(isinstance(item, str | int | float) for item in value):
            return escape(", ".join(map(str, value[:MOST_LINES])))
        return "".join(f'<div class="fact">{facts(item)}</div>' for item in value[:MOST_LINES])
    if name in ("memory", "bytes") and isinstance(value, int):
        return escape(format_bytes(value, binary=name == "memory"))
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    return escape("-" if value is None else str(value))
