"""Pipelines of real tools: samtools on generated reads with answers of plain Python, and the example."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import windrow as wr

ROOT = Path(__file__).resolve().parents[2]
LENGTH = 50


@pytest.fixture
def tools() -> None:
    """Skip, or fail where everything has to be there."""
    missing = [one for one in ("samtools", "bwa") if shutil.which(one) is None]
    if not missing:
        return
    reason = f"no {' and no '.join(missing)} on PATH (make test installs them where it may)"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


@wr.command(cores=1)
def in_order(sam: wr.InFile, bam: wr.OutFile) -> str:
    return "samtools view -b {sam} | samtools sort -@ {cores} -T {tmp}/part -o {bam} -"


@wr.command
def indexed(bam: wr.InFile, bai: wr.OutFile) -> list[str]:
    return ["samtools", "index", "{bam}", "{bai}"]


@wr.command
def names(bam: wr.InFile) -> str:
    return "samtools view {bam} | awk -F '\\t' '{print $1, $3, $4}'"


@wr.command
def count(bam: wr.InFile, bai: wr.InFile, region: str) -> str:
    return "samtools view -c -X {bam} {bai} {region}"


@pytest.mark.usefixtures("tools")
@pytest.mark.parametrize("engine", ["inline", "threads", "processes"])
def test_reads_are_sorted_indexed_and_counted_as_python_does(engine: str, tmp_path: Path) -> None:
    rng = random.Random(11)
    reads = [
        (f"r{number}", f"chr{1 + number % 2}", start)
        for number, start in enumerate(rng.sample(range(1, 100_000), 2000))
    ]
    header = ["@HD\tVN:1.6", "@SQ\tSN:chr1\tLN:200000", "@SQ\tSN:chr2\tLN:200000"]
    bases, quality = "A" * LENGTH, "I" * LENGTH
    body = [f"{n}\t0\t{c}\t{p}\t60\t{LENGTH}M\t*\t0\t0\t{bases}\t{quality}" for n, c, p in reads]
    sam = tmp_path / "re ads.sam"
    sam.write_text("\n".join([*header, *body, ""]))
    regions = [("chr1", 1, 200_000), ("chr2", 500, 9_000), ("chr1", 70_000, 70_010)]
    with wr.Session(engine=engine, workers=2) as session:
        bam = in_order(sam, tmp_path / "it's sorted.bam")
        bai = indexed(bam, tmp_path / "sorted.bai")
        counts = [count(bam, bai, f"{c}:{first}-{last}") for c, first, last in regions]
        listed = names(tmp_path / "it's sorted.bam")
        found = [int(one) for one in session.gather(counts)]
        lines = listed.result().splitlines()
    assert lines == [f"{n} {c} {p}" for n, c, p in sorted(reads, key=lambda one: one[1:])]
    assert found == [
        sum(c == where and p <= last and p + LENGTH - 1 >= first for _, c, p in reads) for where, first, last in regions
    ]


@pytest.mark.usefixtures("tools")
def test_what_a_tool_says_is_shown(tmp_path: Path) -> None:
    (tmp_path / "broken.sam").write_text("this is no SAM\n")
    with pytest.raises(wr.errors.CommandError, match=r"(?s)exit status 1.*\[main_samview\]"):
        in_order(tmp_path / "broken.sam", tmp_path / "out.bam")
    assert [one.name for one in tmp_path.iterdir()] == ["broken.sam"]


@pytest.mark.usefixtures("tools")
def test_the_example_gives_the_answers_of_plain_python(tmp_path: Path) -> None:
    script = ROOT / "examples" / "commands" / "run.py"
    ran = subprocess.run([sys.executable, script, tmp_path], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
    assert "as plain Python counts" in ran.stdout
    assert "900 reads are where they were taken from" in ran.stdout
    assert (tmp_path / "logs" / "align-sample 0.fq.gz.log").exists()
