"""Reports of runs: from a result, or from what a killed run left, to a page and a trace.

``report_data`` says what a page has to know, as strict JSON; ``windrow.watch`` makes the page.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windrow import __version__
from windrow.errors import UsageError
from windrow.pipeline.cutflow.table import Cutflow
from windrow.pipeline.ordering.summary import cost_share, how_decided, is_moved
from windrow.pipeline.results.ledger import Entry, Ledger
from windrow.pipeline.results.result import Result
from windrow.store.rundir import EVENTS, MANIFEST, REPORT, RESULT, TRACE, manifest_in
from windrow.watch.environment import environment
from windrow.watch.report.outputs import drawn_histograms, is_data, said_values
from windrow.watch.report.page import report_places, write_text
from windrow.watch.report.plain_data import file_name, pathless, strict, without_paths

if TYPE_CHECKING:
    from windrow.watch.readlog import Log

#: Lines of tables; a page is to be read, and the result has everything.
MOST_FILES = 500
MOST_PROBLEMS = 200
MOST_VALUES = 200


def write_report(result: Result, path: Any = None) -> Path:
    """Write the page and, beside it, the trace of a run; return where the page is."""
    rundir = None if result.rundir is None else Path(result.rundir)
    page, trace = report_places(rundir, path, REPORT, TRACE)
    data = report_data(result)
    if rundir is not None:
        data["environment"] = {**_facts(manifest_in(rundir)), **data["environment"]}
    elif not result.environment:
        # Only run directories keep it; what is seen now says so.
        now = {"seen": "when this page was written, not kept with the run", **environment()}
        data["environment"] = {**now, **data["environment"]}
    return _write(data, _log_of(rundir, result.log), page, trace)


def report_rundir(
    rundir: Path, page: Path | None = None, trace: Path | None = None
) -> tuple[Path, Path | None, bool, str]:
    """Write the report of a run directory; return page, trace (None without a log), whether it is complete, how it ended."""
    if not rundir.is_dir():
        raise UsageError(f"no run directory {rundir}")
    log = _log_of(rundir, None)
    if (rundir / RESULT).exists():
        from windrow.pipeline.results.load import load

        data = report_data(load(rundir))
        data["environment"] = {**_facts(manifest_in(rundir)), **data["environment"]}
    elif log is None and not (rundir / MANIFEST).exists():
        raise UsageError(
            f"{rundir} is not the directory of a run: it has neither {RESULT} nor {EVENTS}; "
            "a run with rundir= (or --rundir) writes them"
        )
    else:
        data = unfinished_data(manifest_in(rundir), log)
    own_page, own_trace = report_places(rundir, page, REPORT, TRACE)
    trace = trace or own_trace
    _write(data, log, own_page, trace)
    words = f"{data['headline']} {data['verdict']}"
    return own_page, None if log is None else trace, data["state"] == "complete", words


def report_data(result: Result) -> dict[str, Any]:
    """Say what a page shows of a result: strict JSON, without paths."""
    keep = frozenset(result.datasets)
    ledger = result.ledger
    histograms, histogram_notes = drawn_histograms(result.outputs)
    values = said_values(result.outputs)
    state = "interrupted" if result.interrupted else "complete" if result.complete else "incomplete"
    absent = [f"output {name} has no value: {why}" for name, why in result.reasons_absent.items()]
    data = {
        "windrow": __version__,
        "name": result.name,
        "state": state,
        "headline": f"{state.capitalize()}:",
        "verdict": f"{ledger.summary()}.",
        "rows": {name: getattr(ledger, name) for name in ("total", "done", "failed", "missing")},
        "seconds": result.seconds,
        "account": result.account,
        "tail_s": result.tail_s,
        "predicted": result.predicted,
        "memory": {name: one for name, one in result.memory.items() if one["limited"]},
        "bytes_read": result.bytes_read,
        "engine": result.engine,
        "workers": result.workers,
        "datasets": [
            {"name": name, "is_data": is_data(metadata), "metadata": pathless(metadata, keep)}
            for name, metadata in result.datasets.items()
        ],
        "inputs": _inputs(result),
        "cutflow": result.cutflow.as_dict(),
        "nminus1": result.nminus1.as_dict(),
        "steps": [{name: getattr(step, name) for name in step.__slots__} for step in result.steps.values()],
        "order": result.order,
        "ordering": [_ordering(dataset, result) for dataset in result.ordering],
        "decisions": pathless(result.decisions, keep),
        "notes": pathless([*result.notes, *absent], keep),
        "guards": result.guards,
        "problems": [
            {
                "file": file_name(entry.file),
                "dataset": entry.dataset,
                "state": entry.state,
                "rows": "all, never opened" if entry.stop is None else f"{entry.start:,} to {entry.stop:,}",
                "reason": without_paths(entry.reason, keep),
            }
            for entry in ledger.problems[:MOST_PROBLEMS]
        ],
        "problems_total": len(ledger.problems),
        **_file_lines(ledger),
        "histograms": histograms,
        "histogram_notes": pathless(histogram_notes, keep),
        "values": pathless(values[:MOST_VALUES], keep),
        "values_total": len(values),
        "saved": pathless(result.saved, keep),
        "environment": {**pathless(result.environment, keep), "seed": result.seed},
    }
    plain: dict[str, Any] = strict(data)
    return plain


def _file_lines(ledger: Ledger) -> dict[str, Any]:
    """Add up the rows of the ledger by file; what is not done comes first."""
    files: dict[tuple[str, str], dict[str, int]] = {}
    for entry in ledger.entries:
        counts = files.setdefault((entry.file, entry.dataset), {"done": 0, "failed": 0, "missing": 0})
        counts[entry.state] += entry.rows
    lines = [{"file": file_name(label), "dataset": dataset, **counts} for (label, dataset), counts in files.items()]
    lines.sort(key=lambda line: not (line["failed"] or line["missing"]))
    return {"files": lines[:MOST_FILES], "files_total": len(lines)}


def _ordering(dataset: str, result: Result) -> dict[str, Any]:
    """Say how the order of a dataset came about; without steps where nothing was decided about it."""
    told = result.ordering[dataset]
    issued = [order for mine, order, _ in result.order if mine == dataset]
    data = {
        "dataset": dataset,
        "fixed": told.get("fixed", ""),
        "why": told.get("why", ""),
        "steps": [],
        "checkpoints": told["checkpoints"],
        "planning_s": told["planning_s"],
        "began": issued[0] if issued else None,
        "ended": issued[-1] if issued else None,
    }
    if "steps" not in told:
        return data
    return {
        **data,
        "words": how_decided(told),
        "moved": is_moved(told),
        "share": cost_share(told),
        "looked": told["looked"],
        "saved": told["saved"],
        "steps": told["steps"],
    }


def _inputs(result: Result) -> list[dict[str, str]]:
    found = getattr(result.source, "inputs", None)
    if found is not None:
        return [{"label": file_name(item.label), "dataset": item.dataset} for item in found]
    # Entries come input by input, which is enough where no file stands in the fileset twice.
    pairs = dict.fromkeys((entry.file, entry.dataset) for entry in result.ledger.entries)
    return [{"label": file_name(label), "dataset": dataset} for label, dataset in pairs]


def _log_of(rundir: Path | None, kept: str | None) -> Log | None:
    from windrow.watch.readlog import read_log

    if rundir is not None and (rundir / EVENTS).exists():
        with (rundir / EVENTS).open(encoding="utf-8", errors="replace") as lines:
            return read_log(lines)
    return None if kept is None else read_log(kept.splitlines())


def _facts(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a manifest knows and a result does not: when the run was, and of which commit."""
    return {name: manifest[name] for name in ("started", "ended", "commit") if manifest.get(name)}


def _write(data: dict[str, Any], log: Log | None, page: Path, trace: Path) -> Path:
    from windrow.watch.report.run import run_page
    from windrow.watch.trace import trace_text

    write_text(page, run_page(data, log))
    if log is not None:
        labels = {number: one["label"] for number, one in enumerate(data["inputs"])}
        write_text(trace, trace_text(log, data["name"], lambda number: labels.get(number, "")))
    return page


# -- a run that left no result ----------------------------------------------------------------------


def unfinished_data(manifest: Mapping[str, Any], log: Log | None) -> dict[str, Any]:
    """Say what a page shows of such a run: as of a result whose ledger is what the manifest and the log tell."""
    inputs = [(str(one["file"]), str(one["dataset"])) for one in manifest.get("inputs") or ()]
    named = manifest.get("datasets") or {}
    chosen = manifest.get("options") or {}
    workers = chosen.get("workers")
    finished, known = _rows_by_input(log)
    entries = []
    for number in dict.fromkeys([*range(len(inputs)), *known]):
        label, dataset = inputs[number] if number < len(inputs) else (f"input {number}", "unknown")
        done = finished[number]
        entries.append(Entry(label, dataset, 0, done, "done"))
        entries.append(Entry(label, dataset, done, max(known[number], done) if number in known else None, "missing"))
    result = Result(
        name=str(manifest.get("pipeline") or "unnamed run"),
        outputs={}, output_names=(), cutflow=Cutflow({}), ledger=Ledger(tuple(entries)), steps={},
        order=(), decisions=(), notes=(), guards=(), reads=[],
        bytes_read=0 if log is None else int(log.attempts.read.sum()),
        seconds=0.0 if log is None else log.span,
        engine=str(chosen.get("engine", "")),
        workers=workers if isinstance(workers, int) else 0,
        seed=0,
        datasets={name: named.get(name, {}) for name in dict.fromkeys([*(dataset for _, dataset in inputs), *named])},
    )  # fmt: skip
    headline, verdict = _ending(manifest, log, frozenset(result.datasets))
    unopened = len(inputs) - len(known.keys() & range(len(inputs)))
    never = f"{unopened:,} of {len(inputs):,} files were not opened; " if unopened else ""
    ledger = result.ledger
    return {
        **report_data(result),
        "windrow": str(manifest.get("windrow", "of unknown version")),
        "state": "unfinished",
        "headline": headline,
        "verdict": f"{verdict} In the log, {ledger.done:,} rows are finished of {ledger.total:,} in the files "
        f"that were opened; {never}there are no outputs and no cutflow.",
        "inputs": strict([{"label": file_name(label), "dataset": dataset} for label, dataset in inputs]),
        # Which rows are missing is not known, only how many.
        "problems": [],
        "problems_total": 0,
        "environment": strict(pathless({**_facts(manifest), **(manifest.get("environment") or {})}, result.datasets)),
    }


def _rows_by_input(log: Log | None) -> tuple[Counter[int], dict[int, int]]:
    """Count by input the rows that were finished, and those it has, as far as the log knows."""
    finished: Counter[int] = Counter()
    if log is None:
        return finished, {}
    counted = log.attempts.done & (log.attempts.input >= 0)
    for number, rows in zip(log.attempts.input[counted].tolist(), log.attempts.rows[counted].tolist(), strict=True):
        finished[number] += rows
    return finished, {**finished, **{number: int(line["rows"]) for number, line in log.inputs.items()}}


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
