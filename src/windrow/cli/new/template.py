"""Template files of ``windrow new``, with ``FILL_name`` where a value goes: they stay Python that a linter can read."""

from __future__ import annotations

import re
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

TEMPLATES = Path(__file__).parent / "templates"
#: What stands between functions; what stands between two of these is a paragraph.
GAP = "\n\n\n"
#: Imports that only some paragraphs need, and the name that shows it.
IMPORTS = {
    "import awkward as ak\n": "ak",
    "import numpy as np\n": "np",
    "import windrow as wr\n": "wr",
    "from hist import Hist\n": "Hist",
}


class _Fill(Template):
    delimiter = "FILL_"


def fill(file: str, values: Mapping[str, str | None]) -> str:
    """Fill a template; a paragraph is left out if one of its values is None or missing."""
    text = (TEMPLATES / file).read_text(encoding="utf-8")
    paragraphs = [_Fill(part) for part in text.split(GAP)]
    given = [part for part in paragraphs if all(values.get(name) is not None for name in part.get_identifiers())]
    text = GAP.join(part.substitute(values) for part in given)
    for line, name in IMPORTS.items():
        if not re.search(rf"\b{name}\.", text):
            text = text.replace(line, "")
    return text


def fill_directory(kind: str, name: str, values: Mapping[str, str | None]) -> dict[str, str]:
    files = sorted(path.name for path in (TEMPLATES / kind).iterdir() if path.is_file())
    return {file.replace("analysis", name): fill(f"{kind}/{file}", {"name": name, **values}) for file in files}
