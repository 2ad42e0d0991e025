"""Runs every benchmark and writes ``benchmarks/RESULTS.md``: tables, claims, machine.

python benchmarks/run_all.py [--quick] [NAME ...]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SHARED = {"harness", "order_cases", "order_counting", "random_numbers", "run_all"}


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


def section(name: str, content: dict[str, Any] | None, printed: str) -> str:
    if content is None:
        return f"## `benchmarks/{name}.py`\n\nThe benchmark ended with an error.\n"
    # Benchmarks on the shared harness keep their tables; of the others there is what they printed.
    printed = printed.strip("\n")
    blocks = "\n\n".join(content.get("blocks", [f"```\n{printed}\n```"]))
    machine = facts(content["machine"])
    title = content.get("title", name.capitalize())
    return f"## {title} (`benchmarks/{name}.py`)\n\n{machine}\n\n{blocks}\n"


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

    sections, failed = [], []
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
            sections.append(section(name, content, printed))
    kind = "quick runs: orientation only" if options.quick else "full runs"
    head = (
        "# What the benchmarks measured\n\n"
        f"Written by `make bench` ({kind}). Ratios are the finding; seconds are the machine's.\n"
    )
    (HERE / "RESULTS.md").write_text("\n".join([head, *sections]))
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
