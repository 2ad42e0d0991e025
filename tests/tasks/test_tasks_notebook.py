"""Sessions in a notebook, executed by a real kernel: left open over cells, functions defined again, progress, interrupts."""

from __future__ import annotations

import asyncio
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

DEFINE = """
@wr.task
def scaled(x):
    time.sleep({pause})
    return {factor} * x
"""
#: Waits until the line has said that all is done, however slow the machine is.
UNTIL_SAID = """
import gc
from windrow.watch.progress import SessionProgress
(line,) = [one for one in gc.get_objects() if isinstance(one, SessionProgress)]
until = time.monotonic() + 60
while (line._seen is None or line._seen[0] != line._seen[1]) and time.monotonic() < until:
    time.sleep(0.05)
time.sleep(0.5)
"""
INTERRUPT = "threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()\n"

CELLS = {
    "setup": "import os, signal, threading, time\nimport windrow as wr\n" + DEFINE.format(pause=0, factor=2),
    "open": "session = wr.Session(workers=1, store=False)",
    "first": "session.gather(session.submit(scaled, x) for x in range(3))",
    "again": DEFINE.format(pause=0.4, factor=10),
    "second": "session.gather([session.submit(scaled, x) for x in range(5)])",
    "pause": UNTIL_SAID,
    "third": "session.gather([session.submit(scaled, x) for x in range(6)])",
    "quiet": "session.submit(abs, -1).result()",
    "interrupted": INTERRUPT + "try:\n    session.gather([session.submit(time.sleep, 1)])\n"
    "except KeyboardInterrupt:\n    print('interrupted')",
    "goes on": "session.submit(abs, -7).result()",
    "left": INTERRUPT + "try:\n    with wr.Session(engine='processes', workers=1, store=False) as other:\n"
    "        other.gather([other.submit(time.sleep, 60)])\n"
    "except KeyboardInterrupt:\n    print('left')",
    "repr": "session",
    "await": "import asyncio\nwith wr.Session(engine='threads', store=False):\n"
    "    found = await asyncio.gather(*map(asyncio.wrap_future, [scaled(x) for x in range(2)]))\nfound",
    "graph": "session.graph()",
}  # fmt: skip


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
    return result.data["text/plain"]


def shown(found: list[Any]) -> list[str]:
    return [output.data["text/plain"] for output in found if output.output_type == "display_data"]


def test_a_session_is_used_by_many_cells(outputs: dict[str, list[Any]]) -> None:
    assert value(outputs["first"]) == "[0, 2, 4]"
    assert value(outputs["second"]) == "[0, 10, 20, 30, 40]"
    assert value(outputs["repr"]).startswith("<session 'session': ")
    assert value(outputs["await"]) == "[0, 10]"
    assert "image/svg+xml" in outputs["graph"][0].data


def test_an_interrupt_ends_the_wait_and_not_the_session(outputs: dict[str, list[Any]]) -> None:
    assert [one.text for one in outputs["interrupted"] if "text" in one] == ["interrupted\n"]
    assert value(outputs["goes on"]) == "7"
    assert "left\n" in [one.text for one in outputs["left"] if "text" in one]


def test_progress_is_one_line_of_the_cell(outputs: dict[str, list[Any]]) -> None:
    assert [one[:15] for one in shown(outputs["second"])] == ["session: 8 of 8"]
    assert [one[:9] for one in shown(outputs["third"])] == ["session: "]
    assert shown(outputs["first"]) == shown(outputs["quiet"]) == shown(outputs["goes on"]) == []
