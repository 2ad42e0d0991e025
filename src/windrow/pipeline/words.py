"""A pipeline in words: steps in the written order, what they read, and the regions."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windrow.pipeline.pipeline import Pipeline


def describe(pipeline: Pipeline) -> str:
    """Say what an analysis consists of."""
    definition = pipeline.definition(0)
    lines = [f"pipeline {pipeline.name!r}"]
    for step in definition.steps.values():
        reads = ", ".join(
            read.column + (f" (default {read.default!r})" if read.optional else "") for read in step.reads
        )
        text = f"  {step.kind} {step.name}: reads {reads or 'no column'}"
        if step.when is not None:
            text += f", when {step.when.text}"
        if step.after:
            text += f", after {', '.join(step.after)}"
        lines.append(text)
    for name, cuts in definition.regions.items():
        members = " and ".join(("not " if inverted else "") + cut for cut, inverted in cuts.items())
        lines.append(f"  region {name}: {members or 'all rows'}")
    for save in pipeline.saves:
        rows = "all rows" if save.region is None else f"rows of region {save.region}"
        lines.append(f"  save {save.path}: {rows}, columns {', '.join(save.columns)}")
    lines += [f"  guard: {step} runs after {cut} (learned)" for step, cut in sorted(pipeline.guards)]
    return "\n".join(lines)
