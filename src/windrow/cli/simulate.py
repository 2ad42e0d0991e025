"""``windrow simulate``: what would N workers give me?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windrow.cli.failures import Command
from windrow.errors import UsageError

if TYPE_CHECKING:
    from windrow.engines.simulated.devices import Device
    from windrow.engines.simulated.engine import Kind
    from windrow.run.recorded import Recorded


#: Workers beyond this would take hours to simulate and memory in gigabytes.
MOST_WORKERS = 100_000

#: Seeds of the longest look, and of each line of the table: those are for comparison only.
SEEDS, SEEDS_OF_A_LINE = 5, 3


@click.command("simulate", cls=Command)
@click.argument("rundir", type=click.Path(path_type=Path))
@click.option("--workers", type=click.IntRange(1, MOST_WORKERS), default=16, show_default=True, help="How many.")
@click.option("--memory", metavar="SIZE", help='Of all workers together, such as "8 GB": how many fit?')
@click.option(
    "--engine", type=click.Choice(["threads", "processes"]), help="What the workers are. [default: as recorded]"
)
@click.option(
    "--device",
    metavar="NAME",
    help="Read from local-disk, node-ssd, shared-disk or object-store. [default: as recorded]",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of what varies.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
def command(
    rundir: Path, workers: int, memory: str | None, engine: Kind | None, device: str | None, seed: int, as_json: bool
) -> int:
    """Say what the run in RUNDIR would take with other workers.

    Nothing is run: the real scheduler is driven in virtual time, by what the log of the run says
    about every task. The tasks of a session are put onto workers one after the other.
    """
    import json

    from windrow.run.simulate import is_session

    if is_session(rundir):
        if memory is not None or engine is not None or device is not None:
            raise UsageError(
                "only --workers can be simulated for a session of tasks, not --memory, --engine or --device"
            )
        facts, lines = _about_session(rundir, _numbers(workers))
    else:
        facts, lines = _about_run(rundir, workers, memory, engine, seed, _device(device))
    click.echo(json.dumps(facts, indent=2) if as_json else "\n".join(lines))
    return 0


def _numbers(workers: int) -> list[int]:
    return [*(2**power for power in range(workers.bit_length()) if 2**power < workers), workers]


def _about_session(rundir: Path, numbers: Sequence[int]) -> tuple[dict[str, Any], list[str]]:
    from dataclasses import asdict

    from windrow.run.simulate import RecordedSession, forecast_session
    from windrow.store.rundir import RunDirectory
    from windrow.units import format_seconds

    recorded = RecordedSession(RunDirectory.open(rundir))
    found = [forecast_session(recorded, number) for number in numbers]
    run = recorded.run
    about = {"workers": run.workers, "engine": run.engine, "seconds": recorded.seconds, "tasks": len(run.tasks)}
    head = ("workers", "time", "speed-up", "busy")
    cells = [(str(one.workers), format_seconds(one.seconds), f"{one.speedup:.2f}", f"{one.busy:.0%}") for one in found]
    lines = [_recorded_text(about), "", _table(head, cells), "", f"limited by {found[-1].limit}"]
    return {"recorded": about, "forecasts": [asdict(one) for one in found]}, lines


def _about_run(
    rundir: Path, workers: int, memory: str | None, engine: Kind | None, seed: int, device: tuple[str, Device] | None
) -> tuple[dict[str, Any], list[str]]:
    from dataclasses import asdict

    from windrow.run.recorded import read_record
    from windrow.run.simulate import forecast
    from windrow.units import format_seconds

    recorded = read_record(rundir)
    kind = engine or recorded.kind
    number_that_fits, about_memory = _fitting(recorded, kind, workers, memory)
    numbers = _numbers(number_that_fits)
    found = []
    for number in numbers:
        seeds = range(seed, seed + (SEEDS if number == numbers[-1] else SEEDS_OF_A_LINE))
        found.append(forecast(recorded, number, kind=kind, seeds=seeds, device=device))
    about = {
        "workers": recorded.workers,
        "engine": recorded.engine,
        "seconds": recorded.seconds,
        "tasks": recorded.tasks,
        "rows": sum(one.rows for one in recorded.inputs),
        "complete": recorded.complete,
    }
    head = ("workers", "time", "speed-up", "efficiency", "computing", "driver", "tasks")
    cells = [
        (str(one.workers), format_seconds(one.seconds), f"{one.speedup:.2f}", f"{one.efficiency:.0%}",
         f"{one.utilisation:.0%}", f"{one.driver:.1%}", f"{one.tasks:,}")
        for one in found
    ]  # fmt: skip
    last = found[-1]
    what = kind if last.workers > 1 else {"threads": "thread", "processes": "process"}[kind]
    span = f"{format_seconds(last.low)} to {format_seconds(last.high)} over {SEEDS} seeds"
    lines = [
        _recorded_text(about),
        "",
        _table(head, cells),
        "",
        f"{last.workers} {what}: {format_seconds(last.seconds)} ({span}), {last.speedup:.3g} times as fast as recorded",
        f"limited by {last.limit}",
        *about_memory,
        *(f"note: {note}" for note in recorded.notes),
    ]
    forecasts = [asdict(one) for one in found]
    return {"recorded": about, "engine": kind, "forecasts": forecasts, "notes": list(recorded.notes)}, lines


def _fitting(recorded: Recorded, kind: Kind, workers: int, memory: str | None) -> tuple[int, list[str]]:
    """Give how many of the workers fit into some memory, and a sentence about it; all where the log does not tell."""
    from windrow.units import format_bytes, parse_bytes

    if memory is None:
        return workers, []
    size = parse_bytes(memory)
    needs = [recorded.memory_of(number, kind) for number in range(workers + 1)]
    if needs[1] is None:
        return workers, [
            f"memory: the log does not say what workers need; whether {workers} fit into {memory} is not known"
        ]
    fit = max(number for number, need in enumerate(needs) if number == 0 or (need or 0.0) <= size)
    if fit == 0:
        raise UsageError(
            f"--memory {memory} is too little for one worker, which needed up to {format_bytes(needs[1])}: give more, "
            "or run with smaller tasks (chunk=) and simulate that run"
        )
    return fit, [f"memory: {fit} of {workers} workers fit into {memory}, with {format_bytes(needs[fit] or 0.0)}"]


def _recorded_text(about: dict[str, Any]) -> str:
    from windrow.units import format_count, format_seconds

    many = "worker" if about["workers"] == 1 else "workers"
    rows = f", {format_count(about['rows'])} rows" if "rows" in about else ""
    took = f"{format_seconds(about['seconds'])}{rows}, {about['tasks']:,} tasks"
    return f"recorded: {about['workers']} {many} ({about['engine']}), {took}"


def _device(name: str | None) -> tuple[str, Device] | None:
    from windrow.engines.simulated.model_files import load_devices
    from windrow.errors import UnknownNameError, alternatives

    if name is None:
        return None
    devices = load_devices()
    if name not in devices:
        raise UnknownNameError(f"--device {name}: no such device{alternatives('devices', name, devices)}")
    return name, devices[name]


def _table(head: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    from windrow.pipeline.results.grid import Grid

    return Grid("", head, cells, numbers=range(len(head))).text()
