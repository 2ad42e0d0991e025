"""Tasks that read and write small files, for tests; outside a session they are the plain program."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import windrow as wr


@wr.task
def write(out: wr.OutFile, text: str) -> None:
    with open(out, "w") as stream:  # noqa: PTH123 - any form of a path
        stream.write(text)


@wr.task
def read(path: wr.InFile) -> str:
    with open(path) as stream:  # noqa: PTH123
        return stream.read()


@wr.task
def join(out: wr.OutFile, *parts: wr.InFile) -> None:
    with open(out, "w") as stream:  # noqa: PTH123
        for part in parts:
            stream.write(Path(part).read_text())


@wr.task
def join_list(parts: wr.InFile, out: wr.OutFile) -> str:
    text = "".join(Path(one).read_text() for one in parts)
    Path(out).write_text(text)
    return text


@wr.task
def append(path: wr.InOutFile, text: str) -> None:
    with open(path, "a") as stream:  # noqa: PTH123
        stream.write(text)


@wr.task
def read_all(paths: wr.InFile) -> list[str]:
    return [Path(one).read_text() for one in paths]


@wr.task
def fill(directory: wr.OutDir, names: list[str]) -> None:
    for name in names:
        path = Path(directory) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name} of {len(names)}")


@wr.task
def listed(directory: wr.InDir) -> dict[str, str]:
    place = Path(directory)
    found = {str(path.relative_to(place)): path.read_text() for path in place.rglob("*") if path.is_file()}
    return dict(sorted(found.items()))


@wr.task
def split(directory: wr.OutFiles("part-*.txt"), count: int, text: str = "") -> None:  # type: ignore[valid-type]
    Path(directory).mkdir(exist_ok=True)
    for number in range(count):
        Path(directory, f"part-{number}.txt").write_text(f"{text}{number}")
    Path(directory, "log").write_text("done")


@wr.task
def index(ref: wr.OutFiles("{ref}.*"), text: str) -> None:  # type: ignore[valid-type]
    for ending in ("amb", "bwt"):
        Path(f"{os.fspath(ref)}.{ending}").write_text(text + ending)


@wr.task
def align(ref: wr.InFiles("{ref}.*")) -> str:  # type: ignore[valid-type]
    path = Path(os.fspath(ref))
    return "|".join(one.read_text() for one in sorted(path.parent.glob(f"{path.name}.*")))


@wr.task
def parts_of(directory: wr.InFiles("part-*.txt")) -> list[str]:  # type: ignore[valid-type]
    return [one.read_text() for one in sorted(Path(directory).glob("part-*.txt"))]


@wr.task
def with_sidecar(out: wr.OutFile, text: str) -> None:
    Path(out).write_text(text)
    Path(f"{os.fspath(out)}.bai").write_text(f"index of {text}")


@wr.task
def bad(out: wr.OutFile) -> None:
    Path(out).write_text("half of i")
    raise ValueError("spilled")


@wr.task
def forgets(out: wr.OutFile) -> None:
    Path(out).with_name("other.txt").write_text("here")


@wr.task
def empties(out: wr.OutFile) -> None:
    Path(out).touch()


@wr.task
def makes_no_parts(directory: wr.OutFiles("part-*.txt")) -> None:  # type: ignore[valid-type]
    Path(directory, "piece-1.txt").write_text("x")


@wr.task
def fills_nothing(directory: wr.OutDir) -> None:
    pass


@wr.task
def tell_path(out: wr.OutFile) -> Any:
    """Bodies like to return where they wrote."""
    Path(out).write_text("x")
    return out


@wr.task
def kinds_of_paths(one: wr.InFile, more: wr.InFile, out: wr.OutFile) -> list[str]:
    Path(out).write_text("x")
    return [type(thing).__name__ for thing in (one, more, more[0], out)]


@wr.task
def slowly(out: wr.OutFile, text: str, seconds: float = 0.05) -> None:
    with open(out, "w") as stream:  # noqa: PTH123
        for letter in text:
            time.sleep(seconds / len(text))
            stream.write(letter)
            stream.flush()


def holdings(place: Path) -> dict[str, str]:
    """All files below a directory, hidden ones too, with their content."""
    return {
        str(path.relative_to(place)): path.read_text() if path.is_file() else "<directory>"
        for path in sorted(place.rglob("*"))
    }
