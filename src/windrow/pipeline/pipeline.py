"""``Pipeline``: where a user writes an analysis over rows, as plain functions.

Decorators return the function itself, so that a step is tested by calling it. Nothing is read or computed before
``run`` or ``check``.
"""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any, TypeVar, overload

from windrow.errors import DefinitionError
from windrow.pipeline.bind import Definition
from windrow.pipeline.graph import check_definitions, regions_of, written_order
from windrow.pipeline.steps import StepDefinition, define
from windrow.pipeline.when import When

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from windrow.blocks.kernels import EachKernel
    from windrow.core.records import StepCost
    from windrow.core.state import Account
    from windrow.pipeline.result import Result
    from windrow.pipeline.steps import Kind

__all__ = ["Pipeline", "RedefinitionNote"]

F = TypeVar("F", bound="Callable[..., Any]")

_UNSET: Any = object()


class RedefinitionNote(UserWarning):
    """A step or region was defined again and replaces the earlier one."""


class Pipeline:
    """An analysis over rows: cuts, columns, weights, regions and outputs, in the order they are written.

    Parameters
    ----------
    name
        What reports and errors call it.
    identity
        Columns that identify a row wherever it is stored, for instance ``("run", "luminosityBlock", "event")``; random
        numbers are keyed by them. By default the file and the row's number in it.
    """

    def __init__(self, name: str, *, identity: Sequence[str] | None = None) -> None:
        if isinstance(identity, str):
            identity = (identity,)
        self.name = name
        self.identity = tuple(identity or ())
        #: (step, cut): the step was seen to fail on rows that the cut removes, so it runs after it
        self.guards: set[tuple[str, str]] = set()
        self.costs: dict[str, StepCost] = {}  #: what tasks cost in the last run, by dataset
        self.step_costs: dict[str, StepCost] = {}  #: what steps cost in the last run
        self._steps: dict[str, StepDefinition] = {}
        self._regions: dict[str, dict[str, bool]] = {}
        self._unchecked: set[str] = set()
        self._touched: dict[str, frozenset[str]] = {}
        self._kernels: dict[Any, EachKernel] = {}

    def __repr__(self) -> str:
        kinds = [step.kind for step in self._steps.values()]
        counts = ", ".join(
            f"{kinds.count(kind)} {kind}s" for kind in ("cut", "column", "weight", "output")
        )
        return f"<Pipeline {self.name!r}: {counts}, {len(self._regions)} regions>"

    # -- writing an analysis -----------------------------------------------------------------

    @overload
    def cut(self, function: F, /) -> F: ...
    @overload
    def cut(
        self, function: Callable[..., Any] | None = None, /, **options: Any
    ) -> Callable[[F], F]: ...
    def cut(self, function: Any = None, /, **options: Any) -> Any:
        """Add a cut: one boolean per row; None is neither pass nor fail.

        Options: ``name``, ``reads`` (columns by other names), ``when`` (a condition on the dataset's metadata), ``after``
        (cuts that must come before), ``each`` (a function of one row's numbers, compiled).
        """
        return self._decorate("cut", function, **options)

    @overload
    def column(self, function: F, /) -> F: ...
    @overload
    def column(
        self, function: Callable[..., Any] | None = None, /, **options: Any
    ) -> Callable[[F], F]: ...
    def column(self, function: Any = None, /, **options: Any) -> Any:
        """Add a column of the function's name: one entry per row. Options as for ``cut``."""
        return self._decorate("column", function, **options)

    @overload
    def weight(self, function: F, /) -> F: ...
    @overload
    def weight(
        self, function: Callable[..., Any] | None = None, /, **options: Any
    ) -> Callable[[F], F]: ...
    def weight(self, function: Any = None, /, **options: Any) -> Any:
        """Add a factor of the event weight: one number per row, or ``wr.updown(...)``. Options as for ``cut``."""
        return self._decorate("weight", function, **options)

    @overload
    def output(self, function: F, /) -> F: ...
    @overload
    def output(
        self, function: Callable[..., Any] | None = None, /, **options: Any
    ) -> Callable[[F], F]: ...
    def output(
        self,
        function: Any = None,
        /,
        *,
        regions: str | Sequence[str] = "*",
        region: Any = _UNSET,
        weights: Sequence[str] | str | None = "*",
        merge: Callable[[Any, Any], Any] | None = None,
        **options: Any,
    ) -> Any:
        """Add an output, evaluated on the rows of each region and added up.

        Options: ``regions`` (names or globs), ``region=None`` (all rows before any cut), ``weights`` (the factors of
        ``weight``; None for unweighted), ``merge`` (how to add two values), ``name``, ``reads``, ``when``.
        """
        chosen: tuple[str, ...] | None
        if region is not _UNSET:
            chosen = None if region is None else _names(region)
        else:
            chosen = _names(regions)
        for option in ("each", "after"):
            if option in options:
                raise DefinitionError(
                    f"{option}= is for cuts, columns and weights, not for outputs"
                )
        factors = None if weights is None else _names(weights)
        return self._decorate(
            "output", function, regions=chosen, weights=factors, merge=merge, **options
        )

    def region(self, name: str, *cuts: str) -> None:
        """Declare a region: the rows that pass all of ``cuts``; ``"!cut"`` stands for the rows that fail it."""
        members: dict[str, bool] = {}
        for cut in cuts:
            if not isinstance(cut, str):
                raise DefinitionError(
                    f"region {name!r}: cuts are given by name, got {type(cut).__name__} {cut!r}"
                )
            plain = cut.removeprefix("!").strip()
            inverted = cut.startswith("!")
            if plain in members and members[plain] != inverted:
                raise DefinitionError(
                    f"region {name!r} asks for {plain!r} and its opposite: it is always empty"
                )
            members[plain] = inverted
        if name in self._regions and self._regions[name] != members:
            warnings.warn(
                f"region {name!r} is defined again and replaced", RedefinitionNote, stacklevel=2
            )
        self._regions[name] = members

    # -- using it ----------------------------------------------------------------------------

    def run(
        self,
        data: Any,
        *,
        order: str | Sequence[str] = "adaptive",
        chunk: int | str = "auto",
        engine: str = "auto",
        workers: int | None = None,
        memory: Any = None,
        cutflow: str | Mapping[str, str] = "estimated",
        nminus1: bool | Sequence[str] = False,
        max_rows: int | None = None,
        on_error: str = "stop",
        seed: int = 0,
        rundir: Any = None,
        resume: bool = False,
        progress: Any = None,
        _block_rows: int | None = None,
    ) -> Result:
        """Run the analysis over data, on all cores, and return its outputs.

        Parameters
        ----------
        data
            A path, a glob, ``"file.root:Tree"``, a list, a fileset with metadata, a mapping of arrays, an awkward array,
            or what ``wr.data.open`` returns.
        order
            "adaptive", "written", or a list of step names.
        chunk
            "auto", or the most rows to schedule at once (whole file units).
        engine, workers
            "auto", "inline" or "threads", and how many workers; by default one for each core granted.
        cutflow
            "estimated" or "exact", for all datasets or by dataset name or glob; "exact" runs the written order there.
        max_rows
            Only the first rows of each dataset.
        on_error
            "stop" at the first failing row, or "skip" the file units that fail and list them.
        seed
            Of the random numbers.
        rundir
            A directory to write the log and a summary to.
        progress
            Whether to show progress; by default on a terminal.
        """
        from windrow.pipeline.running import Options, run_pipeline

        options = Options.checked(
            order=order, chunk=chunk, engine=engine, workers=workers, memory=memory,
            cutflow=cutflow, nminus1=nminus1, max_rows=max_rows, on_error=on_error, seed=seed,
            rundir=rundir, resume=resume, progress=progress, block_rows=_block_rows,
        )  # fmt: skip
        return run_pipeline(self, self.definition(seed), data, options)

    def check(self, data: Any, *, rows: int = 2000, seed: int = 0) -> tuple[str, ...]:
        """Check on the first rows that every step's answer for a row is its own; return the steps that were checked.

        Raises ``RowPurityError`` naming the first step that looks at other rows.
        """
        from windrow.pipeline.running import check_pipeline

        return check_pipeline(self, data, rows, seed)

    def explain(self) -> str:
        """Say what the analysis consists of: steps in the written order, what they read, and the regions."""
        self.definition(0)
        lines = [f"pipeline {self.name!r}"]
        for step in self._steps.values():
            reads = ", ".join(
                read.column + (f" (default {read.default!r})" if read.optional else "")
                for read in step.reads
            )
            text = f"  {step.kind} {step.name}: reads {reads or 'no column'}"
            if step.when is not None:
                text += f", when {step.when.text}"
            if step.after:
                text += f", after {', '.join(step.after)}"
            lines.append(text)
        for name, cuts in regions_of(self._steps, self._regions).items():
            members = " and ".join(
                ("not " if inverted else "") + cut for cut, inverted in cuts.items()
            )
            lines.append(f"  region {name}: {members or 'all rows'}")
        lines += [
            f"  guard: {step} runs after {cut} (learned)" for step, cut in sorted(self.guards)
        ]
        return "\n".join(lines)

    def definition(self, seed: int, *, recheck: bool = False, sample_rows: int = 256) -> Definition:
        """Freeze the steps for one run; raises if they cannot mean anything."""
        regions = regions_of(self._steps, self._regions)
        check_definitions(self.name, self._steps, regions)
        unchecked = self._unchecked
        if recheck:
            unchecked = {name for name, step in self._steps.items() if _is_checked(step)}
            unchecked |= {name for name in self._unchecked if name.startswith("output ")}
        return Definition(
            name=self.name,
            steps=dict(self._steps),
            regions=regions,
            written=written_order(self._steps),
            identity=self.identity,
            seed=seed,
            unchecked=unchecked,
            touched=self._touched,
            kernels=self._kernels,
            sample_rows=sample_rows,
        )

    def remember(self, accounts: Mapping[str, Account]) -> None:
        """Keep what tasks and steps cost, so that the next run need not find out."""
        for dataset, account in accounts.items():
            costs = account.costs()
            if costs.calls:
                self.costs[dataset] = costs
            self.step_costs.update(account.evidence.steps)

    def mark_checked(self, steps: set[str]) -> None:
        """Note that these steps were shown to be row-pure."""
        self._unchecked -= steps

    # -- inside ------------------------------------------------------------------------------

    def _decorate(self, kind: Kind, function: Any, **options: Any) -> Any:
        allowed = {"name", "reads", "when", "after", "each", "regions", "weights", "merge"}
        for option in options:
            if option not in allowed:
                raise DefinitionError(
                    f"@{kind} has no option {option!r}; there are {', '.join(sorted(allowed))}"
                )

        def add(written: Any) -> Any:
            self._add(kind, written, dict(options))
            return written

        return add if function is None else add(function)

    def _add(self, kind: Kind, function: Any, options: dict[str, Any]) -> None:
        when = options.pop("when", None)
        after = options.pop("after", None)
        step = define(kind, function, after=_names(after or ()), **options)
        if when is not None:
            from dataclasses import replace

            step = replace(step, when=When.parse(when, step=step.name))
        if step.each and "rng" in step.reserved:
            raise DefinitionError(
                f"{kind} {step.name!r}: rng does not work with each=True yet; draw in a column of its own"
            )
        self._replace(step)
        self._steps[step.name] = step
        self._kernels = {key: k for key, k in self._kernels.items() if key[0] != step.name}
        self._touched.pop(step.name, None)
        self.costs.clear()
        self.step_costs.pop(step.name, None)
        self.guards = {guard for guard in self.guards if guard[0] != step.name}
        if kind == "output":
            self._unchecked.add(f"output {step.name}")
        elif _is_checked(step):
            self._unchecked.add(step.name)

    def _replace(self, step: StepDefinition) -> None:
        earlier = self._steps.get(step.name)
        if earlier is None:
            return
        if earlier.kind != step.kind or earlier.module != step.module:
            raise DefinitionError(
                f"{step.name!r} has two makers: it is a {earlier.kind} of module {earlier.module!r} already, and now a "
                f"{step.kind} of module {step.module!r}; every step needs a name of its own"
            )
        # Running a notebook cell again is the normal way to get here.
        depth = _depth_outside()
        warnings.warn(
            f"{step.kind} {step.name!r} is defined again and replaces the earlier one, in its place",
            RedefinitionNote,
            stacklevel=depth,
        )


def _is_checked(step: StepDefinition) -> bool:
    # A compiled row function sees one row at a time, and an output is meant to see many.
    return step.kind != "output" and not step.each


def _names(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _depth_outside() -> int:
    """How far up the first frame is that does not belong to this module."""
    depth, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename == __file__:
        frame, depth = frame.f_back, depth + 1
    return depth
