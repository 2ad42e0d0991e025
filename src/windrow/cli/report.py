"""``windrow report``: the page and the trace of a run directory, ended or not."""

from __future__ import annotations

from pathlib import Path

import click

from windrow.cli.failures import Command


@click.command("report", cls=Command)
@click.argument("rundir", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where the page goes. [default: RUNDIR/report.html]",
)
@click.option(
    "--trace",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where the trace for Perfetto goes. [default: beside the page]",
)
def command(rundir: Path, out: Path | None, trace: Path | None) -> int:
    """Write one HTML page about the run in RUNDIR, and a trace of its tasks.

    The page needs no network and can be passed on: it has no paths. A run that was killed has a
    page too, from what its log says. The exit code is 0 if the run is complete, and 2 if it is not.
    """
    from windrow.store.rundir import RunDirectory, is_run_directory

    if is_run_directory(rundir) and "session" in RunDirectory.open(rundir).read_manifest():
        from windrow.tasks.watched import report_session_directory

        written: tuple[Path, Path | None, bool, str] = report_session_directory(rundir, out, trace)
    else:
        from windrow.pipeline.results.report_data import report_rundir

        written = report_rundir(rundir, out, trace)
    page, traced, complete, words = written
    click.echo(words)
    click.echo(f"report: {page}")
    if traced is not None:
        click.echo(f"trace:  {traced} (opens in ui.perfetto.dev)")
    return 0 if complete else 2
