"""The tables of states and moves, and the page that shows them.

``python tests/core/test_core_transitions.py`` writes the page anew.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from windrow.core.transitions import INPUT_MOVES, TASK_MOVES, TaskState, move
from windrow.errors import InternalError

PAGE = Path(__file__).resolve().parents[2] / "docs/reference/transitions.md"
TABLES: dict[str, Any] = {"inputs": INPUT_MOVES, "tasks": TASK_MOVES}


def listing(table: Any) -> str:
    lines = ["| state | can go to |", "|---|---|"]
    for state, following in table.items():
        names = ", ".join(f"`{one.name}`" for one in sorted(following))
        lines.append(f"| `{state.name}` | {names or 'nowhere: an end'} |")
    return "\n".join(lines)


def filled(text: str) -> str:
    """Write the tables between their markers."""
    for name, table in TABLES.items():
        begin, end = f"<!-- begin {name} -->", f"<!-- end {name} -->"
        assert text.count(begin) == text.count(end) == 1
        before, rest = text.split(begin)
        after = rest.split(end)[1]
        text = f"{before}{begin}\n\n{listing(table)}\n\n{end}{after}"
    return text


def test_the_page_shows_the_tables() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == filled(text)


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_every_state_is_in_its_table_and_can_be_reached(table: Any) -> None:
    first = next(iter(table))
    assert list(table) == sorted(table)
    assert len(table) == len(type(first).__members__)
    reached, new = {first}, {first}
    while new:
        new = {state for old in new for state in table[old]} - reached
        reached |= new
    assert reached == set(table)


def test_an_illegal_move_tells_the_story() -> None:
    with pytest.raises(InternalError, match=r"task 7 cannot go from FAILED to RUNNING.*ended"):
        move(TASK_MOVES, TaskState.FAILED, TaskState.RUNNING, "task", 7)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
