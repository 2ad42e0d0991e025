"""Runs every benchmark, or those named, and writes their sections of ``benchmarks/RESULTS.md``: tables, claims, machine.

python benchmarks/run_all.py [--quick] [NAME ...]

Sections of benchmarks that did not run stay as they are.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "RESULTS.md"
SHARED = {
    "harness",
    "order_cases",
    "order_counting",
    "paper_heft",
    "paper_split",
    "random_numbers",
    "run_all",
    "same_outputs",
    "versions",
}
HEAD = "# What the benchmarks measured\n\nWritten by `make bench`. Ratios are the finding; seconds are the machine's.\n"
QUICK = "A quick run: orientation only."
#: A section's heading, which ends with the file that made it.
HEADING = re.compile(r"^## .*?\(?`benchmarks/(\w+)\.py`\)?$", re.MULTILINE)


def benchmarks() -> list[str]:
    return sorted(path.stem for path in HERE.glob("*.py") if path.stem not in SHARED)


def facts(machine: dict[str, Any]) -> str:
    words = []
    for key, value in machine.items():
        if isinstance(value, dict):  # versions by package
            words += [f"{name} {version}" for name, version in value.items()]
        else:
            words.append(f"{key.replace('_', ' ')} {value}")
    return ", ".join(words)


def sections(text: str) -> dict[str, str]:
    """The sections of a file of results, by the name of their benchmark."""
    found = list(HEADING.finditer(text))
    borders = pairwise([*(heading.start() for heading in found), len(text)])
    return {
        heading[1]: text[start:stop].rstrip("\n") + "\n" for heading, (start, stop) in zip(found, borders, strict=True)
    }


def merged(text: str, new: dict[str, str]) -> str:
    """A file of results in which the new sections have taken the place of the old ones; others stay."""
    known = {**sections(text), **new}
    return "\n".join([HEAD, *(known[name] for name in sorted(known))])


def section(name: str, content: dict[str, Any] | None, printed: str, *, quick: bool) -> str:
    if content is None:
        return f"## `benchmarks/{name}.py`\n\nThe benchmark ended with an error.\n"
    # Benchmarks on the shared harness keep their tables; of the others there is what they printed.
    printed = printed.strip("\n")
    blocks = "\n\n".join(content.get("blocks", [f"```\n{printed}\n```"]))
    machine = facts(content["machine"])
    title = content.get("title", name.capitalize())
    parts = [f"## {title} (`benchmarks/{name}.py`)", *([QUICK] if quick else []), machine, blocks]
    return "\n\n".join(parts) + "\n"


def run(command: list[str]) -> tuple[int, str]:
    """Run a benchmark, showing what it prints while it prints it."""
    printed = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            printed.append(line)
    return process.returncode, "".join(printed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these")
    parser.add_argument("--quick", action="store_true", help="the same on less")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(benchmarks()))
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(benchmarks())}")

    ran, failed = {}, []
    with tempfile.TemporaryDirectory() as directory:
        for name in options.names or benchmarks():
            print(f"== {name}", flush=True)
            file = Path(directory) / f"{name}.json"
            command = [sys.executable, str(HERE / f"{name}.py"), "--json", str(file)]
            command += ["--quick"] if options.quick else []
            code, printed = run(command)
            content = json.loads(file.read_text()) if file.exists() else None
            if code or content is None:
                failed.append(name)
            ran[name] = section(name, content, printed, quick=options.quick)
    RESULTS.write_text(merged(RESULTS.read_text() if RESULTS.exists() else "", ran))
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
