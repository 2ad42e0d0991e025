"""From nothing to a plotted histogram, as somebody new would do it: every step is a command they would type.

    python examples/tutorial/tutorial.py            in a fresh virtual environment, installed by pip
    python examples/tutorial/tutorial.py --here     with the Windrow of this interpreter
    python examples/tutorial/tutorial.py --borrow   installs Windrow alone, with the libraries of this interpreter
    python examples/tutorial/tutorial.py --keep DIR leaves what it makes in DIR

The data are a NanoAOD file of CMS simulation, 1,000 events of 1,479 branches, in the directory that WINDROW_SAMPLES names.
Each step and the total say how long they took. Nothing is left behind but DIR.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[2]
SAMPLE = "nanoaodv5_sample.root"
NAME = "jets"
#: A hang ends here; the longest step installs a few dozen packages.
LIMIT_S = 600
#: Lines of a command's output that are shown, from the beginning and from the end.
SHOWN = 9


@dataclass
class Tutorial:
    """A working directory, the environment to use, and the time every step took."""

    place: Path
    binaries: Path
    seconds: dict[str, float] = field(default_factory=dict)

    def step(self, title: str, *command: str | Path) -> str:
        """Run a command, show what it says and how long it took; a failure ends the tutorial."""
        print(f"\n== {title}\n$ {' '.join(map(str, command))}", flush=True)
        start = time.perf_counter()
        code, output = self._finished([str(part) for part in command])
        self.seconds[title] = time.perf_counter() - start
        lines = output.rstrip().splitlines()
        failed = code != 0
        shown = lines
        if not failed and len(lines) > 2 * SHOWN:
            shown = [*lines[:SHOWN], "...", *lines[-SHOWN:]]
        print(*(f"  {line}" for line in shown), sep="\n")
        print(f"  ({self.seconds[title]:.1f} s)", flush=True)
        if failed:
            raise SystemExit(f"tutorial: {title!r} ended with exit code {code}")
        return output

    def _finished(self, command: list[str]) -> tuple[int, str]:
        # The commands of the environment come first, and nothing of this checkout is on the way.
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "COV_"))}
        environment["PATH"] = f"{self.binaries}{os.pathsep}{environment.get('PATH', '')}"
        process = subprocess.Popen(
            command, cwd=self.place, env=environment, text=True, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            output, _ = process.communicate(timeout=LIMIT_S)
        finally:
            if process.poll() is None:  # too long, or Ctrl-C: with everything it started
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        return process.returncode, output


def install(tutorial: Tutorial, *, borrow: bool) -> None:
    """Make a virtual environment and install Windrow there, as from an index; all else may be borrowed from this one."""
    home = tutorial.binaries.parent
    tutorial.step("a fresh environment", sys.executable, "-m", "venv", home)
    pip = (tutorial.binaries / "python", "-m", "pip", "--disable-pip-version-check", "-qq")
    wanted = [f"{CHECKOUT}[plot]", "pytest"]
    if borrow:
        # Listed in a file of paths, those of this environment come after its own; files of paths in there do not count.
        own = next(home.glob("lib/python*/site-packages"))
        (own / "borrowed.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
        wanted = ["--no-deps", str(CHECKOUT)]
    tutorial.step("pip install", *pip, "install", *wanted)


def learn(tutorial: Tutorial, sample: Path) -> None:
    """Look at the file, write an analysis for it, test it, run it, draw and report."""
    place, binaries = tutorial.place, tutorial.binaries
    windrow, python = binaries / "windrow", binaries / "python"
    analysis = Path(NAME) / f"{NAME}.py"
    tutorial.step("what can it do?", windrow, "--help")
    tutorial.step("what is in the file?", windrow, "show", sample)
    tutorial.step("which triggers?", windrow, "show", sample, "--columns", "HLT_IsoMu*")
    tutorial.step("write an analysis", windrow, "new", NAME, "--from", sample)
    tutorial.step("test it", python, "-m", "pytest", "-q", NAME)
    tutorial.step("run it", windrow, "run", analysis, "--rundir", "run")
    passed = selected(place / "run" / "summary.json")
    print(f"  {passed:,} rows selected")
    tutorial.step("draw the histograms", python, analysis)
    look = Path(__file__).resolve().parent / "not_blank.py"
    tutorial.step("look at the picture", python, look, Path(NAME) / "spectrum.png")
    tutorial.step("report", windrow, "report", "run")
    page = (place / "run" / "report.html").read_text(encoding="utf-8")
    if "</html>" not in page:
        raise SystemExit("tutorial: the report is not a page")


def selected(summary: Path) -> int:
    """Return the rows that passed all cuts; none would make an empty histogram."""
    found = json.loads(summary.read_text(encoding="utf-8"))
    passed = max(int(region["all"]["passed"]) for region in found["cutflow"].values())
    if passed == 0:
        raise SystemExit("tutorial: no row was selected")
    return passed


def main() -> int:
    parser = argparse.ArgumentParser(description="From a file to a plot.")
    parser.add_argument("--here", action="store_true", help="use this interpreter's Windrow")
    parser.add_argument("--borrow", action="store_true", help="install Windrow alone")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="work in DIR and leave it")
    default = os.environ.get("WINDROW_SAMPLES", CHECKOUT.parent / "shared" / "data")
    parser.add_argument("--samples", type=Path, default=Path(default), metavar="DIR")
    options = parser.parse_args()
    sample = (options.samples / SAMPLE).resolve()
    if not sample.is_file():
        print(f"tutorial: no {SAMPLE} in {options.samples}; set WINDROW_SAMPLES", file=sys.stderr)
        return 1
    with ExitStack() as stack:
        temporary = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="windrow-")))
        place = options.keep or temporary / "work"
        place.mkdir(parents=True, exist_ok=True)
        here = Path(sys.executable).parent
        tutorial = Tutorial(place.resolve(), here if options.here else temporary / "env" / "bin")
        if not options.here:
            install(tutorial, borrow=options.borrow)
        learn(tutorial, sample)
        total = sum(tutorial.seconds.values())
        installing = sum(tutorial.seconds.get(s, 0) for s in ("a fresh environment", "pip install"))
        print(f"\ntutorial: {total:.1f} s, of which {installing:.1f} s for installing")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
