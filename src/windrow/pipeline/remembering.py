"""What a run learned for its order, kept in its directory for the next run there.

It counts only for the same steps, by what they are and not just by name. It is plain JSON, in the manifest: no code runs
when it is read. What cannot be read is no reason not to run.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.core.records import FAILED, NOT_ASKED, PASSED, UNDEFINED, Evidence, StepCost, StepFacts, Terrain, Window
from windrow.pipeline.adapting import Learned
from windrow.pipeline.fingerprints import fingerprint
from windrow.pipeline.situations import fitting
from windrow.store.rundir import MANIFEST

if TYPE_CHECKING:
    from collections.abc import Mapping

    from windrow.pipeline.bind import Definition
    from windrow.pipeline.pipeline import Pipeline

__all__ = ["KEY", "recall", "told"]

KEY = "learned"
#: Windows and patterns that are written down: enough to begin with, and little to read.
WINDOWS, PATTERNS = 4, 512
_LETTERS = {PASSED: "1", FAILED: "0", UNDEFINED: "u", NOT_ASKED: "-"}
_VERDICTS = {letter: verdict for verdict, letter in _LETTERS.items()}


def told(pipeline: Pipeline, definition: Definition) -> dict[str, Any]:
    """Say as plain data what was learned."""
    return {
        "steps": _same_by(definition),
        "guards": sorted(map(list, pipeline.guards)),
        "orders": {name: _learned(one) for name, one in pipeline.learned.items()},
    }


def recall(pipeline: Pipeline, definition: Definition, rundir: Any) -> None:
    """Take over what an earlier run in this directory learned, unless this program knows better."""
    if pipeline.learned or rundir is None:
        return
    try:
        found = json.loads((Path(rundir) / MANIFEST).read_text(encoding="utf-8"))[KEY]
        if found["steps"] != _same_by(definition):
            return
        learned = {name: _of_plain(one) for name, one in found["orders"].items()}
        guards = {(str(step), str(cut)) for step, cut in found["guards"]}
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return
    pipeline.learned.update(learned)
    pipeline.guards.update(fitting(guards, definition))


def _same_by(definition: Definition) -> list[list[Any]]:
    """What an analysis is known by: its steps as they are, in the order in which they are written."""
    steps = definition.steps.values()
    return [[step.name, fingerprint(step), step.barrier, list(step.after)] for step in steps]


def _learned(learned: Learned) -> dict[str, Any]:
    evidence = learned.evidence
    return {
        "order": list(learned.order),
        "steps": {name: list(cost) for name, cost in evidence.steps},
        "probed": {name: list(cost) for name, cost in evidence.probed},
        "terrain": evidence.terrain,
        "windows": [_window(window) for window in evidence.windows[-WINDOWS:] if len(window.rows) <= PATTERNS],
    }


def _window(window: Window) -> dict[str, Any]:
    return {
        "rows": [window.start, window.stop],
        "unit_rows": window.unit_rows,
        "cuts": list(window.cuts),
        "patterns": ["".join(_LETTERS[int(v)] for v in line) for line in window.verdicts],
        "counts": window.rows.tolist(),
    }


def _of_plain(found: Mapping[str, Any]) -> Learned:
    steps, lanes = found["terrain"]
    terrain = Terrain(
        tuple(
            StepFacts(name, kind, tuple(map(int, mine)), tuple((str(column), float(size)) for column, size in columns))
            for name, kind, mine, columns in steps
        ),
        tuple(tuple((str(cut), bool(side)) for cut, side in cuts) for cuts in lanes),
    )
    evidence = Evidence(
        steps=_costs(found["steps"]),
        windows=tuple(_window_of(one) for one in found["windows"]),
        terrain=terrain,
        probed=_costs(found["probed"]),
    )
    return Learned(tuple(map(str, found["order"])), evidence)


def _costs(found: Mapping[str, list[float]]) -> tuple[tuple[str, StepCost], ...]:
    return tuple((str(name), StepCost(*cost)) for name, cost in found.items())  # type: ignore[arg-type]


def _window_of(found: Mapping[str, Any]) -> Window:
    start, stop = found["rows"]
    verdicts = np.array([[_VERDICTS[v] for v in line] for line in found["patterns"]], np.int8)
    counts = np.array(found["counts"], np.int64)
    cuts = tuple(map(str, found["cuts"]))
    if verdicts.shape != (len(counts), len(cuts)):
        raise ValueError("patterns that do not fit the cuts")
    return Window(0, int(start), int(stop), 0, int(found["unit_rows"]), cuts, verdicts, counts)
