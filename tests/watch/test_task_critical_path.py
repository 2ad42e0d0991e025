"""The critical path against all paths of small graphs."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from windrow.watch.graph_run import Link, Span, critical_path, least_time

Graph = tuple[dict[int, Span], list[Link]]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Graphs of up to seven tasks with times that fit: nobody begins before what it needs is there."""
    spans: dict[int, Span] = {}
    links: list[Link] = []
    free: dict[int, int] = {}
    for number in range(1, draw(st.integers(1, 7)) + 1):
        sources = draw(st.sets(st.sampled_from(sorted(spans)), max_size=3)) if spans else set()
        worker = draw(st.integers(0, 2))
        called = draw(st.integers(0, 6))
        ready = called
        for source in sorted(sources):
            at = draw(st.integers(spans[source].begin, spans[source].end))
            links.append(Link(source, number, at, f"{source}.0"))
            ready = max(ready, at)
        begin = max(ready, free.get(worker, 0)) + draw(st.integers(0, 3))
        end = begin + draw(st.integers(0, 5))
        spans[number] = Span(begin, end)
        free[worker] = end
    return spans, links


def longest_of_all(spans: dict[int, Span], links: list[Link]) -> int:
    """Look at every path there is."""

    def from_here(number: int) -> int:
        span = spans[number]
        ways = [span.end - span.begin]
        ways += [
            min(link.at, span.end) - span.begin + from_here(link.target) for link in links if link.source == number
        ]
        return max(ways)

    return max(map(from_here, spans))


@given(graphs())
def test_it_is_the_longest_of_all_paths_and_no_longer_than_it_took(graph: Graph) -> None:
    spans, links = graph
    path = critical_path(spans, links)
    assert path.length == longest_of_all(spans, links)
    first = min(span.begin for span in spans.values())
    assert path.length <= max(span.end for span in spans.values()) - first
    pairs = {(link.source, link.target) for link in links}
    assert all(pair in pairs for pair in pairwise(path.tasks))
    assert least_time(path.length, 0, 2) == path.length


def test_a_release_counts_only_for_the_time_until_it() -> None:
    spans = {1: Span(0, 100), 2: Span(30, 60), 3: Span(0, 80)}
    links = [Link(1, 2, 20, "1.0")]
    assert critical_path(spans, links) == ((1,), (100,))
    late = {**spans, 2: Span(30, 130)}
    assert critical_path(late, links) == ((1, 2), (20, 100))
    assert critical_path(late, links).length == 120


def test_links_against_the_time_are_left_out() -> None:
    # Task 1 was made again after task 2 had read what it made first.
    spans = {1: Span(50, 90), 2: Span(20, 40)}
    assert critical_path(spans, [Link(1, 2, 10, "1.0")]) == ((1,), (40,))
    assert critical_path({}, []).length == 0


def test_the_least_time_is_the_work_where_that_is_more() -> None:
    assert least_time(10, 90, 3) == 30
    assert least_time(50, 90, 3) == 50
