"""TTrees: the lean path gives uproot's answer on everything, and bad files are named."""

from __future__ import annotations

import shutil
from contextlib import closing
from itertools import pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import pytest
import uproot
from hypothesis import given
from hypothesis import strategies as st

import windrow.data
from searching import few_by_day
from windrow.data.formats import ttree
from windrow.data.formats.baskets import BasketFile
from windrow.data.formats.reader import translated
from windrow.data.formats.tree_head import read_head
from windrow.data.formats.ttree import TTreeReader, leaves
from windrow.errors import CorruptFileError, MissingColumnError, MissingFileError, MissingTreeError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

SAMPLES = ["nanoaodv5_sample.root", "nano_dy.root", "nano_dimuon.root", "HZZ.root", "HZZ-lzma.root"]
MUONS = ak.types.from_datashape("var * {pt: float32, q: int8, big: float64}", highlevel=False)


def write_tree(path: Path, sizes: list[int], compression: Any = None) -> dict[str, Any]:
    """Write one basket of each size; return what was written."""
    rng = np.random.default_rng(sum(sizes))
    written: dict[str, list[Any]] = {}
    with uproot.recreate(path, compression=compression) as file:
        columns = {"Muon": MUONS, "x": "f8", "flag": "bool", "u": "u2", "l": "var * int64"}
        tree = file.mktree("dir/Events", columns, counter_name=lambda name: "n" + name)
        for size in sizes:
            counts = rng.poisson(1.5, size)
            total = int(counts.sum())
            flat = {
                "pt": rng.exponential(20, total).astype("f4"),
                "q": rng.choice([-1, 1], total).astype("i1"),
                "big": rng.normal(size=total),
            }
            batch = {
                "Muon": ak.unflatten(ak.zip(flat), counts),
                "x": rng.normal(size=size),
                "flag": rng.random(size) < 0.5,
                "u": rng.integers(0, 60_000, size).astype("u2"),
                "l": ak.unflatten(np.arange(size, dtype="i8"), [size - size // 2, size // 2])
                if size == 2
                else ak.unflatten(np.arange(size, dtype="i8"), np.ones(size, int)),
            }
            tree.extend(batch)
            for name in ("x", "flag", "u", "l"):
                written.setdefault(name, []).append(batch[name])
            for field in ("pt", "q", "big"):
                written.setdefault(f"Muon_{field}", []).append(batch["Muon"][field])
            written.setdefault("nMuon", []).append(counts)
    return {name: ak.concatenate(parts) for name, parts in written.items()}


def open_one(path: Path | str, **options: Any) -> TTreeReader:
    reader = windrow.data.open(str(path), **options).open(0)
    assert isinstance(reader, TTreeReader)
    return reader


def same(left: Any, right: Any) -> bool:
    """Compare bit by bit; ak.array_equal takes a millisecond for each of 1,500 columns."""
    one, two = ak.Array(left).layout, ak.Array(right).layout
    if one.is_list:
        one, two = one.to_ListOffsetArray64(True), two.to_ListOffsetArray64(True)
        if one.offsets.data.tobytes() != two.offsets.data.tobytes():
            return False
        one, two = one.content, two.content
    return bool(one.dtype == two.dtype and one.data.tobytes() == two.data.tobytes())


def equal(left: Any, right: Any) -> bool:
    """Compare with what was written, which may have been of another width."""
    return bool(ak.array_equal(left, right, dtype_exact=False))


@pytest.mark.samples
@pytest.mark.parametrize("name", few_by_day(reversed(SAMPLES), 3))
def test_every_branch_of_real_files_is_what_uproot_reads(samples: Path, name: str) -> None:
    reader = open_one(samples / name)
    with uproot.open(samples / name) as file:
        tree = file[reader.layout.path]
        rows = tree.num_entries
        assert reader.info.rows == rows
        assert list(reader.info.columns) == tree.keys()
        assert set(reader.layout.baskets) == set(reader.info.columns)  # none needs uproot
        for start, stop in ((0, rows), (rows // 3, rows // 2)):
            ours = reader.read(list(reader.info.columns), start, stop)
            theirs = tree.arrays(entry_start=start, entry_stop=stop, library="ak", how=dict)
            for column in ours:
                assert same(ours[column], theirs[column]), column
                check_form(reader, column, ours[column])
    reader.close()


def check_form(reader: TTreeReader, column: str, array: Any) -> None:
    info = reader.info.columns[column]
    if info.kind == "flat":
        assert isinstance(array, np.ndarray)
        assert array.dtype == info.dtype
        assert array.dtype.isnative
        assert array.flags.c_contiguous
    else:
        assert isinstance(array.layout, ak.contents.ListOffsetArray)
        assert array.layout.offsets[0] == 0
        assert array.layout.offsets[-1] == len(array.layout.content)
        assert array.layout.content.dtype == info.dtype


@pytest.mark.samples
def test_two_compressions_of_one_file_agree(samples: Path) -> None:
    one, two = open_one(samples / "HZZ.root"), open_one(samples / "HZZ-lzma.root")
    assert list(one.info.columns) == list(two.info.columns)
    assert one.info.identity != two.info.identity
    left, right = (r.read(list(r.info.columns), 100, 2000) for r in (one, two))
    assert all(same(left[name], right[name]) for name in left)
    assert one.bytes_read > two.bytes_read


@pytest.mark.samples
def test_a_real_file_is_described(samples: Path) -> None:
    info = open_one(samples / "nanoaodv5_sample.root").info
    assert info.identity == "3a554482-e0e1-11ea-875a-4a82e4a9beef"
    assert (info.rows, info.borders, len(info.columns)) == (1000, (0, 1000), 1479)
    assert info.columns["Muon_pt"].kind == "jagged"
    assert info.columns["Muon_pt"].counter == "nMuon"
    assert info.columns["HLT_IsoMu24"].dtype == np.dtype(bool)
    assert info.columns["event"].stored_bytes > 0
    assert len(info.collections["Muon"]) == 50
    assert "Muon_pt" in info.collections["Muon"]
    assert info.collections["GenMET"] == ("GenMET_phi", "GenMET_pt")
    hzz = open_one(samples / "HZZ.root").info
    assert hzz.columns["Jet_Px"].counter == "NJet"
    assert "Jet_Px" in hzz.collections["Jet"]


@pytest.mark.samples
def test_no_events_are_valid(samples: Path) -> None:
    reader = open_one(samples / "nano_dy_empty.root")
    assert (reader.info.rows, reader.info.borders) == (0, (0,))
    out = reader.read(list(reader.info.columns), 0, 0)
    assert str(out["Muon_pt"].type) == "0 * var * float32"
    assert out["HLT_IsoMu24"].dtype == np.dtype(bool)
    assert all(len(array) == 0 for array in out.values())


@pytest.mark.parametrize(
    "compression",
    [None, uproot.ZSTD(1), uproot.ZLIB(1), uproot.LZ4(1), uproot.LZMA(1)],
    ids=["none", "zstd", "zlib", "lz4", "lzma"],
)
def test_compressions(tmp_path: Path, compression: Any) -> None:
    written = write_tree(tmp_path / "x.root", [200, 300], compression)
    reader = open_one(tmp_path / "x.root")
    out = reader.read(list(written), 150, 350)
    assert all(equal(out[name], written[name][150:350]) for name in written)


def test_blocks_beyond_16_megabytes(tmp_path: Path) -> None:
    rows = 2_200_000  # 17.6 MB in one basket: two compressed blocks
    values = np.arange(rows, dtype="f8")
    with uproot.recreate(tmp_path / "x.root", compression=uproot.ZSTD(1)) as file:
        file.mktree("t", {"x": "f8"}).extend({"x": values})
    reader = open_one(tmp_path / "x.root")
    assert reader.info.borders == (0, *range(262_144, rows, 262_144), rows)
    assert np.array_equal(reader.read(["x"], 0, rows)["x"], values)


@pytest.fixture(scope="module")
def many_baskets(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    path = tmp_path_factory.mktemp("baskets") / "x.root"
    return path, write_tree(path, [1, 7, 30, 2, 25, 1, 1, 40], uproot.ZSTD(1))


@given(
    st.lists(st.tuples(st.integers(0, 107), st.integers(0, 107)), min_size=1, max_size=4),
    st.permutations(["Muon_pt", "Muon_q", "nMuon", "Muon_big", "x", "flag", "u", "l"]),
)
def test_any_sequence_of_ranges_and_columns(
    many_baskets: tuple[Path, dict[str, Any]], ranges: list[tuple[int, int]], names: list[str]
) -> None:
    path, written = many_baskets
    reader = open_one(path)
    for start, stop in map(sorted, ranges):
        for request in (names[:2], names[2:]):
            out = reader.read(request, start, stop)
            for name in request:
                assert equal(out[name], written[name][start:stop]), name
                check_form(reader, name, out[name])
    reader.close()


def test_columns_with_one_counter_share_offsets(tmp_path: Path) -> None:
    written = write_tree(tmp_path / "x.root", [50, 50])
    reader = open_one(tmp_path / "x.root")
    first = reader.read(["Muon_pt"], 10, 90)["Muon_pt"]
    second = reader.read(["Muon_q", "Muon_big"], 10, 90)
    for array in second.values():
        assert np.shares_memory(array.layout.offsets.data, first.layout.offsets.data)
    # Another range must not be given the old offsets.
    assert equal(reader.read(["Muon_q"], 11, 91)["Muon_q"], written["Muon_q"][11:91])


def test_offsets_are_not_shared_between_columns_that_are_cut_differently(tmp_path: Path) -> None:
    lists = ak.Array([[float(n)] * (n % 4) for n in range(100)])
    kind = ak.types.from_datashape("var * {v: float64}", highlevel=False)
    with uproot.recreate(tmp_path / "x.root") as file:
        for name, cuts in (("a", [0, 50, 100]), ("b", [0, 30, 100]), ("c", [0, 100])):
            tree = file.mktree(name, {"L": kind})
            for start, stop in pairwise(cuts):
                tree.extend({"L": ak.zip({"v": lists[start:stop]})})
    with closing(BasketFile(str(tmp_path / "x.root"))) as file:
        for name in "abcab":
            baskets = open_one(tmp_path / "x.root", tree=name).layout.baskets["L_v"]
            assert baskets.counter == "nL"
            for start, stop in ((0, 100), (20, 80), (40, 60)):
                assert file.read(baskets, start, stop).tolist() == lists[start:stop].tolist()


def test_branches_within_branches_have_their_own_names_where_unique() -> None:
    def branch(name: str, *children: Any) -> Any:
        return SimpleNamespace(name=name, branches=children)

    class Tree:
        def iteritems(self, **options: Any) -> Any:
            jet, muon = branch("Jet", 1), branch("Muon", 1)
            pairs = {"Jet": jet, "Jet/Jet.PT": branch("Jet.PT"), "Jet/fBits": branch("fBits")}
            pairs |= {"Muon": muon, "Muon/fBits": branch("fBits"), "x.": branch("x.")}
            pairs |= {"E": branch("E", 1), "E/fBits": branch("fBits")}
            return pairs.items()

    places = {name: place for name, (place, _) in leaves(Tree()).items()}
    assert places == {
        "Jet.PT": "Jet/Jet.PT",
        "Jet/fBits": "Jet/fBits",
        "Muon/fBits": "Muon/fBits",
        "E/fBits": "E/fBits",
        "x": "x.",
    }


def test_bytes_are_those_of_the_baskets(tmp_path: Path) -> None:
    write_tree(tmp_path / "x.root", [40, 40, 40], uproot.ZLIB(1))
    reader = open_one(tmp_path / "x.root")
    with uproot.open(tmp_path / "x.root") as file:
        branch = file["dir/Events"]["Muon_pt"]
        sizes = [branch.basket_compressed_bytes(i) for i in range(3)]
    reader.read(["Muon_pt"], 0, 40)
    assert reader.bytes_read == sizes[0]
    reader.read(["Muon_pt"], 45, 60)  # one basket, in part
    assert reader.bytes_read == sum(sizes[:2])
    reader.read(["Muon_pt"], 60, 80)  # the rest of it is kept, not read again
    assert reader.bytes_read == sum(sizes[:2])
    reader.read(["Muon_pt"], 80, 120)
    assert reader.bytes_read == sum(sizes)
    assert reader.reads == [("Muon_pt", 0, 40), ("Muon_pt", 45, 60), ("Muon_pt", 60, 80), ("Muon_pt", 80, 120)]
    assert reader.info.columns["Muon_pt"].stored_bytes == sum(sizes)


def test_units_are_the_common_baskets_joined(tmp_path: Path) -> None:
    write_tree(tmp_path / "x.root", [10_000, 10_000, 10_000])
    info = open_one(tmp_path / "x.root").info
    assert info.borders == (0, 30_000)
    assert info.clusters == (0, 10_000, 20_000, 30_000)
    assert open_one(tmp_path / "x.root", grid=16_000).info.borders == (0, 16_000, 30_000)


def test_uproot_reads_what_the_lean_path_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = write_tree(tmp_path / "x.root", [30, 30])
    monkeypatch.setattr("windrow.data.formats.ttree._plain", lambda *_: None)
    reader = open_one(tmp_path / "x.root")
    out = reader.read(list(written), 10, 50)
    for name in written:
        assert equal(out[name], written[name][10:50])
        check_form(reader, name, out[name])
    monkeypatch.undo()
    lean = open_one(tmp_path / "x.root")
    lean.read(list(written), 10, 50)
    assert reader.bytes_read == lean.bytes_read
    reader.close()


def test_fixed_arrays_strings_and_odd_names(tmp_path: Path) -> None:
    with uproot.recreate(tmp_path / "x.root") as file:
        tree = file.mktree("t", {"fixed": "(3,)f4", "a.b": "i4", "c-d": "i4", "text": "string"})
        fixed = np.arange(12, dtype="f4").reshape(4, 3)
        numbers = np.arange(4, dtype="i4")
        words = ak.Array(["a", "bb", "", "c"])
        tree.extend({"fixed": fixed, "a.b": numbers, "c-d": numbers * 2, "text": words})
    reader = open_one(tmp_path / "x.root")
    kinds = {name: column.kind for name, column in reader.info.columns.items()}
    assert kinds == {"fixed": "other", "a.b": "flat", "c-d": "flat", "text": "other"}
    assert reader.info.collections == {"a": ("a.b",)}
    for _ in range(2):  # the second reader comes without uproot's handle
        out = reader.read(list(kinds), 1, 3)
        assert out["fixed"].tolist() == fixed[1:3].tolist()
        assert out["text"].tolist() == ["bb", ""]
        assert out["c-d"].tolist() == [2, 4]
        reader.close()
        reader = TTreeReader(windrow.data.open(str(tmp_path / "x.root")).inputs[0], reader.layout)
    reader.close()


# -- trees ---------------------------------------------------------------------------------------


def test_the_only_tree_or_events_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "x.root"
    write_tree(path, [3])
    assert open_one(path).layout.path == "dir/Events"
    assert open_one(f"{path}:dir/Events").info.rows == 3
    assert open_one(path, tree="dir/Events;1").info.rows == 3
    with uproot.update(path) as file:
        file.mktree("other", {"x": "f4"}).extend({"x": np.zeros(2, "f4")})
    assert open_one(path).layout.path == "dir/Events"
    assert open_one(path, tree="other").info.rows == 2


@pytest.mark.samples
def test_missing_trees_list_those_there_are(samples: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingTreeError, match=r"'Event' is not there; .*: Events, Runs$"):
        open_one(samples / "nano_dy.root", tree="Event")
    with uproot.recreate(tmp_path / "two.root") as file:
        for name in ("a", "b"):
            file.mktree(name, {"x": "f4"})
    with pytest.raises(MissingTreeError, match=r"which of its trees.*: a, b"):
        open_one(tmp_path / "two.root")
    with uproot.recreate(tmp_path / "none.root") as file:
        file["h"] = np.histogram([1, 2])
    with pytest.raises(MissingTreeError, match="no tree in it; trees there are: none"):
        open_one(tmp_path / "none.root")
    with pytest.raises(MissingTreeError, match="'h' is a TH1D, not a tree"):
        open_one(tmp_path / "none.root", tree="h")


def test_missing_columns_are_named_with_their_neighbours(tmp_path: Path) -> None:
    write_tree(tmp_path / "x.root", [3])
    with pytest.raises(MissingColumnError, match=r"x\.root has no column 'Muon_pT'.*'Muon_pt'"):
        open_one(tmp_path / "x.root").read(["x", "Muon_pT"], 0, 3)


# -- bad files -----------------------------------------------------------------------------------


def test_a_file_that_went_away(tmp_path: Path) -> None:
    write_tree(tmp_path / "x.root", [3])
    source = windrow.data.open(str(tmp_path / "x.root"))
    (tmp_path / "x.root").unlink()
    with pytest.raises(MissingFileError, match=r"no such file: .*x\.root"):
        source.open(0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"empty \(0 bytes\)"),
        (b"PAR1....", "it is a Parquet file"),
        (b"<!DOCTYPE html><html>404</html>", "with b'<!DOCTY"),
        (b"run,event\n1,2\n", "does not begin with 'root'.*Parquet and arrays"),
        (b"root" + b"\xff" * 100, "truncated"),
    ],
)
def test_files_that_are_not_root(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "x.root").write_bytes(content)
    with pytest.raises(CorruptFileError, match=rf"x\.root cannot be read as ROOT.*{message}"):
        open_one(tmp_path / "x.root")


@pytest.mark.parametrize("percent", [1, 5, 20, 40, 60, 80, 95, 99])
def test_truncated_files_never_give_wrong_numbers(tmp_path: Path, percent: int) -> None:
    whole = tmp_path / "whole.root"
    written = write_tree(whole, [300, 300], uproot.ZLIB(1))
    cut = tmp_path / "cut.root"
    raw = whole.read_bytes()
    cut.write_bytes(raw[: len(raw) * percent // 100])
    with pytest.raises(CorruptFileError, match=rf"cut\.root .*truncated: .* says {len(raw)} bytes"):
        open_one(cut).read(list(written), 0, 600)


def read_all(source: windrow.data.Source) -> None:
    reader = source.open(0)
    reader.read(list(reader.info.columns), 0, reader.info.rows)


@pytest.mark.samples
@pytest.mark.parametrize("percent", [3, 30, 70, 97])
@pytest.mark.parametrize("name", ["HZZ.root", "nano_dy_rntuple.root"])
def test_truncated_real_files(samples: Path, tmp_path: Path, name: str, percent: int) -> None:
    raw = (samples / name).read_bytes()
    (tmp_path / name).write_bytes(raw[: len(raw) * percent // 100])
    source = windrow.data.open(str(tmp_path / name))
    with pytest.raises(CorruptFileError, match="truncated"):
        read_all(source)


def test_a_file_cut_after_it_was_opened(tmp_path: Path) -> None:
    path = tmp_path / "x.root"
    write_tree(path, [500, 500])
    reader = open_one(path)
    with path.open("r+b") as file:
        file.truncate(2000)
    with pytest.raises(CorruptFileError, match=r"x\.root"):
        reader.read(["x", "Muon_pt"], 0, 1000)


@pytest.mark.parametrize("compression", [uproot.ZLIB(1), uproot.ZSTD(1), uproot.LZ4(1)])
def test_damaged_baskets_are_named(tmp_path: Path, compression: Any) -> None:
    path = tmp_path / "x.root"
    write_tree(path, [500], compression)
    reader = open_one(path)
    baskets = reader.layout.baskets["l"]  # compresses well: what does not is stored as it is
    with path.open("r+b") as file:
        file.seek(baskets.seeks[0] + baskets.sizes[0] // 2)
        file.write(bytes(64))
    with pytest.raises(CorruptFileError, match=r"x\.root"):
        reader.read(["l"], 0, 500)


def test_transient_errors_stay_what_they_are() -> None:
    for error in (ConnectionResetError(104, "reset"), TimeoutError(110, "late"), OSError(5, "I/O")):
        with pytest.raises(type(error)) as caught, translated("x.root"):
            raise error
        assert not isinstance(caught.value, CorruptFileError)
    with pytest.raises(OSError, match="gone") as caught_remote, translated("root://h//x.root"):
        raise OSError("gone")
    assert not isinstance(caught_remote.value, CorruptFileError)


def test_a_protocol_whose_package_is_missing_is_named() -> None:
    with pytest.raises(UsageError, match=r"s3://x needs .*: install s3fs"), translated("s3://x"):
        raise ImportError("install s3fs")


def test_impossible_offsets_do_not_get_through(tmp_path: Path) -> None:
    path = tmp_path / "x.root"
    write_tree(path, [50])  # not compressed
    reader = open_one(path)
    baskets = reader.layout.baskets["Muon_pt"]
    with path.open("r+b") as file:
        file.seek(baskets.seeks[0] + baskets.sizes[0] - 4 * 20)
        file.write((10_000).to_bytes(4, "big"))
    with pytest.raises(CorruptFileError, match="impossible offsets"):
        reader.read(["Muon_pt"], 0, 50)


def test_copies_are_told_apart_from_replacements(tmp_path: Path) -> None:
    write_tree(tmp_path / "x.root", [3])
    shutil.copy(tmp_path / "x.root", tmp_path / "y.root")
    same_uuid = {open_one(tmp_path / f"{name}.root").info.identity for name in "xy"}
    assert len(same_uuid) == 1


# -- what a tree says of itself --------------------------------------------------------------------


def both_layouts(path: Path, tree: str) -> tuple[Any, Any]:
    """Return the layout as it is read lean, and as uproot tells it."""
    with uproot.open(path) as file, pytest.MonkeyPatch.context() as patch:
        assert read_head(file, tree) is not None
        lean = ttree.ttree_layout(file, tree, None)
        patch.setattr(ttree, "read_head", lambda *_: None)
        return lean, ttree.ttree_layout(file, tree, None)


@pytest.mark.samples
@pytest.mark.parametrize("name", ["nanoaodv5_sample.root", "nano_dy.root", "nano_dimuon.root", "nano_dy_empty.root"])
def test_a_tree_of_plain_branches_is_described_as_by_uproot(samples: Path, name: str) -> None:
    lean, through_uproot = both_layouts(samples / name, "Events")
    assert lean == through_uproot
    assert len(lean.info.columns) > 1000


@given(sizes=st.lists(st.integers(0, 30), min_size=1, max_size=15))
def test_a_written_tree_is_described_as_by_uproot(tmp_path_factory: pytest.TempPathFactory, sizes: list[int]) -> None:
    path = tmp_path_factory.mktemp("head") / "tree.root"
    write_tree(path, sizes)
    lean, through_uproot = both_layouts(path, "dir/Events")
    assert lean == through_uproot


def write_odd(path: Path, kind: str) -> None:
    values = np.arange(6.0)
    columns: dict[str, Any] = {"x": values}
    if kind == "vectors":
        columns["v"] = values.reshape(2, 3)[[0, 1, 0, 1, 0, 1]]
    elif kind == "texts":
        columns["t"] = ["a"] * 6
    with uproot.recreate(path) as file:
        file.mktree("Events", {"x": "f8", **({"v": ("f8", (3,))} if kind == "vectors" else {"t": "string"})})
        file["Events"].extend(columns)


@pytest.mark.parametrize("kind", ["vectors", "texts"])
def test_a_tree_with_other_branches_is_left_to_uproot(tmp_path: Path, kind: str) -> None:
    write_odd(tmp_path / "odd.root", kind)
    with uproot.open(tmp_path / "odd.root") as file:
        assert read_head(file, "Events") is None
        columns = ttree.ttree_layout(file, "Events", None).info.columns
    assert columns["x"].kind == "flat"
    assert columns["v" if kind == "vectors" else "t"].kind == "other"


@given(data=st.data())
def test_a_damaged_head_is_refused_or_read_but_never_breaks(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("head") / "tree.root"
    write_tree(path, [5, 7])
    with uproot.open(path) as file:
        chunk, cursor = file.key("dir/Events").get_uncompressed_chunk_cursor()
        damaged = bytearray(chunk.raw_data.tobytes())
        for _ in range(data.draw(st.integers(1, 3))):
            damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
        chunk = SimpleNamespace(raw_data=np.frombuffer(bytes(damaged), np.uint8))
        key = SimpleNamespace(fClassName="TTree", get_uncompressed_chunk_cursor=lambda: (chunk, cursor))
        head = read_head(SimpleNamespace(key=lambda _: key), "dir/Events")
    assert head is None or isinstance(head.rows, int)
