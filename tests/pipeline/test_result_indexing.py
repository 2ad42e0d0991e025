"""Results are indexed by name, region, variation and dataset; ledgers account for every row."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.errors import IncompleteError, UnknownNameError
from windrow.pipeline.cutflow.table import Cutflow
from windrow.pipeline.results.ledger import Entry, Ledger
from windrow.pipeline.results.result import Result, StepSummary

DONE = Entry("a.root", "tt", 0, 10, "done")
FAILED = Entry("a.root", "tt", 10, 14, "failed", "cut 'c' raised")
MISSING = Entry("b.root", "dy", 0, 5, "missing")
UNOPENED = Entry("c.root", "dy", 0, None, "missing", "gone")


#: What the run was like, where a test does not say.
PLAIN: dict[str, Any] = {
    "steps": {}, "order": (), "decisions": (), "notes": (), "guards": (), "reads": [],
    "bytes_read": 0, "seconds": 2.0, "engine": "inline", "workers": 1, "seed": 0,
}  # fmt: skip


def result(
    *keys: tuple[str, str | None, str],
    datasets: tuple[str, ...] = ("data",),
    entries: tuple[Entry, ...] = (DONE,),
    **options: Any,
) -> Result:
    """Make a result whose values say where they belong."""
    return Result(
        name="test",
        outputs={d: {key: "/".join(map(str, (*key, d))) for key in keys} for d in datasets},
        output_names=tuple(dict.fromkeys(key[0] for key in keys)),
        cutflow=Cutflow({}),
        ledger=Ledger(entries),
        **{**PLAIN, **options},
    )


def every(regions: tuple[str | None, ...], variations: tuple[str, ...]) -> Any:
    return [("h", region, variation) for region in regions for variation in variations]


# --- indexing -------------------------------------------------------------------------------------


def test_with_one_of_everything_the_name_is_enough() -> None:
    one = result(("h", "SR", "nominal"))
    for key in ("h", ("h", "SR"), ("h", "SR", "nominal"), ("h", "SR", "nominal", "data")):
        assert one[key] == "h/SR/nominal/data"
    assert one["h", "data"] == "h/SR/nominal/data"
    assert one["h", "nominal", "data"] == "h/SR/nominal/data"


@given(
    st.lists(st.sampled_from(["SR", "CR", "side"]), min_size=1, unique=True),
    st.lists(st.sampled_from(["pu_up", "pu_down"]), unique=True),
    st.lists(st.sampled_from(["tt", "dy", "ww"]), min_size=1, unique=True),
)
def test_full_keys_find_their_value(regions: list[str], shifted: list[str], datasets: list[str]) -> None:
    variations = ("nominal", *shifted)
    found = result(*every(tuple(regions), variations), datasets=tuple(datasets))
    for region, variation, dataset in itertools.product(regions, variations, datasets):
        assert found["h", region, variation, dataset] == f"h/{region}/{variation}/{dataset}"
    for region, variation in itertools.product(regions, variations):
        by_dataset = {d: f"h/{region}/{variation}/{d}" for d in datasets}
        expected = by_dataset if len(datasets) > 1 else by_dataset[datasets[0]]
        assert found["h", region, variation] == expected


def test_the_variation_is_nominal_if_left_out() -> None:
    found = result(*every(("SR", "CR"), ("nominal", "pu_up")), datasets=("tt", "dy"))
    assert found["h", "SR"] == {"tt": "h/SR/nominal/tt", "dy": "h/SR/nominal/dy"}
    assert found["h", "SR", "dy"] == "h/SR/nominal/dy"
    assert found["h", "SR", "pu_up", "dy"] == "h/SR/pu_up/dy"


def test_a_region_left_out_gives_a_mapping_by_region() -> None:
    found = result(*every(("SR", "CR"), ("nominal",)))
    assert found["h"] == {"SR": "h/SR/nominal/data", "CR": "h/CR/nominal/data"}
    several = result(*every(("SR", "CR"), ("nominal",)), datasets=("tt", "dy"))
    assert several["h"]["CR"] == {"tt": "h/CR/nominal/tt", "dy": "h/CR/nominal/dy"}


def test_outputs_before_any_cut_have_no_region() -> None:
    found = result(*every((None,), ("nominal", "pu_up")), datasets=("tt", "dy"))
    assert found["h", "tt"] == found["h", None, "tt"] == "h/None/nominal/tt"
    assert found["h", None, "pu_up", "dy"] == found["h", "pu_up", "dy"]


def test_a_dataset_may_be_called_as_a_region() -> None:
    found = result(*every(("SR",), ("nominal",)), datasets=("SR", "dy"))
    assert found["h", "SR", "SR"] == "h/SR/nominal/SR"
    assert found["h", "SR"] == {"SR": "h/SR/nominal/SR", "dy": "h/SR/nominal/dy"}


def test_a_variation_that_some_datasets_lack_is_nominal_there() -> None:
    found = result(("h", "SR", "nominal"), datasets=("data", "mc"))
    found.outputs["mc"]["h", "SR", "pu_up"] = "shifted"
    assert found["h", "SR", "pu_up"] == {"data": "h/SR/nominal/data", "mc": "shifted"}
    assert found["h", "SR", "pu_up", "mc"] == "shifted"


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("hist", "no output 'hist'; did you mean 'histogram'"),
        (("hist", "SR"), "outputs: histogram"),
        (("histogram", "SX"), r"no region 'SX' \(regions: SR, CR\)"),
        (("histogram", "SR", "up"), "neither a variation nor a dataset 'up'"),
        (("histogram", "SR", "nominal", "zz"), "datasets: tt, dy"),
        (("histogram", "SR", "nominal", "tt", "more"), "'more'"),
    ],
)
def test_wrong_keys_say_what_there_is(key: Any, message: str) -> None:
    keys = [("histogram", region, "nominal") for region in ("SR", "CR")]
    found = result(*keys, datasets=("tt", "dy"))
    with pytest.raises(KeyError, match=message) as caught:
        found[key]
    assert isinstance(caught.value, UnknownNameError)
    assert found.get(key, 7) == 7


def test_an_output_without_a_value_says_why() -> None:
    absent = result(("h", "SR", "nominal"), datasets=(), reasons_absent={"h": "nothing opened"})
    with pytest.raises(KeyError, match="'h' has no value: nothing opened"):
        absent["h"]
    with pytest.raises(KeyError, match="no rows were processed"):
        result(("h", "SR", "nominal"), datasets=())["h"]


def test_a_result_is_a_mapping_of_outputs() -> None:
    found = result(("h", "SR", "nominal"), ("n", "SR", "nominal"))
    assert list(found) == ["h", "n"]
    assert len(found) == 2
    assert "h" in found
    assert "m" not in found
    assert dict(found) == {"h": "h/SR/nominal/data", "n": "n/SR/nominal/data"}


# --- complete or not ------------------------------------------------------------------------------


def test_a_complete_result_exits_with_zero() -> None:
    found = result(("h", "SR", "nominal"))
    assert found.complete
    assert found.exit_code == 0
    assert found.require_complete() is found
    assert found.rows_per_second == 5.0
    assert result(("h", "SR", "nominal"), seconds=0.0).rows_per_second == 0.0


@pytest.mark.parametrize("entry", [FAILED, MISSING, UNOPENED])
def test_rows_that_failed_or_are_missing_exit_with_two(entry: Entry) -> None:
    found = result(("h", "SR", "nominal"), entries=(DONE, entry))
    assert not found.complete
    assert found.exit_code == 2
    with pytest.raises(IncompleteError, match="'test' is incomplete: 10 of"):
        found.require_complete()


def test_an_interrupted_run_is_not_complete() -> None:
    assert result(("h", "SR", "nominal"), interrupted=True).exit_code == 2


def test_the_summary_is_plain_data_and_the_explanation_has_it_all() -> None:
    found = result(
        ("h", "SR", "nominal"),
        decisions=("order: as written",),
        notes=("a note",),
        guards=(("mass", "two"),),
        order=(("tt", ("two", "mass"), "written"),),
        steps={"mass": StepSummary("mass", "column", 2, 10, 10, 0.5, 1e-6, 8.4e-4, 2048)},
    )
    summary = json.loads(json.dumps(found.summary()))
    assert summary["complete"] is True
    assert summary["guards"] == [["mass", "two"]]
    assert summary["rows"]["done"] == 10
    text = found.explain()
    for words in (
        "10 of 10 rows done", "- order: as written", "note: a note", "order for tt: two mass",
        "guard: 'mass' runs after 'two'", "1 us", "840 us",
    ):  # fmt: skip
        assert words in text
    assert result(("h", "SR", "nominal")).explain()


# --- ledger ---------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.sampled_from(["done", "failed", "missing"]), st.integers(0, 9), st.integers(0, 9))))
def test_every_row_is_in_one_state(rows: list[tuple[str, int, int]]) -> None:
    ledger = Ledger(tuple(Entry("f", "d", start, start + n, s) for s, start, n in rows))
    assert ledger.done + ledger.failed + ledger.missing == ledger.total
    assert ledger.total == sum(n for _, _, n in rows)
    assert ledger.complete == (not ledger.problems)
    plain = json.loads(json.dumps(ledger.as_dict()))
    assert [e["state"] for e in plain["problems"]] == [s for s, _, _ in rows if s != "done"]


def test_a_ledger_says_what_is_wrong() -> None:
    ledger = Ledger((DONE, FAILED, MISSING, UNOPENED))
    assert ledger.summary() == ("10 of 19 rows done, 4 failed, 5 missing, 1 file never opened")
    assert str(ledger).splitlines()[1:] == [
        "a.root: rows 10-14 failed: cut 'c' raised",
        "b.root: rows 0-5 missing",
        "c.root: all rows (never opened) missing: gone",
    ]
    assert Ledger((UNOPENED, UNOPENED)).summary().endswith("2 files never opened")
    assert Ledger(()).complete
    assert Ledger((DONE,)).summary() == "10 of 10 rows done"
