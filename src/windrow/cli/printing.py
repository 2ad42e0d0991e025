"""What ``windrow run`` prints: the result as text for people, as JSON for programs."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from windrow.errors import UsageError
from windrow.units import format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    from pathlib import Path

    from windrow.pipeline.results.result import Result


#: As many as one reads; the JSON summary has them all.
SHOWN_PROBLEMS = 10


def result_text(result: Result, *, explain: bool = False) -> str:
    parts = [str(tables) for tables in (result.cutflow, result.nminus1) if len(tables)]
    if explain:
        return "\n\n".join([*parts, result.explain()])
    lines = [f"note: {note}" for note in result.notes]
    lines += [
        f"saved {file['path']}: {file['rows']:,} of {file['of']:,} rows, {format_bytes(file['bytes'])}"
        for file in result.saved
    ]
    lines.append(result.ledger.summary())
    lines.append(
        f"{format_count(result.ledger.done)} rows in {format_seconds(result.seconds)}: "
        f"{format_count(result.rows_per_second)} rows/s, {format_bytes(result.bytes_read)} read"
    )
    return "\n\n".join([*parts, "\n".join(lines)])


def incomplete_text(result: Result) -> str:
    how = "interrupted" if result.interrupted else "incomplete"
    problems = result.ledger.problems
    lines = [f"windrow: {how}: {result.ledger.summary()}"]
    lines += [f"  {entry}" for entry in problems[:SHOWN_PROBLEMS]]
    if len(problems) > SHOWN_PROBLEMS:
        lines.append(f"  and {len(problems) - SHOWN_PROBLEMS} more ranges (--json lists them all)")
    return "\n".join(lines)


def check_writable(option: str, path: Path) -> None:
    """Refuse to write where it would fail, before the run and not after it."""
    if not path.parent.is_dir():
        raise UsageError(f"{option} {path}: there is no directory {path.parent}")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(f"{option} {path}: cannot be written")


def check_json(path: Path) -> None:
    """Refuse to write where it would fail or destroy something, before the run and not after it."""
    check_writable("--json", path)
    # "--json analysis.py" is an easy slip where the file name may be left out.
    if path.is_file() and path.stat().st_size and not _is_summary(path):
        raise UsageError(
            f"--json {path}: the file exists and is no summary of an earlier run; "
            "name another one, or write --json=- for standard output"
        )


def _is_summary(path: Path) -> bool:
    try:
        found = json.loads(path.read_bytes())
    except ValueError:
        return False
    return isinstance(found, dict) and {"windrow", "pipeline", "exit_code"} <= found.keys()
