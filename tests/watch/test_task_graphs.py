"""Graphs of tasks: nodes and edges, joined where there are many, and the drawing and texts made of them."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searching import examples
from windrow.errors import UsageError
from windrow.watch.graph_drawing import Rectangle
from windrow.watch.log import CallRecord, Try
from windrow.watch.task_graph import TaskGraph, levels_of, nodes_and_edges, state_of

if TYPE_CHECKING:
    from pathlib import Path

SVG = "{http://www.w3.org/2000/svg}"


def ran(number: int, name: str, *reads: int, after: tuple[int, ...] = (), state: str = "done") -> CallRecord:
    tries = (Try(number, 0, 0, 0, 1_000_000, 1_000_000),) if state == "done" else ()
    return CallRecord(number, name, 0, 1_000_000, state, tries, tuple(f"{one}.0" for one in reads), after)


def drawn(tasks: dict[int, CallRecord], most: int = 200) -> TaskGraph:
    return TaskGraph('a <"b">', *nodes_and_edges(tasks, most), len(tasks))


@st.composite
def graphs(draw: st.DrawFn) -> dict[int, CallRecord]:
    tasks: dict[int, CallRecord] = {}
    for number in range(1, draw(st.integers(0, 12)) + 1):
        reads = draw(st.sets(st.sampled_from(sorted(tasks)), max_size=3)) if tasks else set()
        after = draw(st.sets(st.sampled_from(sorted(tasks)), max_size=1)) if tasks else set()
        name = draw(st.sampled_from(["align", "sort", 'odd "<name>"\n']))
        state = draw(st.sampled_from(["done", "failed", "waiting", "running", "cancelled"]))
        tasks[number] = ran(number, name, *sorted(reads), after=tuple(after), state=state)
    return tasks


@settings(max_examples=examples(50))
@given(graphs(), st.integers(1, 30))
def test_nothing_is_lost_by_joining(tasks: dict[int, CallRecord], most: int) -> None:
    nodes, edges = nodes_and_edges(tasks, most)
    assert sorted(number for node in nodes for number in node.tasks) == sorted(tasks)
    names = Counter(task.name for task in tasks.values())
    found: Counter[str] = Counter()
    for node in nodes:
        found[node.name] += node.count
        assert {tasks[number].name for number in node.tasks} == {node.name}
        assert node.states == Counter(tasks[number].state for number in node.tasks)
    assert found == names
    assert len(nodes) <= max(most, len(names))
    data = sum(edge.count for edge in edges if edge.kind == "data")
    assert data == sum(len(task.reads) for task in tasks.values())
    assert sum(edge.count for edge in edges if edge.kind == "after") == sum(len(task.after) for task in tasks.values())


@settings(max_examples=examples(50))
@given(graphs())
def test_a_level_is_the_longest_way_from_the_beginning(tasks: dict[int, CallRecord]) -> None:
    def longest(number: int) -> int:
        needed = [*(int(one[:-2]) for one in tasks[number].reads), *tasks[number].after]
        return max((longest(one) + 1 for one in needed), default=0)

    assert levels_of(tasks) == {number: longest(number) for number in tasks}


@settings(max_examples=examples(50))
@given(graphs(), st.integers(1, 30))
def test_boxes_do_not_overlap_and_texts_are_well_formed(tasks: dict[int, CallRecord], most: int) -> None:
    graph = drawn(tasks, most)
    places = [
        Rectangle(*(float(box.attrib[side]) for side in ("x", "y", "width", "height")))
        for box in (group.find(f"{SVG}rect") for group in ET.fromstring(graph.svg()).iter(f"{SVG}g"))
        if box is not None
    ]
    for number, one in enumerate(places):
        for other in places[:number]:
            apart_x = one.x >= other.right or other.x >= one.right
            apart_y = one.y >= other.y + other.height or other.y >= one.y + one.height
            assert apart_x or apart_y
    root = ET.fromstring(graph.svg())
    assert len(root.findall(f"{SVG}g")) == len(graph.nodes)
    assert graph.dot().count("->") == len(graph.edges)
    mermaid = graph.mermaid().splitlines()
    arrows = [line for line in mermaid if re.fullmatch(r"  n\d+ (-->|-\.->) n\d+", line)]
    assert len(arrows) == len(graph.edges)


def test_many_alike_become_one() -> None:
    tasks = {number: ran(number, "align") for number in range(1, 501)}
    tasks[501] = ran(501, "merge", *range(1, 501))
    graph = drawn(tasks)
    assert [(node.label, node.level) for node in graph.nodes] == [("align x 500", 0), ("merge", 1)]
    assert [edge.count for edge in graph.edges] == [500]
    assert "align x 500" in graph.svg()
    assert len(drawn(tasks, most=1000).nodes) == 501


def test_a_long_chain_is_joined_too() -> None:
    tasks = {1: ran(1, "step")}
    tasks |= {number: ran(number, "step", number - 1) for number in range(2, 2001)}
    graph = drawn(tasks)
    assert 50 < len(graph.nodes) <= 200
    ET.fromstring(graph.svg())


def test_the_worst_state_is_shown() -> None:
    tasks = {number: ran(number, "a") for number in range(1, 5)}
    tasks[3] = ran(3, "a", state="failed")
    (node,) = drawn(tasks, most=1).nodes
    assert state_of(node) == "failed"
    assert 'class="failed"' in drawn(tasks, most=1).svg()


def test_it_is_saved_by_its_suffix(tmp_path: Path) -> None:
    graph = drawn({1: ran(1, "a"), 2: ran(2, "b", 1)})
    assert graph.save(tmp_path / "g.svg").read_text() == graph.svg()
    assert graph.save(tmp_path / "g.dot").read_text() == graph.dot()
    assert graph.save(tmp_path / "g.mmd").read_text() == graph.mermaid()
    assert graph.svg(tmp_path / "other.svg") == (tmp_path / "other.svg").read_text()
    with pytest.raises(UsageError, match=r"saved as \.svg, \.dot, \.mmd, got 'g\.png'"):
        graph.save(tmp_path / "g.png")
    assert graph._repr_svg_() in graph._repr_html_()
