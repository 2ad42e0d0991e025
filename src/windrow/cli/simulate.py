"""``windrow simulate``: what would N workers give me?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from windrow.cli.failures import Command
from windrow.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windrow.engines.simulated.devices import Device
    from windrow.engines.simulated.engine import Kind
    from windrow.run.recorded import Recorded
    from windrow.run.simulate import Forecast


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
    from windrow.run.recorded import read_record
    from windrow.run.session_forecast import is_session

    if is_session(rundir):
        given = {"--memory": memory, "--engine": engine, "--device": device}
        click.echo(_about_session(rundir, workers, given, as_json=as_json))
        return 0
    recorded = read_record(rundir)
    kind = engine or recorded.kind
    fit = _fitting(recorded, memory, kind, workers)
    number = workers if fit is None else min(workers, fit)
    found = _forecasts(recorded, number, kind, seed, _device(device))
    text = _json(recorded, found, kind, fit) if as_json else _text(recorded, found, kind, workers, memory, fit)
    click.echo(text)
    return 0


def _about_session(rundir: Path, workers: int, given: dict[str, str | None], *, as_json: bool) -> str:
    """Foretell a session of tasks."""
    import json
    from dataclasses import asdict

    from windrow.run.session_forecast import RecordedSession, forecast_session
    from windrow.store.rundir import RunDirectory
    from windrow.units import format_seconds

    useless = [name for name, value in given.items() if value is not None]
    if useless:
        raise UsageError(f"{' and '.join(useless)} cannot be simulated for a session of tasks: only --workers can")
    recorded = RecordedSession(RunDirectory.open(rundir))
    found = [forecast_session(recorded, number) for number in _numbers(workers)]
    run = recorded.run
    if as_json:
        about = {"workers": run.workers, "engine": run.engine, "seconds": recorded.seconds, "tasks": len(run.tasks)}
        return json.dumps({"recorded": about, "forecasts": [asdict(one) for one in found]}, indent=2)
    head = ("workers", "time", "speed-up", "busy")
    cells = [(str(one.workers), format_seconds(one.seconds), f"{one.speedup:.2f}", f"{one.busy:.0%}") for one in found]
    many = "worker" if run.workers == 1 else "workers"
    took = f"{format_seconds(recorded.seconds)}, {len(run.tasks):,} tasks"
    first = f"recorded: {run.workers} {many} ({run.engine}), {took}"
    return "\n".join([first, "", _table(head, cells), "", f"limited by {found[-1].limit}"])


def _device(name: str | None) -> tuple[str, Device] | None:
    from windrow.engines.simulated.model_files import load_devices
    from windrow.errors import UnknownNameError, nearest

    if name is None:
        return None
    devices = load_devices()
    if name not in devices:
        raise UnknownNameError(
            f"--device {name}: no such device{nearest(name, devices)} (devices: {', '.join(devices)})"
        )
    return name, devices[name]


def _fitting(recorded: Recorded, memory: str | None, kind: Kind, workers: int) -> int | None:
    """Say how many of the workers fit; None if nobody asked or nobody knows."""
    from windrow.units import format_bytes, parse_bytes

    if memory is None:
        return None
    size = parse_bytes(memory)
    fit = recorded.workers_that_fit(size, kind, workers)
    if fit == 0:
        one = format_bytes(recorded.memory_of(1, kind) or 0.0)
        raise UsageError(
            f"--memory {memory} is too little for one worker, which needed up to {one}: give more, "
            "or run with smaller tasks (chunk=) and simulate that run"
        )
    return fit


def _forecasts(
    recorded: Recorded, workers: int, kind: Kind, seed: int, device: tuple[str, Device] | None
) -> list[Forecast]:
    """Foretell 1, 2, 4, ... workers and, as the last one, the number asked for."""
    from windrow.run.simulate import forecast

    found = []
    for number in _numbers(workers):
        count = SEEDS if number == workers else SEEDS_OF_A_LINE
        seeds = range(seed, seed + count)
        found.append(forecast(recorded, number, kind=kind, seeds=seeds, device=device))
    return found


def _numbers(workers: int) -> list[int]:
    return [*(2**power for power in range(workers.bit_length()) if 2**power < workers), workers]


def _text(
    recorded: Recorded, found: list[Forecast], kind: Kind, asked: int, memory: str | None, fit: int | None
) -> str:
    from windrow.units import format_count, format_seconds

    rows = sum(one.rows for one in recorded.inputs)
    many = "worker" if recorded.workers == 1 else "workers"
    head = f"recorded: {recorded.workers} {many} ({recorded.engine})"
    took = f"{format_seconds(recorded.seconds)}, {format_count(rows)} rows, {recorded.tasks:,} tasks"
    lines = [f"{head}, {took}", "", _forecast_table(found), ""]
    last = found[-1]
    low, high = format_seconds(last.low), format_seconds(last.high)
    what = kind if last.workers > 1 else {"threads": "thread", "processes": "process"}[kind]
    lines.append(
        f"{last.workers} {what}: {format_seconds(last.seconds)} ({low} to {high} over {SEEDS} "
        f"seeds), {last.speedup:.3g} times as fast as recorded"
    )
    lines.append(f"limited by {last.limit}")
    if memory is not None:
        lines.append(_about_memory(recorded, kind, asked, memory, fit))
    lines += [f"note: {note}" for note in recorded.notes]
    return "\n".join(lines)


def _about_memory(recorded: Recorded, kind: Kind, asked: int, memory: str, fit: int | None) -> str:
    from windrow.units import format_bytes

    if fit is None:
        fits = "1 worker fits" if asked == 1 else f"{asked} workers fit"
        return f"memory: whether {fits} into {memory} is not known (see below)"
    needs = format_bytes(recorded.memory_of(fit, kind) or 0.0)
    if fit < asked:
        need = "needs" if fit == 1 else "need"
        return f"memory: {memory} are enough for {fit} of {asked} workers, which {need} {needs}"
    them = "1 worker needs" if asked == 1 else f"{asked} workers need"
    return f"memory: {them} {needs} of {memory}"


def _forecast_table(found: list[Forecast]) -> str:
    from windrow.units import format_seconds

    head = ("workers", "time", "speed-up", "efficiency", "computing", "driver", "tasks")
    cells = [
        (
            str(one.workers),
            format_seconds(one.seconds),
            f"{one.speedup:.2f}",
            f"{one.efficiency:.0%}",
            f"{one.utilisation:.0%}",
            f"{one.driver:.1%}",
            f"{one.tasks:,}",
        )
        for one in found
    ]
    return _table(head, cells)


def _table(head: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    from windrow.pipeline.grid import Grid

    return Grid("", head, cells, numbers=range(len(head))).text()


def _json(recorded: Recorded, found: list[Forecast], kind: Kind, fit: int | None) -> str:
    import json
    from dataclasses import asdict

    return json.dumps(
        {
            "recorded": {
                "workers": recorded.workers,
                "engine": recorded.engine,
                "seconds": recorded.seconds,
                "tasks": recorded.tasks,
                "complete": recorded.complete,
            },
            "engine": kind,
            "workers_that_fit": fit,
            "forecasts": [asdict(one) for one in found],
            "notes": list(recorded.notes),
        },
        indent=2,
    )
