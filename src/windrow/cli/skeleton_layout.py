"""How the text of a skeleton is laid out, so that formatters leave it as it is.

Lines keep to the shortest usual width. What is longer goes one part to a line with a comma at the end, which
formatters of any width respect; what cannot have such a comma has to be short.
"""

from __future__ import annotations

import keyword
import textwrap
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


#: The default of ruff and black; projects choose longer lines rather than shorter ones.
WIDTH = 88


def is_name(text: str) -> bool:
    """Say whether Python can write it as a name and means the same: some letters it replaces."""
    return text.isidentifier() and not keyword.iskeyword(text) and unicodedata.normalize("NFKC", text) == text


def as_name(text: str) -> str:
    """Return the letters and digits of a text with ``_`` between its words; may begin with a digit."""
    normal = unicodedata.normalize("NFKC", text)
    letters = [letter if f"_{letter}".isidentifier() else " " for letter in normal]
    return "_".join("".join(letters).split()).strip("_")


def quoted(text: str) -> str:
    """Write a string as the formatter would: in double quotes."""
    inner = repr(text)[1:-1]
    if repr(text)[0] == "'":
        inner = inner.replace('"', '\\"')
    return f'"{inner}"'


def bracketed(opening: str, parts: Sequence[str], closing: str, *, indent: int = 0) -> str:
    """Write ``opening``, the parts and ``closing`` on one line, or one part to a line.

    ``indent`` is what will stand before and after the text on its line.
    """
    line = f"{opening}{', '.join(parts)}{closing}"
    if "\n" not in line and indent + len(line) <= WIDTH:
        return line
    body = [textwrap.indent(f"{part},", "    ") for part in parts]
    return "\n".join([opening, *body, closing])


def import_lines(module: str, names: Sequence[str]) -> str:
    """Write the import of names from a module, in the order of import sorters."""
    line = f"from {module} import {', '.join(sorted(names, key=_sorting))}"
    if len(line) <= WIDTH:
        return line
    return bracketed(f"from {module} import (", sorted(names, key=_sorting), ")")


def _sorting(name: str) -> tuple[int, str]:
    """Constants, classes, functions."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)
