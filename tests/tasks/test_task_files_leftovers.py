"""Files of an earlier run that a task writes anew are no inputs: what reads them is done once, not twice."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

import windrow as wr
from tasks.file_bodies import write

pytestmark = pytest.mark.usefixtures("place")


@wr.command
def index(fasta: wr.InFile, ref: wr.OutFiles("{ref}.*")) -> str:  # type: ignore[valid-type]
    return "sleep 0.2; echo index >> log; for one in amb bwt; do cat {fasta} > {ref}.$one; done"


@wr.command
def align(ref: wr.InFiles("{ref}.*"), out: wr.OutFile) -> str:  # type: ignore[valid-type]
    return "echo align >> log; cat {ref}.* > {out}"


@wr.command
def pack(directory: wr.InDir, out: wr.OutFile) -> str:
    return "echo pack >> log; cat {directory}/* > {out}"


def ran() -> list[str]:
    """Give what ran since it was asked last."""
    log = Path("log")
    found = log.read_text().split() if log.exists() else []
    log.write_text("")
    return found


def run() -> list[str]:
    with wr.Session(engine="threads", workers=2):
        index("genome.fasta", "out/genome")
        align("out/genome", "aligned")
    return ran()


def change(name: str, text: str) -> None:
    time.sleep(0.01)  # so that its time is another one
    Path(name).write_text(text)


def test_a_new_index_is_read_once() -> None:
    change("genome.fasta", "one\n")
    assert run() == ["index", "align"]
    assert run() == []
    change("genome.fasta", "two\n")
    assert run() == ["index", "align"]
    assert Path("aligned").read_text() == "two\ntwo\n"
    assert run() == []
    Path("out/genome.bwt").unlink()
    assert run() == ["index", "align"]  # as make does: the index is a newer one
    assert run() == []
    Path("aligned").unlink()
    assert run() == ["align"]
    assert run() == []


def test_what_is_not_written_anew_counts() -> None:
    @wr.command
    def split(text: wr.InFile, parts: wr.OutFiles("part-*")) -> str:  # type: ignore[valid-type]
        return "echo split >> log; split -l 1 {text} {parts}/part-"

    @wr.command
    def joined(parts: wr.InFiles("part-*"), out: wr.OutFile) -> str:  # type: ignore[valid-type]
        return "echo joined >> log; cat {parts}/part-* > {out}"

    def run() -> list[str]:
        with wr.Session(engine="threads", workers=2):
            split("text", "d")
            joined("d", "out")
        return ran()

    change("text", "1\n2\n3\n")
    assert run() == ["split", "joined"]
    change("text", "4\n5\n")
    assert run() == ["split", "joined"]
    assert Path("out").read_text() == "4\n5\n3\n"  # as the plain program leaves it
    Path("d/part-ac").unlink()
    assert run() == ["joined"]
    assert Path("out").read_text() == "4\n5\n"
    assert run() == []


def test_what_nobody_writes_counts_as_before() -> None:
    Path("out").mkdir()
    change("genome.fasta", "one\n")
    change("out/genome.dict", "dict 1\n")
    assert run() == ["index", "align"]
    assert run() == []
    change("out/genome.dict", "dict 2\n")
    assert run() == ["align"]
    change("out/genome.dict", "dict 3\n")
    Path("out/genome.bwt").unlink()
    assert run() == ["index", "align"]
    assert Path("aligned").read_text() == "one\none\ndict 3\n"
    assert run() == []


def test_other_files_of_a_directory_count_while_one_is_written() -> None:
    def run() -> list[str]:
        with wr.Session(engine="threads", workers=2):
            late: Any = write("d/made", "made\n")
            pack("d", "packed")
            late.result(120)
        return ran()

    Path("d").mkdir()
    change("d/own", "1\n")
    assert run() == ["pack"]
    assert run() == []
    change("d/own", "2\n")
    Path("d/made").unlink()
    assert run() == ["pack"]
    assert Path("packed").read_text() == "made\n2\n"
    assert run() == []


@wr.command
def sort(reads: wr.InFile, bam: wr.OutFile) -> str:
    return "echo sort >> log; sort {reads} > {bam}; echo index of {reads} > {bam}.bai"


@wr.command
def count(bam: wr.InFiles("{bam}.bai"), out: wr.OutFile) -> str:  # type: ignore[valid-type]
    return "echo count >> log; cat {bam} {bam}.bai > {out}"


@pytest.mark.parametrize("waits", [False, True])
def test_what_a_task_makes_beside_its_outputs_is_read_once(waits: bool) -> None:
    def run() -> list[str]:
        with wr.Session(engine="threads", workers=2):
            Path("out").mkdir(exist_ok=True)
            sorted_: Any = sort("reads", "out/bam")
            if waits:
                sorted_.result(120)
            count("out/bam", "counted")
            pack("out", "packed")
        return sorted(ran())

    change("reads", "b\na\n")
    assert run() == ["count", "pack", "sort"]
    assert run() == []
    change("reads", "d\nc\n")
    assert run() == ["count", "pack", "sort"]
    assert run() == []
    change("out/bam.bai", "mine\n")
    assert run() == ["count", "pack"]
    assert Path("counted").read_text() == "c\nd\nmine\n"
    assert run() == []
    Path("out/bam.bai").unlink()
    assert run() == ["count", "pack", "sort"]
    assert "mine" not in Path("packed").read_text()
    assert run() == []


def test_what_was_changed_and_is_written_anew_is_read_once() -> None:
    change("genome.fasta", "one\n")
    assert run() == ["index", "align"]
    change("out/genome.bwt", "damaged\n")
    assert run() == ["index", "align"]
    assert Path("aligned").read_text() == "one\none\n"
    assert run() == []
