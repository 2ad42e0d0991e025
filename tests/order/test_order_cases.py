"""The pipelines that orders are judged by: the same from a seed every time, valid, and as correlated as they say."""

from __future__ import annotations

import tomllib
from typing import Any

import numpy as np
import pytest

from loading import ROOT, load

ENTRIES = tomllib.loads((ROOT / "benchmarks" / "order_seeds.toml").read_text())["case"]
ROWS = 20_000
CASES: Any = load("benchmarks/order_cases.py")


@pytest.mark.parametrize("entry", ENTRIES, ids=[str(entry["seed"]) for entry in ENTRIES])
def test_a_seed_gives_the_same_pipeline_and_rows_every_time(entry: dict[str, Any]) -> None:
    one, other = CASES.RandomPipeline(**entry), CASES.RandomPipeline(**entry)
    assert one.steps == other.steps
    assert one.regions == other.regions
    first, second = one.events(100), other.events(100)
    assert list(first) == list(second)
    assert all(np.array_equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("entry", ENTRIES, ids=[str(entry["seed"]) for entry in ENTRIES])
def test_a_pipeline_is_as_its_entry_says(entry: dict[str, Any]) -> None:
    drawn = CASES.RandomPipeline(**entry)
    cuts = [step for step in drawn.steps if step.kind == "cut"]
    made = {step.name for step in drawn.steps if step.kind == "column"}
    assert len(cuts) == entry["cuts"]
    chained = [step for step in cuts if set(step.reads) & made]
    assert len(chained) == round(entry["chain"] * entry["cuts"])
    assert max(len(drawn.regions), 1) == entry["lanes"]
    if drawn.regions:
        used = {name.removeprefix("!") for region in drawn.regions.values() for name in region}
        assert used == {step.name for step in cuts}
    known = set(drawn.columns)
    for step in drawn.steps:  # everything is there before it is read
        assert set(step.reads) <= known
        known.add(step.name)


@pytest.mark.parametrize("entry", ENTRIES[::3], ids=[str(entry["seed"]) for entry in ENTRIES[::3]])
def test_a_pipeline_runs_and_counts_what_a_plain_program_does(entry: dict[str, Any]) -> None:
    drawn = CASES.RandomPipeline(**entry)
    rows = drawn.events(ROWS)
    case = CASES.Case("case", drawn.build, (rows,), 4096)
    values: dict[str, Any] = dict(rows)
    passed: dict[str, Any] = {}
    for step in drawn.steps:  # what is computed for the sake of its cost decides nothing
        if step.kind == "column":
            values[step.name] = values[step.reads[0]]
        else:
            passed[step.name] = values[step.reads[0]] > step.threshold
    result = case.build().run(case.data, order="written", engine="inline", progress=False)
    regions = drawn.regions or {None: tuple(passed)}
    for region, names in regions.items():
        keep = np.ones(ROWS, bool)
        for name in names:
            keep &= ~passed[name[1:]] if name.startswith("!") else passed[name]
        found = result["selected"] if region is None else result["selected", region]
        assert found == int(keep.sum())


def test_cuts_depend_on_each_other_as_much_as_rho_says() -> None:
    for entry in ENTRIES:
        drawn = CASES.RandomPipeline(**entry)
        rows = drawn.events(ROWS)
        deciding = [name for name in drawn.columns if name.startswith("x")][:2]
        found = np.corrcoef(rows[deciding[0]], rows[deciding[1]])[0, 1]
        assert found == pytest.approx(entry["rho"], abs=0.05)


def test_the_stream_swaps_what_is_cheap_and_strict() -> None:
    case = CASES.swapping(4_000)
    shares = []
    for part in case.parts:
        shares.append({n[-1]: float((part[n] < 1).mean()) for n in part if n.startswith("value")})
        for name, share in shares[-1].items():
            rounds, passed = CASES.DEAR if share > 0.5 else CASES.CHEAP
            assert share == pytest.approx(passed, abs=0.05)
            assert set(part[f"work_{name}"].tolist()) == {rounds}
    assert {n for n, share in shares[0].items() if share > 0.5} == {n for n, share in shares[1].items() if share < 0.5}
    result = case.build().run(case.data, order="written", engine="inline", progress=False)
    keep = [np.logical_and.reduce([part[f"value_{n}"] < 1 for n in "abcd"]) for part in case.parts]
    assert result["selected"] == sum(int(one.sum()) for one in keep)
