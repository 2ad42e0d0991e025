"""``session.graph()``: the tasks of a session as plain data, as a drawing, and as text for Graphviz and Mermaid."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windrow.errors import UsageError
from windrow.units import format_seconds
from windrow.watch.graph_drawing import Card, Drawn, Edge, Look, colour_sample, draw_graph
from windrow.watch.graph_run import maker_of

if TYPE_CHECKING:
    from windrow.watch.graph_run import GraphRun
    from windrow.watch.log import CallRecord

#: Fills by name, in the order of their first call.
FILLS = ("#ddebfb", "#fde6d3", "#dcf2e1", "#eadff7", "#fbf0c8", "#fadfe6", "#d8f0f0", "#ece7df")
STATES = {"done": "#3b9457", "running": "#e69f00", "waiting": "#9aa5b0", "failed": "#c2321d", "cancelled": "#6b5b95"}

#: States of a node that stands for many: the first that any of them is in.
_WORST_FIRST = ("failed", "running", "waiting", "cancelled", "done")


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A task, or several of one name that are equally far from the beginning."""

    key: str
    name: str
    level: int  #: the longest way from a task that needs no other
    states: Mapping[str, int]
    seconds: float  #: of work
    tasks: tuple[int, ...]

    @property
    def count(self) -> int:
        return len(self.tasks)

    @property
    def label(self) -> str:
        """Its name, with how many there are."""
        return self.name if self.count == 1 else f"{self.name} x {self.count:,}"


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """One needs what another makes ("data"), or comes after it because of files ("after")."""

    source: str
    target: str
    kind: str = "data"
    count: int = 1


def state_of(node: GraphNode) -> str:
    return next((state for state in _WORST_FIRST if node.states.get(state)), "waiting")


def levels_of(tasks: Mapping[int, CallRecord]) -> dict[int, int]:
    """Say how far each task is from the beginning; a task needs only such as were called before it."""
    levels: dict[int, int] = {}
    for number in sorted(tasks):
        task, level = tasks[number], 0
        for output in task.reads:
            level = max(level, levels.get(maker_of(output), -1) + 1)
        for before in task.after:
            level = max(level, levels.get(before, -1) + 1)
        levels[number] = level
    return levels


def nodes_and_edges(tasks: Mapping[int, CallRecord], most: int) -> tuple[tuple[GraphNode, ...], tuple[GraphEdge, ...]]:
    """Give one node per task, or, for more than ``most``, one per name and level, then per name and several levels."""
    levels = levels_of(tasks)
    keys = {number: str(number) for number in tasks}
    if len(tasks) > most:
        kinds = {(task.name, levels[number]) for number, task in tasks.items()}
        together, highest = 1, max(levels.values())
        while together <= highest and len({(name, level // together) for name, level in kinds}) > most:
            together *= 2
        keys = {number: f"{task.name}@{levels[number] // together}" for number, task in tasks.items()}
    members: dict[str, list[int]] = defaultdict(list)
    for number in sorted(tasks):
        members[keys[number]].append(number)
    nodes = []
    for key, ids in members.items():
        states = Counter([tasks[number].state for number in ids])
        level = min(levels[number] for number in ids)
        work = sum([one.end - one.begin for number in ids for one in tasks[number].tries])
        nodes.append(GraphNode(key, tasks[ids[0]].name, level, dict(states), work / 1e6, tuple(ids)))
    counts: Counter[tuple[str, str, str]] = Counter()
    for number, task in tasks.items():
        for source in {maker_of(output) for output in task.reads} if task.reads else ():
            if source in keys:
                counts[keys[source], keys[number], "data"] += 1
        for source in task.after:
            if source in keys:
                counts[keys[source], keys[number], "after"] += 1
    return tuple(nodes), tuple(GraphEdge(*ends, count) for ends, count in counts.items())


@dataclass(frozen=True, slots=True, repr=False)
class TaskGraph(Drawn):
    """The tasks of a session and what they need of each other: ``save`` writes .svg, .dot (Graphviz) or .mmd (Mermaid)."""

    name: str
    nodes: tuple[GraphNode, ...]
    edges: tuple[GraphEdge, ...]
    tasks: int  #: that are in it

    def __repr__(self) -> str:
        return (
            f"<graph of {self.name!r}: {self.tasks:,} tasks in {len(self.nodes):,} nodes; "
            "show it in a notebook, or save it with .save('graph.svg')>"
        )

    def _texts(self) -> dict[str, Callable[[], str]]:
        return {".svg": self.svg, ".dot": self.dot, ".mmd": self.mermaid}

    def svg(self, path: Any = None) -> str:
        """Give the drawing, and write it to a file if one is named."""
        text = _draw(self)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def dot(self) -> str:
        """Give the graph in the language of Graphviz."""
        lines = [f"digraph {_dotted(self.name)} {{", "  rankdir=LR;", "  node [shape=box, style=filled];"]  # fmt: skip
        fills = _fills(self.nodes)
        lines += [
            f"  {_dotted(node.key)} [label={_dotted(node.label)}, fillcolor={_dotted(fills[node.name])}, "
            f"color={_dotted(STATES[state_of(node)])}];"
            for node in self.nodes
        ]
        for edge in self.edges:
            looks = ["style=dashed"] if edge.kind == "after" else []
            looks += [f'label="{edge.count}"'] if edge.count > 1 else []
            look = f" [{', '.join(looks)}]" if looks else ""
            lines.append(f"  {_dotted(edge.source)} -> {_dotted(edge.target)}{look};")
        return "\n".join([*lines, "}", ""])

    def mermaid(self) -> str:
        """Give the graph in the language of Mermaid, which Markdown pages draw."""
        short = {node.key: f"n{number}" for number, node in enumerate(self.nodes)}
        lines = ["flowchart LR"]
        for node in self.nodes:
            text = escape(" ".join(node.label.split())).replace("[", "&#91;").replace("]", "&#93;")
            lines.append(f'  {short[node.key]}["{text}"]')
        lines += [
            f"  {short[edge.source]} {'-.->' if edge.kind == 'after' else '-->'} {short[edge.target]}"
            for edge in self.edges
        ]
        for state, colour in STATES.items():
            mine = [short[node.key] for node in self.nodes if state_of(node) == state]
            if mine:
                lines.append(f"  classDef {state} stroke:{colour},stroke-width:2px")
                lines.append(f"  class {','.join(mine)} {state}")
        return "\n".join([*lines, ""])


def _dotted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") + '"'


def task_graph(run: GraphRun, most: int) -> TaskGraph:
    """Make the graph of what is known of a session; tasks alike are joined where there are more than ``most``."""
    if most < 1:
        raise UsageError(f"most= is a number of nodes, at least 1, got {most!r}")
    nodes, edges = nodes_and_edges(run.tasks, most)
    return TaskGraph(run.name, nodes, edges, len(run.tasks))


def _draw(graph: TaskGraph) -> str:
    levels = {level: place for place, level in enumerate(sorted({node.level for node in graph.nodes}))}
    fills = _fills(graph.nodes)
    counts: Counter[str] = Counter()
    for node in graph.nodes:
        counts.update(node.states)
    return draw_graph(
        f"{graph.tasks:,} tasks of {graph.name}",
        [_card(node, fills[node.name]) for node in graph.nodes],
        [Edge(edge.source, edge.target, edge.kind) for edge in graph.edges],
        [
            Look(width=1.2 if edge.count == 1 else 2.0, dash="2 4" if edge.kind == "after" else "")
            for edge in graph.edges
        ],
        [(colour_sample(colour), f"{counts[state]:,} {state}") for state, colour in STATES.items() if counts[state]],
        {node.key: levels[node.level] for node in graph.nodes},
    )


def _fills(nodes: Sequence[GraphNode]) -> dict[str, str]:
    names = dict.fromkeys(node.name for node in nodes)
    return {name: FILLS[number % len(FILLS)] for number, name in enumerate(names)}


def _card(node: GraphNode, fill: str) -> Card:
    state = state_of(node)
    took = f", {format_seconds(node.seconds)}" if node.seconds else ""
    if node.count == 1:
        words = f"task {node.tasks[0]}{took or f', {state}'}"
    else:
        words = ", ".join(f"{count:,} {one}" for one, count in node.states.items()) + took
    dash = "5 3" if state in ("cancelled", "waiting") else ""
    return Card(
        key=node.key, kind=state, name=node.label, lines=(words,), about=f"{node.label}: {words}",
        fill=fill, border=STATES[state], radius=3, stripe=5, dash=dash,
    )  # fmt: skip
