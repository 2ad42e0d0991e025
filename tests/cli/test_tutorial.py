"""The tutorial's steps as a new user takes them, with this interpreter and from ``pip install`` on."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
TUTORIAL = CHECKOUT / "examples" / "tutorial" / "tutorial.py"
#: Far more than it takes; only a hang ends here.
LIMIT_S = 900


def tutorial(place: Path, samples: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the tutorial with a temporary directory of its own, which must be empty afterwards."""
    temporary = place / "tmp"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary), "WINDROW_SAMPLES": str(samples)}
    done = subprocess.run(
        [sys.executable, str(TUTORIAL), *options], cwd=place, env=environment, timeout=LIMIT_S,
        capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert list(temporary.glob("windrow-*")) == []
    return done


def check(done: subprocess.CompletedProcess[str], capture: pytest.CaptureFixture[str]) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    total = r"^tutorial: [\d.]+ s, of which [\d.]+ s for installing$"
    elapsed = re.search(total, done.stdout, re.MULTILINE)
    assert elapsed is not None
    with capture.disabled():  # how long a new user waits is worth a line in every log
        sys.stderr.write(f"\n{elapsed.group()}\n")
    assert "rows selected" in done.stdout
    assert "1,000 of 1,000 rows done" in done.stdout


@pytest.mark.slow
@pytest.mark.samples
def test_the_tutorial_with_this_interpreter(samples: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    check(tutorial(tmp_path, samples, "--here", "--keep", str(tmp_path / "kept")), capfd)
    kept = tmp_path / "kept"
    assert "</html>" in (kept / "jets" / "report.html").read_text(encoding="utf-8")
    assert "</html>" in (kept / "run" / "report.html").read_text(encoding="utf-8")


@pytest.mark.samples
@pytest.mark.fresh
@pytest.mark.slow
def test_the_tutorial_from_pip_install_on(samples: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Windrow alone is installed; ``make tutorial`` installs all that it needs as well, which takes a minute."""
    refuse_offline(tmp_path)
    done = tutorial(tmp_path, samples, "--borrow")
    check(done, capfd)
    assert "== pip install" in done.stdout
    # It was the installed package that ran, not this checkout.
    assert str(Path(sys.executable).parent / "windrow") not in done.stdout


def refuse_offline(place: Path) -> None:
    """Skip where pip finds no index; in CI there is one, and its absence is a failure."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-qq", "--retries", "0"]
    asked = subprocess.run(
        [*pip, "--timeout", "20", "download", "--no-deps", "-d", str(place), "hatchling"],
        capture_output=True, text=True, check=False, timeout=LIMIT_S,
    )  # fmt: skip
    if asked.returncode:
        reason = f"no package index to install from: {asked.stderr.strip()[-200:]}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)


@pytest.mark.slow
def test_a_blank_picture_is_noticed(tmp_path: Path) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    look = [sys.executable, str(TUTORIAL.parent / "not_blank.py")]
    for heights, code in (([0, 0, 0, 0], 1), ([1, 9, 3, 1], 0)):
        figure, panel = pyplot.subplots()
        panel.stairs(heights, label="data")
        panel.legend()
        figure.savefig(tmp_path / "picture.png")
        pyplot.close(figure)
        done = subprocess.run([*look, str(tmp_path / "picture.png")], capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stdout + done.stderr


def test_without_the_sample_it_says_what_to_do(tmp_path: Path) -> None:
    done = tutorial(tmp_path, tmp_path / "nowhere")
    assert done.returncode == 1
    assert "set WINDROW_SAMPLES" in done.stderr
