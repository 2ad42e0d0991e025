"""Command lines as tasks: reads of several samples are counted, and aligned where bwa and samtools are installed."""

# ruff: noqa: ARG001
# Parameters are used in the templates that the functions return.

from __future__ import annotations

from typing import Any

import windrow as wr


@wr.command
def words(fastq: wr.InFile, size: int, counts: wr.OutFile) -> str:
    """Count all words of a size in the reads of a sample."""
    return """
        gzip -dc {fastq} |
        awk -v n={size} 'NR % 4 == 2 { for (i = 1; i <= length($0) - n + 1; i++) print substr($0, i, n) }' |
        LC_ALL=C sort | uniq -c | awk '{print $2, $1}' > {counts}
    """


@wr.command
def merged(counts: wr.InFile, total: wr.OutFile) -> str:
    """Add up the counts of all samples; files are sorted already."""
    return """
        LC_ALL=C sort -m {counts} |
        awk '$1 != word { if (word) print word, n; word = $1; n = 0 } { n += $2 } END { print word, n }' > {total}
    """


@wr.command
def index(reference: wr.InFile, prefix: wr.OutFiles("{prefix}.*")) -> str:  # type: ignore[valid-type]
    """Make what bwa needs to find places in a genome; it writes five files."""
    return "bwa index -p {prefix} {reference}"


@wr.command(cores=1)
def align(prefix: wr.InFiles("{prefix}.*"), fastq: wr.InFile, bam: wr.OutFile) -> str:  # type: ignore[valid-type]
    """Find the place of each read, and sort by place."""
    return "bwa mem -t {cores} {prefix} {fastq} | samtools sort -T {tmp}/part -o {bam} -"


@wr.command
def places(bam: wr.InFile) -> str:
    """Tell each read's name, place and strand."""
    return 'samtools view {bam} | awk \'{print $1, $4, ($2 % 32 >= 16) ? "-" : "+"}\''


def count_words(fastqs: list[Any], size: int, out: Any) -> Any:
    """Count the words of each sample, then of all."""
    counts = [words(fastq, size, out / f"{fastq.name}.counts") for fastq in fastqs]
    return merged(counts, out / "total.counts")


def align_all(reference: Any, fastqs: list[Any], out: Any) -> list[Any]:
    """Align the reads of all samples to one genome."""
    index(reference, out / "genome")
    noted = align.options(log=out / "logs" / "{name}-{fastq}.log")
    bams = [noted(out / "genome", fastq, out / f"{fastq.name}.bam") for fastq in fastqs]
    return [places(bam) for bam in bams]
