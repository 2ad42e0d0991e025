"""The layout of graphs: nothing overlaps, lines go to the right and run between boxes."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from searching import examples
from windrow.watch.graph_drawing import Box, Edge, Layout, Rectangle, place_boxes

if TYPE_CHECKING:
    from collections.abc import Sequence


def overlap(one: Rectangle, other: Rectangle) -> bool:
    return bool(
        one.x < other.x + other.width
        and other.x < one.x + one.width
        and one.y < other.y + other.height
        and other.y < one.y + one.height
    )


def check(layout: Layout, edges: Sequence[Edge]) -> None:
    for one, other in itertools.combinations(layout.boxes.values(), 2):
        assert not overlap(one, other)
    assert len(layout.routes) == len(edges)
    for edge, route in zip(edges, layout.routes, strict=True):
        source, target = layout.boxes[edge.source], layout.boxes[edge.target]
        assert route[0] == (source.x + source.width, source.y + source.height / 2)
        x, y = route[-1]
        assert x == target.x
        assert target.y <= y <= target.y + target.height
        assert all(a[0] <= b[0] for a, b in itertools.pairwise(route)), "lines go to the right"
    for box in layout.boxes.values():
        assert box.x >= 0
        assert box.y >= 0
        assert box.x + box.width <= layout.width + 1e-6
        assert box.y + box.height <= layout.height + 1e-6


def passes_through(layout: Layout, edges: Sequence[Edge]) -> list[tuple[Edge, str]]:
    """Level stretches of lines that run across a box: curves are between the layers."""
    found = []
    for edge, route in zip(edges, layout.routes, strict=True):
        for (left, y), (right, y2) in itertools.pairwise(route):
            if y != y2:
                continue
            found += [
                (edge, key)
                for key, box in layout.boxes.items()
                if key not in (edge.source, edge.target)
                and left < box.x + box.width
                and box.x < right
                and box.y < y < box.y + box.height
            ]
    return found


@st.composite
def nets(draw: st.DrawFn) -> tuple[list[Box], list[Edge]]:
    """Boxes of any size and stage, and edges that go forward."""
    count = draw(st.integers(0, 25))
    stages = sorted(draw(st.lists(st.integers(0, 3), min_size=count, max_size=count)))
    size = st.floats(20, 200)
    boxes = [Box(f"b{n}", draw(size), draw(size), stage) for n, stage in enumerate(stages)]
    pairs = draw(st.lists(st.tuples(st.integers(0, 24), st.integers(0, 24)), max_size=60))
    edges = [Edge(f"b{a}", f"b{b}", draw(st.sampled_from(("", "x")))) for a, b in dict.fromkeys(pairs) if a < b < count]
    return boxes, edges


class TestLayout:
    @settings(max_examples=examples(150), suppress_health_check=[HealthCheck.too_slow])
    @given(nets())
    def test_nothing_overlaps_and_lines_end_at_boxes(self, net: tuple[list[Box], list[Edge]]) -> None:
        boxes, edges = net
        layout = place_boxes(boxes, edges)
        assert set(layout.boxes) == {box.key for box in boxes}
        for box in boxes:
            placed = layout.boxes[box.key]
            assert (placed.width, placed.height) == (box.width, box.height)
        check(layout, edges)
        assert passes_through(layout, edges) == []

    @given(nets())
    def test_stages_are_kept(self, net: tuple[list[Box], list[Edge]]) -> None:
        boxes, edges = net
        layout = place_boxes(boxes, edges)
        # What is only a source may stand beside what reads it.
        reading = {edge.target for edge in edges}
        moving = {box.key for box in boxes if not any(e.target == box.key and e.source in reading for e in edges)}
        for one, other in itertools.permutations(boxes, 2):
            if one.stage < other.stage and one.key not in moving and other.key not in moving:
                assert layout.boxes[one.key].x < layout.boxes[other.key].x

    def test_crossings_are_removed(self) -> None:
        left = [Box(f"l{n}", 50, 20) for n in range(6)]
        right = [Box(f"r{n}", 50, 20) for n in range(6)]
        edges = [Edge(f"l{n}", f"r{5 - n}") for n in range(6)]
        layout = place_boxes(left + right, edges)
        heights = [layout.boxes[f"l{n}"].y for n in range(6)]
        facing = [layout.boxes[f"r{5 - n}"].y for n in range(6)]
        assert sorted(range(6), key=heights.__getitem__) == sorted(range(6), key=facing.__getitem__)

    def test_a_chain_is_straight(self) -> None:
        boxes = [Box(f"b{n}", 50, 20 + 10 * n) for n in range(5)]
        edges = [Edge(f"b{n}", f"b{n + 1}") for n in range(4)]
        layout = place_boxes(boxes, edges)
        middles = {round(box.y + box.height / 2, 6) for box in layout.boxes.values()}
        assert len(middles) == 1

    def test_nothing(self) -> None:
        assert place_boxes([], []).boxes == {}

    def test_layers_may_be_given_and_lines_within_one_are_left_out(self) -> None:
        boxes = [Box(name, 50, 20) for name in "abc"]
        edges = [Edge("a", "b"), Edge("b", "a"), Edge("a", "c")]
        layout = place_boxes(boxes, edges, {"a": 0, "b": 0, "c": 1})
        assert layout.boxes["a"].x == layout.boxes["b"].x < layout.boxes["c"].x
        assert [bool(route) for route in layout.routes] == [False, False, True]
