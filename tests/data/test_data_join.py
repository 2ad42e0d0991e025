"""Joined sources: row by row and by identity, against joins written out in plain Python."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
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
from hypothesis.extra import numpy as hnp

import windrow as wr
from windrow.data.join import chain
from windrow.data.join.chain import IdentityIndex
from windrow.errors import CorruptFileError, DataError, MissingColumnError, SpecError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ON = ("run", "luminosityBlock", "event")


def events(rows: int, first: int = 0) -> dict[str, Any]:
    number = np.arange(first, first + rows)
    return {
        "run": (number // 50 + 1).astype(np.uint32),
        "luminosityBlock": (number // 10 + 1).astype(np.uint32),
        "event": (number * 7 + 2**40).astype(np.uint64),
        "x": number.astype(np.float32),
    }


def scores(rows: int, first: int = 0) -> dict[str, Any]:
    number = np.arange(first, first + rows)
    counts = number % 3
    return {"score": np.sin(number), "parts": ak.unflatten(np.cos(np.arange(counts.sum()) + first), counts)}


def write_root(path: Path, columns: dict[str, Any], step: int = 40) -> str:
    with uproot.recreate(path) as file:
        types = {
            name: "var * float64" if isinstance(values, ak.Array) else values.dtype for name, values in columns.items()
        }
        tree = file.mktree("Events", types)
        rows = len(next(iter(columns.values())))
        for start in range(0, rows, step):
            tree.extend({name: values[start : start + step] for name, values in columns.items()})
    return str(path)


def write_parquet(path: Path, columns: dict[str, Any], step: int = 40) -> str:
    arrays = {
        name: ak.to_arrow(values, extensionarray=False) if isinstance(values, ak.Array) else pa.array(values)
        for name, values in columns.items()
    }
    pq.write_table(pa.table(arrays), path, row_group_size=max(step, 1))
    return str(path)


def part(columns: dict[str, Any], start: int, stop: int) -> dict[str, Any]:
    return {name: values[start:stop] for name, values in columns.items()}


def read_all(source: Any, names: Sequence[str]) -> dict[str, list[Any]]:
    """All rows of all inputs, as plain lists."""
    out: dict[str, list[Any]] = {name: [] for name in names}
    for item in source.inputs:
        reader = source.open(item.index)
        values = reader.read(names, 0, reader.info.rows)
        reader.close()
        for name in names:
            out[name] += ak.to_list(values[name])
    return out


# --- row by row -----------------------------------------------------------------------------------

#: Where the main files and the friend's files are cut, of 120 rows.
SPLITS = [
    ((0, 120), (0, 120)),
    ((0, 50, 120), (0, 50, 120)),
    ((0, 30, 70, 120), (0, 120)),
    ((0, 120), (0, 1, 64, 120)),
    ((0, 30, 70, 120), (0, 65, 120)),
    ((0, 0, 60, 120), (0, 120)),
]


@pytest.mark.parametrize(("mine", "theirs"), SPLITS)
@pytest.mark.parametrize("form", ["root", "parquet"])
def test_rows_follow_each_other(tmp_path: Path, form: str, mine: tuple[int, ...], theirs: tuple[int, ...]) -> None:
    write = write_root if form == "root" else write_parquet
    main, friend = events(120), scores(120)
    a = [write(tmp_path / f"a{n}.{form}", part(main, *pair)) for n, pair in enumerate(pairwise(mine))]
    b = [write(tmp_path / f"b{n}.{form}", part(friend, *pair)) for n, pair in enumerate(pairwise(theirs))]
    source = wr.data.join(a, b)
    found = read_all(source, ["score", "x", "parts"])
    assert found == {"x": main["x"].tolist(), "score": friend["score"].tolist(), "parts": ak.to_list(friend["parts"])}
    plain = wr.data.open(a)
    for item in plain.inputs:
        one, other = source.open(item.index), plain.open(item.index)
        assert (one.info.borders, one.info.clusters) == (other.info.borders, other.info.clusters)
        assert (one.info.identity, one.info.rows) == (other.info.identity, other.info.rows)
        assert one.info.columns["parts"].kind == "jagged"
        assert one.info.columns["score"].dtype == np.float64
        one.close()
        other.close()


@given(data=st.data())
def test_any_range_of_rows(data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 60))
    friend = scores(rows)
    source = wr.data.join(events(rows), {"mva": {"files": friend}})
    start = data.draw(st.integers(0, rows))
    stop = data.draw(st.integers(start, rows))
    got = source.open(0).read(["score", "event", "parts"], start, stop)
    assert got["score"].tolist() == friend["score"][start:stop].tolist()
    assert ak.to_list(got["parts"]) == ak.to_list(friend["parts"][start:stop])
    assert list(got) == ["score", "event", "parts"]


@pytest.mark.parametrize(
    ("mine", "theirs", "message"),
    [
        ((0, 50, 100), (0, 49, 100), r"a0.parquet has 50 rows, .*b0.parquet has 49"),
        ((0, 100), (0, 99), r"a0.parquet has 100 rows, .*b0.parquet has 99"),
        ((0, 50, 100), (0, 99), r"dataset 'data' has 100 rows, .*b0.parquet has 99: row by row .* on="),
        ((0, 100), (0, 50, 99), r"a0.parquet has 100 rows, the 2 files of its friend has 99"),
    ],
)
def test_as_many_rows_are_needed(tmp_path: Path, mine: tuple[int, ...], theirs: tuple[int, ...], message: str) -> None:
    a = [write_parquet(tmp_path / f"a{n}.parquet", part(events(100), *pair)) for n, pair in enumerate(pairwise(mine))]
    b = [write_parquet(tmp_path / f"b{n}.parquet", part(scores(100), *pair)) for n, pair in enumerate(pairwise(theirs))]
    source = wr.data.join(a, b)
    with pytest.raises(DataError, match=message):
        source.open(0)


# --- by identity ----------------------------------------------------------------------------------


@given(data=st.data())
def test_rows_are_found_by_identity(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Any order and any subset of the friend's rows, in any files and row groups; the oracle is a dict."""
    directory = tmp_path_factory.mktemp("identity")
    rows = data.draw(st.integers(0, 40))
    universe = {**events(50), **scores(50)}
    order = np.array(data.draw(st.permutations(range(50))))
    wanted = np.array(data.draw(st.permutations(range(50)))[:rows], dtype=int)
    kept = data.draw(st.integers(1, 50))
    there = order[:kept]
    missing: Any = "none" if set(wanted.tolist()) - set(there.tolist()) else "error"
    if missing == "error" and data.draw(st.booleans()):
        missing = "none"
    main = {name: universe[name][wanted] for name in (*ON, "x")}
    friend = {name: universe[name][there] for name in (*ON, "score", "parts")}
    cut = data.draw(st.integers(0, kept))
    step = data.draw(st.integers(1, 20))
    b = [
        write_parquet(directory / "b0.parquet", part(friend, 0, cut), step),
        write_parquet(directory / "b1.parquet", part(friend, cut, kept), step),
    ]
    a = write_parquet(directory / "a.parquet", main, data.draw(st.integers(1, 20)))
    source = wr.data.join(a, b, ON, missing=missing)
    known = {
        tuple(int(universe[name][row]) for name in ON): (float(universe["score"][row]), universe["parts"][row].tolist())
        for row in there
    }
    expected = [known.get(tuple(int(main[name][row]) for name in ON), (None, None)) for row in range(rows)]
    start = data.draw(st.integers(0, rows))
    stop = data.draw(st.integers(start, rows))
    reader = source.open(0)
    for low, high in ((start, stop), (0, rows)):
        got = reader.read(["score", "x", "parts"], low, high)
        assert ak.to_list(got["score"]) == [one for one, _ in expected[low:high]]
        assert ak.to_list(got["parts"]) == [one for _, one in expected[low:high]]
        assert got["x"].tolist() == main["x"][low:high].tolist()
        if missing == "error":
            assert isinstance(got["score"], np.ndarray)
            assert got["parts"].layout.is_list
        else:
            assert got["score"].layout.is_option
    reader.close()
    kinds = {name: reader.info.columns[name].kind for name in ("score", "parts")}
    assert set(kinds.values()) == ({"flat", "jagged"} if missing == "error" else {"other"})


def test_rows_without_a_partner_are_named(tmp_path: Path) -> None:
    friend = {**events(100), **scores(100)}
    del friend["x"]
    keep = np.ones(100, dtype=bool)
    keep[[3, 60]] = False
    b = write_parquet(tmp_path / "b.parquet", {name: v[keep] for name, v in friend.items()})
    source = wr.data.join(events(100), b, ON)
    reader = source.open(0)
    assert len(reader.read(["x"], 0, 100)["x"]) == 100  # the friend is not needed for that
    message = rf"2 of its 100 rows have no partner .*\(run=1, luminosityBlock=1, event={2**40 + 21}\).*missing='none'"
    for start, stop in ((0, 1), (0, 100)):  # whichever rows are asked for
        with pytest.raises(DataError, match=message):
            reader.read(["score"], start, stop)


def test_an_identity_that_is_there_twice_is_named(tmp_path: Path) -> None:
    friend = {"event": np.array([5, 6, 7, 6, 8, 5]), "score": np.arange(6.0)}
    b = write_parquet(tmp_path / "b.parquet", friend)
    source = wr.data.join({"event": np.array([7, 8])}, b, "event")
    message = r"b.parquet: 2 identities .* more than once, the first \(event=5\), \(event=6\)"
    with pytest.raises(DataError, match=message):
        source.open(0).read(["score"], 0, 2)


def test_numbers_are_equal_in_any_type() -> None:
    main = {"event": np.array([3, 1, 2], dtype=np.uint64)}
    friend = {"event": np.array([1, 2, 3, -1], dtype=np.int32), "y": np.array([10.0, 20, 30, 40])}
    assert read_all(wr.data.join(main, friend, "event"), ["y"]) == {"y": [30.0, 10.0, 20.0]}


@given(
    values=hnp.arrays(np.int64, st.tuples(st.integers(0, 40), st.just(2)), elements=st.integers(0, 5)),
    asked=hnp.arrays(np.int64, st.tuples(st.integers(0, 20), st.just(2)), elements=st.integers(0, 6)),
)  # fmt: skip
def test_the_index_is_exact(values: Any, asked: Any) -> None:
    index = IdentityIndex([values[:, 0], values[:, 1]])
    seen: dict[tuple[int, int], list[int]] = {}
    for row, pair in enumerate(map(tuple, values.tolist())):
        seen.setdefault(pair, []).append(row)
    assert index.duplicates().tolist() == sorted(r[0] for r in seen.values() if len(r) > 1)
    for pair, row in zip(map(tuple, asked.tolist()), index.find([asked[:, 0], asked[:, 1]]), strict=True):
        assert row in seen[pair] if pair in seen else row == -1


def test_identities_of_one_hash_are_refused_and_never_taken_for_one_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain, "identity_hash", lambda columns: columns[0].astype(np.uint64) % np.uint64(3))
    index = IdentityIndex([np.array([4, 2, 7])])
    assert index.duplicates().tolist() == [0]
    assert index.find([np.array([1, 2, 5])]).tolist() == [-1, 1, -1]


@pytest.mark.parametrize(
    ("main", "friend", "on", "error", "message"),
    [
        ({"event": np.arange(3)}, {"evnt": np.arange(3)}, "event", MissingColumnError, "data has no column 'event', which on= names; did you mean 'evnt'"),
        ({"evt": np.arange(3)}, {"event": np.arange(3)}, "event", MissingColumnError, "has no column 'event'"),
        ({"event": np.arange(3.0)}, {"event": np.arange(3)}, "event", UsageError, "'event', which is not one whole number per row"),
    ],
)  # fmt: skip
def test_identities_that_cannot_be(main: Any, friend: Any, on: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        wr.data.join(main, friend, on).open(0)


# --- names ----------------------------------------------------------------------------------------


def test_columns_of_one_name_are_refused_or_renamed() -> None:
    main = {"x": np.arange(4), "y": np.arange(4), "z": np.arange(4)}
    friend = {"x": np.arange(4) * 10, "y": np.arange(4) * 10, "w": np.arange(4)}
    with pytest.raises(SpecError, match=r"both have x, y: write join\(..., prefix="):
        wr.data.join(main, friend).open(0)
    with pytest.raises(SpecError, match="both have y: "):
        wr.data.join(main, friend, "x").open(0)
    source = wr.data.join(main, friend, prefix="mva_", suffix="_new")
    assert set(source.open(0).info.columns) == {"x", "y", "z", "mva_x_new", "mva_y_new", "mva_w_new"}  # fmt: skip
    assert read_all(source, ["x", "mva_x_new"])["mva_x_new"] == [0, 10, 20, 30]
    with pytest.raises(MissingColumnError, match="has no column 'mva_x'; did you mean 'mva_x_new'"):
        source.open(0).read(["mva_x"], 0, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on": ()}, "on= names the columns"),
        ({"on": (1,)}, "on= names the columns"),
        ({"on": "x", "missing": "drop"}, "missing= must be 'error' or 'none', got 'drop'"),
        ({"missing": "none"}, "missing='none' needs on="),
    ],
)
def test_options_that_mean_nothing(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        wr.data.join({"x": np.arange(2)}, {"y": np.arange(2)}, **options)


def test_datasets_are_joined_by_name() -> None:
    def fileset(column: str, **scales: int) -> dict[str, Any]:
        return {name: {column: np.arange(3) * scale} for name, scale in scales.items()}

    source = wr.data.join(fileset("x", dy=1, tt=2), fileset("y", tt=20, other=5, dy=10))
    assert list(source.datasets) == ["dy", "tt"]
    assert read_all(source, ["x", "y"]) == {"x": [0, 1, 2, 0, 2, 4], "y": [0, 10, 20, 0, 20, 40]}
    with pytest.raises(SpecError, match=r"no dataset 'tt'.*\(it has dy, ttbar\)"):
        wr.data.join(fileset("x", dy=1, tt=2), fileset("y", dy=1, ttbar=1))


def write_muons(path: Path, field: str, counts: Any, scale: float) -> str:
    records = ak.zip({field: ak.unflatten(np.arange(counts.sum()) * scale, counts)})
    with uproot.recreate(path) as file:
        tree = file.mktree("Events", {"Muon": f"var * {{{field}: float64}}"})
        tree.extend({"Muon": records})
    return str(path)


def test_one_collection_of_both(tmp_path: Path) -> None:
    counts = np.array([2, 0, 1, 3])
    a = write_muons(tmp_path / "a.root", "pt", counts, 1.0)
    b = write_muons(tmp_path / "b.root", "score", counts, 0.5)
    analysis = wr.Pipeline("both")

    @analysis.column
    def products(Muon: Any) -> Any:
        return ak.sum(Muon.pt * Muon.score, axis=1)

    @analysis.output
    def total(products: Any) -> float:
        return float(np.sum(products))

    source = wr.data.join(a, b)
    assert source.open(0).info.collections["Muon"] == ("Muon_pt", "Muon_score")
    assert analysis.run(source, progress=False)["total"] == sum(0.5 * n * n for n in range(6))
    # As many objects in all, but not in each row.
    wrong = write_muons(tmp_path / "wrong.root", "score", np.array([2, 1, 0, 3]), 0.5)
    with pytest.raises(CorruptFileError, match=r"in row 1 .*'Muon_score' has another number .*'nMuon'"):  # fmt: skip
        wr.data.join(a, wrong).open(0).read(["Muon_score"], 0, 4)
    apart = wr.data.join(a, wrong, prefix="f_")
    assert ak.num(apart.open(0).read(["f_Muon_score"], 0, 4)["f_Muon_score"]).tolist() == [2, 1, 0, 3]  # fmt: skip


def test_a_joined_source_can_be_joined() -> None:
    source = wr.data.join(wr.data.join({"x": np.arange(4)}, {"y": np.arange(4) * 2}), {"z": np.arange(4) * 3})
    assert read_all(source, ["x", "y", "z"]) == {"x": [0, 1, 2, 3], "y": [0, 2, 4, 6], "z": [0, 3, 6, 9]}  # fmt: skip


# --- as a source ----------------------------------------------------------------------------------


@pytest.mark.parametrize("on", [None, ON])
def test_it_pickles(tmp_path: Path, on: Any) -> None:
    a = write_root(tmp_path / "a.root", events(90))
    columns = {**events(90), **scores(90)}
    del columns["x"]
    friend = columns if on else scores(90)
    source = wr.data.join(a, write_root(tmp_path / "b.root", friend), on)
    before = read_all(source, ["score", "parts"])
    again = pickle.loads(pickle.dumps(source))
    assert again.inputs == source.inputs
    assert read_all(again, ["score", "parts"]) == before


def test_only_what_is_asked_for_is_read(tmp_path: Path) -> None:
    wide = {f"c{n}": np.random.default_rng(n).random(5000) for n in range(20)}
    a = write_root(tmp_path / "a.root", events(5000), 1000)
    b = write_root(tmp_path / "b.root", wide, 1000)
    source = wr.data.join(a, b)
    reader = source.open(0)
    reader.read(["x"], 0, 5000)
    mine = reader.bytes_read
    reader.read(["c3"], 2000, 3000)
    with uproot.open(f"{b}:Events") as tree:
        basket = tree["c3"].basket_compressed_bytes(2)
    assert reader.bytes_read - mine == basket
    assert reader.reads == [("x", 0, 5000), ("c3", 2000, 3000)]


def test_rows_looked_up_are_read_cluster_by_cluster(tmp_path: Path) -> None:
    number = np.arange(5000)
    b = write_parquet(tmp_path / "b.parquet", {"event": number, "y": np.sqrt(number)}, 1000)
    wanted = np.array([4100, 4500, 10, 4200, 900])
    source = wr.data.join({"event": wanted}, wr.data.open(b, grid=1000), "event")
    reader = source.open(0)
    metadata = pq.read_metadata(b)

    def stored(column: int, *groups: int) -> int:
        return sum(metadata.row_group(g).column(column).total_compressed_size for g in groups)

    assert reader.read(["y"], 0, 5)["y"].tolist() == np.sqrt(wanted).tolist()
    identities = stored(0, 0, 1, 2, 3, 4)
    assert reader.bytes_read == wanted.nbytes + identities + stored(1, 0, 4)


def test_a_friend_that_is_replaced(tmp_path: Path) -> None:
    write_root(tmp_path / "b.root", scores(50))
    source = wr.data.join(events(50), str(tmp_path / "b.root"))
    source.open(0).read(["score"], 0, 50)
    reader = source.open(0)
    write_root(tmp_path / "b.root", scores(50, first=9))
    with pytest.raises(CorruptFileError, match=r"b.root was replaced"):
        reader.read(["score"], 0, 50)


def test_a_main_file_that_is_replaced_between_runs(tmp_path: Path) -> None:
    friend = {"event": np.arange(6), "y": np.arange(6) * 10}
    write_root(tmp_path / "a.root", {"event": np.array([3, 1])})
    source = wr.data.join(str(tmp_path / "a.root"), friend, "event")
    assert read_all(source, ["y"]) == {"y": [30, 10]}
    write_root(tmp_path / "a.root", {"event": np.array([5, 2])})
    assert read_all(source, ["y"]) == {"y": [50, 20]}


# --- in a pipeline --------------------------------------------------------------------------------


def joined_analysis() -> wr.Pipeline:
    analysis = wr.Pipeline("friends")

    @analysis.cut
    def early(x: Any) -> Any:
        return x < 3000

    @analysis.column
    def sums(parts: Any) -> Any:
        return ak.sum(parts, axis=1)

    @analysis.column
    def noise(x: Any, *, rng: Any) -> Any:
        return rng("noise").uniform(like=x)

    @analysis.cut
    def good(score: Any) -> Any:
        return score > 0

    @analysis.output
    def table(x: Any, score: Any, sums: Any, noise: Any) -> Any:
        return np.stack([x, score, sums, noise], axis=1).tolist()

    return analysis


@pytest.mark.parametrize("on", [None, ON])
@pytest.mark.parametrize("workers", [1, 4])
def test_a_run_equals_the_plain_join(tmp_path: Path, on: Any, workers: int) -> None:
    rows, cuts = 6000, (0, 2500, 4000, 6000)
    main, friend = events(rows), scores(rows)
    a = [write_root(tmp_path / f"a{n}.root", part(main, *pair), 500) for n, pair in enumerate(pairwise(cuts))]
    if on is None:
        b: Any = write_root(tmp_path / "b.root", friend, 700)
    else:
        order = np.random.default_rng(3).permutation(rows)
        everything = {**{name: main[name] for name in ON}, **friend}
        shuffled = {name: values[order] for name, values in everything.items()}
        b = [
            write_root(tmp_path / "b0.root", part(shuffled, 0, 1000), 700),
            write_root(tmp_path / "b1.root", part(shuffled, 1000, rows), 700),
        ]
    source = wr.data.join(wr.data.open(a, grid=500), b, on)
    options: dict[str, Any] = {"chunk": 500, "progress": False, "workers": workers}
    result = joined_analysis().run(source, engine="threads", **options)
    assert result.ledger.done == rows
    keep = (main["x"] < 3000) & (friend["score"] > 0)
    expected = np.stack([main["x"], friend["score"], ak.to_numpy(ak.sum(friend["parts"], axis=1))], axis=1)[keep]
    got = np.array(result["table"])
    np.testing.assert_array_equal(got[:, :3], expected)
    # Random numbers belong to the rows of the main files: the same without any friend.
    alone = wr.Pipeline("alone")

    @alone.cut
    def early(x: Any) -> Any:
        return x < 3000

    @alone.output
    def numbers(x: Any, *, rng: Any) -> Any:
        return np.stack([x, rng("noise").uniform(like=x)], axis=1).tolist()

    plain = np.array(alone.run(wr.data.open(a, grid=500), **options)["numbers"])
    np.testing.assert_array_equal(got[:, 3], plain[np.isin(plain[:, 0], got[:, 0]), 1])
    assert result.steps["good"].rows_in == 3000


def test_many_threads_learn_of_the_friend_once(tmp_path: Path) -> None:
    friend = {**events(2000), **scores(2000)}
    del friend["x"]
    b = write_parquet(tmp_path / "b.parquet", friend, 500)
    source = wr.data.join(events(2000), b, ON)

    def work(n: int) -> Any:
        reader = source.open(0)
        try:
            return reader.read(["score"], n * 100, n * 100 + 100)["score"], reader.bytes_read
        finally:
            reader.close()

    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(work, range(20)))
    np.testing.assert_array_equal(np.concatenate([v for v, _ in done]), friend["score"])
    metadata = pq.read_metadata(b)
    names = [metadata.schema.column(n).name for n in range(3)]
    assert names == list(ON)
    identities = sum(
        metadata.row_group(g).column(n).total_compressed_size for g in range(metadata.num_row_groups) for n in range(3)
    )
    assert sum(count > identities for _, count in done) == 1
