"""Whether two checkouts of the repository give the same: what ``examples/`` runs, bit by bit.

    python benchmarks/same_outputs.py OLD NEW

Each checkout runs its own examples with its own interpreter (``.venv/bin/python``), on the same generated data, with several
engines and orders. Compared are outputs, yields, ledgers, cutflows in a fixed order (lines that were counted; estimates
are left out), what programs print and the files they write. Ends with 1 if anything differs. The real sample files are used
where WINDROW_SAMPLES names them.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import harness

#: example -> what of it is run: a size or a variant, and options of the run.
RUNS: dict[str, list[tuple[Any, dict[str, Any]]]] = {
    "dimuon": [
        (10_000, {"engine": "inline", "order": "written"}),
        (10_000, {"engine": "threads", "workers": 2, "order": "adaptive"}),
        (10_000, {"engine": "processes", "workers": 2, "order": "written", "chunk": 3_000}),
        (10_000, {"engine": "threads", "workers": 2, "order": "written", "cutflow": "exact"}),
    ],
    "nanoaod": [
        (4_000, {"engine": "threads", "workers": 2, "order": "written"}),
        (4_000, {"engine": "processes", "workers": 2, "order": "adaptive"}),
    ],
    "tth": [
        ("as", {"engine": "threads", "workers": 2, "order": "written"}),
        ("sci", {"engine": "threads", "workers": 2, "order": "reversed"}),
        ("sci", {"engine": "processes", "workers": 2, "order": "adaptive"}),
        ("scinp", {"engine": "inline", "order": "written"}),
    ],
}
#: Files that say when or where they were written.
OTHERWISE = {".gz", ".bam", ".log"}


def python(checkout: Path) -> Path:
    return checkout / ".venv" / "bin" / "python"


def analyses(checkouts: list[Path], place: Path) -> dict[str, list[dict[str, str]]]:
    """Every run of every analysis: what each checkout tells."""
    found = {}
    for example, runs in RUNS.items():
        directory = place / example
        directory.mkdir()
        samples = os.environ.get("WINDROW_SAMPLES", "")
        if samples:
            (directory / "real").symlink_to(Path(samples).resolve())
        workers = [
            harness.Worker("outputs_windrow.py", python(checkout), source=checkout / "src") for checkout in checkouts
        ]
        for variant, options in runs:
            name = f"{example} {variant}: " + ", ".join(f"{key} {value}" for key, value in options.items())
            found[name] = [
                worker.ask(
                    checkout=str(checkout), example=example, directory=str(directory), variant=variant, options=options
                )["result"]
                for checkout, worker in zip(checkouts, workers, strict=True)
            ]
        for worker in workers:
            worker.close()
    return found


def told_by_program(checkout: Path, program: str, place: Path, arguments: list[str], **more: str) -> dict[str, str]:
    """What a program prints, and what files it leaves in an empty directory."""
    place.mkdir(parents=True)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WINDROW")}
    # Linear algebra on several threads adds in another order now and then.
    environment |= {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(checkout / "src"), **more}
    done = subprocess.run(
        [str(python(checkout)), str(checkout / "examples" / program), *arguments],
        cwd=place, env=environment, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    told = {"printed": done.stdout, "exit code": str(done.returncode)}
    if done.returncode:
        told["complained"] = done.stderr[-500:]
    for path in sorted(place.rglob("*")):
        name = path.relative_to(place)
        if path.is_file() and path.suffix not in OTHERWISE and not name.parts[0].startswith("."):
            told[f"file {name}"] = hashlib.sha256(path.read_bytes()).hexdigest()
    return told


def programs(checkouts: list[Path], place: Path) -> dict[str, list[dict[str, str]]]:
    """Every program of tasks and of command lines: what each checkout tells."""
    known = sorted(path.name for path in (checkouts[0] / "examples" / "pycompss").glob("*.py"))
    asked = [(f"pycompss/{name}", engine) for name in known for engine in ("processes", "threads")]
    found = {}
    for program, engine in [*asked, ("commands/run.py", "processes")]:
        writes = program in ("pycompss/pipeline.py", "commands/run.py")
        found[f"{program}, {engine}"] = [
            told_by_program(
                checkout, program, place / engine / program.replace("/", "-") / str(number), ["."] if writes else [],
                WINDROW_ENGINE=engine, WINDROW_WORKERS="2",
            )
            for number, checkout in enumerate(checkouts)
        ]  # fmt: skip
    return found


def differences(old: dict[str, str], new: dict[str, str]) -> list[str]:
    return sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    options = parser.parse_args()
    checkouts = [options.old.resolve(), options.new.resolve()]
    with tempfile.TemporaryDirectory() as scratch:
        found = analyses(checkouts, Path(scratch)) | programs(checkouts, Path(scratch))
    report = harness.Report("Same outputs", harness.machine())
    wrong = {name: differences(*told) for name, told in found.items()}
    report.table(
        ("what was run", "compared", "different"),
        [(name, len(told[0]), ", ".join(wrong[name]) or "-") for name, told in found.items()],
    )
    failed = [name for name, told in found.items() if any(one.get("exit code", "0") != "0" for one in told)]
    for name in failed:
        report.note(f"{name} failed: {[one.get('complained') for one in found[name]]}")
    return int(any(wrong.values()) or bool(failed))


if __name__ == "__main__":
    sys.exit(main())
