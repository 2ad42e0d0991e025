"""Pieces of HTML that several sections of a report are made of; everything escaped unless it is HTML already."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

__all__ = ["hint", "listed", "more", "share_bar", "table", "tile", "unknown"]


def table(heads: Sequence[str], rows: Iterable[str], *, left: int | Collection[int], name: str = "") -> str:
    """Write a table of rows that are HTML; ``left`` says which columns, or how many, begin at the left."""
    lefts = range(left) if isinstance(left, int) else left
    cells = "".join(
        f'<th scope="col"{" class=left" if number in lefts else ""}>{head}</th>' for number, head in enumerate(heads)
    )
    kind = f' class="{name}"' if name else ""
    return (
        f'<div class="scroll" tabindex="0"><table{kind}><thead><tr>{cells}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def tile(value: str, label: str, title: str = "") -> str:
    """Write a number that is looked for first."""
    below = f'<span class="more">{escape(title)}</span>' if title else ""
    return (
        f'<div class="tile"><span class="value">{escape(value)}</span>'
        f'<span class="label">{escape(label)}</span>{below}</div>'
    )


def share_bar(label: str, shares: Iterable[tuple[str, str, str, float]]) -> str:
    """Draw what a whole is made of: of each part the look, what it is, what that means, and its share."""
    parts = list(shares)
    bars = "".join(
        f'<span class="{look}" style="flex-grow:{share:.4f}" title="{why}"></span>' for look, _, why, share in parts
    )
    words = "".join(
        f'<li class="{look}" title="{why}">{what} <b>{100 * share:.0f} %</b></li>' for look, what, why, share in parts
    )
    return (
        f'<div class="shares"><span class="label">{label}</span>'
        f'<div class="sharebar" aria-hidden="true">{bars}</div><ul>{words}</ul></div>'
    )


def listed(items: Iterable[str]) -> str:
    """Write texts one below the other."""
    return "<ul>" + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>"


def more(count: int, things: str) -> str:
    """Say how many lines were left out."""
    return f'<p class="hint">and {count:,} more {things}</p>' if count > 0 else ""


def hint(text: str) -> str:
    """Write a remark; ``text`` is HTML already."""
    return f'<p class="hint">{text}</p>'


def unknown(data: Mapping[str, Any]) -> str:
    """Say why a section has nothing, where the run left no result."""
    return "Not known, as the run left no result." if data["state"] == "unfinished" else ""
