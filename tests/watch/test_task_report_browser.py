"""The report of a session in a real browser: nothing goes wrong, every chart is drawn, nothing comes from the network."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

import windrow as wr

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip

CHARTS = ("timeline", "rows", "memory", "waiting")

#: Different colours of a drawing.
COLOURS = """node => {
  const canvas = node.querySelector("canvas");
  if (!canvas || !canvas.width || !canvas.height) return 0;
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  return new Set(new Uint32Array(copy.getImageData(0, 0, canvas.width, canvas.height).data.buffer)).size;
}"""


def missing(reason: str) -> None:
    """Skip, or fail where everything has to be there."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        missing("no chromium on PATH (make test installs it where it may)")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("playwright is not installed")
    with sync_playwright() as play:
        context = play.chromium.launch_persistent_context(
            tmp_path_factory.mktemp("profile"),
            executable_path=found,
            args=list(FLAGS),
            viewport={"width": 1400, "height": 900},
        )
        yield context
        context.close()


@wr.task
def one(x: int) -> int:
    return sum(range(20_000)) * 0 + x


@wr.task(outputs=2)
def halves(x: int) -> Any:
    yield x // 2
    yield x - x // 2


@wr.task
def total(parts: list[int]) -> int:
    return sum(parts)


@pytest.fixture(scope="module")
def session_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("session")
    with wr.Session(engine="threads", workers=2, name="variants", rundir=directory / "run") as session:
        parts = [part for number in range(20) for part in halves(one(number))]
        assert total(parts).result() == sum(range(20))
    return session.report()


def faults(browser: Any, page: Path, **options: Any) -> list[str]:
    """Say what is wrong with a page."""
    from playwright.sync_api import TimeoutError as TooLong

    tab = browser.new_page()
    wrong: list[str] = []
    tab.on("console", lambda m: wrong.append(m.text) if m.type in ("error", "warning") else None)
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("request", lambda r: None if r.url.startswith(("file:", "data:")) else wrong.append(r.url))
    try:
        tab.emulate_media(**options)
        tab.goto(page.as_uri(), wait_until="load")
        if len(tab.locator("body").inner_text().split()) < 20:
            return [*wrong, "the page is blank"]
        try:
            tab.wait_for_selector("html[data-drawn=true]", state="attached", timeout=15_000)
        except TooLong:
            wrong.append("the charts are not drawn")
        for name in CHARTS:
            box = tab.locator(f"#chart-{name}")
            if not box.count() or box.evaluate(COLOURS) < 4:
                wrong.append(f"no chart {name}")
        if tab.locator("#graph svg g").count() != 41:
            wrong.append("the graph does not have all tasks")
        width = tab.evaluate("document.documentElement.scrollWidth")
        if width > 1400:
            wrong.append(f"the page is {width} wide")
        return list(wrong)
    finally:
        tab.close()


def test_the_report_of_a_session_is_whole(browser: Any, session_page: Path) -> None:
    assert faults(browser, session_page) == []
    assert faults(browser, session_page, color_scheme="dark") == []


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("\n</body>", "<script>console.error('loud')</script></body>", "loud"),
        ("\n</body>", "<img src='http://localhost:9/x.png'></body>", "localhost"),
        ("\ndrawWaiting();", "\n", "no chart waiting"),
        ('chart("chart-timeline"', 'void ("chart-timeline"', "no chart timeline"),
    ],
)
def test_the_check_notices(browser: Any, session_page: Path, tmp_path: Path, old: str, new: str, fault: str) -> None:
    text = session_page.read_text()
    assert old in text
    broken = tmp_path / "broken.html"
    broken.write_text(text.replace(old, new))
    assert any(fault in one for one in faults(browser, broken))
