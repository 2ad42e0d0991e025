"""Every example in README and docs runs, in the order it is written, and prints what the page says it prints.

The blocks of one file share their names and a temporary directory.

- ``python``: is run. ``title="dimuon.py"`` also adds it to the end of that file.
- ``text`` right after it: what the block before printed; ``...`` stands for anything; sizes, times and speeds may differ.
- ``console``: lines that begin with ``$ `` are run; the lines below one, if any, are what it printed.

``<!-- not run: reason -->`` in front of a block leaves it out, ``<!-- needs matplotlib -->`` where that is not installed.

``python tests/test_docs.py docs/tutorial.md`` runs pages outside of pytest and says how long they took.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib.util
import io
import math
import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[1]
FILES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]

_FENCE = re.compile(
    r"^(?P<indent>[ \t]*)(?P<ticks>`{3,}|~{3,})(?P<info>[^\n`]*)\n"
    r"(?P<body>.*?)^(?P=indent)(?P=ticks)`*[ \t]*$",
    re.MULTILINE | re.DOTALL,
)
_NOT_RUN = re.compile(r"<!--\s*not run:\s*(?P<reason>\S[^>]*?)\s*-->\s*\Z")
_NEEDS = re.compile(r"<!--\s*needs\s+(?P<module>\w+)\s*-->\s*\Z")
_TITLE = re.compile(r'\btitle="(?P<file>[^"]+)"')
#: Numbers with six digits and a point.
_LONG_NUMBER = re.compile(r"(?<![\w.])(?=[\d.]{7}(?![\d.]))\d+\.\d+")
#: Sizes, times and speeds, which are those of the machine and of its compression library.
_VARIES = re.compile(r"\b\d[\d,.]*( [kMG])? ?([kMG]?B|[mun]?s|min|rows/s)\b")
_KINDS = {"python": "python", "py": "python", "console": "console", "text": "text"}


@dataclass(frozen=True)
class Block:
    kind: str  #: python, console or text
    source: str
    line: int  #: of the file, where the source begins
    reason: str = ""  #: why it is not run
    file: str = ""  #: to be added to this file
    follows: bool = False  #: nothing but empty lines since the last block


def blocks(text: str) -> list[Block]:
    found = []
    end = 0
    for match in _FENCE.finditer(text):
        between, end = text[end : match.start()], match.end()
        words = match["info"].split()
        kind = _KINDS.get(words[0] if words else "", "")
        if not kind:
            continue
        title = _TITLE.search(match["info"])
        found.append(
            Block(
                kind=kind,
                source=textwrap.dedent(match["body"]),
                line=text.count("\n", 0, match.start("body")) + 1,
                reason=left_out(text[: match.start()]),
                file=title["file"] if title else "",
                follows=not between.strip(),
            )
        )
    return found


def left_out(before: str) -> str:
    """Say why the block after this text is not run; empty if it is."""
    if skipped := _NOT_RUN.search(before):
        return skipped["reason"]
    needed = _NEEDS.search(before)
    if needed and importlib.util.find_spec(needed["module"]) is None:
        return f"{needed['module']} is not installed"
    return ""


def run_blocks(path: Path) -> int:
    """Run the blocks of one file in the current directory; return how many ran."""
    names: dict[str, Any] = {"__name__": f"docs_{path.stem}"}
    count = 0
    printed: str | None = None  # by the block before
    for block in blocks(path.read_text(encoding="utf-8")):
        place = f"{path.name}, line {block.line}"
        if block.kind == "text":
            if block.follows and printed is not None:
                compare(block.source, printed, place)
            printed = None
            continue
        if block.reason:
            printed = None
            continue
        if block.kind == "console":
            commands = list(commands_in(block.source))
            for command, wanted in commands:
                run_command(command, wanted, place)
            count += bool(commands)
            printed = None
            continue
        printed = run_python(block, path, names)
        count += 1
    return count


def run_python(block: Block, path: Path, names: dict[str, Any]) -> str:
    if block.file:
        with Path(block.file).open("a", encoding="utf-8") as stream:
            stream.write(block.source)
    # Empty lines before it, so that a traceback points into the file.
    code = compile("\n" * (block.line - 1) + block.source, str(path), "exec")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(code, names)
    return out.getvalue()


def commands_in(source: str) -> Iterator[tuple[str, str]]:
    """Return what is typed and what it should print; a line that ends in a backslash goes on."""
    for part in re.split(r"^\$ ", source, flags=re.MULTILINE)[1:]:
        lines = part.replace("\\\n", " ").splitlines()
        yield lines[0], "\n".join(lines[1:])


def run_command(command: str, wanted: str, place: str) -> None:
    program, *arguments = shlex.split(command)
    if program == "windrow":
        code, printed = run_windrow(arguments)
    elif program in ("python", "pytest", "openssl"):
        start = {"python": [sys.executable], "pytest": [sys.executable, "-m", "pytest"]}.get(program, [program])
        done = subprocess.run([*start, *arguments], capture_output=True, text=True, check=False)
        code, printed = done.returncode, done.stdout + done.stderr
    else:
        raise AssertionError(f"{place}: {program} is not run here; say why with <!-- not run: ... -->")
    assert code == 0, f"{place}: {command} ended with {code}\n{printed}"
    if wanted.strip():
        compare(wanted, printed, f"{place}: {command}")


def run_windrow(arguments: list[str]) -> tuple[int, str]:
    """Run the command in this process: starting one for each takes seconds."""
    from click.testing import CliRunner

    from windrow.cli.main import main

    done = CliRunner(env={"COLUMNS": "100"}).invoke(main, arguments, prog_name="windrow")
    return done.exit_code, done.output


def as_wanted(wanted: str, printed: str) -> str:
    """Write numbers as the page has them where processors may differ: in the last digit of single precision."""
    known = {float(one): one for one in _LONG_NUMBER.findall(wanted)}

    def same(match: re.Match[str]) -> str:
        found = float(match[0])
        near = [text for number, text in known.items() if math.isclose(number, found, rel_tol=2e-6)]
        return near[0] if near else match[0]

    return _LONG_NUMBER.sub(same, printed)


def compare(wanted: str, printed: str, place: str) -> None:
    how = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    both = [_VARIES.sub("N", text) for text in (wanted, as_wanted(wanted, printed))]
    if not doctest.OutputChecker().check_output(both[0], both[1], how):
        raise AssertionError(f"{place}: the page says\n{wanted}\nbut it printed\n{printed}")


def test_only_the_last_digit_may_differ() -> None:
    page = "24  91.9897  1.25  100000"
    compare(page, "24  91.9896  1.25  100000", "here")
    for wrong in ("24  91.9899  1.25  100000", "24  91.9897  1.26  100000", "24  91.9897  1.25  100001"):
        with pytest.raises(AssertionError, match="the page says"):
            compare(page, wrong, "here")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_examples_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    run_blocks(path)


def test_every_promise_has_a_test_that_is_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs" / "promises.md").read_text(encoding="utf-8"))
    assert len(named) > 50
    missing = [f"{file}::{test}" for file, test in named if not re.search(rf"def {test}\(", _source(ROOT / file))]
    assert missing == []


def _source(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def test_the_readme_is_among_them() -> None:
    assert (ROOT / "README.md").is_file()
    assert FILES[0].name == "README.md"


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in FILES[1:]]
    assert [page for page in pages if f": {page}\n" not in navigation] == []


def test_the_map_names_modules_that_are_there() -> None:
    """Names are those of the code: modules by room, or of the room that the line is about."""
    home = ROOT / "src" / "windrow"
    named = set()
    for line in (ROOT / "docs" / "map.md").read_text(encoding="utf-8").splitlines():
        here = re.match(r"\| `(?P<room>\w+)/", line)
        for name in re.findall(r"`([\w/]+\.py)\b", line):
            room = name.split("/")[0] + "/" if "/" in name else here["room"] + "/" if here else ""
            if room == "tests/":
                assert (ROOT / name).is_file(), name
                continue
            places = [home / name, home / room / name, home / "hep" / name]
            places += [home / here["room"] / name] if here else []  # of a shelf in the room
            assert any(place.is_file() for place in places), f"{name} in {line}"
            named.add(name)
    assert len(named) > 40


def test_the_architecture_names_modules_that_are_there() -> None:
    modules = [
        f"/{path.relative_to(ROOT).as_posix()}" for room in ("src", "tests") for path in (ROOT / room).rglob("*.py")
    ]
    named = re.findall(r"[\w/]+\.py\b", (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))
    assert len(named) > 40
    assert [name for name in named if not any(one.endswith(f"/{name}") for one in modules)] == []


def written(directory: Path, text: str) -> Path:
    path = directory / "page.md"
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


def test_blocks_of_a_file_share_names_and_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    ("body", "error"), [("1 / 0", ZeroDivisionError), ("def broken(:", SyntaxError), ("missing", NameError)]
)
def test_a_broken_block_fails_at_its_line(body: str, error: type[Exception], tmp_path: Path) -> None:
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
    page = written(tmp_path, "<!-- not run: slow -->\n\n```python\n1 / 0\n```\n\n```python\nx = 1\n```\n")
    assert run_blocks(page) == 1


def test_a_block_may_need_a_module(tmp_path: Path) -> None:
    page = written(
        tmp_path, "<!-- needs no_such_module -->\n```python\n1 / 0\n```\n<!-- needs json -->\n```python\nx = 1\n```\n"
    )
    assert run_blocks(page) == 1


def test_what_a_page_says_is_printed_must_be(tmp_path: Path) -> None:
    block = "```python\nprint(list(range(30)))\n```\n\n"
    assert run_blocks(written(tmp_path, block + "```text\n[0, 1, ..., 29]\n```\n")) == 1
    with pytest.raises(AssertionError, match=r"page\.md, line 6: the page says"):
        run_blocks(written(tmp_path, block + "```text\n[0, 1, ..., 30]\n```\n"))
    timed = "```python\nprint('3 rows in 12.5 ms, 4.1 M rows/s, 776 kB')\n```\n\n```text\n{}\n```\n"
    page = written(tmp_path, timed.format("3 rows in 0.10 s, 900 rows/s, 1.2 MB"))
    assert run_blocks(page) == 1
    page = written(tmp_path, timed.format("4 rows in 0.10 s, 900 rows/s, 1.2 MB"))
    with pytest.raises(AssertionError, match="the page says"):
        run_blocks(page)
    # Text further down is something else.
    assert run_blocks(written(tmp_path, block + "A diagram:\n\n```text\na -> b\n```\n")) == 1


def test_titled_blocks_add_up_to_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = written(
        tmp_path,
        """
        ```python title="made.py"
        x = 1
        ```
        ```python title="made.py"
        print(x + 1)
        ```
        ```console
        $ python made.py
        2
        ```
        """,
    )
    assert run_blocks(page) == 3


def test_commands_run_and_print_what_the_page_says(tmp_path: Path) -> None:
    def page(lines: str) -> Path:
        return written(tmp_path, f"```console\n{lines}\n```\n")

    assert run_blocks(page("$ windrow --version\nwindrow ...\n$ windrow \\\n  --help")) == 1
    assert run_blocks(page("make demo    # a line that nobody typed")) == 0
    with pytest.raises(AssertionError, match="the page says"):
        run_blocks(page("$ windrow --version\nwindrow 99"))
    with pytest.raises(AssertionError, match="ended with 1"):
        run_blocks(page("$ windrow no-such-command"))
    with pytest.raises(AssertionError, match="rm is not run here"):
        run_blocks(page("$ rm -rf something"))


def main(pages: list[str]) -> None:
    """Run pages, each in an empty directory."""
    os.environ.setdefault("MPLBACKEND", "agg")
    for page in [Path(name).resolve() for name in pages]:
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as directory, contextlib.chdir(directory):
            count = run_blocks(page)
        seconds = time.perf_counter() - began
        sys.stdout.write(f"{page.name}: {count} blocks in {seconds:.1f} s\n")


if __name__ == "__main__":
    main(sys.argv[1:] or [str(path) for path in FILES])
