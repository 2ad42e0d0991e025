"""A step may assign to what it is given: it stays inside the step, whatever the order, the chunks and the engine."""

from __future__ import annotations

from typing import Any

import awkward as ak
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import windrow as wr
from searching import examples
from windrow.errors import StepError

# --- against the program in which every step works on a copy of its own ----------------------------


def data_of(seed: int, rows: int) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    counts = random.integers(0, 4, rows)
    fields = {name: ak.unflatten(random.integers(0, 40, counts.sum()) / 4, counts) for name in ("pt", "eta", "phi")}
    return {**{f"Jet_{name}": values for name, values in fields.items()}, "x": random.integers(0, 9, rows) / 2}


def shifted(jets: Any, field: str, amount: float) -> Any:
    """Assign a field of the records that are given, and return them."""
    jets[field] = jets[field] * 2 + amount
    jets["made"] = jets.pt + amount
    return jets


def nested(jets: Any, field: str, amount: float) -> Any:
    """Assign records to a field, and to a field of these."""
    jets["inner"] = ak.zip({"a": jets.pt, "b": jets.eta})
    jets["inner", "a"] = jets.inner.a + amount
    jets[field] = jets.inner.a
    return jets


def measured(jets: Any, field: str, amount: float) -> Any:
    """Assign to the records and say something of each row, so that a cut can read it."""
    jets[field] = jets[field] + amount
    return ak.to_numpy(ak.sum(jets[field], axis=1))


MAKERS = {"shifted": shifted, "nested": nested}

STEP = st.fixed_dictionaries(
    {
        "what": st.sampled_from(("shifted", "nested", "measured")),
        "of": st.integers(0, 5),  # which of the records there are so far
        "field": st.sampled_from(("pt", "eta", "phi", "made")),
        "amount": st.sampled_from((1.0, 2.5, 7.0)),
    }
)


def resolved(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Name what each step reads: the collection or the records of a step above it."""
    known = ["Jet"]
    found = []
    for number, step in enumerate(steps):
        reads = known[step["of"] % len(known)]
        field = step["field"] if step["field"] != "made" or reads.startswith("shifted") else "pt"
        name = f"{step['what']}{number}"
        found.append({**step, "reads": reads, "field": field, "name": name})
        if step["what"] in MAKERS:
            known.append(name)
    return found


def analysis_of(steps: list[dict[str, Any]]) -> wr.Pipeline:
    analysis = wr.Pipeline("assigning")
    cuts = []
    for step in steps:
        how = (step["field"], step["amount"])
        if step["what"] in MAKERS:
            make = MAKERS[step["what"]]
            analysis.column(
                lambda jets, *, how=how, make=make: make(jets, *how), name=step["name"], reads={"jets": step["reads"]}
            )
        else:
            analysis.cut(
                lambda jets, *, how=how: measured(jets, *how) > 6, name=step["name"], reads={"jets": step["reads"]}
            )
            cuts.append(step["name"])
    analysis.region("R", *cuts)

    def told(jets: Any, weight: Any) -> Any:
        jets["pt"] = jets.pt + 1  # seen by no other call: not of another variation, nor of the other output
        return ak.to_list(jets.pt)

    analysis.weight(lambda x: wr.updown(x, x + 1, x + 2), name="w")
    for name in ["Jet", *(step["name"] for step in steps if step["what"] in MAKERS)]:
        analysis.output(told, name=f"out_{name}", reads={"jets": name}, region="R")
        analysis.output(lambda jets: told(jets, None), name=f"twice_{name}", reads={"jets": name}, region="R")
    return analysis


def plain_program(steps: list[dict[str, Any]], data: dict[str, Any]) -> dict[str, list[Any]]:
    fields = {name.removeprefix("Jet_"): values for name, values in data.items() if name.startswith("Jet_")}
    known = {"Jet": ak.zip(fields)}
    passed = np.ones(len(data["x"]), dtype=bool)
    for step in steps:
        own = ak.copy(known[step["reads"]])
        how = (step["field"], step["amount"])
        if step["what"] in MAKERS:
            known[step["name"]] = MAKERS[step["what"]](own, *how)
        else:
            passed &= measured(own, *how) > 6
    return {name: ak.to_list(jets[passed].pt + 1) for name, jets in known.items()}


@settings(max_examples=examples(6), deadline=None)
@given(
    st.lists(STEP, min_size=1, max_size=4), st.integers(0, 999), st.integers(1, 40), st.sampled_from((16, "auto")),
    st.sampled_from(("inline", "threads")), st.randoms(use_true_random=False),
)  # fmt: skip
def test_what_a_step_assigns_stays_inside(
    drawn: list[dict[str, Any]], seed: int, rows: int, chunk: Any, engine: str, random: Any
) -> None:
    steps, data = resolved(drawn), data_of(seed, rows)
    expected = plain_program(steps, data)
    order = [step["name"] for step in steps if step["what"] == "measured"]
    random.shuffle(order)  # a column runs just before the first step that reads it
    analysis = analysis_of(steps)
    for way in ("written", order or "adaptive"):
        result = analysis.run(
            wr.data.open(data, grid=16), order=way, chunk=chunk, engine=engine, workers=2, progress=False, _block_rows=5
        )
        for name, values in expected.items():
            for output in (f"out_{name}", f"twice_{name}"):
                assert result[output, "R"] == values


def test_a_collection_that_a_step_corrects_is_another_step_s_as_it_was() -> None:
    """The everyday idiom of coffea: two steps, in any order, give the same yields."""
    analysis = wr.Pipeline("corrected")

    @analysis.cut
    def corrected(Jet: Any, Jet_pt: Any) -> Any:
        Jet["pt"] = Jet_pt * 2
        return ak.sum(Jet.pt, axis=1) > 20

    @analysis.cut
    def raw_ht(Jet: Any) -> Any:
        return ak.sum(Jet.pt, axis=1) > 15

    analysis.region("R", "corrected", "raw_ht")
    analysis.output(lambda x: len(x), name="rows", region="R")
    data = data_of(3, 400)
    total = ak.to_numpy(ak.sum(data["Jet_pt"], axis=1))
    expected = int(((2 * total > 20) & (total > 15)).sum())
    assert 0 < expected < 400
    for order in ("written", ["raw_ht", "corrected"]):
        for engine in ("inline", "threads"):
            assert analysis.run(data, order=order, engine=engine, progress=False)["rows", "R"] == expected


# --- numbers are read-only, wherever they come from -------------------------------------------------


@pytest.mark.parametrize(
    "take",
    [
        lambda x, Jet_pt, Jet, made, every: x,
        lambda x, Jet_pt, Jet, made, every: ak.to_numpy(ak.flatten(Jet_pt)),
        lambda x, Jet_pt, Jet, made, every: ak.to_numpy(ak.flatten(Jet.eta)),
        lambda x, Jet_pt, Jet, made, every: ak.to_numpy(ak.flatten(made.pt)),
        lambda x, Jet_pt, Jet, made, every: ak.to_numpy(ak.flatten(every["Jet_phi"])),
    ],
)
def test_numbers_that_others_read_cannot_be_written_to(take: Any) -> None:
    analysis = wr.Pipeline("writing")
    analysis.column(lambda Jet: ak.zip({"pt": Jet.pt + 0}), name="made")

    @analysis.cut(reads={"every": "Jet_*"})
    def writes(x: Any, Jet_pt: Any, Jet: Any, made: Any, every: Any) -> Any:
        numbers = take(x, Jet_pt, Jet, made, every)
        numbers[:] = 0
        return x >= 0

    analysis.output(lambda x: len(x), name="rows")
    data = data_of(1, 30)
    before = {name: ak.to_list(values) for name, values in data.items()}
    with pytest.raises(StepError, match="read-only"):
        analysis.run(data, engine="inline", progress=False)
    assert {name: ak.to_list(values) for name, values in data.items()} == before
    data["x"][0] = 3.0  # the user's own arrays stay as they are: writeable
    ak.to_numpy(ak.flatten(data["Jet_pt"]))[:1] = 5.0
