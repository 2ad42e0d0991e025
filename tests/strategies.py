"""Random analyses, data and ways to run them, for Hypothesis.

An analysis is valid by construction most of the time: steps that raise on some rows are guarded by
a cut written above them, in every region that needs them. Orders and regions do not always respect
that; the oracle says what must happen then.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import Any

import awkward as ak
import numpy as np
from hypothesis import strategies as st

from description import Analysis, Dataset, File, Output, Step, signature
from templates import COLUMNS, CUTS, EACH, GUARDS, OUTPUTS, WEIGHTS, WHEN

# --- data -----------------------------------------------------------------------------------------


@st.composite
def borders(draw: st.DrawFn, rows: int) -> tuple[int, ...]:
    """Unit borders: a grid, or any borders at all."""
    if rows == 0:
        return (0,)
    if draw(st.booleans()):
        grid = draw(st.integers(1, min(64, max(1, rows // 3)) if draw(st.integers(0, 3)) else 64))
        return (*range(0, rows, grid), rows)
    inner = draw(st.sets(st.integers(1, rows), min_size=min(3, rows), max_size=12)) - {rows}
    return (0, *sorted(inner), rows)


@st.composite
def files(draw: st.DrawFn, label: str, first: int, mc: bool, plain: bool) -> File:
    """One file; the numbers come from a seed, so that examples shrink in what matters."""
    rows = draw(st.sampled_from((23, 60, 130, 200, 5, 1, 0)) | st.integers(20, 200))
    numbers = np.random.default_rng(draw(st.integers(0, 2**16)))
    f = numbers.normal(size=rows) * 2
    if not plain and rows:
        f[numbers.random(rows) < 0.1] = np.nan
        f[numbers.random(rows) < 0.03] = np.inf
    counts = numbers.integers(0, draw(st.sampled_from((1, 4, 6))), size=rows)
    jets = int(counts.sum())
    pt = numbers.exponential(2.0, jets).astype(draw(st.sampled_from((np.float32, np.float64))))
    columns: dict[str, Any] = {
        "run": np.full(rows, 7, np.uint32),
        "event": np.arange(first, first + rows, dtype=np.uint64),
        "i": numbers.integers(-3, 5, rows).astype(draw(st.sampled_from((np.int32, np.int64)))),
        "f": f,
        "g": numbers.normal(size=rows).astype(np.float32),
        "b": numbers.random(rows) < 0.6,
        "nJet": counts.astype(np.int32),
        "Jet_pt": ak.unflatten(pt, counts),
        "Jet_q": ak.unflatten(numbers.integers(-1, 2, jets).astype(np.int32), counts),
    }
    if draw(st.booleans()):
        columns["flag"] = numbers.random(rows) < 0.5
    if draw(st.booleans()):
        columns["maybe"] = numbers.normal(size=rows).astype(np.float32)
    if mc:
        columns["genw"] = np.where(numbers.random(rows) < 0.2, -1.5, 1.3)
    return File(label=label, columns=columns, borders=draw(borders(rows)), collections={"Jet": ("Jet_pt", "Jet_q")})


@st.composite
def filesets(draw: st.DrawFn) -> tuple[Dataset, ...]:
    """One or two datasets of one to three files."""
    found, first = [], 0
    plain = draw(st.booleans())
    for name in ("one", "two")[: draw(st.integers(1, 2))]:
        mc = draw(st.booleans())
        members = []
        for index in range(draw(st.integers(1, 3))):
            file = draw(files(f"{name}-{index}.mem", first, mc, plain))
            first += file.rows
            members.append(file)
        metadata = {"is_mc": mc, "year": draw(st.sampled_from((2016, 2017, 2018)))}
        found.append(Dataset(name=name, files=tuple(members), metadata=metadata))
    return tuple(found)


# --- analyses -------------------------------------------------------------------------------------


@dataclass
class Draft:
    """An analysis while it is being written."""

    draw: st.DrawFn
    steps: list[Step] = field(default_factory=list)
    columns: dict[str, list[str]] = field(
        default_factory=lambda: {
            "F": ["f", "g"],
            "I": ["i", "nJet"],
            "B": ["b"],
            "J": ["Jet_pt"],
            "Q": ["Jet_q"],
            "O": [],
            "R": ["Jet"],
        }
    )
    late: list[str] = field(default_factory=list)  #: columns that some datasets lack
    guards: dict[str, str] = field(default_factory=dict)  #: column or cut -> the cut it needs

    def pick(self, options: Any) -> Any:
        return self.draw(st.sampled_from(list(options)))

    def write(self, template: str, *, guarded: bool) -> tuple[str, str, str | None] | None:
        """Fill a template: arguments, body and the guard its columns need; None if it cannot be."""
        args: dict[str, str] = {}
        guard: str | None = None
        body = template
        for kind in ("F", "I", "B", "J", "Q", "O", "R"):
            while re.search(rf"\${kind}\b", body):
                names = [n for n in self.columns[kind] if guarded or n not in self.guards]
                if not names:
                    return None
                name = self.pick(names)
                needs = self.guards.get(name)
                if guard is not None and needs not in (None, guard):
                    return None
                guard = guard or needs
                args.setdefault(name, name)
                body = re.sub(rf"\${kind}\b", name, body, count=1)
        late = self.pick(self.late) if self.late and "$late" in body else "absent"
        for mark, name, default in (("$late", late, 0.5), ("$flag", "flag", False), ("$maybe", "maybe", None)):
            if mark in body:
                args[name] = f"{name}={default}"
                body = body.replace(mark, name)
        for name in ("event", "weight", "genw", "Jet", "Jet_pt", "i"):
            # Templates may name a column outright.
            if name not in args and _names(body, name):
                args[name] = name
        ordered = sorted(args.values(), key=lambda text: "=" in text)
        keywords = [n for n in ("rng", "dataset", "region", "variation") if _names(body, n)]
        keywords += [f"{n}={v}" for n, v in (("low", -1.0), ("high", 2.0)) if _names(body, n)]
        text = ", ".join(ordered + (["*", *keywords] if keywords else []))
        return text, body, guard

    def add(self, kind: Any, template: str, **options: Any) -> Step | None:
        written = self.write(template, guarded=kind != "weight")
        if written is None:
            return None
        args, body, guard = written
        when = options.pop("when", None)
        if guard is not None and when is not None:
            when = None
        name = f"{kind}{len(self.steps)}"
        step = Step(kind=kind, name=name, args=args, body=body, when=when, **options)
        self.steps.append(step)
        if guard is not None:
            self.guards[name] = guard
        return step

    def add_any(self) -> None:
        kind = self.pick(("cut", "cut", "cut", "column", "column", "weight", "weight", "guard", "each"))
        when = self.pick(WHEN)
        cuts = [s.name for s in self.steps if s.kind == "cut" and s.when is None]
        after = self.pick(cuts) if cuts and self.draw(st.integers(0, 5)) == 0 else None
        if kind == "cut":
            self.add("cut", self.pick(CUTS), when=when, after=after)
        elif kind == "column":
            made, template = self.pick(COLUMNS)
            step = self.add("column", template, when=when if made == "F" else None, after=after)
            if step is not None and step.when is not None:
                self.late.append(step.name)
            elif step is not None:
                self.columns[made].append(step.name)
        elif kind == "weight":
            template = self.pick(WEIGHTS)
            when = "is_mc" if "genw" in template else when
            self.add("weight", template, when=when, after=after)
        elif kind == "guard":
            self.add_guarded()
        else:
            self.add_each()

    def add_guarded(self) -> None:
        """A cut that guards, then a step that raises without it."""
        condition, (made, column), cut = self.pick(GUARDS)
        guard = self.add("cut", condition)
        assert guard is not None
        if self.draw(st.booleans()):
            step = self.add("column", column)
            assert step is not None
            self.columns[made].append(step.name)
        else:
            step = self.add("cut", cut)
            assert step is not None
        self.guards[step.name] = guard.name

    def add_each(self) -> None:
        kind = self.pick(EACH)
        function, made = self.pick(EACH[kind])
        name = function.__name__
        if self.draw(st.integers(0, 2)) or any(step.name == name for step in self.steps):
            return
        self.steps.append(Step(kind=kind, name=name, function=function, each=True))
        if kind == "column":
            self.columns[made].append(name)

    def regions(self) -> dict[str, tuple[str, ...]]:
        cuts = [step.name for step in self.steps if step.kind == "cut"]
        found: dict[str, tuple[str, ...]] = {}
        for index in range(self.draw(st.integers(1, 3))):
            chosen = {c for c in cuts if self.draw(st.integers(0, 3))} or {cuts[0]}
            careful = self.draw(st.integers(0, 9)) > 0
            guards = {self.guards[c] for c in chosen if c in self.guards} if careful else set()
            names = [
                f"!{c}" if c not in guards and not self.draw(st.integers(0, 3)) else c
                for c in cuts
                if c in chosen | guards
            ]
            found[f"R{index}"] = tuple(self.draw(st.permutations(names)))
        return found

    def output(self, index: int, regions: dict[str, tuple[str, ...]]) -> Output | None:
        where: Any = self.pick(("*", "*", "some", None))
        written = self.write(self.pick(OUTPUTS), guarded=where is not None)
        if written is None:
            return None
        args, body, guard = written
        if guard is not None or where == "some":
            where = tuple(r for r, cuts in regions.items() if guard is None or guard in cuts)
            if not where:
                return None
            where = where[: self.draw(st.integers(1, len(where)))]
        weights = [s.name for s in self.steps if s.kind == "weight"]
        subset: Any = "all"
        if "weight" in args and weights and where is not None and not self.draw(st.integers(0, 3)):
            subset = tuple(self.draw(st.lists(st.sampled_from(weights), unique=True))) or None
        return Output(name=f"out{index}", args=args, body=body, regions=where, weights=subset)


def _names(body: str, name: str) -> bool:
    """Whether an expression uses a name (not as an attribute, keyword or part of another)."""
    tree = ast.parse(body, mode="eval")
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(tree))


@st.composite
def analyses(draw: st.DrawFn) -> Analysis:
    """An analysis of 2 to 9 steps."""
    draft = Draft(draw)
    for _ in range(draw(st.integers(2, 9))):
        draft.add_any()
    if not any(step.kind == "cut" for step in draft.steps):
        draft.add("cut", "$F > 0.1")
    regions = draft.regions()
    outputs = [draft.output(index, regions) for index in range(draw(st.integers(1, 4)))]
    always = Output(name="always", args="event, weight", body="[(int(e), float(w)) for e, w in zip(event, weight)]")
    return Analysis(
        steps=tuple(draft.steps),
        regions=regions,
        outputs=(always, *[output for output in outputs if output is not None]),
        identity=("run", "event"),
    )


# --- ways to run ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """How an analysis is run; none of it may change the answer."""

    order: tuple[str, ...] | None
    chunk: int | str
    block: int | None
    engine: str
    workers: int


@st.composite
def orders(draw: st.DrawFn, analysis: Analysis) -> tuple[str, ...]:
    """Any order of the steps in which makers come before readers, and ``after`` is kept."""
    left = {step.name: step for step in analysis.steps}
    makers = {step.name for step in analysis.steps if step.kind == "column"}
    found: list[str] = []
    while left:
        free = [
            name
            for name, step in left.items()
            if step.after not in left and not (makers & set(signature(step)[0]) & set(left))
        ]
        found.append(draw(st.sampled_from(free)))
        del left[found[-1]]
    return tuple(found)


@st.composite
def ways(draw: st.DrawFn, analysis: Analysis) -> Way:
    return Way(
        order=draw(st.none() | orders(analysis)),
        chunk=draw(st.just("auto") | st.sampled_from((1, 7, 64)) | st.integers(1, 250)),
        block=draw(st.none() | st.integers(1, 64)),
        engine=draw(st.sampled_from(("inline", "threads"))),
        workers=draw(st.integers(1, 4)),
    )
