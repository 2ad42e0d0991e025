"""What can be said of a run that left no result: its manifest and its log are all there is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from windrow.watch.report.outputs import is_data
from windrow.watch.report.plain_data import file_name, pathless, strict, without_paths

if TYPE_CHECKING:
    from collections.abc import Iterable

    from windrow.watch.readlog import Log

#: Lines of the table of files; a page is to be read, and the result has everything.
MOST_FILES = 500

_NOTHING = (
    "steps", "order", "ordering", "decisions", "notes", "guards", "problems", "histograms", "histogram_notes",
    "values", "saved",
)  # fmt: skip


def unfinished_data(manifest: Mapping[str, Any], log: Log | None) -> dict[str, Any]:
    """Say what a page shows of such a run: strict JSON, without paths."""
    inputs = _inputs(manifest)
    found = _rows_by_input(log)
    done, total = (sum(counts) for counts in zip(*found.values(), strict=True)) if found else (0, 0)
    named = _mapping(manifest, "datasets")
    datasets = {one["dataset"]: _mapping(named, one["dataset"]) for one in inputs}
    datasets |= {name: _mapping(named, name) for name in named}
    keep = frozenset(datasets)
    headline, verdict = _ending(manifest, log, keep)
    chosen, environment = _mapping(manifest, "options"), _mapping(manifest, "environment")
    lines = []
    for number, one in enumerate(inputs):
        finished, known = found.get(number, (0, 0))
        lines += [
            (one["label"], one["dataset"], "done", finished),
            (one["label"], one["dataset"], "missing", known - finished),
        ]
    unopened = len(inputs) - len(found.keys() & range(len(inputs)))
    never = f"{unopened:,} of {len(inputs):,} files were not opened; " if unopened else ""
    plain: dict[str, Any] = strict(
        {
            "windrow": str(manifest.get("windrow", "of unknown version")),
            "name": str(manifest.get("pipeline") or "unnamed run"),
            "state": "unfinished",
            "headline": headline,
            "verdict": f"{verdict} In the log, {done:,} rows are finished of {total:,} in the files "
            f"that were opened; {never}there are no outputs and no cutflow.",
            "rows": {"total": total, "done": done, "failed": 0, "missing": total - done},
            "seconds": 0.0 if log is None else log.span,
            "bytes_read": 0 if log is None else int(log.attempts.read.sum()),
            "engine": str(chosen.get("engine", "")),
            "workers": chosen.get("workers") if isinstance(chosen.get("workers"), int) else 0,
            "datasets": [
                {"name": name, "is_data": is_data(metadata), "metadata": metadata}
                for name, metadata in datasets.items()
            ],
            "inputs": inputs,
            "cutflow": {},
            "nminus1": {},
            "problems_total": 0,
            "values_total": 0,
            **file_lines(lines),
            **{name: [] for name in _NOTHING},
            "environment": pathless({**manifest_facts(manifest), **environment}, keep),
        }
    )
    return plain


def manifest_facts(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a manifest knows and a result does not: when the run was, and of which commit."""
    return {name: manifest[name] for name in ("started", "ended", "commit") if manifest.get(name)}


def file_lines(entries: Iterable[tuple[str, str, str, int]]) -> dict[str, Any]:
    """Add up (file, dataset, state, rows) by file; what is not done comes first."""
    files: dict[tuple[str, str], dict[str, int]] = {}
    for label, dataset, state, rows in entries:
        counts = files.setdefault((label, dataset), {"done": 0, "failed": 0, "missing": 0})
        counts[state] += rows
    lines = [{"file": file_name(label), "dataset": dataset, **counts} for (label, dataset), counts in files.items()]
    lines.sort(key=lambda line: not (line["failed"] or line["missing"]))
    return {"files": lines[:MOST_FILES], "files_total": len(lines)}


def _ending(manifest: Mapping[str, Any], log: Log | None, keep: frozenset[str]) -> tuple[str, str]:
    ended = None if log is None else log.ended
    if ended is None and manifest.get("state") != "failed":
        return "This run did not end:", "it was killed, or is still going on."
    said = ended or {}
    status = said.get("status", "failed")
    why = str(manifest.get("error") or said.get("reason") or said.get("failure") or "")
    words = {
        "failed": "it failed",
        "cancelled": "it was stopped",
        "complete": "all tasks were done, but what came of them is not here",
    }.get(status, f"its state is {status}")
    words = f"{words}: {why}" if why else words
    return "This run ended without a result:", without_paths(words.rstrip(".") + ".", keep)


def _rows_by_input(log: Log | None) -> dict[int, tuple[int, int]]:
    """Return by input how many rows were finished and how many it has, as far as the log knows."""
    if log is None:
        return {}
    done: dict[int, int] = {}
    attempts = log.attempts
    counted = attempts.done & (attempts.input >= 0)
    for source, rows in zip(attempts.input[counted].tolist(), attempts.rows[counted].tolist(), strict=True):
        done[source] = done.get(source, 0) + rows
    known = {number: int(line["rows"]) for number, line in log.inputs.items() if isinstance(line.get("rows"), int)}
    return {source: (done.get(source, 0), max(known.get(source, 0), done.get(source, 0))) for source in {*done, *known}}


def _inputs(manifest: Mapping[str, Any]) -> list[dict[str, str]]:
    listed = manifest.get("inputs")
    if not isinstance(listed, list):
        return []
    return [
        {"label": file_name(str(item.get("file", f"input {number}"))), "dataset": str(item.get("dataset", "unknown"))}
        for number, item in enumerate(listed)
        if isinstance(item, Mapping)
    ]


def _mapping(manifest: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = manifest.get(name)
    return dict(found) if isinstance(found, Mapping) else {}
