"""A pipeline of files: tasks write them, make others of them, and add lines to a log.

Written for PyCOMPSs; only the imports differ. Run it with ``python pipeline.py [directory]``.
"""

import sys
import tempfile
from pathlib import Path

from windrow.compat.pycompss.api.api import compss_barrier, compss_open, compss_wait_on, compss_wait_on_file
from windrow.compat.pycompss.api.binary import binary
from windrow.compat.pycompss.api.parameter import (
    COLLECTION_FILE_IN,
    FILE_IN,
    FILE_IN_STDIN,
    FILE_INOUT,
    FILE_OUT,
    FILE_OUT_STDOUT,
)
from windrow.compat.pycompss.api.task import task


@task(path=FILE_OUT)
def simulate(path, seed, lines):
    state = seed + 1
    with Path(path).open("w") as stream:
        for _ in range(lines):
            state = state * 48271 % 2147483647
            stream.write(f"{state % 1000}\n")


@task(source=FILE_IN, target=FILE_OUT)
def keep_even(source, target):
    with Path(source).open() as inside, Path(target).open("w") as out:
        out.writelines(line for line in inside if int(line) % 2 == 0)


@binary(binary="sort", args="-n", fail_by_exit_value=True)
@task(source=FILE_IN_STDIN, target=FILE_OUT_STDOUT)
def sort_numbers(source, target):
    with Path(source).open() as inside, Path(target).open("w") as out:
        out.writelines(sorted(inside, key=int))


@task(log=FILE_INOUT, source=FILE_IN)
def note(log, source):
    with Path(source).open() as inside:
        numbers = [int(line) for line in inside]
    with Path(log).open("a") as out:
        out.write(f"{len(numbers)} numbers from {numbers[0]} to {numbers[-1]}\n")


@task(sources=COLLECTION_FILE_IN, returns=int)
def sum_of(sources):
    return sum(int(line) for source in sources for line in Path(source).read_text().split())


def main(directory):
    place = Path(directory)
    log = str(place / "log.txt")
    Path(log).write_text("log\n")
    ends = []
    for number in range(4):
        raw, even, end = (str(place / f"{kind}-{number}.txt") for kind in ("raw", "even", "sorted"))
        simulate(raw, number, 500)
        keep_even(raw, even)
        sort_numbers(even, end)
        note(log, end)
        ends.append(end)
    total = sum_of(ends)
    with compss_open(log) as stream:
        print(stream.read(), end="")
    print("sum:", compss_wait_on(total))
    compss_wait_on_file(ends[0])
    print("first:", Path(ends[0]).read_text().split()[:5])
    compss_barrier()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as made:
            main(made)
