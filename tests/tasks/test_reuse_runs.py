"""Second runs: nothing is done again but what has changed, and what depends on that."""

from __future__ import annotations

import os
import signal
import threading
from itertools import chain
from typing import TYPE_CHECKING

import pytest

from tasks.reuse_programs import Program

if TYPE_CHECKING:
    from pathlib import Path

VALUES = """
SCALE = 2
TABLE = {"a": [1, 2]}

def helper(x):
    return x + 1

def made(offset):
    @wr.task(reuse=True)
    def closure(x):
        note("closure")
        return x + offset
    return closure

@wr.task(reuse=True)
def code(x):
    "Double it."
    note("code")
    double = x * 2
    return double

@wr.task(reuse=True)
def number(x):
    note("number")
    return x * SCALE

@wr.task(reuse=True)
def table(x):
    note("table")
    return x + sum(TABLE["a"])

@wr.task(reuse=True)
def helped(x):
    note("helped")
    return helper(x)

@wr.task(reuse=True, version="1")
def opaque(x):
    note("opaque")
    return x + int(os.environ.get("NOT_SET", "1"))

@wr.task(reuse=True)
def array(count):
    note("array")
    return np.arange(count)

@wr.task(reuse=True, outputs=2)
def parts(values):
    note("parts")
    yield values[:3]
    yield values[3:]

@wr.task(reuse=True)
def total(values, start=0):
    note("total")
    return start + float(values.sum())

@wr.task(reuse=True)
def end(values):
    note("end")
    return values

if __name__ == "__main__":
    with wr.Session(engine=sys.argv[1], workers=2) as session:
        left, right = parts(array(100_000))
        values = [code(1), number(2), table(3), helped(4), opaque(5), made(10)(6), total(left), total(right, start=7)]
        result = end(values).result()
        stats = session.reuse_stats
    print(json.dumps([result, stats.missed, stats.found_in_store]))
"""

#: Edits that are made together: what is written, and the bodies that have to run again beside the last one.
EDITS: list[list[tuple[str, str, list[str]]]] = [
    [
        ("double = x * 2\n    return double", "twice = x * 2  # a name\n\n    return twice", []),
        ('"Double it."', '"Give twice as much."', []),
    ],
    [
        ("double = x * 2", "double = x * 3", ["code"]),
        ('TABLE = {"a": [1, 2]}', 'TABLE = {"a": [1, 5]}', ["table"]),
        ('version="1"', 'version="2"', ["opaque"]),
        ("start=7", "start=8", ["total"]),
    ],
    [
        ("SCALE = 2", "SCALE = 4", ["number"]),
        ("return x + 1\n", "return x + 100\n", ["helped"]),
        ("made(10)", "made(11)", ["closure"]),
        ("array(100_000)", "array(100_001)", ["array", "parts", "total", "total"]),
    ],
]


def expected(text: str) -> list[float]:
    """Give what the program computes, from the constants that stand in it."""
    factor = 3 if "double = x * 3" in text else 2
    scale = 4 if "SCALE = 4" in text else 2
    table = 6 if "[1, 5]" in text else 3
    helped = 104 if "x + 100\n" in text else 5
    closure = 17 if "made(11)" in text else 16
    start = 8 if "start=8" in text else 7
    count = 100_001 if "100_001" in text else 100_000
    rest = sum(range(3, count)) + start
    return [factor, 2 * scale, 3 + table, helped, 6, closure, 3, rest]


def test_only_what_has_changed_runs_again(tmp_path: Path) -> None:
    program = Program(tmp_path, VALUES)
    result, ran = program.run("threads")
    assert result == [expected(program.text), 11, 0]
    assert len(ran) == 11
    result, ran = program.run("inline")
    assert ran == []
    assert result[1:] == [0, 11]
    assert result[0] == expected(program.text)
    original = program.text
    for edits in EDITS:
        program.text = original
        for old, new, _ in edits:
            program.change(old, new)
        result, ran = program.run("inline")
        assert ran == sorted([*chain(*(again for *_, again in edits)), *(["end"] if edits[0][2] else [])])
        assert result[0] == expected(program.text)


@pytest.mark.slow
def test_a_task_whose_input_was_kept_reads_it_in_its_worker(tmp_path: Path) -> None:
    """What led to a kept result does not run, and its value does not go through the program."""
    program = Program(tmp_path, VALUES)
    program.run("processes")
    program.change("return start + float(values.sum())", "return start - float(values.sum())")
    result, ran = program.run("processes")
    assert ran == ["end", "total", "total"]
    assert result[0][-2:] == [-3, 7 - sum(range(3, 100_000))]


UNTOUCHABLE = """
import mmap
from dataclasses import dataclass

@dataclass
class Holder:
    name: str
    content: object

@wr.task(reuse=sys.argv[1] == "content" and "content" or True)
def look(thing):
    note("look")
    return 1

if __name__ == "__main__":
    with open("array", "wb+") as file:
        file.truncate(1 << 20)
        pages = mmap.mmap(file.fileno(), 1 << 20)
        array = np.frombuffer(pages, np.float64)
        file.truncate(0)  # from now on whoever touches the array is killed by the system
    things = [array, [array], {"a": (array,)}, Holder("x", [array]), lambda x=array: x]
    with wr.Session(engine="threads", workers=1) as session:
        assert [look(one).result() for one in things] == [1] * len(things)
        stats = session.reuse_stats
    print(json.dumps([stats.not_reusable, stats.reasons["look"]]), flush=True)
    os._exit(0)
"""


def test_nobody_touches_the_content_of_arrays(tmp_path: Path) -> None:
    """Unless that is asked for: then the same program is killed."""
    program = Program(tmp_path, UNTOUCHABLE)
    (refused, reason), ran = program.run("by default")
    assert refused == len(ran) == 5
    assert "reuse='content'" in reason
    with program.start("content") as running:
        running.communicate(timeout=120)
    assert running.returncode == -signal.SIGBUS


FILES = """
@wr.task
def clean(source: wr.InFile, target: wr.OutFile):
    note("clean " + Path(source).name)
    Path(target).write_text(Path(source).read_text().upper())

@wr.task
def index(source: wr.InFile, parts: wr.OutDir):
    note("index")
    for number, line in enumerate(Path(source).read_text().splitlines()):
        (Path(parts) / f"{number}.txt").write_text(line)

@wr.task
def merge(parts: wr.InDir, others: wr.InFile, target: wr.OutFile, between=" "):
    note("merge")
    lines = [one.read_text() for one in sorted(Path(parts).iterdir())]
    Path(target).write_text(between.join(lines) + "|" + "|".join(Path(one).read_text() for one in others))
    return len(lines)

@wr.command
def count(source: wr.InFile, target: wr.OutFile):
    return "echo command >> %s/log.txt; wc -c < {source} > {target}" % os.getcwd()

@wr.task
def change(target: wr.InOutFile):
    note("change")
    Path(target).write_text(Path(target).read_text() + "!")

if __name__ == "__main__":
    with wr.Session(engine=sys.argv[1], workers=2, files=sys.argv[2]) as session:
        for name in "ab":
            clean(f"{name}.txt", f"out/{name}.txt")
        index("a.txt", "parts")
        merged = merge("parts", ["out/a.txt", Path("out/b.txt")], "merged.txt")
        count("merged.txt", "count.txt")
        result = merged.result()
    print(json.dumps([result, Path("merged.txt").read_text(), int(Path("count.txt").read_text())]))
"""

#: All bodies of it.
ALL = ["a.txt", "b.txt", "clean", "clean", "command", "index", "merge"]


def files(tmp_path: Path) -> Program:
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    (tmp_path / "b.txt").write_text("three\n")
    return Program(tmp_path, FILES)


@pytest.mark.slow
def test_files_are_written_again_only_where_something_changed(tmp_path: Path) -> None:
    program = files(tmp_path)
    assert program.run("processes", "stamp") == ([2, "one two|ONE\nTWO\n|THREE\n", 23], ALL)
    assert program.run("inline", "stamp") == ([2, "one two|ONE\nTWO\n|THREE\n", 23], [])
    # An input: what reads it, and what reads that.
    (tmp_path / "b.txt").write_text("four\n")
    result = [2, "one two|ONE\nTWO\n|FOUR\n", 22]
    assert program.run("threads", "stamp") == (result, ["b.txt", "clean", "command", "merge"])
    # Outputs that were changed or have vanished, wherever they are in the chain: they are made again, and are newer then
    # than what reads them.
    (tmp_path / "merged.txt").write_text("spoiled")
    (tmp_path / "parts" / "1.txt").unlink()
    assert program.run("threads", "stamp") == (result, ["command", "index", "merge"])
    (tmp_path / "count.txt").unlink()
    (tmp_path / "out" / "a.txt").unlink()
    assert program.run("threads", "stamp") == (result, ["a.txt", "clean", "command", "merge"])
    (tmp_path / "count.txt").unlink()
    assert program.run("threads", "stamp") == (result, ["command"])
    # An argument.
    program.change('between=" "', 'between="-"')
    result = [2, "one-two|ONE\nTWO\n|FOUR\n", 22]
    assert program.run("threads", "stamp") == (result, ["command", "merge"])
    # A time is a change, unless the content is asked for.
    os.utime(tmp_path / "b.txt", times=(1, 1))
    assert program.run("threads", "stamp") == (result, ["b.txt", "clean", "command", "merge"])


def test_content_on_demand(tmp_path: Path) -> None:
    program = files(tmp_path)
    result = [2, "one two|ONE\nTWO\n|THREE\n", 23]
    assert program.run("threads", "content") == (result, ALL)
    for name in ("a.txt", "out/b.txt", "merged.txt", "parts/0.txt"):
        os.utime(tmp_path / name, times=(1, 1))
    assert program.run("threads", "content") == (result, [])
    # Neither size nor time says so.
    status = (tmp_path / "b.txt").stat()
    (tmp_path / "b.txt").write_text("seven\n")
    os.utime(tmp_path / "b.txt", ns=(status.st_atime_ns, status.st_mtime_ns))
    result = [2, "one two|ONE\nTWO\n|SEVEN\n", 23]
    assert program.run("threads", "content") == (result, ["b.txt", "clean", "command", "merge"])


@pytest.mark.slow
def test_two_programs_at_once(tmp_path: Path) -> None:
    """They share a store, and each gets what it computes."""
    program = Program(tmp_path, VALUES)
    printed: list[str] = []

    def run() -> None:
        with program.start("threads") as running:
            printed.append(running.communicate(timeout=120)[0])

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in printed:
        assert str(expected(program.text)[-1]) in one
    assert len(printed) == 3
    assert program.run("inline")[1] == []
    assert list((tmp_path / "store").rglob("*.part")) == []
