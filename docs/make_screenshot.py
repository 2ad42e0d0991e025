"""Makes ``docs/images/report.png``: the top of the demo's report, as the README shows it.

    python docs/make_screenshot.py [--rows N] [--out FILE]

Needs Chromium and playwright (see ``make test``). It looks best where the font Inter is installed
(``fonts-inter`` in Debian).
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from windrow.cli import loading as demo

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip

WIDTH = 1400
#: Summary and histogram; the cutflow begins below.
HEIGHT = 1090


def picture(page: Path, out: Path, chromium: str) -> None:
    """Draw the top of a page, simulation scaled to data."""
    with sync_playwright() as play, tempfile.TemporaryDirectory() as profile:
        context = play.chromium.launch_persistent_context(
            profile, executable_path=chromium, args=list(FLAGS), viewport={"width": WIDTH, "height": HEIGHT}
        )
        try:
            tab = context.new_page()
            tab.goto(page.as_uri())
            tab.wait_for_selector("html[data-drawn=true]", state="attached")
            tab.get_by_label("scale simulation to data").check()
            tab.wait_for_timeout(500)
            tab.evaluate("document.activeElement.blur()")
            tab.screenshot(path=out, clip={"x": 0, "y": 0, "width": WIDTH, "height": HEIGHT})
        finally:
            context.close()


def main() -> None:
    """Run the demo and draw its report."""
    parser = argparse.ArgumentParser(description="Draw the report of the demo.")
    parser.add_argument("--rows", type=int, default=1_200_000)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "images" / "report.png")
    options = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("no chromium on PATH: apt-get install chromium")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        fileset = demo.generated(Path(directory), options.rows)
        result = demo.run_example(fileset, progress=False)
        picture(result.report(Path(directory) / "run.html"), options.out, chromium)


if __name__ == "__main__":
    main()
