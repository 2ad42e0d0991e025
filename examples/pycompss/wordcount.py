"""Counts the words of several text files: one task per file, and one that adds its count to the total.

Written for PyCOMPSs; only the imports differ. Run it with ``python wordcount.py [directory]``.
"""

import random
import sys
import tempfile
from pathlib import Path

from windrow.compat.pycompss.api.api import compss_wait_on
from windrow.compat.pycompss.api.parameter import FILE_IN, INOUT
from windrow.compat.pycompss.api.task import task

WORDS = ["wind", "row", "field", "mow", "rake", "hay", "turn", "bale", "barn", "stack", "grass", "sun"]


@task(path=FILE_IN, returns=dict)
def count_words(path):
    counts = {}
    with Path(path).open() as stream:
        for line in stream:
            for word in line.split():
                counts[word] = counts.get(word, 0) + 1
    return counts


@task(total=INOUT)
def add_counts(total, counts):
    for word, number in counts.items():
        total[word] = total.get(word, 0) + number


def write_texts(directory, files=8, lines=200):
    draw = random.Random(7)
    for number in range(files):
        with Path(directory, f"text-{number}.txt").open("w") as stream:
            for _ in range(lines):
                stream.write(" ".join(draw.choices(WORDS, k=10)) + "\n")


def main(directory):
    total = {}
    for path in sorted(Path(directory).glob("*.txt")):
        counts = count_words(str(path))
        add_counts(total, counts)
    total = compss_wait_on(total)
    for word, number in sorted(total.items(), key=lambda item: (-item[1], item[0])):
        print(f"{number:6} {word}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as made:
            write_texts(made)
            main(made)
