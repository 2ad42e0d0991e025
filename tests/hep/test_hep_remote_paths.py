"""Files that are somewhere else: a file system of fsspec's, a web server, and protocols nobody here speaks."""

from __future__ import annotations

import functools
import importlib.util
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import awkward as ak
import fsspec  # type: ignore[import-untyped]
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import uproot

import windrow as wr
from windrow.errors import MissingFileError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS = 3000


def events() -> dict[str, Any]:
    rng = np.random.default_rng(4)
    counts = rng.integers(0, 4, ROWS)
    return {
        "run": np.repeat([1, 2, 3], 1000),
        "MET_pt": rng.exponential(40, ROWS),
        "Muon_pt": ak.unflatten(rng.exponential(30, counts.sum()), counts),
        "Muon_eta": ak.unflatten(rng.normal(0, 1, counts.sum()), counts),
    }


def write(path: Path) -> None:
    columns = events()
    if path.suffix == ".parquet":
        arrays = {
            name: ak.to_arrow(values, extensionarray=False) if isinstance(values, ak.Array) else pa.array(values)
            for name, values in columns.items()
        }
        pq.write_table(pa.table(arrays), path, row_group_size=500)
        return
    muons = ak.zip({"pt": columns.pop("Muon_pt"), "eta": columns.pop("Muon_eta")})
    with uproot.recreate(path) as file:
        if path.stem == "ntuple":
            file.mkrntuple("Events", {**columns, "Muon_pt": muons.pt, "Muon_eta": muons.eta})
            return
        types = {"run": "i8", "MET_pt": "f8", "Muon": "var * {pt: float64, eta: float64}"}
        tree = file.mktree("Events", types)
        for start in range(0, ROWS, 500):
            part = {name: values[start : start + 500] for name, values in columns.items()}
            tree.extend({**part, "Muon": muons[start : start + 500]})
        file.mktree("Runs", {"sumw": "f8"}).extend({"sumw": np.array([1.5, 2.5])})


NAMES = ("tree.root", "ntuple.root", "rows.parquet")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("remote")
    for name in NAMES:
        write(directory / name)
    return directory


class Quiet(SimpleHTTPRequestHandler):
    """A web server that knows byte ranges, one of them at a time."""

    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        wanted = self.headers.get("Range", "")
        path = Path(self.translate_path(self.path))
        if not wanted.startswith("bytes=") or "," in wanted or not path.is_file():
            super().do_GET()
            return
        content = path.read_bytes()
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        start = int(first) if first else max(len(content) - int(last), 0)
        stop = min(int(last) + 1, len(content)) if first and last else len(content)
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(content)}")
        self.send_header("Content-Length", str(stop - start))
        self.end_headers()
        self.wfile.write(content[start:stop])


@pytest.fixture(scope="module")
def server(files: Path) -> Iterator[str]:
    handler = functools.partial(Quiet, directory=str(files))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{running.server_port}"
        finally:
            running.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def memory(files: Path) -> Iterator[str]:
    place = fsspec.filesystem("memory")
    for name in NAMES:
        place.pipe(f"/windrow-remote/{name}", (files / name).read_bytes())
    yield "memory://windrow-remote"
    place.rm("/windrow-remote", recursive=True)


@pytest.fixture(params=["memory", "server"])
def base(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


def plain_answer() -> list[float]:
    columns = events()
    good = ak.to_numpy(ak.num(columns["Muon_pt"]) >= 2) & (columns["run"] < 3)
    lead = ak.to_numpy(ak.max(columns["Muon_pt"][good], axis=1))
    return (lead + columns["MET_pt"][good]).tolist()  # type: ignore[no-any-return]


def analysis() -> wr.Pipeline:
    lepton = wr.Pipeline("lepton")

    @lepton.cut
    def early(run: Any) -> Any:
        return run < 3

    @lepton.cut
    def two(Muon: Any) -> Any:
        return ak.num(Muon) >= 2

    @lepton.output
    def sums(Muon: Any, MET_pt: Any) -> Any:
        return (ak.to_numpy(ak.max(Muon.pt, axis=1)) + MET_pt).tolist()

    return lepton


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("workers", [1, 3])
def test_a_run_on_remote_files(base: str, name: str, workers: int) -> None:
    source = wr.data.open(f"{base}/{name}", grid=500)
    result = analysis().run(source, chunk=500, engine="threads", workers=workers, progress=False)
    assert result["sums"] == plain_answer()
    assert result.ledger.done == ROWS


@pytest.mark.parametrize("name", NAMES)
def test_all_columns_are_the_same_as_in_the_local_file(base: str, files: Path, name: str) -> None:
    near, far = wr.data.open(files / name).open(0), wr.data.open(f"{base}/{name}").open(0)
    assert near.info.columns == far.info.columns
    assert near.info.borders == far.info.borders
    columns = list(near.info.columns)
    mine, theirs = near.read(columns, 400, 1700), far.read(columns, 400, 1700)
    for column in columns:
        assert ak.to_list(mine[column]) == ak.to_list(theirs[column])
    assert far.bytes_read > 0
    near.close()
    far.close()


def test_a_remote_friend_and_a_remote_table(base: str, files: Path) -> None:
    main = {"number": np.arange(ROWS)}
    source = wr.data.join(main, f"{base}/tree.root:Events")
    got = source.open(0).read(["MET_pt", "Muon_pt", "number"], 900, 2100)
    np.testing.assert_array_equal(got["MET_pt"], events()["MET_pt"][900:2100])
    assert got["Muon_pt"].tolist() == events()["Muon_pt"][900:2100].tolist()
    # Both of them remote, in a run: what is fetched ahead of the one must not get in the other's way.
    both = wr.data.join(f"{base}/rows.parquet", f"{base}/tree.root:Events", prefix="f_")
    check = wr.Pipeline("both")

    @check.cut
    def early(run: Any) -> Any:
        return run < 3

    @check.output
    def differences(MET_pt: Any, f_MET_pt: Any, Muon_eta: Any, f_Muon_eta: Any) -> int:
        same = ak.all(Muon_eta == f_Muon_eta, axis=1) & (MET_pt == f_MET_pt)
        return int(np.sum(~same))

    result = check.run(both, progress=False, engine="threads", workers=2)
    assert result["differences"] == 0
    assert result.ledger.done == ROWS
    assert wr.data.table(f"{base}/tree.root", "Runs")["sumw"].tolist() == [1.5, 2.5]


@pytest.mark.parametrize("name", ["nothing.root", "nothing.parquet"])
def test_a_remote_file_that_is_not_there(base: str, name: str) -> None:
    with pytest.raises((MissingFileError, OSError), match=name):
        wr.data.open(f"{base}/{name}").open(0)


@pytest.mark.skipif(importlib.util.find_spec("fsspec_xrootd") is not None, reason="XRootD is installed")
def test_a_protocol_whose_packages_are_not_there() -> None:
    source = wr.data.open("root://eos.example.org//store/x.root:Events")
    with pytest.raises(UsageError, match=r"x.root: .* pip install 'windrow\[xrootd\]'"):
        source.open(0)
    with pytest.raises(UsageError, match=r"pip install 'windrow\[xrootd\]'"):
        analysis().run(source, progress=False)
