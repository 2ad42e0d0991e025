"""A notebook as people use it, executed by a real kernel: cells run again, progress, and what shows as HTML."""

from __future__ import annotations

import asyncio
import sys
import types
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from windrow.watch.progress import Cell, Snapshot, in_notebook

SETUP = """
import time
import numpy as np
import windrow as wr

events = {"x": np.arange(40_000.0), "event": np.arange(40_000)}
source = wr.data.open(events, grid=2000)
analysis = wr.Pipeline("notebook")
"""
HIGH = """
@analysis.cut
def high(x):
    return x >= {least}
"""
SLOW = """
@analysis.cut
def high(x):
    time.sleep(0.03)
    return x >= 10
"""
TWICE = """
@analysis.column(each=True)
def scaled(x):
    return x * {factor}
"""
OUTPUT = """
@analysis.output
def total(scaled):
    return {"sum": float(np.sum(scaled)), "rows": len(scaled)}
"""
RUN = "result = analysis.run(source, progress=False); result['total', 'all', 'data']"
SHOW = "result = analysis.run(source, chunk=2000, engine='inline', progress={progress})"

CELLS = {
    "setup": SETUP,
    "slow": SLOW,
    "scaled": TWICE.format(factor=1),
    "output": OUTPUT,
    "bar": SHOW.format(progress=None),
    "bar asked for": SHOW.format(progress=True),
    "no bar": SHOW.format(progress=False),
    "high": HIGH.format(least=30_000),
    "first": RUN,
    "high again": HIGH.format(least=39_990),
    "second": RUN,
    "scaled again": TWICE.format(factor=10),
    "third": RUN,
    "impure": "@analysis.cut\ndef high(x):\n    return x >= np.mean(x)",
    "checked again": "try:\n    analysis.run(source)\nexcept wr.errors.RowPurityError as error:\n    print('row-pure?', error)",
    "high a third time": HIGH.format(least=39_990),
    "high a fourth time": HIGH.format(least=39_990),
    "fourth": RUN,
    "peek": "analysis.peek('scaled', source, rows=3)",
    "graph": "analysis.graph()",
    "costs": "analysis.run(source)\n"
    + HIGH.format(least=5)
    + "print(sorted(analysis.costs), 'high' in analysis.step_costs, 'scaled' in analysis.step_costs)",
    "interrupted": "@analysis.cut\ndef high(x):\n    raise ValueError('bad')\n\ntry:\n    analysis.run(source, progress=True)\n"
    "except wr.errors.StepError as error:\n    print(error)",
}


@pytest.fixture(scope="module")
def outputs() -> dict[str, list[Any]]:
    """The outputs of every cell; one kernel for all tests, because starting one takes seconds."""
    book = nbformat.v4.new_notebook()  # type: ignore[no-untyped-call]
    cell = nbformat.v4.new_code_cell
    book.cells = [cell(text.strip()) for text in CELLS.values()]  # type: ignore[no-untyped-call]
    client = NotebookClient(book, timeout=120, kernel_name="python3")
    asyncio.run(client.async_execute())
    return {name: ran.outputs for name, ran in zip(CELLS, book.cells, strict=True)}


def value(found: list[Any]) -> Any:
    (result,) = [output for output in found if output.output_type == "execute_result"]
    return eval(result.data["text/plain"])


def stream(found: list[Any], name: str) -> str:
    return "".join(o.text for o in found if o.output_type == "stream" and o.name == name)


class TestCellsRunAgain:
    def test_a_step_is_replaced_with_a_note(self, outputs: dict[str, list[Any]]) -> None:
        assert stream(outputs["slow"], "stderr") == ""
        for cell in ("high", "high again", "scaled again", "high a third time", "high a fourth time"):
            note = stream(outputs[cell], "stderr")
            assert "is defined again and replaces the earlier one" in note, cell

    def test_the_next_run_uses_the_new_one(self, outputs: dict[str, list[Any]]) -> None:
        first = sum(range(30_000, 40_000))
        second = sum(range(39_990, 40_000))
        assert value(outputs["first"]) == {"sum": first, "rows": 10_000}
        assert value(outputs["second"]) == {"sum": second, "rows": 10}
        assert value(outputs["third"]) == {"sum": 10 * second, "rows": 10}
        assert value(outputs["fourth"]) == {"sum": 10 * second, "rows": 10}

    def test_the_new_one_is_checked(self, outputs: dict[str, list[Any]]) -> None:
        assert "row-pure?" in stream(outputs["checked again"], "stdout")
        assert "'high'" in stream(outputs["checked again"], "stdout")

    def test_what_the_old_one_cost_is_forgotten(self, outputs: dict[str, list[Any]]) -> None:
        assert stream(outputs["costs"], "stdout") == "[] False True\n"


class TestProgress:
    @pytest.mark.parametrize("cell", ["bar", "bar asked for"])
    def test_one_line_is_left(self, outputs: dict[str, list[Any]], cell: str) -> None:
        (shown,) = outputs[cell]
        assert shown.output_type == "display_data"
        text = shown.data["text/plain"]
        assert text.startswith("notebook: 40 k of 40 k rows (100 %), ")
        assert "took" in text
        assert shown.data["text/html"] == f"<div>{text}</div>"

    @pytest.mark.slow
    def test_none_where_none_is_wanted_or_the_run_is_short(self, outputs: dict[str, list[Any]]) -> None:
        assert outputs["no bar"] == []
        assert all(o.output_type != "display_data" for o in outputs["costs"])

    def test_a_run_that_fails_leaves_its_error_alone(self, outputs: dict[str, list[Any]]) -> None:
        kinds = [output.output_type for output in outputs["interrupted"]]
        assert kinds == ["stream", "stream"]  # the note and what was printed
        assert "raised ValueError: bad" in stream(outputs["interrupted"], "stdout")


class TestHtml:
    def test_graph(self, outputs: dict[str, list[Any]]) -> None:
        (shown,) = outputs["graph"]
        assert shown.data["text/html"].startswith("<div")
        assert shown.data["image/svg+xml"].startswith("<svg")

    def test_peek(self, outputs: dict[str, list[Any]]) -> None:
        (shown,) = outputs["peek"]
        assert "<td" in shown.data["text/html"]
        assert shown.data["text/plain"].splitlines()[2].split() == ["data", "39990", "399900"]


# --- without a kernel ------------------------------------------------------------------------------


def shot(**changes: Any) -> Snapshot:
    facts: dict[str, Any] = {
        "name": "<n>", "rows_done": 30, "rows_failed": 10, "rows_known": 100, "rows_expected": 0,
        "rate": 10.0, "eta_s": 6.0, "elapsed_s": 3.0, "files_open": 1, "files_total": 1,
        "finished": False,
    }  # fmt: skip
    return Snapshot(**{**facts, **changes})


class TestBar:
    cell = 1

    @pytest.fixture
    def drawn(self, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, dict[str, str]]]:
        seen: list[tuple[str, dict[str, str]]] = []

        class Handle:
            def update(self, output: dict[str, str], *, raw: bool) -> None:
                assert raw
                seen.append(("update", output))

        def display(output: dict[str, str], *, raw: bool, display_id: bool) -> Handle:
            assert raw
            assert display_id
            seen.append(("display", output))
            return Handle()

        module = types.ModuleType("IPython.display")
        monkeypatch.setattr(module, "display", display, raising=False)
        monkeypatch.setitem(sys.modules, "IPython.display", module)
        shell = types.ModuleType("IPython")
        monkeypatch.setattr(
            shell, "get_ipython", lambda: types.SimpleNamespace(execution_count=self.cell), raising=False
        )
        monkeypatch.setitem(sys.modules, "IPython", shell)
        return seen

    def test_one_output_is_drawn_again(self, drawn: list[tuple[str, dict[str, str]]]) -> None:
        bar = Cell()
        bar.show(shot())
        bar.show(shot(rows_done=60))
        bar.show(shot(rows_done=90, finished=True))
        assert [how for how, _ in drawn] == ["display", "update", "update"]
        assert '<progress max="100" value="40"' in drawn[0][1]["text/html"]
        assert "&lt;n&gt;" in drawn[0][1]["text/html"]
        assert "<progress" not in drawn[2][1]["text/html"]

    def test_a_later_cell_has_its_own(self, drawn: list[tuple[str, dict[str, str]]]) -> None:
        bar = Cell()
        bar.show(shot())
        self.cell = 2
        bar.show(shot(rows_done=90))  # the end of what the first cell began
        bar.show(shot(rows_done=120, rows_known=200))
        bar.show(shot(rows_done=190, rows_known=200, finished=True))
        assert [how for how, _ in drawn] == ["display", "update", "display", "update"]

    def test_an_end_nobody_knows(self, drawn: list[tuple[str, dict[str, str]]]) -> None:
        Cell().show(shot(files_total=9))
        assert "<progress style" in drawn[0][1]["text/html"]

    def test_a_short_run_draws_nothing(self, drawn: list[tuple[str, dict[str, str]]]) -> None:
        Cell().show(shot(finished=True))
        assert drawn == []

    @pytest.mark.parametrize(("name", "inside"), [("ZMQInteractiveShell", True), ("Shell", False)])
    def test_where_it_runs(self, monkeypatch: pytest.MonkeyPatch, name: str, inside: bool) -> None:
        module = types.ModuleType("IPython")
        hosted = type("Hosted", (type(name, (), {}),), {})()
        monkeypatch.setattr(module, "get_ipython", lambda: hosted, raising=False)
        monkeypatch.setitem(sys.modules, "IPython", module)
        assert in_notebook() == inside
        monkeypatch.setattr(module, "get_ipython", lambda: None)
        assert not in_notebook()
