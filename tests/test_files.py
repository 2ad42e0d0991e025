"""Files that belong to an analysis: known by content, loaded once, never with another content."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import awkward as ak
import correctionlib
import numpy as np
import pytest

import windrow as wr
from windrow.errors import CorruptFileError, DataError, DefinitionError, MissingFileError, UsageError

ETA, PT = [-2.4, -1.2, 0.0, 1.2, 2.4], [10.0, 20.0, 40.0, 1000.0]
FACTORS = np.random.default_rng(8).uniform(0.8, 1.2, (len(ETA) - 1, len(PT) - 1))


def corrections_json() -> str:
    """Scale factors in bins of eta and pt, and one that is a formula."""
    number = {"type": "real", "description": ""}
    binned = {
        "nodetype": "multibinning",
        "inputs": ["eta", "pt"],
        "edges": [ETA, PT],
        "content": FACTORS.ravel().tolist(),
        "flow": "clamp",
    }
    formula = {"nodetype": "formula", "expression": "1 + 0.1*exp(-x/50)", "parser": "TFormula", "variables": ["pt"]}
    return json.dumps(
        {
            "schema_version": 2,
            "corrections": [
                {
                    "name": "sf",
                    "version": 1,
                    "inputs": [{"name": "eta", **number}, {"name": "pt", **number}],
                    "output": {"name": "factor", "type": "real"},
                    "data": binned,
                },
                {
                    "name": "turn_on",
                    "version": 1,
                    "inputs": [{"name": "pt", **number}],
                    "output": {"name": "factor", "type": "real"},
                    "data": formula,
                },
            ],
        }
    )


@pytest.fixture
def corrections_path(tmp_path: Path) -> Path:
    path = tmp_path / "muon_sf.json.gz"
    path.write_bytes(gzip.compress(corrections_json().encode()))
    return path


def factors(eta: Any, pt: Any) -> Any:
    """The same scale factors in plain NumPy."""
    rows = np.clip(np.searchsorted(ETA, eta, side="right") - 1, 0, len(ETA) - 2)
    columns = np.clip(np.searchsorted(PT, pt, side="right") - 1, 0, len(PT) - 2)
    return FACTORS[rows, columns] * (1 + 0.1 * np.exp(-pt / 50))


def replace_content(path: Path, content: bytes) -> None:
    """Write a file anew; its time moves on even on file systems with coarse clocks."""
    before = path.stat().st_mtime_ns
    path.write_bytes(content)
    os.utime(path, ns=(before + 10**9, before + 10**9))


class Counted:
    """A loader that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, path: str) -> bytes:
        self.calls += 1
        return Path(path).read_bytes()


# --- what is loaded -------------------------------------------------------------------------------


def test_suffixes(tmp_path: Path, corrections_path: Path) -> None:
    (tmp_path / "xsec.json").write_text('{"dy": 6077.22}')
    (tmp_path / "xsec.JSON.gz").write_bytes(gzip.compress(b'["schema_version", "corrections"]'))
    (tmp_path / "model.bin").write_bytes(b"\x00\x01")
    (tmp_path / "sf.json").write_text(corrections_json())
    assert wr.file(tmp_path / "xsec.json")() == {"dy": 6077.22}
    assert wr.file(str(tmp_path / "xsec.JSON.gz"))() == ["schema_version", "corrections"]
    assert wr.file(tmp_path / "model.bin")() == b"\x00\x01"
    for path in (corrections_path, tmp_path / "sf.json"):
        loaded = wr.file(path)()
        assert isinstance(loaded, correctionlib.CorrectionSet)
        assert loaded["sf"].evaluate(0.5, 30.0) == FACTORS[2, 1]


def test_a_loader_of_ones_own(corrections_path: Path) -> None:
    named = wr.file(corrections_path, load=correctionlib.CorrectionSet.from_file)
    assert set(named()) == {"sf", "turn_on"}
    assert named() is named()
    counted = Counted()
    other = wr.file(corrections_path, load=counted)
    assert other() == corrections_path.read_bytes()
    other()
    assert counted.calls == 1


def test_broken_files(tmp_path: Path) -> None:
    for name, content, message in (
        ("a.json", b"{", "a.json is not JSON"),
        ("b.json.gz", b"{}", "b.json.gz is not JSON"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(CorruptFileError, match=message):
            wr.file(tmp_path / name)()
    (tmp_path / "c.json").write_text('{"schema_version": 2, "corrections": [{"name": "x"}]}')
    with pytest.raises(DataError, match=r"c.json holds corrections that correctionlib cannot read"):
        wr.file(tmp_path / "c.json")()


def test_corrections_without_the_package(corrections_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "correctionlib", None)
    with pytest.raises(UsageError, match=r"muon_sf.json.gz .* pip install 'windrow\[hep\]'"):
        wr.file(corrections_path)()


def test_naming_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"no such file: .*nothing.json"):
        wr.file(tmp_path / "nothing.json")
    with pytest.raises(MissingFileError, match="no such file"):
        wr.file(tmp_path)
    with pytest.raises(UsageError, match="load= is a function of a path, got 'json'"):
        wr.file(__file__, load="json")  # type: ignore[arg-type]


def test_a_relative_path_stays_what_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.txt").write_text("here")
    monkeypatch.chdir(tmp_path)
    named = wr.file("x.txt")
    monkeypatch.chdir(Path(__file__).parent)
    assert named() == b"here"
    assert named.path == str(tmp_path / "x.txt")


# --- content --------------------------------------------------------------------------------------


def test_the_fingerprint_is_the_content(tmp_path: Path) -> None:
    for name, content in (("a", b"one"), ("b", b"one"), ("c", b"two")):
        (tmp_path / name).write_bytes(content)
    a, b, c = (wr.file(tmp_path / name) for name in "abc")
    assert a.fingerprint == b.fingerprint != c.fingerprint
    assert a == wr.file(tmp_path / "a")
    assert hash(a) == hash(wr.file(tmp_path / "a"))
    assert a != b
    one, other = wr.hep.lumi_mask({"1": [[1, 2]]}), wr.hep.lumi_mask({"1": [[1, 1], [2, 2]]})
    assert one.fingerprint == other.fingerprint


def test_content_that_changes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sf.txt"
    path.write_bytes(b"one")
    loaded, fresh = wr.file(path), wr.file(path, load=Counted())
    assert loaded() == b"one"
    replace_content(path, b"one")  # written again, but the same
    assert loaded() == b"one"
    replace_content(path, b"two")
    for named in (loaded, fresh, pickle.loads(pickle.dumps(loaded))):
        with pytest.raises(CorruptFileError, match=r"sf.txt has changed: .* name it again"):
            named()
    assert wr.file(path)() == b"two"
    replace_content(path, b"one")
    assert loaded() == b"one"


def test_content_that_changes_while_it_is_loaded_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sf.txt"
    path.write_bytes(b"one")

    def slow(name: str) -> bytes:
        path.write_bytes(b"two")
        return Path(name).read_bytes()

    named = wr.file(path, load=slow)
    for _ in range(2):
        with pytest.raises(CorruptFileError, match="has changed"):
            named()


def test_a_file_that_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "sf.txt"
    path.write_bytes(b"one")
    loaded, fresh = wr.file(path), wr.file(path, load=Counted())
    loaded()
    path.unlink()
    assert loaded() == b"one"  # it is in memory already
    with pytest.raises(MissingFileError, match="it was there when it was named"):
        fresh()


# --- once per process -----------------------------------------------------------------------------


def test_threads_wait_for_the_first_to_load(tmp_path: Path) -> None:
    path = tmp_path / "sf.txt"
    path.write_bytes(b"one")
    gate, counted = threading.Barrier(8), Counted()
    named = wr.file(path, load=counted)

    def work(_: int) -> Any:
        gate.wait()
        return named()

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(work, range(8))) == {b"one"}
    assert counted.calls == 1


def test_copies_share_what_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "xsec.json"
    path.write_text('{"dy": 1}')
    named = wr.file(path)
    content = named()
    again = pickle.loads(pickle.dumps(named))
    assert again == named
    assert again() is content


def test_a_worker_elsewhere_loads_it_itself(tmp_path: Path) -> None:
    path = tmp_path / "xsec.json"
    path.write_text('{"dy": 1}')
    named = wr.file(path)
    named()
    (tmp_path / "pickled").write_bytes(pickle.dumps(named))
    assert b'"dy"' not in pickle.dumps(named)
    code = (
        "import pickle, sys; named = pickle.loads(open(sys.argv[1], 'rb').read())\n"
        "try: print(named())\n"
        "except Exception as error: print(type(error).__name__)"
    )

    def elsewhere() -> str:
        command = [sys.executable, "-c", code, str(tmp_path / "pickled")]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        return done.stdout.strip()

    assert elsewhere() == "{'dy': 1}"
    path.write_text('{"dy": 2}')
    assert elsewhere() == "CorruptFileError"


# --- in a pipeline --------------------------------------------------------------------------------


def muons(rows: int) -> dict[str, Any]:
    rng = np.random.default_rng(2)
    counts = rng.integers(0, 4, rows)
    return {
        "Muon_pt": ak.unflatten(rng.exponential(40, counts.sum()) + 5, counts),
        "Muon_eta": ak.unflatten(rng.uniform(-3, 3, counts.sum()), counts),
    }


@pytest.mark.parametrize("how", ["closure", "parameter"])
@pytest.mark.parametrize("workers", [1, 4])
def test_corrections_of_jagged_muons(corrections_path: Path, how: str, workers: int) -> None:
    events = muons(20_000)
    flat = {name: ak.to_numpy(ak.flatten(values)) for name, values in events.items()}
    counts = ak.num(events["Muon_pt"])
    expected = ak.to_numpy(ak.prod(ak.unflatten(factors(flat["Muon_eta"], flat["Muon_pt"]), counts), axis=1))
    counted = Counted()

    def load(path: str) -> Any:
        counted(path)
        return correctionlib.CorrectionSet.from_file(path)

    corrections = wr.file(corrections_path, load=load)
    analysis = wr.Pipeline("corrected")

    def evaluate(loaded: Any, Muon: Any) -> Any:
        one = loaded["sf"].evaluate(Muon.eta, Muon.pt)
        return ak.prod(one * loaded["turn_on"].evaluate(Muon.pt), axis=1)

    if how == "closure":

        @analysis.weight
        def sf(Muon: Any) -> Any:
            return evaluate(corrections(), Muon)

    else:

        @analysis.weight(name="sf")
        def with_parameter(Muon: Any, *, corr: Any = corrections) -> Any:
            return evaluate(corr(), Muon)

    @analysis.output
    def weights(Muon: Any, weight: Any) -> Any:
        return weight.tolist()

    result = analysis.run(
        wr.data.open(events, grid=1000), chunk=1000, engine="threads", workers=workers, progress=False
    )
    np.testing.assert_allclose(result["weights"], expected, rtol=1e-12)
    assert counted.calls == 1


def test_a_file_is_no_column(corrections_path: Path) -> None:
    analysis = wr.Pipeline("corrected")
    with pytest.raises(DefinitionError, match=r"'corr' is a positional argument, .*\*, corr=wr.file"):  # fmt: skip

        @analysis.weight
        def sf(Muon_pt: Any, corr: Any = wr.file(corrections_path)) -> Any:  # noqa: B008
            return Muon_pt


def test_a_damaged_compressed_file_is_named(tmp_path: Path) -> None:
    import gzip

    packed = bytearray(gzip.compress(b'{"a": 1}' * 50))
    packed[15:30] = bytes(15)
    (tmp_path / "bad.json.gz").write_bytes(bytes(packed))
    with pytest.raises(CorruptFileError, match=r"bad\.json\.gz is not JSON"):
        wr.file(tmp_path / "bad.json.gz")()
