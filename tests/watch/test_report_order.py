"""How orders are shown: the drawing says who was where, tables count what ran, words are short, logs and traces tell of changes."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import windrow as wr
from attempt_records import launched, rows_task
from ordering import eager, slow_first
from windrow.core.events import Planned
from windrow.core.records import Plan, Rows
from windrow.pipeline.ordering.summary import how_decided, order_line, order_lines, savings
from windrow.pipeline.results.report_data import report_data, unfinished_data
from windrow.watch.log import EventLog
from windrow.watch.readlog import read_log
from windrow.watch.report.plain_data import strict
from windrow.watch.report.run import order_chart_data, order_section, run_page
from windrow.watch.trace import trace_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windrow.core.commands import Launch

ROWS = 40_000


@pytest.fixture(scope="module")
def moved() -> Any:
    """A run in which the cheap cut came first."""
    rng = np.random.default_rng(5)
    data = wr.data.open({"x": rng.normal(size=ROWS), "z": rng.random(ROWS)}, grid=200)
    with eager(100):
        # A policy that measures nothing: what it wants does not depend on how busy the machine is.
        policy: Any = lambda _: ["double", "cheap", "costly"]  # noqa: E731
        result = slow_first(by_column=True).run(data, order=policy, chunk=200, engine="inline", progress=False)
    assert result.order[-1][1] == ("double", "cheap", "costly")
    return result


def told(names: Sequence[str] = ("b", "a"), written: Sequence[str] = ("a", "b"), **changes: Any) -> dict[str, Any]:
    """A story made by hand; names with a dot are columns."""
    steps: list[dict[str, Any]] = [
        {
            "name": name, "kind": "column" if "." in name else "cut", "place": place,
            "written_place": written.index(name), "alive": 0.5, "passes": 0.25, "fixed_s": 1e-6,
            "row_s": 2e-9, "columns": [], "why": f"why {name}",
        }
        for place, name in enumerate(names)
    ]  # fmt: skip
    checkpoint = {
        "spent_s": 1.5, "left_s": 8.0, "windows": 3, "changed": True, "order": list(names), "cost_s": 0.5,
        "written_s": 1.0, "why": "changed: saves 50 % of the seconds",
    }  # fmt: skip
    values: dict[str, Any] = {
        "checkpoints": [checkpoint],
        "steps": steps,
        "looked": {"windows": 3, "rows": 192, "seconds": 0.01},
        "saved": {"evaluations": 1000.0, "seconds": 2.0, "bytes": 0.0},
        "planning_s": 0.002,
    }
    return {**values, **changes}


# -- the drawing -----------------------------------------------------------------------------------


def pictures(data: dict[str, Any]) -> list[Any]:
    """What is drawn of the data of a report."""
    return order_chart_data(data)


def drawn(story: dict[str, Any], began: Sequence[str] | None = None, ended: Sequence[str] | None = None) -> Any:
    """What is drawn of a story made by hand."""
    about = {"dataset": "tt", "fixed": "", "began": began, "ended": ended, "words": "", "moved": True, "share": None}
    (picture,) = pictures({"ordering": [{**about, **story}]})
    return picture


names = st.lists(st.text("ab<&\"'\u00e9", min_size=1, max_size=40), min_size=2, max_size=25, unique=True)


@given(st.data())
def test_the_drawing_leads_from_the_first_order_to_the_last(data: st.DataObject) -> None:
    written = data.draw(names)
    later = data.draw(st.lists(st.permutations(written), min_size=1, max_size=20))
    story = told(later[-1], written)
    one = story["checkpoints"][0]
    story["checkpoints"] = [{**one, "order": order, "spent_s": float(time)} for time, order in enumerate(later)]
    picture = drawn(story, began=written, ended=later[-1])
    changes = [order for before, order in pairwise([written, *later]) if before != order]
    if not changes:
        assert picture is None
        return
    assert picture["orders"] == [written, *changes]
    assert picture["times"][0] == "0 s"
    assert len(picture["times"]) == len(picture["orders"])


def test_an_order_that_was_there_before_or_came_without_a_time_is_said_so() -> None:
    story = told()
    story["checkpoints"] = []
    assert drawn(story, began=["b", "a"])["times"] == ["written", "0 s"]
    assert drawn(story, began=["a", "b"], ended=["b", "a"])["times"] == ["0 s", "later"]
    assert drawn(told(), began=["a", "b"])["times"] == ["0 s", "1.5 s"]


# -- the section -----------------------------------------------------------------------------------


def text_of(html: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


def test_the_section_has_a_drawing_and_the_steps_in_their_order(moved: Any) -> None:
    page = run_page(report_data(moved), None)
    section = page[page.index('<section id="order">') : page.index('<section id="ledger">')]
    assert 'id="chart-order-0"' in section
    (picture,) = pictures(report_data(moved))
    assert picture["orders"] == [["costly", "double", "cheap"], ["double", "cheap", "costly"]]
    assert picture["cuts"] == ["cheap", "costly"]
    rows = re.findall(r"<tr>(<td>\d+</td>.*?)</tr>", section)
    cells = [[text_of(one) for one in re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row)] for row in rows]
    places = [(row[0], row[1], row[2]) for row in cells[:3]]
    assert places == [("1", "2", "double column"), ("2", "3", "cheap"), ("3", "1", "costly")]
    words = text_of(section)
    assert "evaluations saved against the written order, by the model" in words
    assert "of the run for looking" in words
    assert "of the run for planning" in words


def test_every_dataset_has_its_part_where_there_are_several(moved: Any) -> None:
    both = {"one": moved.ordering["data"], "two": moved.ordering["data"]}
    issued = tuple((dataset, names, why) for dataset in both for _, names, why in moved.order)
    html = order_section(report_data(replace(moved, ordering=both, order=issued)))
    assert html.count('<details class="dataset"') == 2


def test_a_run_without_decisions_has_a_line() -> None:
    data = {"x": np.arange(10.0), "z": np.linspace(0, 1, 10)}
    result = slow_first(by_column=True).run(data, engine="inline", progress=False)
    html = order_section(report_data(result))
    assert "chart" not in html
    assert text_of(html) == "Nothing was decided about the order in this run: the written order."
    assert text_of(order_section(unfinished_data({}, None))) == "Not known, as the run left no result."


def test_why_an_order_stays_is_said(moved: Any) -> None:
    story = {"data": {"checkpoints": [], "planning_s": 0.0, "fixed": "it <must>"}}
    html = order_section(report_data(replace(moved, ordering=story)))
    assert "<li>data: it &lt;must&gt;</li>" in html


def test_many_steps_are_drawn_as_cuts_and_many_changes_as_the_last_ones(moved: Any) -> None:
    cuts = [f"c{number}" for number in range(20)]
    written = [name for cut in cuts for name in (f"{cut}.x", cut)]
    orders = [written[2 * turn :] + written[: 2 * turn] for turn in range(1, 20)] * 2
    story = told(orders[-1], written)
    one = story["checkpoints"][0]
    story["checkpoints"] = [{**one, "order": names, "spent_s": float(t)} for t, names in enumerate(orders)]
    issued = (("data", tuple(written), ""), ("data", tuple(orders[-1]), ""))
    html = order_section(report_data(replace(moved, ordering={"data": story}, order=issued)))
    (picture,) = pictures(report_data(replace(moved, ordering={"data": story}, order=issued)))
    assert all(sorted(order) == sorted(cuts) for order in picture["orders"])
    assert "The last 24 of 38 changes are drawn." in html


@given(st.text(max_size=20), st.sampled_from([None, float("nan"), float("inf"), 0.0]))
def test_odd_names_and_numbers_do_no_harm(name: str, number: Any) -> None:
    name = name or "x"
    story = told((name, f"{name}!"), (f"{name}!", name))
    story["saved"] = {"evaluations": number, "seconds": number, "bytes": number}
    for step in story["steps"]:
        step |= {"alive": number, "passes": number, "row_s": number, "fixed_s": number}
    story["checkpoints"][0] |= {"left_s": number, "cost_s": number, "written_s": number}
    data = {
        "ordering": [
            {
                "dataset": name, "fixed": "", "began": None, "ended": None, "words": name, "moved": True,
                "share": number, **story,
                "steps": [{**step, "rows_in": None, "bytes_read": None} for step in story["steps"]],
            }
        ],
        "order": [], "decisions": [], "seconds": 0.0, "workers": 0, "state": "complete",
    }  # fmt: skip
    assert 'id="chart-order-0"' in order_section(strict(data))
    (picture,) = pictures(strict(data))
    assert picture["orders"][-1] == [name, f"{name}!"]


# -- words -----------------------------------------------------------------------------------------


def test_cuts_are_listed_with_what_is_made_before_them() -> None:
    story = told(("b.x", "b", "a", "late.x"), ("a", "b.x", "b", "late.x"))
    lines = order_lines({"tt": story})
    assert lines == [
        "order of tt, decided once and changed once: 50 % of the written order's cost, by the model",
        "  from 192 rows in 3 places that were shown to all cuts: looking took 10 ms; planning took 2 ms in the whole run",
        "  changed after 1.5 s of work: saves 50 % of the seconds",
        "  saved against the written order, by the model: 1 k evaluations, 2 s of processor time",
        "  1. b  (written 2)  why b; made just before it: b.x",
        "  2. a  (written 1)  why a",
        "  after the cuts: late.x",
    ]


def test_datasets_with_the_same_order_have_it_listed_once() -> None:
    lines = order_lines({"one": told(), "two": told()})
    assert sum("why a" in line for line in lines) == 1
    assert "  the same order as in one" in lines


def test_an_order_that_stayed_is_told_in_two_lines() -> None:
    story = told(("a", "b"))
    story["checkpoints"][0] |= {"changed": False, "why": "kept: no cheaper order is known"}
    lines = order_lines({"tt": story}, [("tt", ("a", "b"), "the written order"), ("x", ("a",), "asked")])
    assert lines[:2] == [
        "order for x: a (asked)",
        "order of tt, decided once and never changed: the written one (no cheaper order is known)",
    ]
    assert len(lines) == 3
    assert order_line({"tt": story}) == "Order: the written one, as no cheaper one was found"
    assert savings(story) == ""


def test_what_cost_more_is_not_called_saved() -> None:
    story = told(saved={"evaluations": -500.0, "seconds": 3.0, "bytes": -2e6})
    assert savings(story) == (
        "saved against the written order, by the model: -500 evaluations, 3 s of processor time, -2 MB of reading"
    )


def test_an_order_that_was_taken_back_says_why() -> None:
    story = told(fixed="it used too much memory")
    assert how_decided(story) == "decided once and changed once: it used too much memory"


def test_a_notebook_has_one_line(moved: Any) -> None:
    line = order_line(moved.ordering)
    assert re.fullmatch(
        r"Order: another than the written one, at \d+ % of the written order's cost, by the model", line
    )
    assert line.replace("'", "&#x27;") in moved._repr_html_()
    several = order_line({"one": told(), "two": told(("a", "b")), "three": {"checkpoints": []}})
    assert several.startswith("Order: another than the written one in 1 of 3 datasets, at 50 %")
    assert order_line({"three": {"checkpoints": []}}) == ""


# -- log, trace, progress --------------------------------------------------------------------------

WRITTEN = Plan(id=1, category="tt", order=("a", "b"), written=("a", "b"), reason="written")
OTHER = replace(WRITTEN, id=2, order=("b", "a"), reason="saves", guards=(("a", "b"),))


def launch(plan: Plan) -> Launch:
    return launched(rows_task(0, Rows(0, 0, 10), category="tt"), plan=plan)


def test_the_log_has_new_orders_and_the_trace_names_them() -> None:
    stream = io.StringIO()
    log = EventLog(stream)
    log([], [launch(WRITTEN)], 1.0)
    log([Planned(replace(WRITTEN, id=3))], [], 2.0)
    # What follows from a plan is launched in the same batch.
    log([Planned(OTHER)], [launch(OTHER)], 3.0)
    log([Planned(replace(OTHER, id=5))], [], 4.0)
    log.flush()
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["changed"] for line in lines] == [False, True, False]
    assert [line.get("order") for line in lines] == [None, ["b", "a"], None]
    assert lines[1]["guards"] == [["a", "b"]]
    assert (lines[1]["category"], lines[1]["reason"], lines[1]["plan"]) == ("tt", "saves", 2)
    trace = json.loads(trace_text(read_log(stream.getvalue().splitlines()), "run"))
    found = [(e["name"], e["ts"]) for e in trace["traceEvents"] if e["ph"] == "i"]
    assert found == [("order kept: tt", 0.0), ("new order: tt", 1e6), ("order kept: tt", 2e6)]


def test_an_order_that_a_run_begins_with_is_no_news() -> None:
    stream = io.StringIO()
    log = EventLog(stream)
    log([], [launch(OTHER)], 1.0)
    log([Planned(replace(OTHER, id=3))], [], 2.0)
    log.flush()
    assert json.loads(stream.getvalue())["changed"] is False
