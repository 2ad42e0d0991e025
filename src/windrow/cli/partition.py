"""``windrow partition``: the chunks that a loop would be cut into, printed or drawn."""

from __future__ import annotations

import json
from pathlib import Path

import click

from windrow.cli.failures import Command
from windrow.shape.partition.schemes import FLAVOURS, names

#: Chunks of a line.
LINE = 12


@click.command("partition", cls=Command)
@click.option("--rows", type=int, required=True, help="Rows of the loop.")
@click.option("--workers", type=int, required=True, help="Workers that ask for chunks.")
@click.option("--scheme", default="auto", show_default=True, help="A partitioner by its name, or 'all'.")
@click.option("--grain", type=int, default=1, show_default=True, help="Rows of a chunk at least.")
@click.option("--flavour", default="daphne", show_default=True, help=f"{' or '.join(FLAVOURS)}.")
@click.option("--json", "as_json", is_flag=True, help="Print the chunks as JSON.")
@click.option("--plot", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Draw them, as SVG.")
def command(rows: int, workers: int, scheme: str, grain: int, flavour: str, as_json: bool, plot: Path | None) -> None:
    """Print the chunks of a loop whose rows all take the same.

    \b
    windrow partition --rows 1000 --workers 4 --scheme GSS
    """
    from windrow.shape.partition.partitioner import partition

    wanted = names() if scheme == "all" else [scheme]
    found = {name: partition(rows, workers, name, grain=grain, flavour=flavour) for name in wanted}
    if grain > rows > 0:
        click.echo(f"one chunk: a grain of {grain} is more than the {rows} rows", err=True)
    if plot is not None:
        from windrow.loops.loop_drawing import draw_sizes

        title = f"{rows:,} rows, {workers} workers, {', '.join(wanted[:3])}{' ...' * (len(wanted) > 3)}"
        plot.write_text(draw_sizes([size for sizes in found.values() for size in sizes], title), encoding="utf-8")
    if as_json:
        one = (
            {"chunks": found[scheme]} if scheme != "all" else {"schemes": {n: {"chunks": c} for n, c in found.items()}}
        )
        click.echo(json.dumps(one))
        return
    for name, chunks in found.items():
        shown = " ".join(map(str, chunks if scheme != "all" else chunks[:LINE]))
        more = f" ... {chunks[-1]}" if scheme == "all" and len(chunks) > LINE else ""
        click.echo(f"{name}: {len(chunks)} chunk{'s' * (len(chunks) != 1)}: {shown}{more}")
