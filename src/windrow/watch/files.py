"""Files of reports: where they go, and that they are either complete or as they were before."""

from __future__ import annotations

from pathlib import Path
from secrets import token_hex
from typing import Any

from windrow.errors import UsageError
from windrow.store.atomic_write import write_whole


def report_places(rundir: Path | None, path: Any, page_name: str, trace_name: str) -> tuple[Path, Path]:
    """Say where a page and its trace go: where the user says, else into the run directory under these names."""
    if path is None and rundir is not None:
        return rundir / page_name, rundir / trace_name
    page = Path(page_name) if path is None else Path(path)
    if page.is_dir():
        page = page / page_name
    if not page.parent.is_dir():
        raise UsageError(f"the report cannot be written to {page}: no directory {page.parent}")
    return page, page.with_name(f"{page.stem}.trace.json")


def write_text(path: Path, text: str) -> None:
    """Write a file that is complete or as it was before; a device or pipe is written to as it is."""
    if path.exists() and not path.is_file():
        path.write_text(text)
    else:
        # A name that nobody can have taken: two who write at once would mix their text.
        part = path.with_name(f".{token_hex(8)}.part")
        write_whole(path, [text.encode()], part=part, sync=False, mode=0o666)
