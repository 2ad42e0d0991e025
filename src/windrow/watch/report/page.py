"""The page of a report: sections, data for the scripts, style and charts in one file that needs no network, and where it goes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from windrow.errors import UsageError
from windrow.store.disk import write_whole
from windrow.watch.report.tables import hint, plural

if TYPE_CHECKING:
    from windrow.watch.readlog import Log

#: A part of a page with a place in its menu: its key, its title and its content, which is HTML.
Section = tuple[str, str, str]


def build_page(
    name: str, sections: Sequence[Section], drawn: Mapping[str, Any], scripts: Sequence[str], version: str
) -> str:
    (first, _, summary), *others = sections
    body = [f'<section id="{first}">\n<h1>{escape(name)}</h1>\n{summary}\n</section>']
    body += [f'<section id="{key}">\n<h2>{title}</h2>\n{content}\n</section>' for key, title, content in others]
    # JSON that cannot end the script element it stands in.
    data = json.dumps(drawn, allow_nan=False, separators=(",", ":"))
    data = data.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
    parts = {
        "title": escape(name),
        "style": _page_file("page.css"),
        "menu": "\n".join(f'<a href="#{key}">{title}</a>' for key, title, _ in sections),
        "sections": "\n\n".join(body),
        "version": escape(version),
        "when": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "data": data,
        "charts": _page_script("vendor/echarts.min.js"),
        "script": "\n".join(_page_script(name) for name in ("base.js", *scripts)),
    }
    # All at once: what is put in is not looked at again.
    page = re.sub(r"@@(\w+)@@", lambda match: parts[match[1]], _page_file("page.html"))
    # Scripts are plain ASCII by now. So is the page: it reads the same whatever a server calls it.
    return page.encode("ascii", "xmlcharrefreplace").decode("ascii")


def chart(name: str, label: str, *, small: bool = False) -> str:
    kind = "chart small" if small else "chart"
    return f'<div class="{kind}" id="chart-{name}" role="img" aria-label="{escape(label)}"></div>'


def timeline_section(curves: Mapping[str, str], log: Log | None) -> Section:
    """Make the section of what happened when; ``curves`` are those of throughput, with what is said of them."""
    words = [] if log is not None else ["There is no event log of this run."]
    if log is not None and log.dropped:
        words.append(f"The last {log.dropped:,} events were not kept; a run directory keeps all.")
    if log is not None and log.unreadable:
        words.append(f"{plural(log.unreadable, 'line')} of the log could not be read, as happens when a run is killed.")
    speed = "".join(chart(name, label, small=True) for name, label in curves.items())
    content = (
        f'{hint(" ".join(words))}<div id="timeline-charts">'
        f"<h3>Workers</h3>{chart('timeline', 'What each worker did, over time')}<h3>Throughput</h3>{speed}"
        f"<h3>Memory</h3>{chart('memory', 'Memory over time', small=True)}</div>"
    )
    return "timeline", "Timeline", content


@cache
def _page_script(name: str) -> str:
    """Return a script in which letters beyond ASCII, all of them within strings, are escaped."""
    return re.sub(r"[^\x00-\x7f]", lambda match: f"\\u{ord(match[0]):04x}", _page_file(name))


def _page_file(name: str) -> str:
    return files("windrow.watch").joinpath("page", *name.split("/")).read_text(encoding="utf-8")


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
