"""``analysis.graph()``: a valid drawing in which everything is there once and nothing lies on top of anything."""

from __future__ import annotations

import itertools
import runpy
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import HealthCheck, given, settings

import windrow as wr
from description import build
from searching import examples
from strategies import analyses
from windrow.errors import UsageError
from windrow.pipeline.inspect.drawing import draw, picture
from windrow.watch.graph_drawing import Rectangle

if TYPE_CHECKING:
    from collections.abc import Sequence

SVG = "{http://www.w3.org/2000/svg}"
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def boxes_of(svg: str) -> Counter[tuple[str, str]]:
    """(kind, name) of every box in a drawing."""
    groups = ET.fromstring(svg).iter(f"{SVG}g")
    return Counter((g.attrib["class"], g.attrib["data-name"]) for g in groups)


def outlines(svg: str) -> list[Rectangle]:
    """Where the boxes of a drawing are."""
    found = []
    for group in ET.fromstring(svg).iter(f"{SVG}g"):
        rectangle, polygon = group.find(f"{SVG}rect"), group.find(f"{SVG}polygon")
        if rectangle is not None:
            found.append(Rectangle(*(float(rectangle.attrib[k]) for k in ("x", "y", "width", "height"))))
        else:
            assert polygon is not None
            points = [point.split(",") for point in polygon.attrib["points"].split()]
            xs, ys = [float(x) for x, _ in points], [float(y) for _, y in points]
            found.append(Rectangle(min(xs), min(ys), max(xs) - min(xs), max(ys) - min(ys)))
    return found


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ET.fromstring(svg).iter(f"{SVG}text")]


def function(name: str, arguments: Sequence[str]) -> Any:
    space: dict[str, Any] = {}
    exec(f"def {name}({', '.join(arguments)}):\n    return 1", space)
    return space[name]


def overlap(one: Rectangle, other: Rectangle) -> bool:
    return bool(
        one.x < other.x + other.width
        and other.x < one.x + one.width
        and one.y < other.y + other.height
        and other.y < one.y + one.height
    )


# --- the drawing -----------------------------------------------------------------------------------


@pytest.fixture
def dimuon() -> Any:
    return runpy.run_path(str(EXAMPLES / "dimuon" / "analysis.py"))["analysis"]


class TestDrawing:
    def test_the_example(self, dimuon: Any, tmp_path: Path) -> None:
        graph = dimuon.graph()
        found = boxes_of(graph.svg)
        steps = {name: step.kind for name, step in dimuon.definition(0).steps.items()}
        for name, kind in steps.items():
            assert found[kind, name] == 1
        for region in ("Z", "upsilon", "jpsi", "sideband"):
            assert found["region", region] == 1
        assert {kind for kind, _ in found} == {
            "file", "cut", "column", "weight", "region", "joint", "output"
        }  # fmt: skip
        written = texts(graph.svg)
        assert "not z_window" in written
        assert written.count("when is_mc") == 2
        assert "HLT_IsoTkMu24 = False" in written
        path = graph.save(tmp_path / "graph.svg")
        assert path.read_text(encoding="utf-8") == graph.svg
        assert graph._repr_svg_() == graph.svg
        assert graph.svg in graph._repr_html_()

    def test_other_formats_are_refused(self, dimuon: Any, tmp_path: Path) -> None:
        with pytest.raises(UsageError, match=r"saved as \.svg, got 'graph\.png'"):
            dimuon.graph().save(tmp_path / "graph.png")

    def test_names_are_escaped(self) -> None:
        analysis = wr.Pipeline('<a & "b">')
        name = '<cut & "quoted">'
        analysis.cut(name=name, reads={"x": "<column>"}, when='kind == "<mc>"')(lambda x: x > 0)
        analysis.region("<SR>", name)
        svg = analysis.graph().svg
        assert boxes_of(svg)["cut", name] == 1
        assert boxes_of(svg)["region", "<SR>"] == 1
        assert {name, "<column>", 'when kind == "<mc>"'} <= set(texts(svg))

    def test_inverted_and_learned_and_after(self) -> None:
        analysis = wr.Pipeline("lines")
        analysis.cut(function("one", ["x"]))
        analysis.cut(after="one")(function("two", ["x"]))
        analysis.column(function("made", ["x"]))
        analysis.region("R", "one", "!two")
        analysis.guards.add(("made", "one"))
        edges = {(e.source, e.target, e.manner) for e in picture(analysis).edges}
        assert {
            ("step one", "region R", "passes"),
            ("step two", "region R", "fails"),
            ("step one", "step two", "after"),
            ("step one", "step made", "learned"),
        } <= edges
        legend = texts(draw(analysis).svg)[-3:]
        assert legend == [
            "rows that fail the cut", "runs after the cut", "runs after the cut (learned)"
        ]  # fmt: skip

    def test_weights_of_outputs(self) -> None:
        analysis = wr.Pipeline("weights")
        for name in ("first", "second", "third"):
            if name == "third":
                analysis.cut(function("cut", ["x"]))
            analysis.weight(function(name, ["x"]))
        analysis.output(function("every", ["weight"]))
        analysis.output(region=None)(function("before", ["weight"]))
        analysis.output(weights=["third"])(function("one", ["weight"]))
        analysis.output(weights=None)(function("plain", ["weight"]))
        drawn = picture(analysis)
        edges = {(e.source, e.target) for e in drawn.edges}
        about = {card.key: card.about for card in drawn.cards}
        product = {target: about[source] for source, target in edges if source.startswith("joint weight")}
        assert product["step every"] == "weight = first * second * third"
        assert product["step before"] == "weight = first * second"
        assert ("step third", "step one") in edges
        plain = next(card for card in drawn.cards if card.key == "step plain")
        assert "unweighted" in plain.lines

    def test_long_lists_are_shortened(self) -> None:
        analysis = wr.Pipeline("long")
        analysis.cut(function("wide", [f"column_{n}" for n in range(40)]))
        svg = analysis.graph().svg
        written = texts(svg)
        assert "… 32 more" in written
        assert sum(text.startswith("column_") for text in written) == 8
        assert "column_39" in svg, "named where the pointer rests"

    def test_before_there_is_an_output_or_any_step(self) -> None:
        empty = wr.Pipeline("empty")
        assert boxes_of(empty.graph().svg) == {("region", "all"): 1}
        empty.column(function("made", ["x"]))
        assert boxes_of(empty.graph().svg)["column", "made"] == 1

    def test_files_are_drawn(self) -> None:
        analysis = wr.Pipeline("saving")
        analysis.cut(function("one", ["x"]))
        analysis.column(function("made", ["x"]))
        analysis.region("R", "one")
        analysis.save("skim/{dataset}.parquet", columns=["x", "made"], region="R")
        edges = {(e.source, e.target) for e in picture(analysis).edges}
        assert {("step made", "save 0"), ("region R", "save 0")} <= edges
        assert boxes_of(analysis.graph().svg)["save", "skim/{dataset}.parquet"] == 1

    def test_two_hundred_steps(self) -> None:
        analysis = wr.Pipeline("large")
        columns = [f"Branch_{n}" for n in range(60)]
        for number in range(200):
            kind = ("cut", "column", "weight", "output")[number % 4]
            reads = [columns[number * 7 % 60], columns[number * 11 % 60]]
            if number > 8 and kind != "weight":
                reads.append(f"column_{(number // 4 - 2) * 4 + 1}")
            step = function(f"{kind}_{number}", list(dict.fromkeys(reads)))
            getattr(analysis, kind)(step)
        for region in range(10):
            analysis.region(f"R{region}", *[f"cut_{n}" for n in range(0, 200, 4 * (region + 1))])
        drawn = picture(analysis)
        svg = analysis.graph().svg
        found = boxes_of(svg)
        assert not any(overlap(*pair) for pair in itertools.combinations(outlines(svg), 2))
        for number in range(200):
            kind = ("cut", "column", "weight", "output")[number % 4]
            assert found[kind, f"{kind}_{number}"] == 1
        # Every step has its own box of file columns, or there would be hundreds of lines.
        assert Counter(e.source for e in drawn.edges if e.source.startswith("file")).most_common(1)[0][1] == 1
        assert found["joint", "all regions"] == 1

    @settings(max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow])
    @given(analyses())
    def test_random_pipelines(self, analysis: Any) -> None:
        pipeline = build(analysis)
        drawn = picture(pipeline)
        svg = pipeline.graph().svg
        found = boxes_of(svg)
        for step in analysis.steps:
            assert found[step.kind, step.name] == 1
        for output in analysis.outputs:
            assert found["output", output.name] == 1
        for region, cuts in analysis.regions.items():
            assert found["region", region] == 1
            lines = {(e.source.removeprefix("step "), e.manner) for e in drawn.edges if e.target == f"region {region}"}
            assert lines == {(cut.lstrip("!"), "fails" if cut.startswith("!") else "passes") for cut in cuts}
        keys = [card.key for card in drawn.cards]
        assert len(set(keys)) == len(keys)
        assert not any(overlap(*pair) for pair in itertools.combinations(outlines(svg), 2))
