"""The same program has the same fingerprint in every process, whatever was loaded before and in whatever order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

HELPERS = """
import dataclasses, enum, functools, logging, re
import numpy as np

log = logging.getLogger(__name__)
NAMES = {"electron", "muon", "tau", "jet", "photon"}
BY_NAME = {frozenset({"a", "b", "c"}): {"x", "y", "z"}}
PATTERN = re.compile("HLT_.*")

class Flavour(enum.Enum):
    B = 5
    C = 4

@dataclasses.dataclass(frozen=True)
class Cuts:
    pt: float = 25.0
    names: frozenset = frozenset({"loose", "tight", "medium"})

cuts = Cuts()

@functools.lru_cache
def table(n):
    return np.arange(n)

def even(n): return n == 0 or odd(n - 1)
def odd(n): return n != 0 and even(n - 1)
"""

PROGRAM = """
import awkward as ak
import hist
import numpy as np
import helpers
from helpers import Flavour, even

AXIS = hist.axis.StrCategory(["a"], growth=True)
COLUMNS = ak.Array([[1.0], [2.0, 3.0]])

def step(x, *, names=frozenset({"u", "v", "w"}), where={"p": {"q", "r"}}):
    import colorsys, csv, wave
    from difflib import unified_diff
    helpers.log.info("here")
    if x in {"one", "two", "three"} or helpers.PATTERN.match(x) or even(3):
        return csv.reader(x), wave.open, unified_diff, colorsys, [Flavour.B for n in helpers.NAMES]
    return np.sqrt(helpers.table(3)), helpers.cuts.pt, helpers.BY_NAME, AXIS, ak.sum(COLUMNS), names, where

class Callable:
    kept = {1, 2.5, "three"}
    def __call__(self, x): return x in self.kept
"""

ASK = """
import json, sys
from windrow.store.fingerprint.api import fingerprint
from analysis import step, Callable
print(json.dumps([
    [f.digest, f.own, f.opaque, f.libraries, dict(f.parts), f.stores_globals]
    for f in (fingerprint(step), fingerprint(Callable()), fingerprint({"x", 1.5, ("a", None)}))
]))
"""


def ask(directory: Path, seed: str, before: str = "") -> Any:
    done = subprocess.run(
        [sys.executable, "-c", before + ASK],
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(directory)},
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def write(directory: Path, **changed: str) -> Path:
    directory.mkdir(exist_ok=True)
    (directory / "helpers.py").write_text(changed.get("helpers", HELPERS))
    (directory / "analysis.py").write_text(changed.get("analysis", PROGRAM))
    return directory


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return ask(write(tmp_path_factory.mktemp("first")), "0")


@pytest.mark.parametrize(
    ("seed", "before"),
    [
        pytest.param("1", "", marks=pytest.mark.slow),
        ("2", "import colorsys, wave, csv, difflib, helpers\n"),
        pytest.param(
            "3",
            "import pyarrow, numba, vector\nhelpers = __import__('helpers')\nhelpers.table(3)\n",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_it_is_the_same_in_every_process(first: Any, tmp_path: Path, seed: str, before: str) -> None:
    # In another directory too, and with other comments.
    directory = write(tmp_path / f"elsewhere{seed}", helpers="# moved\n\n" + HELPERS)
    assert ask(directory, seed, before) == first
    assert [opaque for _, _, opaque, *_ in first] == [[], [], []]


@pytest.mark.parametrize(
    ("old", "new", "steps"),
    [
        ('"tau", ', "", [True, False]),
        pytest.param("n != 0 and", "n != 1 and", [True, False], marks=pytest.mark.slow),
        pytest.param('1, 2.5, "three"', '1, 2.5, "four"', [False, True], marks=pytest.mark.slow),
    ],
)
def test_a_change_is_noticed_in_another_process(
    first: Any, tmp_path: Path, old: str, new: str, steps: list[bool]
) -> None:
    assert (old in HELPERS) != (old in PROGRAM)
    changed = {"helpers": HELPERS.replace(old, new), "analysis": PROGRAM.replace(old, new)}
    found = ask(write(tmp_path / "changed", **changed), "5")
    assert [one[0] != two[0] for one, two in zip(first, found, strict=True)] == [*steps, False]
