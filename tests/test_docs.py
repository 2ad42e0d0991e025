"""Every Python example in README and docs runs, in the order it is written.

The blocks of one file share their names and a temporary directory. A block that cannot run here is preceded by
``<!-- not run: reason -->``.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]

_FENCE = re.compile(
    r"^(?P<indent>[ \t]*)(?P<ticks>`{3,}|~{3,})(?P<info>[^\n`]*)\n"
    r"(?P<body>.*?)^(?P=indent)(?P=ticks)`*[ \t]*$",
    re.MULTILINE | re.DOTALL,
)
_NOT_RUN = re.compile(r"<!--\s*not run:\s*(?P<reason>\S[^>]*?)\s*-->\s*\Z")


@dataclass(frozen=True)
class Block:
    source: str
    line: int  #: of the file, where the source begins
    reason: str = ""  #: why it is not run


def blocks(text: str) -> list[Block]:
    found = []
    for match in _FENCE.finditer(text):
        words = match["info"].split()
        if not words or words[0] not in ("python", "py"):
            continue
        skipped = _NOT_RUN.search(text[: match.start()])
        found.append(
            Block(
                source=textwrap.dedent(match["body"]),
                line=text.count("\n", 0, match.start("body")) + 1,
                reason=skipped["reason"] if skipped else "",
            )
        )
    return found


def run_blocks(path: Path) -> int:
    """Run the blocks of one file in the current directory; return how many ran."""
    names: dict[str, Any] = {"__name__": f"docs_{path.stem}"}
    count = 0
    for block in blocks(path.read_text(encoding="utf-8")):
        if block.reason:
            continue
        # Empty lines before it, so that a traceback points into the file.
        code = compile("\n" * (block.line - 1) + block.source, str(path), "exec")
        exec(code, names)
        count += 1
    return count


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_examples_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_blocks(path)


def test_the_readme_is_among_them() -> None:
    assert (ROOT / "README.md").is_file()
    assert FILES[0].name == "README.md"


def written(directory: Path, text: str) -> Path:
    path = directory / "page.md"
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


def test_blocks_of_a_file_share_names_and_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = written(
        tmp_path,
        """
        ```python
        from pathlib import Path
        Path("made.txt").write_text("here")
        ```
        - In a list:

          ```python
          assert Path("made.txt").read_text() == "here"
          ```
        ```sh
        not python
        ```
        <!-- not run: needs a cluster -->
        ```python
        raise AssertionError("ran")
        ```
        """,
    )
    assert run_blocks(page) == 2
    assert [block.reason for block in blocks(page.read_text())] == ["", "", "needs a cluster"]


@pytest.mark.parametrize(
    ("body", "error"),
    [("1 / 0", ZeroDivisionError), ("def broken(:", SyntaxError), ("missing", NameError)],
)
def test_a_broken_block_fails_at_its_line(
    body: str, error: type[Exception], tmp_path: Path
) -> None:
    page = written(tmp_path, f"# Title\n\n```python\nx = 1\n{body}\n```\n")
    with pytest.raises(error) as caught:
        run_blocks(page)
    value = caught.value
    line = value.lineno if isinstance(value, SyntaxError) else caught.traceback[-1].lineno + 1
    assert line == 5


@pytest.mark.parametrize("comment", ["<!-- not run: -->", "<!-- not run -->", "<!-- a remark -->"])
def test_leaving_a_block_out_takes_a_reason(comment: str, tmp_path: Path) -> None:
    page = written(tmp_path, f"{comment}\n```python\n1 / 0\n```\n")
    with pytest.raises(ZeroDivisionError):
        run_blocks(page)


def test_a_reason_holds_for_the_next_block_only(tmp_path: Path) -> None:
    page = written(
        tmp_path, "<!-- not run: slow -->\n\n```python\n1 / 0\n```\n\n```python\nx = 1\n```\n"
    )
    assert run_blocks(page) == 1
