"""The writing side of a pipeline: decorators that make steps of plain functions, regions and files to save.

Decorators return the function itself, so that a step is tested by calling it.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, overload

from windrow.blocks.fetch_ahead import AccessLog
from windrow.errors import DefinitionError, RedefinitionNote, UnknownNameError, nearest
from windrow.pipeline.definition.saves import EVERY_REGION, SaveDefinition, define_save
from windrow.pipeline.definition.steps import StepDefinition, When, define

if TYPE_CHECKING:
    from windrow.blocks.kernels import EachKernel
    from windrow.core.records import StepCost
    from windrow.pipeline.definition.steps import Kind


F = TypeVar("F", bound="Callable[..., Any]")

_UNSET: Any = object()


class Writing:
    """What a user writes: steps by name in the order of definition, regions, files to save."""

    def __init__(self, name: str, *, identity: Sequence[str] | None = None) -> None:
        if isinstance(identity, str):
            identity = (identity,)
        self.name = name
        self.identity = tuple(identity or ())
        #: (step, cut): the step was seen to fail on rows that the cut removes, so it runs after it
        self.guards: set[tuple[str, str]] = set()
        self.costs: dict[str, StepCost] = {}  #: what tasks cost in the last run, by dataset
        self.waited = ""  #: why threads are of no use here, as an earlier run found out
        self.memory_used: list[dict[str, Any]] = []  #: by tasks of earlier runs, as the launch policy remembers it
        self.step_costs: dict[str, StepCost] = {}  #: what steps cost in the last run
        self.row_s: dict[str, float] = {}  #: what a row of a step takes, as far as it was tried on a few
        #: what the last run found out for its order, by dataset
        self.learned: dict[str, tuple[str, ...]] = {}
        self._steps: dict[str, StepDefinition] = {}
        self._regions: dict[str, dict[str, bool]] = {}
        self._saves: dict[str, SaveDefinition] = {}
        self._unchecked: set[str] = set()
        self._touched: dict[str, frozenset[str]] = {}
        self._access = AccessLog()
        self._kernels: dict[Any, EachKernel] = {}

    def __repr__(self) -> str:
        kinds = [step.kind for step in self._steps.values()]
        counts = ", ".join(f"{kinds.count(kind)} {kind}s" for kind in ("cut", "column", "weight", "output"))
        return f"<Pipeline {self.name!r}: {counts}, {len(self._regions)} regions>"

    @property
    def saves(self) -> tuple[SaveDefinition, ...]:
        return tuple(self._saves.values())

    # -- writing an analysis -----------------------------------------------------------------

    @overload
    def cut(self, function: F, /) -> F: ...
    @overload
    def cut(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Callable[[F], F]: ...
    def cut(self, function: Any = None, /, **options: Any) -> Any:
        """Add a cut: one boolean per row; None is neither pass nor fail.

        Options: ``name``, ``reads`` (columns by other names), ``when`` (a condition on the dataset's metadata), ``after``
        (cuts that must come before), ``barrier`` (True: it stays where it is, and no step moves across it), ``each`` (a
        function of one row's numbers, compiled), ``version`` (what to compare where the function uses things that cannot
        be looked into, when a run is continued).
        """
        return self._decorate("cut", function, **options)

    @overload
    def column(self, function: F, /) -> F: ...
    @overload
    def column(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Callable[[F], F]: ...
    def column(self, function: Any = None, /, **options: Any) -> Any:
        """Add a column of the function's name: one entry per row. Options as for ``cut``."""
        return self._decorate("column", function, **options)

    @overload
    def weight(self, function: F, /) -> F: ...
    @overload
    def weight(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Callable[[F], F]: ...
    def weight(self, function: Any = None, /, **options: Any) -> Any:
        """Add a factor of the event weight: one number per row, or ``wr.updown(...)``. Options as for ``cut``."""
        return self._decorate("weight", function, **options)

    @overload
    def output(self, function: F, /) -> F: ...
    @overload
    def output(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Callable[[F], F]: ...
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
        """Add an output, evaluated on the rows of each region and added up: a function, or ``wr.hist(...)``.

        Options: ``regions`` (names or globs), ``region=None`` (all rows before any cut), ``weights`` (the factors of
        ``weight``; None for unweighted), ``merge`` (how to add two values), ``name``, ``reads``, ``when``, ``version``.
        """
        chosen: tuple[str, ...] | None
        if region is not _UNSET:
            chosen = None if region is None else _names(region)
        else:
            chosen = _names(regions)
        for option in ("each", "after", "barrier"):
            if option in options:
                raise DefinitionError(f"{option}= is for cuts, columns and weights, not for outputs")
        factors = None if weights is None else _names(weights)
        return self._decorate("output", function, regions=chosen, weights=factors, merge=merge, **options)

    def region(self, name: str, *cuts: str) -> None:
        """Declare a region: the rows that pass all of ``cuts``; ``"!cut"`` stands for the rows that fail it."""
        members: dict[str, bool] = {}
        for cut in cuts:
            if not isinstance(cut, str):
                raise DefinitionError(f"region {name!r}: cuts are given by name, got {type(cut).__name__} {cut!r}")
            plain = cut.removeprefix("!").strip()
            inverted = cut.startswith("!")
            if plain in members and members[plain] != inverted:
                raise DefinitionError(f"region {name!r} asks for {plain!r} and its opposite: it is always empty")
            members[plain] = inverted
        if name in self._regions and self._regions[name] != members:
            warnings.warn(f"region {name!r} is defined again and replaced", RedefinitionNote, stacklevel=2)
        self._regions[name] = members

    def remove(self, name: str) -> None:
        """Take a step, a region or a save (by its path) away, for instance one that was renamed in a notebook."""
        for known in (self._steps, self._regions, self._saves):
            if name in known:
                del known[name]
                break
        else:
            every = [*self._steps, *self._regions, *self._saves]
            raise UnknownNameError(f"there is no step, region or save {name!r} to remove{nearest(name, every)}")
        self._forget(name)
        for cuts in self._regions.values():
            cuts.pop(name, None)

    def save(
        self,
        path: Any,
        *,
        columns: str | Sequence[str] = "*",
        region: str | None = EVERY_REGION,
        format: str | None = None,  # noqa: A002 - reads as save(..., format="ttree")
        tree: str = "Events",
    ) -> None:
        """Save rows to a file for each dataset: a skim.

        Parameters
        ----------
        path
            ``"skim/{dataset}.parquet"`` or ``.root``. With ``{cut}`` there is a file for each cut of the region, with the
            rows that passed it and those above, and the columns known by then.
        columns
            Names and patterns, taken from left to right: ``["*", "-HLT_*", "HLT_IsoMu*", "mass"]``; columns of the files,
            columns that steps make, and weights.
        region
            Rows of this region, of several (``"SR | CR"``), of any (left out), or all rows (None).
        format
            "parquet", "rntuple" (what .root files are by default) or "ttree".
        tree
            What the tree is called in a .root file.
        """
        save = define_save(path, columns=columns, region=region, format=format, tree=tree)
        if self._saves.get(save.path, save) != save:
            warnings.warn(f"save {save.path!r} is defined again and replaced", RedefinitionNote, stacklevel=2)
        self._saves[save.path] = save

    # -- inside ------------------------------------------------------------------------------

    def _decorate(self, kind: Kind, function: Any, **options: Any) -> Any:
        allowed = {"name", "reads", "when", "after", "each", "regions", "weights", "merge", "version", "barrier"}
        for option in options:
            if option not in allowed:
                raise DefinitionError(f"@{kind} has no option {option!r}; there are {', '.join(sorted(allowed))}")

        def add(written: Any) -> Any:
            self._add(kind, written, dict(options))
            return written

        return add if function is None else add(function)

    def _add(self, kind: Kind, function: Any, options: dict[str, Any]) -> None:
        when = options.pop("when", None)
        after = options.pop("after", None)
        version = options.pop("version", None)
        if version is not None:
            options["version"] = str(version)
        step = define(kind, function, after=_names(after or ()), **options)
        if when is not None:
            step = replace(step, when=When.parse(when, step=step.name))
        self._replace(step)
        self._steps[step.name] = step
        self._forget(step.name)
        if kind == "output":
            self._unchecked.add(f"output {step.name}")
        elif is_checked(step):
            self._unchecked.add(step.name)

    def _forget(self, name: str) -> None:
        self._kernels = {key: k for key, k in self._kernels.items() if key[0] != name}
        self._touched.pop(name, None)
        self._access = AccessLog()
        self.costs.clear()
        self.memory_used.clear()
        self.learned.clear()
        self.waited = ""
        self.step_costs.pop(name, None)
        self.row_s.pop(name, None)
        self.guards = {guard for guard in self.guards if name not in guard}
        self._unchecked -= {name, f"output {name}"}

    def _replace(self, step: StepDefinition) -> None:
        earlier = self._steps.get(step.name)
        if earlier is None:
            return
        if earlier.kind != step.kind or earlier.module != step.module:
            raise DefinitionError(
                f"{step.name!r} has two makers: it is a {earlier.kind} of module {earlier.module!r} already, and now a "
                f"{step.kind} of module {step.module!r}; every step needs a name of its own "
                f"(analysis.remove({step.name!r}) takes the first one away)"
            )
        # Running a notebook cell again is the normal way to get here.
        depth = _depth_outside()
        warnings.warn(
            f"{step.kind} {step.name!r} is defined again and replaces the earlier one, in its place",
            RedefinitionNote,
            stacklevel=depth,
        )


def is_checked(step: StepDefinition) -> bool:
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
