"""Notebooks are shown whole, escaped HTML without scripts."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import boost_histogram as bh
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import small_analysis as small
import windrow as wr
from windrow.pipeline.results.html import MOST_OUTPUTS, sparkline
from windrow.pipeline.results.ledger import Entry, Ledger

VOID = {"br"}


class Page(HTMLParser):
    """Checks that elements are nested, and gathers what is there."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.words: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture(scope="module")
def result() -> wr.Result:
    return small.run()


def harmless(page: Page) -> None:
    assert not {"script", "iframe", "link", "img", "object"} & set(page.tags)
    assert not any(name.startswith("on") or name in ("src", "href") for name, _ in page.attributes)


def test_a_result_shows_what_it_has(result: wr.Result) -> None:
    page = Page(result._repr_html_())
    harmless(page)
    assert "1,200 of 1,200 rows done" in page.text
    assert page.tags.count("svg") == 6  # a spectrum in two regions of three datasets
    assert "pileup_up, pileup_down" in page.text
    assert f"Cutflow SR: {result.cutflow['SR'].passed:,} of 1,200 rows" in page.text
    assert "x & <y>" in page.text  # a label that would break the page if it were not escaped
    assert "details" in page.tags


def test_cutflows_say_in_which_order_they_ran(result: wr.Result) -> None:
    assert "exact, written order" in Page(result.cutflow["SR"]._repr_html_()).text
    moved = Page(small.run(order=["many", "some"]).cutflow._repr_html_())
    assert "executed order — the cuts did not run in the written order" in moved.text
    line = result.cutflow["SR", "tt"].executed[-1]
    cells = Page(result.cutflow["SR", "tt"]._repr_html_()).words
    assert f"{line.passed:,}" in cells
    assert f"{line.sumw:.6g}" in cells


@given(st.text(min_size=1, max_size=30))
def test_any_name_is_escaped(name: str) -> None:
    evil = f"<script>{name}</script>"
    ledger = Ledger((Entry(evil, evil, 0, 3, "failed", evil), Entry(evil, evil, 0, None, "missing")))
    result = wr.Result(
        name=evil, outputs={evil: {(evil, evil, "nominal"): evil}}, output_names=(evil,),
        cutflow=small_cutflow(evil), ledger=ledger, steps={}, order=(), decisions=(), notes=(evil,),
        guards=(), reads=[], bytes_read=0, seconds=1.0, engine=evil, workers=1, seed=0,
    )  # fmt: skip
    for text in (
        result._repr_html_(), result.cutflow._repr_html_(),
    ):  # fmt: skip
        assert "<script" not in text
        harmless(Page(text))


def small_cutflow(name: str) -> Any:
    from windrow.pipeline.cutflow.table import Cutflow, Table

    table = Table(name, name, {name: False}, (name,), frozenset(), (), planned=(name,))
    return Cutflow({(name, name): table})


def test_long_results_are_cut_short(result: wr.Result) -> None:
    outputs: Any = {"tt": {(f"o{n}", "SR", "nominal"): n for n in range(MOST_OUTPUTS + 5)}}
    page = Page(replace(result, outputs=outputs)._repr_html_())
    assert "and 5 more" in page.text
    assert "o0" in page.words
    assert f"o{MOST_OUTPUTS}" not in page.words


def test_an_incomplete_result_says_so(result: wr.Result) -> None:
    entries = tuple(Entry(f"f{n}", "tt", 0, 5, "failed", "gone") for n in range(30))
    page = Page(replace(result, ledger=Ledger(entries))._repr_html_())
    assert "incomplete" in page.text
    assert "and 10 more" in page.text


# --- small pictures -------------------------------------------------------------------------------


def points(svg: str) -> list[tuple[str, list[float]]]:
    import re

    path = re.search(r'd="([^"]*)"', svg)
    assert path is not None
    return [
        (letter, [float(n) for n in numbers.split()]) for letter, numbers in re.findall(r"([MVHZ])([^MVHZ]*)", path[1])
    ]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=12))
def test_a_picture_has_the_heights_of_its_bins(values: list[float]) -> None:
    histogram = bh.Histogram(bh.axis.Regular(len(values), 0, 1))
    histogram[...] = np.array(values)
    heights = [numbers[0] for letter, numbers in points(sparkline(histogram)) if letter == "V"]
    base = points(sparkline(histogram))[0][1][1]
    assert len(heights) == len(values) + 1
    assert all(-0.1 <= height <= 28.1 for height in heights)
    top = max(map(abs, values)) or 1.0
    for value, height in zip(values, heights, strict=False):
        if abs(value) > 0.05 * top:
            assert (base > height) == (value > 0)  # upwards is less in a picture


def test_odd_histograms_have_a_picture_or_none() -> None:
    two = bh.Histogram(bh.axis.Regular(2, 0, 1), bh.axis.Regular(2, 0, 1))
    assert sparkline(two) == ""
    assert sparkline(bh.Histogram(bh.axis.StrCategory([], growth=True))) == ""
    bad = bh.Histogram(bh.axis.Regular(3, 0, 1))
    bad[...] = np.array([np.nan, np.inf, 2.0])
    assert "nan" not in sparkline(bad)
    open_ended = bh.Histogram(bh.axis.Variable([-np.inf, 0, np.inf]))
    assert "nan" not in sparkline(open_ended.fill([1.0]))
