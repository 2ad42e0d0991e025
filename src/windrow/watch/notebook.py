"""Progress in a notebook: one output of the cell, drawn again in its place.

Rich would need widgets for that, and leaves empty outputs where there are none. Only imported where IPython is.
"""

from __future__ import annotations

import sys
from html import escape
from importlib import import_module
from typing import Any

from windrow.watch.progress import BAR_FIRST_S, Snapshot, amount, line, speed

__all__ = ["NotebookProgress", "in_notebook"]

#: Every drawing is a message to the browser.
EVERY_S = 0.25


def in_notebook() -> bool:
    """Say whether this process runs the cells of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    # Hosted notebooks have shells of their own, made of this one.
    return any(kind.__name__ == "ZMQInteractiveShell" for kind in type(shell).__mro__)


class NotebookProgress:
    """A bar while the run lasts and one line of text after it; nothing for a short run."""

    first_s, every_s = BAR_FIRST_S, EVERY_S

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, shot: Snapshot) -> None:
        """Draw the bar."""
        known = shot.rows_expected or not shot.estimated
        share = f' max="{max(1, shot.rows_total)}" value="{shot.rows_done + shot.rows_failed}"'
        bar = f'<progress{share if known else ""} style="width:16em"></progress>'
        numbers = escape(f"{amount(shot)}, {speed(shot)}")
        self._draw(shot, f"{escape(shot.name)} {bar} {numbers}")

    def end(self, shot: Snapshot) -> None:
        """Replace the bar, if one was drawn, by how the run ended."""
        if self._handle is not None:
            self._draw(shot, escape(line(shot)))

    def _draw(self, shot: Snapshot, html: str) -> None:
        output = {"text/plain": line(shot), "text/html": f"<div>{html}</div>"}
        if self._handle is None:
            display = import_module("IPython.display").display
            self._handle = display(output, raw=True, display_id=True)
        else:
            self._handle.update(output, raw=True)
