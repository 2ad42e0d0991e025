"""Simulate reads of three samples, run the pipeline on them, and compare with plain Python.

python examples/commands/run.py [directory]
"""

from __future__ import annotations

import gzip
import random
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

import windrow as wr
from pipeline import align_all, count_words

GENOME, READS, LENGTH, SIZE = 20_000, 300, 100, 8
OPPOSITE = str.maketrans("ACGT", "TGCA")


def simulate(directory: Path, samples: int) -> tuple[Path, list[Path], dict[str, tuple[int, str]]]:
    """Write a genome and reads from random places of it; also return where each read is from."""
    rng = random.Random(6)
    genome = "".join(rng.choices("ACGT", k=GENOME))
    reference = directory / "genome.fa"
    reference.write_text(f">chr1\n{genome}\n")
    truth, fastqs = {}, []
    for sample in range(samples):
        lines = []
        for number in range(READS):
            start, strand = rng.randrange(GENOME - LENGTH), rng.choice("+-")
            read = genome[start : start + LENGTH]
            name = f"s{sample}r{number}"
            truth[name] = (start + 1, strand)
            lines += [f"@{name}", read if strand == "+" else read.translate(OPPOSITE)[::-1], "+", "I" * LENGTH]  # fmt: skip
        fastqs.append(directory / f"sample {sample}.fq.gz")  # a space, as people have them
        fastqs[-1].write_bytes(gzip.compress("\n".join([*lines, ""]).encode()))
    return reference, fastqs, truth


def counted(fastqs: list[Path]) -> dict[str, int]:
    """Count words in plain Python."""
    found: Counter[str] = Counter()
    for path in fastqs:
        for read in gzip.decompress(path.read_bytes()).decode().split("\n")[1::4]:
            found.update(read[i : i + SIZE] for i in range(len(read) - SIZE + 1))
    return dict(found)


def main(directory: Path, engine: str = "processes") -> None:
    """Run all of it; raises if an answer is wrong."""
    reference, fastqs, truth = simulate(directory, samples=3)
    aligns = bool(shutil.which("bwa") and shutil.which("samtools"))
    with wr.Session(engine=engine) as session:
        total = count_words(fastqs, SIZE, directory)
        found = align_all(reference, fastqs, directory) if aligns else []
        lines = total.result().read_text().splitlines()
        tables = session.gather(found)
    counts = {word: int(number) for word, number in (line.split() for line in lines)}
    if counts != counted(fastqs):
        raise SystemExit("the counts of words are wrong")
    print(f"{len(counts)} different words of {SIZE} letters in {len(truth)} reads, as plain Python counts")
    if not aligns:
        print("bwa and samtools are not installed: reads were not aligned")
        return
    rows = [line.split() for table in tables for line in table.splitlines()]
    if {name: (int(place), strand) for name, place, strand in rows} != truth:
        raise SystemExit("the places of reads are wrong")
    print(f"{len(rows)} reads are where they were taken from")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]).resolve())
    else:
        with tempfile.TemporaryDirectory() as scratch:
            main(Path(scratch))
