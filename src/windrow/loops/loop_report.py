"""The report of a loop: chunks over time, idle workers, steals, and why it ran as it did."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windrow.place.loop_trace import LoopTrace
from windrow.units import format_seconds

if TYPE_CHECKING:
    from os import PathLike


@dataclass(slots=True)
class LoopReport:
    """What became of a loop; give one as ``report=`` to have it filled in."""

    rows: int = 0
    workers: int = 1
    scheme: str = ""
    engine: str = ""
    decisions: list[str] = field(default_factory=list)
    trace: LoopTrace = field(default_factory=lambda: LoopTrace(1))
    #: seconds until the first row, for looking at the kernel, for compiling it, for the rows, and in all
    phases: dict[str, float] = field(default_factory=dict)

    @property
    def chunks(self) -> list[int]:
        """Rows of the chunks, in the order of the rows."""
        return [one.stop - one.start for one in sorted(self.trace.chunks, key=lambda one: one.start)]

    def explain(self) -> str:
        """Say how the loop ran, and why."""
        total = self.phases.get("total_seconds", 0.0)
        lines = [
            f"{self.rows:,} rows in {format_seconds(total)}, {self.engine}, {_counted(self.trace.chunks, 'chunk')} by {self.scheme}"
        ]
        lines += [f"- {text}" for text in self.decisions]
        busy, idle = self.trace.busy(), self.trace.idle()
        for worker in range(self.trace.workers if len(self.trace.chunks) > 1 else 0):
            mine = [one for one in self.trace.chunks if one.worker == worker]
            stolen = sum(one.stolen > 0 for one in mine)
            text = f"worker {worker}: {_counted(mine, 'chunk')}, {format_seconds(busy[worker])} in rows"
            text += f", {format_seconds(idle[worker])} idle at the end"
            lines.append(f"  {text}{f', {stolen} stolen' if stolen else ''}")
        return "\n".join(lines)

    def timing(self) -> str:
        """Give the phases as DAPHNE's ``--timing`` prints them."""
        return json.dumps({name: round(seconds, 7) for name, seconds in self.phases.items()})

    def to_json(self) -> dict[str, Any]:
        """Give all of it as plain data."""
        return {
            "rows": self.rows,
            "workers": self.workers,
            "scheme": self.scheme,
            "engine": self.engine,
            "decisions": list(self.decisions),
            "phases": dict(self.phases),
            "steals": self.trace.steals,
            "idle_s": self.trace.idle(),
            "chunks": [one._asdict() for one in self.trace.chunks],
        }

    def plot(self, file: str | PathLike[str]) -> None:
        """Draw chunk sizes and who ran which chunk when, as SVG."""
        from windrow.loops.loop_drawing import draw_loop

        title = f"{self.rows:,} rows, {self.workers} workers, {self.scheme}"
        Path(file).write_text(draw_loop(self.trace, title), encoding="utf-8")


def _counted(things: Sequence[Any], name: str) -> str:
    return f"{len(things):,} {name}{'s' * (len(things) != 1)}"
