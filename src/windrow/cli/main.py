"""The ``windrow`` command: options in, exit codes out.

Exit codes: 0 complete, 1 an error (of usage too), 2 finished but rows failed or are missing. Heavy
packages are imported when a command runs, so that help and mistakes answer at once.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windrow import __version__
from windrow.cli.failures import ANALYSIS, Command
from windrow.errors import UsageError
from windrow.units import format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    from windrow.pipeline.results.result import Result


ERROR = 1

#: An option that names a file or a directory to be written.
FILE: dict[str, Any] = {"type": click.Path(path_type=Path, dir_okay=False), "metavar": "FILE"}
DIRECTORY: dict[str, Any] = {"type": click.Path(path_type=Path, file_okay=False), "metavar": "DIRECTORY"}

#: As many as one reads; the JSON summary has them all.
SHOWN_PROBLEMS = 10

#: Commands in modules of their own, imported when they are asked for.
LATER = {
    "new": "windrow.cli.new.command",
    "partition": "windrow.cli.partition",
    "show": "windrow.cli.show",
    "simulate": "windrow.cli.simulate",
}


class _Windrow(click.Group):
    """A group with Windrow's exit codes instead of click's, which has 2 for usage errors."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *LATER})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in LATER:
            command: click.Command = importlib.import_module(LATER[cmd_name]).command
            return command
        return super().get_command(ctx, cmd_name)

    def main(
        self,
        args: Any = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the command line and exit, or return the code where ``standalone_mode`` is off."""
        prog_name = prog_name or "windrow"  # however it was started
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        try:
            code = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except click.ClickException as error:
            context = getattr(error, "ctx", None)
            if context is not None:
                click.echo(f"{context.get_usage()}\nTry '{context.command_path} --help'.", err=True)
            click.echo(f"windrow: error: {error.format_message()}", err=True)
            code = ERROR
        except click.Abort:
            click.echo("windrow: interrupted, no result", err=True)
            code = ERROR
        sys.exit(code)


@click.group("windrow", cls=_Windrow, invoke_without_command=True)
@click.version_option(__version__, prog_name="windrow", message="%(prog)s %(version)s")
@click.pass_context
def main(context: click.Context) -> int:
    """Scientific analyses as fast as the machine allows."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help(), err=True)
        return ERROR
    return 0


@main.command(cls=Command)
@click.argument("analysis", metavar="ANALYSIS.py[:NAME]")
@click.argument("data", nargs=-1, metavar="[DATA]...")
@click.option(
    "--order",
    default="adaptive",
    show_default=True,
    metavar="adaptive|written|POLICY|FILE.json|A,B,...",
    help="Order of the steps; a file is one that freeze() wrote.",
)
@click.option("--chunk", default="auto", show_default=True, metavar="auto|ROWS", help="Most rows to schedule at once.")
@click.option(
    "--engine",
    default="auto",
    show_default=True,
    help="auto, inline, threads, processes, the address of a Dask scheduler (tcp://...), or dask-mpi (under mpiexec).",
)
@click.option("--workers", type=click.IntRange(min=1), help="How many. [default: all cores granted]")
@click.option("--memory", metavar="SIZE", help='What all workers may use, for instance "8 GB".')
@click.option("--timeout", metavar="TIME", help='How long a chunk may take, for instance "5 min".')
@click.option("--max-rows", type=click.IntRange(min=0), help="Only the first rows of each dataset.")
@click.option(
    "--on-error",
    type=click.Choice(["stop", "skip"]),
    default="stop",
    show_default=True,
    help="Stop at the first failing row, or leave out what fails and list it.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the random numbers.")
@click.option(
    "--cutflow",
    multiple=True,
    metavar="[DATASET=]estimated|exact",
    help="For all datasets, or for those that match; may be repeated.",
)
@click.option("--nminus1", is_flag=True, help="Also count the rows that pass all cuts but one.")
@click.option("--rundir", **DIRECTORY, help="Directory to keep the log, the journal and the result in.")
@click.option("--resume", is_flag=True, help="Continue what an earlier run left in --rundir.")
@click.option(
    "--out",
    "outs",
    multiple=True,
    **FILE,
    help="Write the outputs to FILE.root, .coffea, .json or .npz; may be repeated.",
)
@click.option("--report", **FILE, help="Write an HTML page about the run.")
@click.option(
    "--json",
    "json_to",
    is_flag=False,
    flag_value="-",
    metavar="[FILE]",
    help="Write a summary as JSON; without FILE to standard output, with nothing else there.",
)
@click.option("--save/--no-save", default=True, help="Write the files of analysis.save or not.")
@click.option("--quiet", is_flag=True, help="Print errors only.")
@click.option("--progress/--no-progress", default=None, help="Show progress. [default: on a terminal]")
@click.option("--explain", is_flag=True, help="Say what was decided and what the steps cost.")
def run(
    analysis: str,
    data: tuple[str, ...],
    json_to: str | None,
    outs: tuple[Path, ...],
    report: Path | None,
    quiet: bool,
    explain: bool,
    **options: Any,
) -> int:
    """Run the pipeline in ANALYSIS.py over DATA.

    DATA are files, globs, FILE.root:TREE, or one fileset (.json); by default what the analysis file
    defines as "data" or "fileset". NAME picks one of several pipelines.

    Exit code: 0 if every row is done, 1 after an error, 2 if rows failed or are missing.
    """
    from windrow.cli import loading
    from windrow.engines.dask.cluster import MPI, connect
    from windrow.pipeline.results.export import check_suffix
    from windrow.watch.report.page import write_text

    options = _pipeline_options(options, quiet=quiet)
    if options["engine"] == MPI:  # of all processes only one goes on from here
        options["engine"] = connect(MPI)
    if json_to not in (None, "-"):
        check_json(Path(str(json_to)))
    for out in outs:
        check_suffix(out)
        check_writable("--out", out)
    if report is not None:
        check_writable("--report", report)
    file, pick = loading.split_target(analysis)
    click.get_current_context().meta[ANALYSIS] = file
    with ExitStack() as stack:
        if json_to == "-":
            # What the analysis itself prints must not get between the JSON.
            stack.enter_context(redirect_stdout(sys.stderr))
        module = stack.enter_context(loading.loaded(file))
        pipeline = loading.pipeline_in(module, file, pick)
        spec = loading.data_of(data) if data else loading.data_in(module, file)
        result = pipeline.run(spec, **options)
    code = _ended(result, quiet=quiet or json_to == "-", explain=explain)
    code = 1 if options["rundir"] is not None and result.rundir is None else code  # it could not be written there
    if json_to == "-":
        click.echo(result.to_json(), nl=False)
    elif json_to is not None:
        write_text(Path(json_to), result.to_json())
    for out in outs:
        result.save(out)
    if report is not None:
        result.report(report)
    return code


@main.command(cls=Command)
@click.option(
    "--rows", type=click.IntRange(min=1), default=1_200_000, show_default=True, help="How many events to generate."
)
@click.option("--keep", **DIRECTORY, help="Generate the files there and leave them. [default: a temporary directory]")
@click.option("--workers", type=click.IntRange(min=1), help="How many. [default: all cores granted]")
def demo(rows: int, keep: Path | None, workers: int | None) -> int:
    """Generate collision events and find the J/psi, the Upsilon and the Z among them."""
    from tempfile import TemporaryDirectory

    from windrow.cli import loading

    click.get_current_context().meta[ANALYSIS] = loading.example_directory() / "analysis.py"
    with ExitStack() as stack:
        if keep is None:
            keep = Path(stack.enter_context(TemporaryDirectory(prefix="windrow-demo-")))
        click.echo(f"generating about {rows:,} events in {keep} ...", err=True)
        fileset = loading.generated(keep, rows)
        result = loading.run_example(fileset, workers=workers)
    return _ended(result, quiet=False, explain=False)


@main.command("report", cls=Command)
@click.argument("rundir", type=click.Path(path_type=Path))
@click.option("--out", **FILE, help="Where the page goes. [default: RUNDIR/report.html]")
@click.option("--trace", **FILE, help="Where the trace for Perfetto goes. [default: beside the page]")
def report_rundir(rundir: Path, out: Path | None, trace: Path | None) -> int:
    """Write one HTML page about the run in RUNDIR, and a trace of its tasks.

    The page needs no network and can be passed on: it has no paths. A run that was killed has a
    page too, from what its log says. The exit code is 0 if the run is complete, and 2 if it is not.
    """
    from windrow.store.rundir import RunDirectory, is_run_directory

    if is_run_directory(rundir) and "session" in RunDirectory.open(rundir).read_manifest():
        from windrow.tasks.watched import report_session_directory

        written: tuple[Path, Path | None, bool, str] = report_session_directory(rundir, out, trace)
    else:
        from windrow.pipeline.results import report_data

        written = report_data.report_rundir(rundir, out, trace)
    page, traced, complete, words = written
    click.echo(words)
    click.echo(f"report: {page}")
    if traced is not None:
        click.echo(f"trace:  {traced} (opens in ui.perfetto.dev)")
    return 0 if complete else 2


def _pipeline_options(given: dict[str, Any], *, quiet: bool) -> dict[str, Any]:
    from windrow.pipeline.ordering.policies import POLICIES

    options = dict(given)
    order = options["order"]
    if order not in ("adaptive", "written", *POLICIES) and not order.endswith(".json"):
        options["order"] = [name.strip() for name in options["order"].split(",") if name.strip()]
    if options["chunk"] != "auto":
        try:
            options["chunk"] = int(options["chunk"])
        except ValueError:
            raise UsageError(f'--chunk is "auto" or a number of rows, got {options["chunk"]!r}') from None
    kinds = [text.rpartition("=") for text in options["cutflow"]]
    options["cutflow"] = {dataset or "*": kind for dataset, _, kind in kinds} or "estimated"
    if quiet and options["progress"] is None:
        options["progress"] = False
    return options


def _ended(result: Result, *, quiet: bool, explain: bool) -> int:
    if not quiet:
        click.echo(result_text(result, explain=explain))
    if not result.complete:
        how = "interrupted" if result.interrupted else "incomplete"
        problems = result.ledger.problems
        lines = [f"windrow: {how}: {result.ledger.summary()}"]
        lines += [f"  {entry}" for entry in problems[:SHOWN_PROBLEMS]]
        if len(problems) > SHOWN_PROBLEMS:
            lines.append(f"  and {len(problems) - SHOWN_PROBLEMS} more ranges (--json lists them all)")
        click.echo("\n".join(lines), err=True)
    return result.exit_code


def result_text(result: Result, *, explain: bool = False) -> str:
    parts = [str(tables) for tables in (result.cutflow, result.nminus1) if len(tables)]
    if explain:
        return "\n\n".join([*parts, result.explain()])
    lines = [f"note: {note}" for note in result.notes]
    lines += [
        f"saved {file['path']}: {file['rows']:,} of {file['of']:,} rows, {format_bytes(file['bytes'])}"
        for file in result.saved
    ]
    lines.append(result.ledger.summary())
    lines.append(
        f"{format_count(result.ledger.done)} rows in {format_seconds(result.seconds)}: "
        f"{format_count(result.rows_per_second)} rows/s, {format_bytes(result.bytes_read)} read"
    )
    return "\n\n".join([*parts, "\n".join(lines)])


def check_writable(option: str, path: Path) -> None:
    """Refuse to write where it would fail, before the run and not after it."""
    if not path.parent.is_dir():
        raise UsageError(f"{option} {path}: there is no directory {path.parent}")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise UsageError(f"{option} {path}: cannot be written")


def check_json(path: Path) -> None:
    check_writable("--json", path)
    if not path.is_file() or not path.stat().st_size:
        return
    try:
        found = json.loads(path.read_bytes())
    except ValueError:
        found = None
    # "--json analysis.py" is an easy slip where the file name may be left out.
    if not isinstance(found, dict) or not {"windrow", "pipeline", "exit_code"} <= found.keys():
        raise UsageError(
            f"--json {path}: the file exists and is no summary of an earlier run; "
            "name another one, or write --json=- for standard output"
        )
