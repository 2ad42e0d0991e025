"""What became of a row, in words: one story for each region, as text and as HTML."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from windrow.pipeline.inspect.format_value import short

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Line:
    """One cut of a region and what it says of the row."""

    cut: str
    inverted: bool
    verdict: str  #: passed, failed, None, does not apply, cannot be computed
    reached: bool  #: whether a run would ask; not if an earlier cut removed the row
    reason: str  #: what it read, or why there is no answer
    behind: str | None  #: the cut that removed the row before

    @property
    def name(self) -> str:
        """The cut as a region writes it."""
        return f"!{self.cut}" if self.inverted else self.cut

    def words(self) -> tuple[str, str]:
        """Return the verdict and what there is to say about it."""
        if self.verdict == "cannot be computed":
            behind = f"; it runs behind {self.behind}" if self.behind is not None else ""
            return "—" if not self.reached else "raises", (f"cannot be computed for this row: {self.reason}{behind}")
        verdict = "n/a" if self.verdict == "does not apply" else self.verdict
        return (verdict if self.reached else f"({verdict})"), self.reason


@dataclass(frozen=True, slots=True)
class Story:
    """What became of the row in one region."""

    region: str
    removed_by: str | None  #: the first cut that removed it
    stops_at: str | None  #: a step that raises for it, though no cut removes it before: a run stops there
    lines: tuple[Line, ...]

    @property
    def inside(self) -> bool:
        """Whether the row is in the region."""
        return self.removed_by is None and self.stops_at is None

    def verdict(self) -> str:
        """Say it in a few words."""
        if self.stops_at is not None:
            return f"{self.stops_at} raises for this row, so a run stops here"
        if self.removed_by is None:
            return "in the region"
        line = next(line for line in self.lines if line.cut == self.removed_by)
        none = ", which is None for it" if line.verdict == "None" else ""
        return f"removed by {line.name}{none}"


@dataclass(frozen=True, slots=True)
class WeightLine:
    """One weight of the row; ``value`` None where there is none."""

    name: str
    value: float | None
    text: str
    applies: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """What became of one row; ``str()`` of it is the text."""

    pipeline: str
    file: str
    row: int
    dataset: str
    identity: Mapping[str, Any]
    regions: Mapping[str, Story]
    weights: tuple[WeightLine, ...]
    outside: bool  #: the fileset restricts the file to other rows

    @property
    def weight(self) -> float | None:
        """The product of the weights that apply; None if one cannot be computed."""
        if any(weight.value is None and weight.applies for weight in self.weights):
            return None
        return math.prod(weight.value for weight in self.weights if weight.value is not None)

    @property
    def title(self) -> str:
        """Which row it is."""
        known = "".join(f", {name} {short(value)}" for name, value in self.identity.items())
        return f"{self.pipeline}: row {self.row} of {self.file} (dataset {self.dataset}{known})"

    def __str__(self) -> str:
        lines = [self.title, *self._notes()]
        for story in self.regions.values():
            lines += ["", f"region {story.region}: {story.verdict()}"]
            words = [line.words() for line in story.lines]
            names = max((len(line.name) for line in story.lines), default=0)
            verdicts = max((len(verdict) for verdict, _ in words), default=0)
            for line, (verdict, reason) in zip(story.lines, words, strict=True):
                mark = ">" if line.reached and line.cut == story.removed_by else " "
                text = f"{mark} {line.name.ljust(names)}  {verdict.ljust(verdicts)}  {reason}"
                lines.append(text.rstrip())
        if self.weights:
            width = max(len(weight.name) for weight in self.weights)
            lines += ["", "weights"]
            lines += [f"  {w.name.ljust(width)}  {_weight(w)}".rstrip() for w in self.weights]
            if self.weight is not None and len(self.weights) > 1:
                lines.append(f"  {'product'.ljust(width)}  {short(self.weight)}")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        parts = [f"<div><strong>{escape(self.title)}</strong>"]
        parts += [f"<div>{escape(note)}</div>" for note in self._notes()]
        for story in self.regions.values():
            head = f"region {story.region}: {story.verdict()}"
            parts.append(f"<table><caption>{escape(head)}</caption><tbody>")
            for line in story.lines:
                verdict, reason = line.words()
                bold = line.reached and line.cut == story.removed_by
                style = ' style="font-weight:bold"' if bold else ""
                cells = "".join(
                    f'<td style="text-align:left">{escape(cell)}</td>' for cell in (line.name, verdict, reason)
                )
                parts.append(f"<tr{style}>{cells}</tr>")
            parts.append("</tbody></table>")
        if self.weights:
            rows = "".join(
                f'<tr><td style="text-align:left">{escape(w.name)}</td>'
                f'<td style="text-align:left">{escape(_weight(w))}</td></tr>'
                for w in self.weights
            )
            parts.append(f"<table><caption>weights</caption><tbody>{rows}</tbody></table>")
        return "".join([*parts, "</div>"])

    def _notes(self) -> list[str]:
        if not self.outside:
            return []
        return ["a run leaves this row out: the fileset restricts the file to other rows"]


def _weight(weight: WeightLine) -> str:
    if weight.value is None:
        return weight.text
    return short(weight.value) + (f" ({weight.text})" if weight.text else "")
