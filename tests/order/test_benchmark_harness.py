"""What benchmarks share: rounds in the order of time, the best of several judged fairly, results that keep what did not run."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loading import ROOT, load

if TYPE_CHECKING:
    from collections.abc import Callable

HARNESS: Any = load("benchmarks/harness.py")
RUN_ALL: Any = load("benchmarks/run_all.py")


# -- rounds ----------------------------------------------------------------------------------------


def rounds_of(**walls: list[float]) -> Any:
    samples = {name: [HARNESS.Sample(wall, 0.0, 0.0, None) for wall in times] for name, times in walls.items()}
    return HARNESS.Rounds(samples, 0, 0)


def numbered(loads: list[float]) -> Callable[[], Any]:
    """A competitor whose samples say in which round they were taken."""
    number = iter(range(len(loads)))

    def sample() -> Any:
        now = next(number)
        return HARNESS.Sample(float(now), 0.0, loads[now], now)

    return sample


@given(
    st.integers(1, 6).flatmap(
        lambda rounds: st.tuples(st.just(rounds), st.lists(st.floats(0, 1), min_size=2 * rounds, max_size=2 * rounds))
    )
)
def test_the_quietest_rounds_are_kept_in_the_order_of_time(drawn: tuple[int, list[float]]) -> None:
    rounds, loads = drawn
    found = HARNESS.interleave({"a": numbered(loads), "b": numbered(loads)}, rounds)
    kept = [sample.result for sample in found.samples["a"]]
    assert kept == sorted(kept)
    assert [sample.result for sample in found.samples["b"]] == kept
    assert len(kept) == rounds
    done = rounds + found.dropped
    left_out = set(range(done)) - set(kept)
    assert max(loads[n] for n in kept) <= min((loads[n] for n in left_out), default=1.0)
    assert found.noisy == sum(loads[n] > HARNESS.MAX_FOREIGN for n in kept)


def test_the_best_is_chosen_on_some_rounds_and_scored_on_the_others() -> None:
    # "lucky" is the fastest in the rounds it is chosen by, and slow in those that count.
    found = rounds_of(mine=[2.0, 4.0, 2.0, 4.0], lucky=[1.0, 8.0, 1.0, 8.0], steady=[1.5, 2.0, 1.5, 2.0])
    best, ratio, (low, high) = found.best_of(["lucky", "steady"], "mine")
    assert best == "lucky"
    assert ratio == low == high == 0.5


@given(
    st.integers(2, 7).flatmap(
        lambda rounds: st.lists(st.lists(st.floats(0.1, 10), min_size=rounds, max_size=rounds), min_size=2, max_size=4)
    )
)
def test_the_best_by_plain_medians(walls: list[list[float]]) -> None:
    names = [f"c{number}" for number in range(1, len(walls))]
    found = rounds_of(mine=walls[0], **dict(zip(names, walls[1:], strict=True)))
    best, ratio, (low, high) = found.best_of(names, "mine")
    times = dict(zip(names, walls[1:], strict=True))
    chosen_by = {name: statistics.median(times[name][0::2]) for name in names}
    assert chosen_by[best] == min(chosen_by.values())
    scored = statistics.median(walls[0][1::2]) / statistics.median(times[best][1::2])
    assert ratio == pytest.approx(scored)
    assert low <= high


def test_one_round_cannot_choose_and_score() -> None:
    with pytest.raises(ValueError, match="two at least"):
        rounds_of(mine=[1.0], other=[1.0]).best_of(["other"], "mine")


# -- results ---------------------------------------------------------------------------------------


def content(title: str, text: str) -> dict[str, Any]:
    return {"title": title, "machine": {"cores": 2}, "blocks": [text]}


def test_sections_that_did_not_run_stay_as_they_are() -> None:
    first = {
        name: RUN_ALL.section(name, content(name.title(), f"{name} first"), "", quick=False)
        for name in ("skim", "order", "balance")
    }
    whole = RUN_ALL.merged("", first)
    again = RUN_ALL.section("order", content("Order", "order again"), "", quick=False)
    after = RUN_ALL.merged(whole, {"order": again})
    assert after == whole.replace("order first", "order again")
    assert [line for line in after.splitlines() if line.startswith("## ")] == [
        "## Balance (`benchmarks/balance.py`)",
        "## Order (`benchmarks/order.py`)",
        "## Skim (`benchmarks/skim.py`)",
    ]


def test_an_error_takes_the_place_of_a_section_and_is_replaced_by_the_next() -> None:
    good = RUN_ALL.section("order", content("Order", "## no heading of ours"), "", quick=False)
    broken = RUN_ALL.section("order", None, "", quick=False)
    whole = RUN_ALL.merged("", {"order": good})
    assert "ended with an error" in RUN_ALL.merged(whole, {"order": broken})
    assert RUN_ALL.merged(RUN_ALL.merged(whole, {"order": broken}), {"order": good}) == whole


def test_a_quick_section_says_that_it_is_one() -> None:
    quick = RUN_ALL.section("order", content("Order", "text"), "", quick=True)
    assert RUN_ALL.QUICK in quick
    assert RUN_ALL.QUICK not in RUN_ALL.section("order", content("Order", "text"), "", quick=False)


def test_committed_results_have_only_sections_that_are_understood() -> None:
    text = (ROOT / "benchmarks" / "RESULTS.md").read_text()
    found = RUN_ALL.sections(text)
    assert set(found) <= set(RUN_ALL.benchmarks())
    assert text.count("\n## ") == len(found)
    body = text[text.index("\n## ") :]
    assert RUN_ALL.merged(text, {}).endswith(body)


def test_benchmarks_are_called_by_the_names_of_their_claims() -> None:
    assert {"order", "balance", "random", "paper_hepframe"} <= set(RUN_ALL.benchmarks())
    assert not {"harness", "random_numbers", "order_cases"} & set(RUN_ALL.benchmarks())
