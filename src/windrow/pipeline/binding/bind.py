"""Steps meet a file: a program for one (dataset, set of columns), pruned to what the lanes need.

Every question that needs the file's columns or the dataset's metadata is answered here, and every error names the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import filter as matching
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from windrow.blocks.kernels import EachKernel
from windrow.blocks.program import Argument, BoundOutput, BoundStep, Program
from windrow.errors import DefinitionError, MissingColumnError, nearest
from windrow.pipeline.binding.lanes import lanes_for
from windrow.pipeline.definition.definition import Product, before_first_cut, dependencies, factors, matching_regions
from windrow.pipeline.definition.saves import bind_saves

if TYPE_CHECKING:
    from windrow.blocks.program import BoundSave, Lane
    from windrow.data.base import FileInfo
    from windrow.pipeline.definition.definition import Definition
    from windrow.pipeline.definition.steps import Read, StepDefinition


def bind(
    definition: Definition,
    dataset: str,
    metadata: Mapping[str, Any],
    info: FileInfo,
    label: str,
    products: frozenset[Product] | None = None,
) -> Program:
    return _Binder(definition, dataset, metadata, info, label, products).program()


class _Binder:
    def __init__(
        self,
        definition: Definition,
        dataset: str,
        metadata: Mapping[str, Any],
        info: FileInfo,
        label: str,
        products: frozenset[Product] | None,
    ) -> None:
        everything = products is None or any(p.kind in ("ends", "save") for p in products)
        self.products = products
        #: regions that are needed, whether lanes are added up, and files
        self.regions = definition.regions
        self.nminus1, self.saves = definition.nminus1, definition.saves
        if products is not None and not everything:
            wanted = {product.region for product in products}
            self.regions = {r: cuts for r, cuts in definition.regions.items() if r in wanted}
            self.nminus1, self.saves = (), ()
        self.definition = definition
        self.dataset = dataset
        self.metadata = MappingProxyType(dict(metadata))
        self.info = info
        self.label = label
        steps = definition.steps
        self.active = {
            name: step for name, step in steps.items() if step.when is None or step.when.holds(metadata, dataset)
        }
        self.columns = {name for name, step in steps.items() if step.kind == "column"}
        self.weights = tuple(n for n, step in self.active.items() if step.kind == "weight")
        self.initial_weights = tuple(before_first_cut(steps, self.weights))
        self.adds_up_all_rows = bool(self.saves or self.nminus1)  #: whether it is asked what rows weigh before any cut
        self.defaults: dict[str, None] = {}

    def program(self) -> Program:
        lanes = self._lanes()
        outputs = self._outputs(lanes)
        saves: tuple[BoundSave, ...] = ()
        if self.saves:
            saves = bind_saves(self.definition, self.dataset, self.info, self.active, lanes)
        needed = self._needed(lanes, outputs, saves)
        bound = {
            name: self._step(self.active[name], tuple(sorted(needed[name])))
            for name in self.definition.written
            if name in needed
        }
        steps = mark_twins(bound)
        draws = any(s.wants_rng for s in steps.values()) or any(o.wants_rng for o in outputs)
        for column in self.definition.identity:
            if draws and column not in self.info.columns:
                raise MissingColumnError(
                    f"{self.label} has no column {column!r}, which identity= of pipeline {self.definition.name!r} names"
                    f"{nearest(column, self.info.columns)}"
                )
        return Program(
            dataset=self.dataset,
            columns=self.info.columns,
            steps=steps,
            lanes=tuple(lanes),
            outputs=tuple(outputs),
            written=tuple(steps),
            cuts=frozenset(n for n, s in self.definition.steps.items() if s.kind == "cut"),
            weights=tuple(name for name in self.weights if name in steps),
            identity=self.definition.identity,
            seed=self.definition.seed,
            defaults_used=tuple(self.defaults),
            touched=self.definition.touched,
            access=self.definition.access,
            unchecked=self.definition.unchecked,
            sample_rows=self.definition.sample_rows,
            saves=saves,
            initial_weights=self.initial_weights if self.adds_up_all_rows else None,
            keep_rows=self.definition.keep_rows,
            all_written=self.definition.written,
            used_cuts=frozenset(c for cuts in self.definition.regions.values() for c in cuts),
        )

    # -- lanes and needs ---------------------------------------------------------------------

    def _lanes(self) -> list[Lane]:
        return lanes_for(
            self.regions,
            self.active,
            written=self.definition.written,
            nminus1=self.nminus1,
            saves=self.saves,
            all_rows=self.adds_up_all_rows
            or any(
                s.kind == "output" and s.regions is None and self._wanted(s.name, None) for s in self.active.values()
            ),
        )

    def _wanted(self, output: str, region: str | None) -> bool:
        return self.products is None or Product("output", output, region) in self.products

    def _outputs(self, lanes: Sequence[Lane]) -> list[BoundOutput]:
        names = [lane.region for lane in lanes]
        outputs = []
        for step in self.active.values():
            if step.kind != "output":
                continue
            regions: tuple[str | None, ...] = (None,)
            if step.regions is not None:
                regions = matching_regions(step, self.definition.regions)
            regions = tuple(r for r in regions if self._wanted(step.name, r))
            outputs += [
                BoundOutput(
                    name=step.name,
                    function=step.function,
                    arguments=tuple(self._argument(step, read) for read in step.reads),
                    keywords=self._keywords(step),
                    wants_rng="rng" in step.reserved,
                    wants_region="region" in step.reserved,
                    wants_variation="variation" in step.reserved,
                    takes_weight=step.takes_weight,
                    weights=factors(self.definition.steps, step.name, region, self.weights),
                    merge=step.merge,
                    lane=names.index(region),
                )
                for region in regions
            ]
        return outputs

    def _needed(
        self, lanes: Sequence[Lane], outputs: Sequence[BoundOutput], saves: Sequence[BoundSave]
    ) -> dict[str, set[int]]:
        needs = dependencies(self.definition.steps)
        needed: dict[str, set[int]] = {}

        def need(name: str, lane: int) -> None:
            lanes_of = needed.setdefault(name, set())
            if lane in lanes_of or name not in self.active:
                return
            lanes_of.add(lane)
            for other in needs[name]:
                if other in self.columns:
                    need(other, lane)

        for number, lane in enumerate(lanes):
            if lane.region is not None:
                # What has passed so far is only written down, not weighted.
                weights = () if lane.hidden and not lane.optional else self.weights
                for name in (*lane.cuts, *weights):
                    need(name, number)
        for output in outputs:
            for argument in output.arguments:
                if argument.kind == "made":
                    need(argument.source, output.lane)
            for name in output.weights:
                need(name, output.lane)
        if self.adds_up_all_rows:
            for name in self.initial_weights:
                need(name, next(n for n, lane in enumerate(lanes) if lane.region is None))
        for save in saves:
            for name in save.made:
                for number in save.lanes:
                    need(name, number)
        return {name: lanes_of for name, lanes_of in needed.items() if lanes_of}

    # -- one step ----------------------------------------------------------------------------

    def _step(self, step: StepDefinition, lanes: tuple[int, ...]) -> BoundStep:
        arguments = tuple(self._argument(step, read) for read in step.reads)
        kernel = None
        if step.each:
            for argument in arguments:
                if argument.kind in ("collection", "glob"):
                    raise DefinitionError(
                        f"{step.kind} {step.name!r} has each=True and reads {argument.source!r}, which is a collection: "
                        f"name its columns as arguments, for instance {', '.join(argument.members[:2])}"
                    )
            kernel = self._kernel(step)
        assert step.kind != "output"
        return BoundStep(
            name=step.name,
            kind=step.kind,
            function=step.function,
            arguments=arguments,
            keywords=self._keywords(step),
            wants_rng="rng" in step.reserved,
            lanes=lanes,
            kernel=kernel,
        )

    def _kernel(self, step: StepDefinition) -> EachKernel:
        from windrow.store.fingerprint.api import fingerprint

        keywords = self._keywords(step)
        assert step.kind != "output"
        # Compiling freezes what the function reads from outside, so a changed constant needs another kernel;
        # so does another dataset, if the function sees its metadata.
        found = fingerprint(step.function)
        known = (found.digest, step.function if found.opaque else None)
        key = (step.name, known, repr(dict(self.metadata)) if "dataset" in keywords else "")
        kernel = self.definition.kernels.get(key)
        if kernel is None:
            kernel = EachKernel(step.function, keywords, name=step.name, kind=step.kind)
            self.definition.kernels[key] = kernel
        return kernel

    def _keywords(self, step: StepDefinition) -> Mapping[str, Any]:
        keywords = dict(step.parameters)
        if "dataset" in step.reserved:
            keywords["dataset"] = self.metadata
        return MappingProxyType(keywords)

    def _argument(self, step: StepDefinition, read: Read) -> Argument:
        column = read.column
        if column == "weight" and read.argument == "weight" and step.takes_weight:
            return Argument(read.argument, "weight")
        if column in self.columns:
            return self._made(step, read)
        if column in self.info.columns:
            return Argument(read.argument, "file", column)
        if read.is_pattern:
            members = tuple(matching(self.info.columns, column))
            return Argument(read.argument, "glob", column, members)
        if column in self.info.collections:
            return Argument(read.argument, "collection", column, self.info.collections[column])
        if read.optional:
            self.defaults[column] = None
            return Argument(read.argument, "default", default=read.default)
        known = [*self.info.columns, *self.info.collections, *self.columns]
        readers = " and ".join(
            f"{other.kind} {other.name!r}"
            for other in self.active.values()
            if any(r.column == column and not r.optional for r in other.reads)
        )
        raise MissingColumnError(
            f"{readers} {'read' if ' and ' in readers else 'reads'} the column {column!r}, which {self.label} (dataset {self.dataset!r}) does not have and no "
            f"step makes{nearest(column, known) or '.'} If only some files have it, give the argument a default or the "
            "step a when=",
            step=step.name, column=column, file=self.label,
        )  # fmt: skip

    def _made(self, step: StepDefinition, read: Read) -> Argument:
        # A column that a skim has from such a step gives way: the step may have changed since.
        if read.column in self.info.columns and read.column not in self.info.made:
            raise DefinitionError(
                f"column {read.column!r} has two makers: the step of that name, and {self.label} itself; rename the step"
            )
        if read.column in self.active:
            return Argument(read.argument, "made", read.column)
        if read.optional:
            self.defaults[read.column] = None
            return Argument(read.argument, "default", default=read.default)
        maker = self.definition.steps[read.column]
        condition = maker.when.text if maker.when is not None else ""
        raise DefinitionError(
            f"{step.kind} {step.name!r} reads the column {read.column!r}, which exists only when {condition!r}, and that is "
            f"false for dataset {self.dataset!r}: give {step.name!r} the same when=, or the argument a default"
        )


# -- steps that are the same --------------------------------------------------------------------


#: Digests of functions and parameters by their ids, while the steps hold them; None where something cannot be looked into.
Digests = dict[int, str | None]


def mark_twins(steps: Mapping[str, BoundStep]) -> dict[str, BoundStep]:
    """Tell steps that are the same, in written order, which of them is the first.

    They are the same if they call the same function with the same parameters on the same columns, or on columns made by
    steps that are the same. What cannot be looked into is the same as itself alone: to compute something twice costs
    time, to take one thing for another costs the result.
    """
    first: dict[str, str] = {}  #: step -> the first that is the same
    groups: dict[Any, list[BoundStep]] = {}  #: by what is quick to compare
    digests: Digests = {}
    for name, step in steps.items():
        key = (step.kind, step.kernel is None, step.wants_rng, _sources(step.arguments, first))
        group = groups.setdefault(key, [])
        same = next((one for one in group if _same(one, step, digests)), step)
        first[name] = same.name
        if same is step:
            group.append(step)
    shared = {one for name, one in first.items() if one != name}
    return {name: replace(step, same_as=first[name]) if first[name] in shared else step for name, step in steps.items()}


def _sources(arguments: tuple[Argument, ...], first: Mapping[str, str]) -> tuple[Any, ...]:
    """Say where arguments come from; columns made by steps that are the same are the same."""
    return tuple(
        (a.kind, first.get(a.source, a.source) if a.kind == "made" else a.source, a.members) for a in arguments
    )


def _same(one: BoundStep, other: BoundStep, digests: Digests) -> bool:
    mine, theirs = _things(one), _things(other)
    return mine.keys() == theirs.keys() and all(
        mine[name] is theirs[name]
        or (_digest(mine[name], digests) is not None and _digest(mine[name], digests) == _digest(theirs[name], digests))
        for name in mine
    )


def _things(step: BoundStep) -> dict[str, Any]:
    """All that decides what a step answers, beside the columns it is given."""
    defaults = {f"default {number}": argument.default for number, argument in enumerate(step.arguments)}
    return {"function": step.function, **dict(step.keywords), **defaults}


def _digest(thing: Any, digests: Digests) -> str | None:
    from windrow.store.fingerprint.api import fingerprint

    if id(thing) not in digests:
        found = fingerprint(thing)
        digests[id(thing)] = None if found.opaque else found.digest
    return digests[id(thing)]
