"""Cutflows in the words of coffea and ROOT, as CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import small_analysis as small
from windrow.errors import UsageError
from windrow.pipeline.cutflow.table import Line, csv_text, escaped, latex_table, root_lines, rounded

if TYPE_CHECKING:
    import windrow as wr


@pytest.fixture(scope="module")
def result() -> wr.Result:
    return small.run()


def line(name: str, entered: int, passed: int, **options: Any) -> Line:
    return Line(
        name, entered, passed, options.pop("sumw", float(passed)), options.pop("sumw2", float(passed)),
        0, 0, **options,
    )  # fmt: skip


# --- ROOT -----------------------------------------------------------------------------------------


def test_roots_line_is_roots_line() -> None:
    # Written by hand from the format of RCutFlowReport.
    lines = [line("initial", 30, 30), line("cut1", 30, 10), line("a_longer_name", 10, 1)]
    assert root_lines(lines) == [
        "cut1      : pass=10         all=30         -- eff=33.33 % cumulative eff=33.33 %",
        "a_longer_name: pass=1          all=10         -- eff=10.00 % cumulative eff=3.33 %",
    ]


def test_no_rows_give_nan_as_root_does() -> None:
    assert root_lines([line("initial", 0, 0), line("c", 0, 0)]) == [
        "c         : pass=0          all=0          -- eff=nan % cumulative eff=nan %"
    ]


@given(st.lists(st.integers(0, 10**7), min_size=1, max_size=5))
def test_roots_lines_can_be_parsed(counts: list[int]) -> None:
    chain = sorted(counts, reverse=True)
    pairs = zip([chain[0], *chain], chain, strict=False)
    lines = [line("initial", chain[0], chain[0]), *(line("c", a, b) for a, b in pairs)]
    pattern = re.compile(r"(\S+)\s*: pass=(\d+)\s* all=(\d+)\s* -- eff=(\S+) % cumulative eff=(\S+) %")
    for text, cut in zip(root_lines(lines), lines[1:], strict=True):
        match = pattern.fullmatch(text)
        assert match is not None
        assert (int(match[2]), int(match[3])) == (cut.passed, cut.entered)
        if cut.entered:
            assert abs(float(match[4]) - 100 * cut.passed / cut.entered) < 0.0051
            assert abs(float(match[5]) - 100 * cut.passed / chain[0]) < 0.0051


def test_every_region_has_its_lines(result: wr.Result) -> None:
    text = result.cutflow.root_report().splitlines()
    assert text[0] == "SR:"
    assert text[3] == "CR:"
    assert text[1:3] == result.cutflow["SR"].root_report().splitlines()


# --- coffea ---------------------------------------------------------------------------------------


def test_coffeas_names_mean_what_coffeas_mean(result: wr.Result) -> None:
    data = small.arrays()["tt"]
    some, many = data["y"] > 0.2, data["x"] > 0.5
    table = result.cutflow["CR", "tt"]
    assert table.labels == ["initial", "some", "!many"]
    assert table.nevcutflow == [400, int(some.sum()), int((some & ~many).sum())]
    expected = [data["w"].sum(), data["w"][some].sum(), data["w"][some & ~many].sum()]
    np.testing.assert_allclose(table.wgtevcutflow, expected, rtol=1e-12)


def test_counts_of_one_cut_are_not_guessed(result: wr.Result) -> None:
    with pytest.raises(UsageError, match=r"never shown to '!many'.*region of that cut alone"):
        _ = result.cutflow["CR", "tt"].nevonecut


def test_counts_of_one_cut_are_known_where_all_rows_were_shown() -> None:
    made = small.analysis()
    made.region("alone", "many")
    data = small.arrays()
    table = small.run(made).cutflow["alone"]
    many = sum(int((columns["x"] > 0.5).sum()) for columns in data.values())
    assert table.nevonecut == [1200, many]


# --- CSV ------------------------------------------------------------------------------------------


def test_csv_has_every_line_of_every_table(result: wr.Result) -> None:
    rows = list(csv.DictReader(io.StringIO(result.cutflow.to_csv())))
    assert len(rows) == 2 * 4 * 3
    for row in rows:
        key = (row["region"], row["dataset"]) if row["dataset"] else row["region"]
        table = result.cutflow[key]
        (mine,) = [found for found in table.executed if found.label == row["cut"]]
        assert (int(row["passed"]), int(row["entered"])) == (mine.passed, mine.entered)
        assert float(row["sumw"]) == mine.sumw
        assert float(row["sumw_error"]) == mine.error
        assert float(row["of_all"]) == mine.passed / table.executed[0].passed
        assert row["order"] == "written"


def test_csv_says_which_order_it_is_in() -> None:
    moved = small.run(order=["many", "some"])
    (first, *_) = csv.DictReader(io.StringIO(moved.cutflow["SR", "tt"].to_csv()))
    assert first["order"] == "executed"
    assert moved.cutflow["SR"].labels == ["initial", "many", "some"]


# A carriage return alone is not quoted by Python's csv module.
@given(st.text(st.characters(exclude_characters="\r"), min_size=1, max_size=20))
def test_any_name_survives_csv(name: str) -> None:
    text = csv_text([({"region": name, "dataset": name, "order": "written"}, [line(name, 1, 1)])])
    (row,) = csv.DictReader(io.StringIO(text, newline=""))
    assert (row["region"], row["cut"]) == (name, name)


# --- LaTeX ----------------------------------------------------------------------------------------


def test_latex_is_a_booktabs_table() -> None:
    lines = [line("initial", 30, 30), line("n_mu > 1 & 50%", 30, 10, sumw=12.345, sumw2=1.44)]
    assert latex_table(lines, weighted=True, comment="SR\n50%").splitlines() == [
        "% SR 50%",
        r"\begin{tabular}{lrrrr@{$\,\pm\,$}l}",
        r"\toprule",
        r"Cut & Events & of cut [\%] & of all [\%] & \multicolumn{2}{c}{Weighted} \\",
        r"\midrule",
        r"initial & 30 & 100.00 & 100.00 & 30.0 & 5.5 \\",
        r"n\_mu \textgreater{} 1 \& 50\% & 10 & 33.33 & 33.33 & 12.3 & 1.2 \\",
        r"\bottomrule",
        r"\end{tabular}",
    ]
    assert r"\pm" not in latex_table(lines, weighted=False, comment="")


def test_latex_of_all_regions(result: wr.Result) -> None:
    text = result.cutflow.to_latex()
    assert text.count(r"\begin{tabular}") == 2
    assert "!many" in text


@given(st.text(max_size=30))
def test_no_special_character_is_left_alone(text: str) -> None:
    left = re.sub(r"\\(text\w+\{\}|[{}$&#%_])", "", escaped(text))
    assert not set(left) & set("\\{}$&#%_^~\n")


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        (12.3456, 0.0123, ["12.346", "0.012"]),
        (123456.7, 1234.5, ["123500", "1200"]),
        (5.0, 0.0, ["5", "0"]),
        (1e30, 1e28, ["1e+30", "1e+28"]),
    ],
)
def test_numbers_are_rounded_to_their_uncertainty(value: float, error: float, text: list[str]) -> None:
    assert rounded(value, error) == text


def test_several_orders_have_no_cumulative_counts(result: wr.Result) -> None:
    moved = small.run(order=["many", "some"])
    both = result.cutflow["SR", "tt"] + moved.cutflow["SR", "tt"]
    assert both.orders == 2
    for name in ("nevcutflow", "wgtevcutflow", "nevonecut"):
        with pytest.raises(UsageError, match=f"{name} of region 'SR'.*2 orders"):
            getattr(both, name)
    assert both.labels[-1] == "selected"
