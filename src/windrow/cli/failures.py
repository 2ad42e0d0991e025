"""What a user sees of an error: a sentence, and the lines of their own that led to it.

Windrow's inner frames help its developers only; ``--debug`` shows them. An error that came
from neither the user's code nor a known cause is shown in full.
"""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import click

from windrow.cli.loading import LoadError
from windrow.errors import InternalError, StepError, WindrowError

_PACKAGE = Path(__file__).resolve().parents[1]
_INSTALLED = {"site-packages", "dist-packages"}
#: Their message says it all: a known fault, or a file or machine that says no.
_EXPLAINED = (WindrowError, OSError, MemoryError)
#: Where a command leaves the path of the user's file.
ANALYSIS = "windrow.analysis"


class Command(click.Command):
    """A command with ``--debug``, whose errors become words."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.params.append(click.Option(["--debug"], is_flag=True, help="Show the whole traceback of an error."))

    def invoke(self, ctx: click.Context) -> Any:
        debug = ctx.params.pop("debug")
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except Exception as error:  # noqa: BLE001 - translated: this is where errors become words
            click.echo(describe(error, ctx.meta.get(ANALYSIS), debug=debug), err=True)
            raise SystemExit(1) from None


def describe(error: BaseException, analysis: Path | None = None, *, debug: bool = False) -> str:
    if debug:
        return "".join(traceback.format_exception(error)) + _sentence(error)
    text = ""
    if isinstance(error, LoadError):
        text = _own_lines(error.__cause__ or error, analysis)
    elif isinstance(error, StepError):
        text = _step_lines(error, analysis)
    elif isinstance(error, InternalError) or not isinstance(error, _EXPLAINED):
        text = "".join(traceback.format_exception(error))
    return text + _sentence(error)


def _sentence(error: BaseException) -> str:
    if isinstance(error, WindrowError):
        return f"windrow: error: {error.message}"
    first = next((line for line in str(error).splitlines() if line.strip()), "(no message)")
    return f"windrow: error: {type(error).__name__}: {first}"


def _step_lines(error: StepError, analysis: Path | None) -> str:
    """Write the traceback of what a step raised; nothing if it only returned something wrong."""
    cause: BaseException | None = error
    while isinstance(cause, WindrowError):
        cause = cause.__cause__
    if cause is None:
        return ""
    frames = traceback.extract_tb(cause.__traceback__)
    return _own_lines(cause, analysis) if any(_is_own(frame.filename, analysis) for frame in frames) else ""


def _own_lines(error: BaseException, analysis: Path | None) -> str:
    """Write the traceback of an error with nothing but the user's frames."""
    shown = traceback.TracebackException.from_exception(error)
    part: traceback.TracebackException | None = shown
    while part is not None:  # the chain of causes; Python's own copy of it ends
        frames = [frame for frame in part.stack if _is_own(frame.filename, analysis)]
        part.stack = traceback.StackSummary.from_list(frames)
        part = part.__cause__ or (None if part.__suppress_context__ else part.__context__)
    return "".join(shown.format())


def _is_own(name: str, analysis: Path | None) -> bool:
    """Say whether a source file is the user's: the analysis or beside or below it, and not installed."""
    if analysis is None:
        return True
    path, home = Path(name), analysis.resolve().parent
    if not path.is_relative_to(home) or (path.is_relative_to(_PACKAGE) and not home.is_relative_to(_PACKAGE)):
        return False
    return _INSTALLED.isdisjoint(path.relative_to(home).parts)
