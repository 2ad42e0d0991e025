"""Remote files: the right bytes in as few requests as the server allows, and errors a retry can see."""

from __future__ import annotations

import errno
import random
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import uproot
from hypothesis import given
from hypothesis import strategies as st

import windrow.data
from range_server import RangeServer
from windrow.data.remote.file import ASSUMED_ROUND_TRIP_S, HEAD_BYTES, TAIL_BYTES, Link, RemoteFile
from windrow.data.remote.http import MOST_RANGES, NEAR_SINGLE, Blocks, HttpFile, coalesced, multipart
from windrow.errors import CorruptFileError, MissingFileError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SIZE = 5 << 20
LISTS = ["all", "first", "whole"]


@pytest.fixture(scope="module")
def content() -> bytes:
    return random.Random(1).randbytes(SIZE)


@pytest.fixture
def server(tmp_path: Path, content: bytes) -> Iterator[RangeServer]:
    (tmp_path / "x.bin").write_bytes(content)
    running = RangeServer(tmp_path)
    yield running
    running.close()


ranges_of = st.lists(
    st.tuples(st.integers(0, 10_000), st.integers(1, 200)).map(lambda r: (r[0], r[0] + r[1])), min_size=1, max_size=30
)


def _longest_run(numbers: set[int]) -> int:
    longest = run = 0
    for number in sorted(numbers):
        run = run + 1 if number - 1 in numbers else 1
        longest = max(longest, run)
    return longest


# -- pure parts -----------------------------------------------------------------------------------


@given(ranges_of, st.integers(0, 300), st.none() | st.integers(1, 10))
def test_joined_ranges_hold_all_and_no_far_bytes(ranges: list[tuple[int, int]], near: int, most: int | None) -> None:
    joined = coalesced(ranges, near, most)
    wanted = {byte for start, stop in ranges for byte in range(start, stop)}
    fetched = {byte for start, stop in joined for byte in range(start, stop)}
    assert wanted <= fetched
    assert joined == sorted(joined)
    assert all(a[1] < b[0] for a, b in pairwise(joined))
    if most is None:
        assert all(b[0] - a[1] > near for a, b in pairwise(joined))
        assert _longest_run(fetched - wanted) <= near
    else:
        assert len(joined) <= most  # the gaps here are all smaller than what is worth a request


def test_ranges_far_apart_stay_apart_however_many() -> None:
    far = [(n * 2 * NEAR_SINGLE, n * 2 * NEAR_SINGLE + 1) for n in range(10)]
    assert coalesced(far, 0, 3) == far


@given(ranges_of, st.tuples(st.integers(0, 10_000), st.integers(1, 50)))
def test_pieces_are_found_and_nothing_else(ranges: list[tuple[int, int]], asked: tuple[int, int]) -> None:
    data = bytes(n % 251 for n in range(11_000))
    blocks = Blocks()
    for start, stop in coalesced(ranges, 0):
        blocks.add(start, data[start:stop])
    start, stop = asked[0], asked[0] + asked[1]
    inside = any(a <= start and stop <= b for a, b in coalesced(ranges, 0))
    found = blocks.find(start, stop)
    assert (found is not None) == inside
    assert found is None or bytes(found) == data[start:stop]


def test_parts_of_an_answer_may_contain_their_border() -> None:
    first, second = b"--BORDER\r\n\r\n--BORDER--", b"\r\n--BORDER"
    body = (
        b"preamble\r\n--BORDER\r\ncontent-range: bytes 5-26/100\r\n\r\n" + first + b"\r\n--BORDER\r\n"
        b"Content-Type: x\r\nContent-Range: bytes 50-59/*\r\n\r\n" + second + b"\r\n--BORDER--\r\n"
    )
    body = body.replace(b"content-range", b"Content-Range")
    parts = list(multipart(body, 'multipart/byteranges; boundary="BORDER"'))
    assert [(a, bytes(b), c) for a, b, c in parts] == [(5, first, 100), (50, second, None)]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"--B\r\nContent-Range: bytes 0-9/10\r\n\r\n012", "multipart/byteranges; boundary=B"),
        (b"--B\r\nContent-Type: x\r\n\r\n012\r\n--B--", "multipart/byteranges; boundary=B"),
        (b"--B--", "multipart/byteranges"),
        (b"", "multipart/byteranges; boundary=B"),
        (b"--B\r\nContent-Range: bytes 0-1/2", "multipart/byteranges; boundary=B"),
    ],
)
def test_a_broken_answer_is_an_error_of_the_link(body: bytes, kind: str) -> None:
    with pytest.raises(OSError, match=r".") as caught:
        list(multipart(body, kind))
    assert caught.value.errno == errno.EIO


def test_a_link_is_measured() -> None:
    link = Link()
    assert link.round_trip_s == ASSUMED_ROUND_TRIP_S
    link.saw(0.2, 0.2, 100)
    link.saw(0.1, 1.1, 20_000_000)
    assert link.round_trip_s == 0.1
    assert link.bytes_per_s == pytest.approx(20e6)
    blind = Link()
    blind.saw(None, 0.3, 100)
    blind.saw(None, 1.3, 10_000_000)
    assert blind.round_trip_s == 0.3
    assert blind.bytes_per_s == pytest.approx(10e6)


# -- bytes over the link ----------------------------------------------------------------------------


@pytest.mark.parametrize("lists", LISTS)
def test_any_server_gives_the_right_bytes(server: RangeServer, content: bytes, lists: Any) -> None:
    server.lists = lists
    file = HttpFile(f"{server.url}/x.bin")
    ranges = [(7, 20), (SIZE - 5, SIZE), (300_000, 300_001), (3_000_000, 3_100_000)]
    for _ in range(2):
        found = file.fetch(ranges)
        for start, stop in ranges:
            assert bytes(found.find(start, stop) or b"") == content[start:stop]
    # A server that cannot is asked for lists once, then for single ranges.
    assert len(server.requests) == (2 if lists == "all" else 1 + 2 * 4 - (lists == "first"))
    file.close()


def test_one_list_is_one_request_unless_it_is_too_long(server: RangeServer, content: bytes) -> None:
    file = HttpFile(f"{server.url}/x.bin")
    many = [(n * 1000, n * 1000 + 10) for n in range(4 * MOST_RANGES)]
    found = file.fetch(many)
    assert len(server.requests) == 1  # those that are near were joined
    assert all(bytes(found.find(a, b) or b"") == content[a:b] for a, b in many)
    server.requests.clear()
    file.fetch([(n * (NEAR_SINGLE + 100), n * (NEAR_SINGLE + 100) + 10) for n in range(60)])
    assert len(server.requests) == 1
    file.close()


@pytest.mark.parametrize("lists", LISTS)
def test_both_ends_come_with_the_size(server: RangeServer, content: bytes, lists: Any) -> None:
    server.lists = lists
    file = HttpFile(f"{server.url}/x.bin")
    found = file.ends(1000, 2000)
    file.close()
    assert found.size == SIZE
    assert bytes(found.find(0, 1000) or b"") == content[:1000]
    assert bytes(found.find(SIZE - 2000, SIZE) or b"") == content[-2000:]
    assert len(server.requests) <= {"all": 1, "first": 2, "whole": 3}[lists]


def test_a_small_file_is_held_as_a_whole(server: RangeServer) -> None:
    for name, data in (("small", b"abc"), ("empty", b"")):
        (server.folder / name).write_bytes(data)
        for server.lists in LISTS:  # type: ignore[assignment]
            remote = RemoteFile(f"{server.url}/{name}")
            assert remote.size == len(data)
            assert bytes(remote.read_metadata(0, 100)) == data
            remote.close()
    remote = RemoteFile(f"{server.url}/small", 3)
    with pytest.raises(EOFError):
        remote.read(2, 5)
    remote.close()


def test_what_is_held_is_not_fetched_again(server: RangeServer, content: bytes) -> None:
    remote = RemoteFile(f"{server.url}/x.bin")
    remote.prefetch([(2_000_000, 2_000_100), (3_000_000, 3_000_100), (2_000_000, 2_000_100)])
    assert len(server.requests) == remote.requests == 1
    assert bytes(remote.read(2_000_010, 2_000_100)) == content[2_000_010:2_000_100]
    remote.prefetch([(3_000_000, 3_000_100), (5, 5)])
    assert len(server.requests) == 1
    assert remote.bytes_read == 200
    remote.forget()
    assert bytes(remote.read(3_000_000, 3_000_050)) == content[3_000_000:3_000_050]
    assert len(server.requests) == 2
    remote.look_at_ends()
    assert remote.bytes_read == 250 + HEAD_BYTES + TAIL_BYTES
    assert bytes(remote.read(SIZE - 10, SIZE)) == content[-10:]
    assert len(server.requests) == 3
    remote.close()
    assert remote.requests == 3


def test_a_redirection_is_followed_once_and_remembered(server: RangeServer, content: bytes) -> None:
    file = HttpFile(f"{server.url}/moved/x.bin")
    for _ in range(3):
        assert bytes(file.fetch([(5, 9)]).find(5, 9) or b"") == content[5:9]
    assert len(server.requests) == 4
    # The place may be for a while only; then the way there is asked for again.
    server.answers = [403]
    assert bytes(file.fetch([(5, 9)]).find(5, 9) or b"") == content[5:9]
    assert len(server.requests) == 7
    file.close()
    server.answers = [302] * 10
    with pytest.raises(OSError, match="302"):
        HttpFile(f"{server.url}/x.bin").fetch([(5, 9)])


def test_a_connection_that_the_server_closed_is_opened_again(server: RangeServer, content: bytes) -> None:
    file = HttpFile(f"{server.url}/x.bin")
    file.fetch([(0, 10)])
    server.answers = [0]
    assert bytes(file.fetch([(5, 9)]).find(5, 9) or b"") == content[5:9]
    # One that was never used has no such excuse.
    file.close()
    server.answers = [0]
    with pytest.raises(OSError, match=r"."):
        file.fetch([(0, 10)])
    file.close()


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_is_an_error_that_may_pass(server: RangeServer, status: int) -> None:
    file = HttpFile(f"{server.url}/x.bin")
    server.answers = [status]
    with pytest.raises(OSError, match=str(status)) as caught:
        file.fetch([(0, 10), (1_000_000, 1_000_010)])
    assert caught.value.errno == errno.EIO
    file.fetch([(0, 10)])
    file.close()


def test_an_answer_that_ends_early_is_an_error(server: RangeServer) -> None:
    server.short = True
    file = HttpFile(f"{server.url}/x.bin")
    for ranges in ([(0, 1000)], [(0, 1000), (500_000, 501_000)]):
        with pytest.raises(OSError, match=r"."):
            file.fetch(ranges)
    file.close()


def test_a_server_without_ranges_is_named(server: RangeServer) -> None:
    server.ranges = False
    with pytest.raises(OSError, match="whole files only"):
        RemoteFile(f"{server.url}/x.bin").look_at_ends()


def test_no_server_at_all(server: RangeServer) -> None:
    server.close()
    with pytest.raises(OSError, match=r"refused"):
        RemoteFile(f"{server.url}/x.bin").look_at_ends()


# -- readers ---------------------------------------------------------------------------------------

ROWS, CLUSTER = 30_000, 5_000
NAMES = ["x", "flag", "Muon_pt", "Muon_eta", "word"]


def table() -> dict[str, Any]:
    random_ = np.random.default_rng(5)
    counts = random_.integers(0, 4, ROWS)
    muons = ak.zip({f: ak.unflatten(random_.random(counts.sum()).astype("f4"), counts) for f in ("pt", "eta")})
    words = ak.Array([f"w{n % 17}" for n in range(ROWS)])
    unused = {f"unused{n}": random_.random(ROWS) for n in range(6)}
    flags = random_.integers(0, 2, ROWS).astype(np.int8)
    return {"x": random_.random(ROWS), "Muon": muons, **unused, "flag": flags, "word": words}


def write_file(path: Path, kind: str) -> None:
    data = table()
    parts = [(start, start + CLUSTER) for start in range(0, ROWS, CLUSTER)]
    if kind == "parquet":
        muons = data.pop("Muon")
        flat = {n: ak.to_arrow(v, extensionarray=False) if n == "word" else v for n, v in data.items()}
        flat |= {f"Muon_{f}": ak.to_arrow(muons[f], extensionarray=False) for f in muons.fields}
        pq.write_table(pa.table(flat), path, row_group_size=CLUSTER)
        return
    with uproot.recreate(path) as file:
        if kind == "rntuple":
            muons = data.pop("Muon")
            data |= {f"Muon_{f}": muons[f] for f in muons.fields}
            ntuple = file.mkrntuple("Events", {n: v[:CLUSTER] for n, v in data.items()})
            for start, stop in parts[1:]:
                ntuple.extend({name: values[start:stop] for name, values in data.items()})
            return
        types: dict[str, Any] = {n: v.dtype for n, v in data.items() if n not in ("Muon", "word")}
        types |= {"Muon": "var * {pt: float32, eta: float32}", "word": "string"}
        tree = file.mktree("Events", {name: types[name] for name in data})
        for start, stop in parts:
            tree.extend({name: values[start:stop] for name, values in data.items()})


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    write_file(folder / "t.root", "ttree")
    write_file(folder / "n.root", "rntuple")
    write_file(folder / "p.parquet", "parquet")
    return folder


@pytest.fixture
def web(files: Path) -> Iterator[RangeServer]:
    running = RangeServer(files)
    yield running
    running.close()


def same(left: Any, right: Any) -> bool:
    return bool(ak.to_list(left) == ak.to_list(right))


@pytest.fixture(params=["t.root", "n.root", "p.parquet"])
def name(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    # The files are small: without this their ends would be all of them.
    monkeypatch.setattr("windrow.data.remote.file.TAIL_BYTES", 40_000)
    monkeypatch.setattr("windrow.data.remote.file.HEAD_BYTES", 4_000)
    monkeypatch.setattr("windrow.data.remote.file.READ_ON_BYTES", 4_000)
    return str(request.param)


@pytest.mark.parametrize("lists", LISTS)
def test_a_remote_file_reads_like_the_local_one(web: RangeServer, files: Path, name: str, lists: Any) -> None:
    web.lists = lists
    local = windrow.data.open(str(files / name)).open(0)
    remote = windrow.data.open(f"{web.url}/{name}").open(0)
    assert remote.info == local.info
    for start, stop in ((0, 10), (4_000, 12_000), (12_000, 12_001), (7, 7), (0, ROWS)):
        there, here = remote.read(NAMES, start, stop), local.read(NAMES, start, stop)
        for column in NAMES:
            assert same(there[column], here[column])
            assert type(there[column]) is type(here[column])
    local.close()
    remote.close()


def test_columns_fetched_ahead_take_one_request(web: RangeServer, files: Path, name: str) -> None:
    local = windrow.data.open(str(files / name)).open(0)
    source = windrow.data.open(f"{web.url}/{name}")
    source.open(0).close()
    reader: Any = source.open(0)
    reader.read(["x"], 0, 1)  # what opens late has opened now
    web.requests.clear()
    reader.reads.clear()
    before = reader.bytes_read
    wanted = [(["x", "Muon_pt"], 5_000, 10_000), (["flag", "word"], 20_000, 25_000)]
    reader.prefetch(wanted)
    assert len(web.requests) == 1
    fetched = reader.bytes_read - before
    for columns, start, stop in wanted:
        mine, other = reader.read(columns, start, stop), local.read(columns, start, stop)
        assert all(same(mine[c], other[c]) for c in columns)
    if name != "t.root":  # there uproot opens the tree once more, for the column of words
        assert len(web.requests) == 1
    assert sorted(reader.reads) == sorted((c, a, b) for names, a, b in wanted for c in names)
    assert fetched >= 0.9 * local.bytes_read > 0
    assert fetched < 1.5 * local.bytes_read
    # Forgotten, or never held, it is fetched again, and listed again.
    reader.forget()
    web.requests.clear()
    for _ in range(2):
        reader.read(["x"], 5_000, 10_000)
    assert len(web.requests) == 2
    reader.close()
    local.close()


def test_opening_takes_few_requests(web: RangeServer, files: Path) -> None:
    for name, most in (("t.root", 3), ("n.root", 3), ("p.parquet", 1)):
        web.requests.clear()
        source = windrow.data.open(f"{web.url}/{name}")
        reader: Any = source.open(0)
        assert reader.requests == len(web.requests) <= most
        reader.close()


def test_a_second_reader_of_a_tree_opens_nothing(web: RangeServer) -> None:
    source = windrow.data.open(f"{web.url}/t.root")
    source.open(0).close()
    web.requests.clear()
    second = source.open(0)
    assert web.requests == []
    assert len(second.read(["x", "flag"], 0, 10)["x"]) == 10
    assert len(web.requests) == 1
    second.close()


def test_errors_of_remote_files(web: RangeServer, files: Path, tmp_path: Path) -> None:
    for missing in ("gone.root", "gone.parquet"):
        with pytest.raises(MissingFileError, match=missing):
            windrow.data.open(f"{web.url}/{missing}").open(0)
    web.answers = [503]
    with pytest.raises(OSError, match="503") as caught:
        windrow.data.open(f"{web.url}/t.root").open(0)
    assert not isinstance(caught.value, CorruptFileError)
    damaged = RangeServer(tmp_path)
    (tmp_path / "cut.root").write_bytes((files / "t.root").read_bytes()[:5000])
    (tmp_path / "cut.parquet").write_bytes((files / "p.parquet").read_bytes()[:5000])
    (tmp_path / "page.root").write_bytes(b"<html></html>")
    for cut in ("cut.root", "cut.parquet", "page.root"):
        with pytest.raises(CorruptFileError, match=cut):
            windrow.data.open(f"{damaged.url}/{cut}").open(0)
    damaged.close()


def test_other_protocols_ask_for_all_ranges_at_once(files: Path, name: str) -> None:
    import fsspec  # type: ignore[import-untyped]

    memory = fsspec.filesystem("memory")
    memory.pipe(f"/waves/{name}", (files / name).read_bytes())
    reader: Any = windrow.data.open(f"memory:///waves/{name}").open(0)
    local = windrow.data.open(str(files / name)).open(0)
    before = reader.requests
    reader.prefetch([(["x", "flag"], 0, 5_000), (["Muon_pt"], 10_000, 15_000)])
    assert reader.requests == before + 1
    assert same(reader.read(["Muon_pt"], 10_000, 15_000), local.read(["Muon_pt"], 10_000, 15_000))
    assert reader.requests == before + 1
    reader.close()
    local.close()
    memory.rm("/waves", recursive=True)


def test_a_local_file_has_no_link(files: Path) -> None:
    for file in ("t.root", "n.root", "p.parquet"):
        reader: Any = windrow.data.open(str(files / file)).open(0)
        assert reader.link is None
        assert reader.requests == 0
        reader.prefetch([(["x"], 0, 10)])
        assert reader.bytes_read == 0
        assert reader.reads == []
        reader.close()


@pytest.mark.parametrize("grown", [0, 3])
def test_a_file_that_is_replaced_is_not_mixed_with_the_old_one(server: RangeServer, grown: int) -> None:
    place = server.folder / "changing.bin"
    place.write_bytes(bytes(2_000_000))
    file = HttpFile(f"{server.url}/changing.bin")
    file.ends(100, 100)
    assert file.fetch([(500_000, 500_010)]).find(500_000, 500_010) is not None
    other = server.folder / "other.bin"
    other.write_bytes(b"x" * (2_000_000 + grown))
    other.replace(place)
    with pytest.raises(CorruptFileError, match="was replaced while it was being read"):
        file.fetch([(500_000, 500_010), (900_000, 900_010)])
    file.close()


@pytest.mark.parametrize("name", ["x.parquet", "x.root"])
def test_an_error_of_the_link_names_the_file(name: str) -> None:
    with pytest.raises(OSError, match=f"127.0.0.1:9/{name}"):
        windrow.data.open(f"http://127.0.0.1:9/{name}").open(0)
