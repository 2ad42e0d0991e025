"""The NanoAOD example against its plain program, on generated and on real files, in many orders."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import pyarrow.parquet as pq
import pytest
import uproot

import windrow as wr
from loading import load
from ordering import costing, eager, legal
from windrow.order.constraints import complete
from windrow.pipeline.definition.definition import dependencies, written_order

if TYPE_CHECKING:
    from pathlib import Path

REAL = {"dy": "nano_dy.root", "data": "nano_dimuon.root", "v5": "nanoaodv5_sample.root"}
EVENTS = 4_000
nanoaod, generator, oracle = (
    load("examples/nanoaod/analysis.py"),
    load("examples/nanoaod/generate.py"),
    load("examples/nanoaod/plain.py"),
)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    directory = tmp_path_factory.mktemp("nanoaod")
    return {
        name: {
            "files": {str(generator.write(directory / f"{name}.root", rows, is_mc=is_mc)): "Events"},
            "metadata": {"is_mc": is_mc},
        }
        for name, rows, is_mc in (("mc", EVENTS, True), ("data", EVENTS // 4, False))
    }


@pytest.fixture(scope="module")
def expected(files: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = oracle.plain(files)
    return found


@pytest.fixture(scope="module")
def real(samples: Path) -> dict[str, Any]:
    return {
        name: {"files": {str(samples / file): "Events"}, "metadata": {"is_mc": name != "data"}}
        for name, file in REAL.items()
    }


def run(data: Any, regions: int = 4, **options: Any) -> Any:
    options = {"engine": "inline", "progress": False, "order": "written", **options}
    return nanoaod.build(regions).run(data, **options)


def check(result: Any, expected: dict[str, dict[str, Any]], *, regions: int = 4) -> None:
    """Compare everything but cutflows, bit by bit: one file is one unit, so that sums are added up in one way only."""
    known = list(nanoaod.REGIONS)[:regions]
    for dataset, plain in expected.items():
        assert result["total", "nominal", dataset] == plain["total"]
        for key, value in plain.items():
            if key == "total" or key[1] not in known:
                continue
            if key[0] == "cutflow":
                lines = result.cutflow[key[1], dataset].executed
                assert lines[-1].passed == list(value.values())[-1], key
            elif key[0] == "selected":
                assert result[(*key, dataset)] == value, key
            else:
                mine = result[(*key, dataset)].view(flow=True)
                np.testing.assert_array_equal(mine, value.view(flow=True), err_msg=str(key))


def check_cutflow(result: Any, expected: dict[str, Any]) -> None:
    for dataset, plain in expected.items():
        for region in nanoaod.REGIONS:
            lines = result.cutflow[region, dataset].written
            found = {"!" * line.inverted + line.name: line.passed for line in lines}
            assert found == plain["cutflow", region]
            assert all(line.undefined == 0 for line in lines)


# -- the form -----------------------------------------------------------------------------------


def test_12_cuts_and_4_regions() -> None:
    analysis = nanoaod.build()
    kinds = [step.kind for step in analysis._steps.values()]
    assert kinds.count("cut") == 12
    written = written_order(analysis._steps)
    assert tuple(s for s in written if analysis._steps[s].kind == "cut") == nanoaod.CUTS
    assert list(analysis._regions) == ["SR", "CR_top", "CR_Z", "VR"]
    assert list(nanoaod.build(1)._regions) == ["SR"]
    with pytest.raises(ValueError, match="1 to 4 regions, got 5"):
        nanoaod.build(5)


def test_cuts_that_cost_nothing_and_drop_much_are_written_late(files: dict[str, Any]) -> None:
    """The case has something to gain: the cut on missing momentum drops most rows, in written order it sees few."""
    masks, _ = oracle.select(oracle.read(next(iter(files["mc"]["files"])), "Events", True))
    shares = {name: float(mask.mean()) for name, mask in masks.items()}
    assert shares["missing_momentum"] < 0.4
    assert shares["trigger"] > 0.45
    alive = np.ones(EVENTS, bool)
    for name in nanoaod.CUTS[:-2]:
        alive &= masks[name]
    assert 0.02 < alive.mean() < 0.1


# -- the same answer ----------------------------------------------------------------------------


def test_the_plain_program_says_the_same(files: dict[str, Any], expected: Any) -> None:
    result = run(files)
    check(result, expected)
    check_cutflow(result, expected)
    for region in nanoaod.REGIONS:
        assert result["selected", region, "nominal", "mc"]["events"] > 5
    assert result["selected", "SR", "pileup_up", "mc"] != result["selected", "SR", "nominal", "mc"]


def test_no_order_changes_the_answer(files: dict[str, Any], expected: Any) -> None:
    for seed in range(2):
        analysis = nanoaod.build()
        order = legal(analysis, seed)
        result = analysis.run(files, order=order, engine="inline", progress=False)
        check(result, expected)
        # Nothing raises, whichever rows it is given: no guard has to be learned.
        assert analysis.guards == set()


def test_cheap_cuts_first(files: dict[str, Any], expected: Any) -> None:
    analysis = nanoaod.build(1)
    needs = dependencies(analysis._steps)
    order = complete(["missing_momentum", "clean"], written_order(analysis._steps), needs)
    result = analysis.run(files, order=list(order), engine="inline", progress=False)
    check(result, expected, regions=1)


WAYS = [
    pytest.param({"engine": "threads", "workers": 2}, id="threads"),
    pytest.param({"engine": "processes", "workers": 2}, id="processes"),
    pytest.param({"_block_rows": 1_500}, id="small-blocks"),
]


@pytest.mark.parametrize("options", WAYS)
def test_neither_engine_nor_blocks_change_the_answer(
    files: dict[str, Any], expected: Any, options: dict[str, Any]
) -> None:
    order = legal(nanoaod.build(), 17)
    check(run({"mc": files["mc"]}, order=order, **options), {"mc": expected["mc"]})


@pytest.mark.slow
def test_small_units_in_any_order_are_the_same_among_themselves(files: dict[str, Any]) -> None:
    """With many units sums are added up in a tree: the same one in every order, chunk and engine."""
    ways: list[tuple[Any, dict[str, Any]]] = [
        ("written", {}),
        (legal(nanoaod.build(), 5), {"engine": "threads", "workers": 2, "chunk": 1_000}),
    ]
    runs = [run(wr.data.open({"mc": files["mc"]}, grid=1_000), order=order, **options) for order, options in ways]
    for region in nanoaod.REGIONS:
        for variation in ("nominal", "pileup_down"):
            key = (region, variation)
            first = runs[0][("dilepton", *key)].view(flow=True)
            for other in runs[1:]:
                np.testing.assert_array_equal(other[("dilepton", *key)].view(flow=True), first)
                assert other[("selected", *key)] == runs[0][("selected", *key)]


@pytest.mark.slow
def test_the_order_that_is_found_does_not_change_the_answer(files: dict[str, Any]) -> None:
    source = wr.data.open({"mc": files["mc"]}, grid=400)
    analysis = nanoaod.build()
    with eager(200), costing(dict.fromkeys(written_order(analysis._steps), 1e-6)):
        result = analysis.run(source, chunk=400, engine="inline", progress=False)
    wanted = run(source)
    _, order, why = result.order[-1]
    cuts = [name for name in order if name in nanoaod.CUTS]
    assert cuts.index("missing_momentum") < nanoaod.CUTS.index("missing_momentum"), why
    for region, variation in itertools.product(nanoaod.REGIONS, ("nominal", "pileup_up")):
        assert result["selected", region, variation] == wanted["selected", region, variation]
        found = result["dilepton", region, variation].view(flow=True)
        expected = wanted["dilepton", region, variation].view(flow=True)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
@pytest.mark.samples
def test_real_files(real: dict[str, Any]) -> None:
    expected = oracle.plain(real)
    source = wr.data.open(real)
    result = run(source)
    check(result, expected)
    check_cutflow(result, expected)
    for region in nanoaod.REGIONS:
        assert sum(one["events"] for one in result["selected", region].values()) > 0
    check(run(source, order=legal(nanoaod.build(), 3)), expected)


# -- events -------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_mc", [True, False])
def test_files_hold_the_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_mc: bool) -> None:
    monkeypatch.setattr(generator, "BLOCK", 400)
    events = generator.events(1_000, seed=2, is_mc=is_mc)
    assert ("genWeight" in events) is is_mc
    assert events["event"].tolist() == list(range(1_000))
    table = pq.read_table(generator.write(tmp_path / "a.parquet", 1_000, seed=2, is_mc=is_mc))
    with uproot.open(generator.write(tmp_path / "a.root", 1_000, seed=2, is_mc=is_mc)) as file:
        tree = file["Events"].arrays()
    assert set(tree.fields) == set(events) | {"nMuon", "nElectron", "nJet"}
    for name, values in events.items():
        assert table[name].to_pylist() == ak.to_list(values), name
        assert ak.to_list(tree[name]) == ak.to_list(values), name
    for name in ("Muon", "Electron", "Jet"):
        pt = events[f"{name}_pt"]
        assert ak.all(pt[:, :-1] >= pt[:, 1:])
        assert ak.to_list(tree[f"n{name}"]) == ak.to_list(ak.num(pt))


def test_the_z_is_there() -> None:
    """The leading muons of opposite charge peak at 91 GeV."""
    events = generator.events(20_000, seed=4)
    two = ak.num(events["Muon_pt"]) == 2
    pt, eta, phi = (ak.to_numpy(events[f"Muon_{n}"][two]) for n in ("pt", "eta", "phi"))
    cosh, cos = np.cosh(eta[:, 0] - eta[:, 1]), np.cos(phi[:, 0] - phi[:, 1])
    mass = np.sqrt(2 * pt[:, 0] * pt[:, 1] * (cosh - cos))
    counts, _ = np.histogram(mass, bins=[61, 71, 81, 86, 96, 101, 111, 121])
    assert counts[3] > 5 * counts[[0, 1, 5, 6]].max()
