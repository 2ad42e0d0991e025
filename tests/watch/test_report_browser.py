"""The report in a real browser: nothing goes wrong, every chart is drawn, and the switches switch."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hist import Hist

import windrow as wr
from windrow.cli import loading as demo

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip

CHARTS = ("histogram", "timeline", "rows", "read", "memory")

#: Different colours of a drawing, and the share of it that is not the commonest one.
PIXELS = """node => {
  const canvas = node.querySelector("canvas");
  if (!canvas || !canvas.width || !canvas.height) return [0, 0];
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const values = new Uint32Array(copy.getImageData(0, 0, canvas.width, canvas.height).data.buffer);
  const counts = new Map();
  for (const value of values) counts.set(value, (counts.get(value) || 0) + 1);
  return [counts.size, 1 - Math.max(...counts.values()) / values.length];
}"""

WRITTEN = '[data-control="Order of the cuts"] input[value=written]'
EXECUTED = '[data-control="Order of the cuts"] input[value=executed]'


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
    profile = tmp_path_factory.mktemp("profile")
    with sync_playwright() as play:
        context = play.chromium.launch_persistent_context(
            profile, executable_path=found, args=list(FLAGS), viewport={"width": 1400, "height": 900}
        )
        yield context
        context.close()


@pytest.fixture(scope="module")
def demo_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("demo")
    fileset = demo.generated(directory, 10_000)
    result = demo.run_example(fileset, workers=2, progress=False)
    page: Path = result.report(directory / "run.html")
    return page


@contextmanager
def opened(browser: Any, page: Path, **options: Any) -> Iterator[tuple[Any, list[str]]]:
    """Open a page; gives the tab and a list of what went wrong so far."""
    tab = browser.new_page()
    wrong: list[str] = []
    tab.on("console", lambda m: wrong.append(m.text) if m.type in ("error", "warning") else None)
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("request", lambda r: None if r.url.startswith(("file:", "data:")) else wrong.append(r.url))
    try:
        if options:
            tab.emulate_media(**options)
        tab.goto(page.as_uri(), wait_until="load")
        yield tab, wrong
    finally:
        tab.close()


def settled(tab: Any) -> bool:
    """Wait until all charts are drawn."""
    from playwright.sync_api import TimeoutError as TooLong

    try:
        tab.wait_for_selector("html[data-drawn=true]", state="attached", timeout=15_000)
    except TooLong:
        return False
    return True


def faults(browser: Any, page: Path, charts: tuple[str, ...] = CHARTS, boxes: int = 0, **options: Any) -> list[str]:
    """Say what is wrong with a page that should show these charts, and a cutflow to be switched or a graph of boxes."""
    with opened(browser, page, **options) as (tab, found):
        if len(tab.locator("body").inner_text().split()) < 20:
            return [*found, "the page is blank"]
        if not settled(tab):
            found.append("the charts are not drawn")
        for name in charts:
            box = tab.locator(f"#chart-{name}")
            colours, share = box.evaluate(PIXELS) if box.count() else (0, 0.0)
            if colours < 5 or share < 0.005:
                found.append(f"no chart {name}: {colours} colours, {share:.2%} drawn")
        if boxes:
            drawn = tab.locator("#graph svg g").count()
            return found if drawn == boxes else [*found, f"the graph has {drawn} boxes"]
        if tab.locator(WRITTEN).count() != 1:
            return [*found, "no switch for the cutflow"]
        seen = []
        for kind in (WRITTEN, EXECUTED, WRITTEN):
            tab.locator(kind).check(force=True)
            seen.append(tab.locator("#cutflow-table").inner_text())
        if seen[0] == seen[1] or seen[0] != seen[2]:
            found.append("the switch does not switch the table")
        return list(found)


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


def test_the_report_of_a_session_is_whole(browser: Any, tmp_path: Path) -> None:
    with wr.Session(engine="threads", workers=2, name="variants", rundir=tmp_path / "run") as session:
        parts = [part for number in range(20) for part in halves(one(number))]
        assert total(parts).result() == sum(range(20))
    page, charts = session.report(), ("timeline", "rows", "memory")
    assert faults(browser, page, charts, boxes=41) == []
    assert faults(browser, page, charts, boxes=41, color_scheme="dark") == []
    broken = tmp_path / "broken.html"
    broken.write_text(page.read_text().replace('"chart-rows"', '"chart-elsewhere"'))
    assert any("no chart rows" in one for one in faults(browser, broken, charts, boxes=41))
    with opened(browser, page) as (tab, _):
        assert tab.evaluate("document.documentElement.scrollWidth") <= 1400


def test_the_report_of_the_demo_is_whole(browser: Any, demo_page: Path) -> None:
    assert faults(browser, demo_page) == []
    assert faults(browser, demo_page, color_scheme="dark") == []


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("\n</body>", "<script>console.error('loud')</script></body>", "loud"),
        ("\ndrawHistograms();", "\n", "no chart histogram"),
        *(
            pytest.param(*broken, marks=pytest.mark.slow)
            for broken in (
                ("\n</body>", "<script>nobody.defined(this)</script></body>", "nobody"),
                ("\n</body>", "<img src='http://localhost:9/x.png'></body>", "localhost"),
                ('chart("chart-timeline"', 'void ("chart-timeline"', "no chart timeline"),
                ("const lines = table[cutflow.kind];", "const lines = table.executed;", "does not switch"),
            )
        ),
    ],
)
def test_the_test_notices(browser: Any, demo_page: Path, tmp_path: Path, old: str, new: str, fault: str) -> None:
    text = demo_page.read_text()
    assert text.count(old) == 1
    broken = tmp_path / "broken.html"
    if fault == "does not switch":
        text = text.replace('cutflow.kind === "written"', "true")
    broken.write_text(text.replace(old, new))
    assert any(fault in one for one in faults(browser, broken))


def test_a_blank_page_is_noticed(browser: Any, tmp_path: Path) -> None:
    blank = tmp_path / "blank.html"
    blank.write_text("<!doctype html><title>x</title>")
    assert faults(browser, blank) == ["the page is blank"]


def moved_cuts() -> Any:
    """A run whose cuts did not run as written, with every kind of histogram and awkward names."""
    analysis = wr.Pipeline("</script><b>odd & \u00e9")

    @analysis.weight
    def half(x: Any) -> Any:
        return wr.updown(0 * x + 0.5, 0 * x + 0.6, 0 * x + 0.4)

    @analysis.cut
    def low(x: Any) -> Any:
        return x < 2

    @analysis.cut
    def high(x: Any) -> Any:
        return x > -1

    analysis.region("<b>both", "low", "high")
    analysis.region("one", "low")

    @analysis.output(regions="*")
    def spectrum(x: Any, weight: Any) -> Any:
        return Hist.new.Reg(40, -3, 3, name="x").Weight().fill(x, weight=weight)

    @analysis.output(regions="*")
    def others(x: Any) -> Any:
        names = np.where(x > 0, "plus", "minus").tolist()
        return {
            "plane": Hist.new.Reg(20, -3, 3, name="x").Reg(20, 0, 9, name="square").Double().fill(x, x * x),
            "named": Hist.new.StrCat(["minus", "plus"], name="sign").Int64().fill(names),
            "cube": [Hist.new.Reg(5, -3, 3, name="a").Reg(4, -3, 3, name="b").Reg(3, -3, 3, name="c").Double().fill(x, x, x)],
        }  # fmt: skip

    x = np.random.default_rng(1).normal(size=5_000)
    data = {"<b>data</b>": {"x": x}, "</script>": {"x": x[:2_000]}}
    metadata = {"<b>data</b>": {"is_mc": False}, "</script>": {"is_mc": True}}
    source = wr.data.open(data, metadata=metadata)
    return analysis.run(source, order=["high", "low"], progress=False)


def choose(tab: Any, control: str, value: str) -> None:
    """Set a control, whatever it looks like."""
    tab.evaluate(
        """([name, value]) => {
          const box = [...document.querySelectorAll("[data-control]")].find(one => one.dataset.control === name);
          const list = box.querySelector("select");
          if (list) { list.value = value; list.dispatchEvent(new Event("change")); }
          else [...box.querySelectorAll("input")].find(one => one.value === value || one.type === "checkbox").click();
        }""",
        [control, value],
    )


def test_every_view_of_odd_data_is_drawn(browser: Any, tmp_path: Path) -> None:
    page = moved_cuts().report(tmp_path / "odd.html")
    with opened(browser, page) as (tab, wrong):
        assert settled(tab)
        assert tab.locator("h1").inner_text() == "</script><b>odd & \u00e9"
        assert tab.locator("main b:has-text('both')").count() == 0
        views = [
            ("Compare", "datasets"), ("Ratio to", "</script>"), ("logarithmic", ""),
            ("equal areas", ""), ("Compare", "regions"), ("Ratio to", "one"), ("Dataset", "</script>"),
            ("Compare", "variations"), ("Output", "others / plane"), ("Dataset", "<b>data</b>"),
            ("Output", "others / named"), ("Ratio to", "none"), ("Compare", "datasets"),
            ("Ratio to", "</script>"), ("Output", "others / cube / 0 on b"), ("Region", "one"),
        ]  # fmt: skip
        drawings = set()
        for control, value in views:
            choose(tab, control, value)
            tab.wait_for_timeout(60)
            colours, share = tab.locator("#chart-histogram").evaluate(PIXELS)
            assert colours >= 5, (control, value)
            assert share > 0.005, (control, value)
            drawings.add((colours, share))
        assert len(drawings) > len(views) // 2  # they are not all the same picture
        assert wrong == []


def test_a_cutflow_that_was_moved_says_so_and_keys_switch_it(browser: Any, tmp_path: Path) -> None:
    page = moved_cuts().report(tmp_path / "moved.html")
    with opened(browser, page) as (tab, wrong):
        table = tab.locator("#cutflow-table")
        # There is no written order to begin with.
        assert tab.locator(EXECUTED).is_checked()
        names = table.locator("tbody th").all_inner_texts()
        assert names == ["initial", "high", "low"]
        tab.locator(EXECUTED).focus()
        tab.keyboard.press("ArrowLeft")
        assert tab.locator(WRITTEN).is_checked()
        assert "did not run in the written order: half high low" in table.inner_text()
        assert table.locator("table").count() == 0
        tab.keyboard.press("ArrowRight")
        assert table.locator("tbody th").all_inner_texts() == names
        assert wrong == []


def test_a_narrow_page_does_not_scroll_sideways(browser: Any, demo_page: Path) -> None:
    with opened(browser, demo_page) as (tab, wrong):
        for width in (400, 1400):
            tab.set_viewport_size({"width": width, "height": 800})
            tab.wait_for_timeout(100)
            assert tab.evaluate("document.documentElement.scrollWidth") <= width
        assert wrong == []


def test_memory_is_drawn_where_it_was_limited(browser: Any, tmp_path: Path) -> None:
    analysis = wr.Pipeline("limited")
    analysis.output(lambda x: float((np.ones((len(x), 2_000)) * x[:, None]).sum()), name="total")
    result = analysis.run({"x": np.zeros(9_000)}, memory="600 MB", workers=2, progress=False)
    page = result.report(tmp_path / "limited.html")
    for scheme in ("light", "dark"):
        with opened(browser, page, color_scheme=scheme) as (tab, wrong):
            assert settled(tab)
            for name in ("chunk-rows", "chunk-memory"):
                colours, share = tab.locator(f"#chart-{name}").evaluate(PIXELS)
                assert colours >= 5, name
                assert share > 0.005, name
            assert "share of a chunk" in tab.locator("#memory").inner_text()
            assert wrong == []


def test_an_order_is_drawn_and_its_lines_say_what_they_are(browser: Any, tmp_path: Path) -> None:
    result = moved_cuts()
    (dataset, *_), names = result.datasets, result.order[0][1]
    steps = [
        {
            "name": name, "kind": "cut", "place": place, "written_place": len(names) - 1 - place, "alive": 0.5,
            "passes": 0.25, "fixed_s": 1e-6, "row_s": 2e-9, "columns": [], "why": "</td><b>odd",
        }
        for place, name in enumerate(names)
    ]  # fmt: skip
    result.ordering = {
        dataset: {
            "checkpoints": [], "planning_s": 0.1, "steps": steps, "looked": {"windows": 1, "rows": 9, "seconds": 0.1},
            "saved": {"evaluations": 1.0, "seconds": 1.0, "bytes": 0.0},
        }
    }  # fmt: skip
    with opened(browser, result.report(tmp_path / "order.html")) as (tab, wrong):
        assert settled(tab)
        assert tab.locator("#order b").count() == 0
        colours, share = tab.locator("#chart-order-0").evaluate(PIXELS)
        assert colours >= 5
        assert share > 0.005
        # A line says what it is where the pointer rests on it.
        x, y = tab.evaluate("""() => {
          const { instance, node } = CHARTS.find((one) => one.id === "chart-order-0");
          node.scrollIntoView();
          const [left, top] = instance.convertToPixel({ seriesIndex: 0 }, [0, 0]);
          const box = node.getBoundingClientRect();
          return [box.left + left, box.top + top];
        }""")
        tab.mouse.move(x, y)
        tab.wait_for_timeout(300)
        said = tab.locator("#chart-order-0 .tip").inner_text()
        assert any(name in said for name in names)
        assert wrong == []
