"""What a pipeline's run knows of its source, wherever rows run: programs, units, which file an input was.

The workload is shared by all workers of a process; each worker has its own readers (``worker``). In another process it is a
copy; what is learned there goes home with the worker's reports.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.blocks.chunk import Stopped
from windrow.core.ledger import join_rows
from windrow.core.records import EvaluateUnit, Failure, FailureKind, OpenInput, RunRows
from windrow.errors import (
    CorruptFileError,
    DataError,
    DefinitionError,
    EngineError,
    RowPurityError,
    StepError,
    WindrowError,
)
from windrow.pipeline.binding.bind import bind
from windrow.pipeline.resume.input_digest import file_stamp
from windrow.pipeline.resume.step_digest import step_fingerprints
from windrow.pipeline.run.facts import RunFacts
from windrow.pipeline.run.worker import RowsSide
from windrow.store.fingerprint.api import difference
from windrow.store.fingerprint.libraries import library_of_module

if TYPE_CHECKING:
    from windrow.blocks.chunk import Partial
    from windrow.blocks.program import Program
    from windrow.core.records import Task
    from windrow.data.base import FileInfo, Input, Reader, Source
    from windrow.pipeline.definition.definition import Definition, Product
    from windrow.pipeline.resume.input_digest import FileStamp

#: Bytes that the rows of all regions may take, so that comparing two runs is possible; a bit for each row and region.
KEPT_BYTES = 64_000_000


#: Inputs of which is known which program they have without comparing all their columns: a few more than there are workers.
KNOWN_INPUTS = 32


class Feed(NamedTuple):
    """What an input of the scheduler is: one of the source, for some products (None: all)."""

    input: int
    products: frozenset[Product] | None = None


class RowsWorkload:
    """What workloads over rows have in common: names in messages, whose fault an error is, what goes to other processes."""

    fatal: tuple[type[StepError], ...] = (RowPurityError,)  #: errors that end a run, whatever on_error= says

    def label(self, number: int) -> str:
        """Name an input."""
        raise NotImplementedError

    def content(self, task: Task) -> Any:
        return task.payload

    def describe(self, task: Task) -> str:
        if type(task.payload) in (RunRows, EvaluateUnit):
            said = ", ".join(f"rows {r.start}-{r.stop} of {self.label(r.input)}" for r in join_rows(task.payload.rows))
            return f"outputs of {said}" if type(task.payload) is EvaluateUnit else said
        what = "opening" if type(task.payload) is OpenInput else "adding up results of"
        return f"{what} {self.label(task.payload.input)}"

    def is_own(self, module: ModuleType) -> bool:
        """Say whether a module is the user's own, so that it goes to other processes with its state."""
        return library_of_module(module) is None

    def classify(self, error: BaseException) -> Failure:
        kind = FailureKind.INTERNAL
        if isinstance(error, Stopped):
            kind = FailureKind.LOST  # nothing is wrong with its rows
        elif isinstance(error, StepError) and not isinstance(error, self.fatal):
            kind = FailureKind.USER
        elif isinstance(error, (DataError, FileNotFoundError)):
            kind = FailureKind.BAD_FILE
        elif isinstance(error, OSError) and not isinstance(error, WindrowError):
            kind = FailureKind.TRANSIENT_IO
        elif isinstance(error, MemoryError):
            kind = FailureKind.EXHAUSTED
        facts = getattr(error, "facts", {})
        place = ", ".join(str(facts[key]) for key in ("step", "file") if key in facts)
        return Failure(kind, type(error).__name__, str(error), place, error)


class PipelineWorkload(RowsWorkload):
    """A pipeline over a source, as engines see it.

    An input of the scheduler is an input of the source, unless ``feeds`` says otherwise: what is continued may lack
    some products in some rows and other products in other rows.
    """

    def __init__(
        self,
        definition: Definition,
        source: Source,
        block_rows: int | None = None,
        feeds: Mapping[int, Feed] | None = None,
        *,
        skip: bool = False,
        limited: bool = False,
    ) -> None:
        self.definition = definition
        self.source = source
        self.block_rows = block_rows
        self.skip = skip  #: whether rows on which a step raises are left out
        self.limited = limited  #: in memory: what is freed has to go back at once
        self.facts = RunFacts(keeping=definition.keep_rows)
        self.stop = threading.Event()  #: set when the run ends and waits for no chunk any more
        self._units: dict[str, tuple[int, int]] = {}  #: by dataset: rows and units of the inputs opened so far
        self._programs: dict[Any, Program] = {}
        self._known: dict[Any, tuple[FileInfo, Program]] = {}  #: of inputs opened last, by input and products
        self.row_s: dict[str, float] = {}  #: of steps that were tried, for all programs
        self._kept_bytes = 0
        self._stamps: dict[int, FileStamp | None] = {}  #: of inputs when they were first opened in this process
        self._saved: dict[str, tuple[tuple[str, ...], str]] = {}  #: file -> columns, first input
        self.feeds = dict(feeds or {})
        #: inputs that are known from an earlier run: what identifies them, and their rows
        self.expected: dict[int, tuple[str, int]] = {}
        self.sealed: dict[str, Mapping[str, str]] | None = None  #: what steps are at home
        self.foresee_long: Callable[[], object] = int  #: called where first rows have shown that the run takes long
        self._new: RunFacts | None = None  #: since the last report, where home is another process
        #: steps that are unchecked and fields that were touched, as home knows it
        self._home: tuple[frozenset[str], dict[str, frozenset[str]]] = (frozenset(), {})
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        """Leave behind what belongs to a process: locks, programs and compiled code are made anew."""
        state = dict(self.__dict__)
        for name in ("stop", "_lock", "_programs", "_known", "_stamps", "foresee_long"):
            del state[name]
        state["definition"] = replace(self.definition, kernels={})
        state["ambient"] = ambient()
        state["sealed"] = seal(self.definition)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        restore(state.pop("ambient"))
        self.__dict__.update(state)
        self.stop = threading.Event()
        self._lock = threading.Lock()
        self._programs = {}
        self._known = {}
        self._stamps = {}
        self.foresee_long = int
        # What was learned here so far is known at home; from now on only what is new is told.
        self._new = RunFacts()
        self._home = (frozenset(self.definition.unchecked), dict(self.definition.touched))

    def learn(self, found: RunFacts) -> None:
        with self._lock:
            for index, borders in found.borders.items():
                dataset, before = self.source.inputs[index].dataset, self.facts.borders.get(index, (0,))
                rows, units = self._units.get(dataset, (0, 0))
                self._units[dataset] = (rows + borders[-1] - before[-1], units + len(borders) - len(before))
            self.facts.add(found)
            if self._new is not None:
                self._new.add(found)

    def news(self) -> RunFacts | None:
        """Give what home does not know yet; None if there is nothing. Asked in other processes only."""
        unchecked, touched = self._home
        self._home = (frozenset(self.definition.unchecked), dict(self.definition.touched))
        with self._lock:
            found, self._new = self._new or RunFacts(), RunFacts()
        found.checked = unchecked - self._home[0]
        found.touched = {step: fields for step, fields in self._home[1].items() if touched.get(step) != fields}
        return None if found == RunFacts() else found

    def facts_now(self) -> RunFacts:
        with self._lock:
            return self.facts.copy()

    def hear(self, news: RunFacts) -> None:
        self.learn(news)
        self.definition.unchecked.difference_update(news.checked)
        for step, fields in news.touched.items():
            self.definition.touched[step] = self.definition.touched.get(step, frozenset()) | fields

    def feed(self, number: int) -> Feed:
        return self.feeds.get(number) or Feed(number)

    def open_worker(self, worker: int) -> RowsSide:  # noqa: ARG002 - all workers are alike
        if self._new is not None and not self.limited:
            from windrow.engines.processes.startup import tune_malloc

            tune_malloc()
        if self.sealed is not None:
            check_arrived(self.definition, self.sealed)
            self.sealed = None
        return RowsSide(self)

    def label(self, number: int) -> str:
        return self.source.inputs[self.feed(number).input].label

    def program(self, source: Input, info: FileInfo, products: frozenset[Product] | None = None) -> Program:
        with self._lock:
            known = self._known.get((source.index, products))
            if known is not None and known[0] is info:
                return known[1]
        columns = tuple((c.name, c.kind, c.dtype, c.counter) for c in info.columns.values())
        key = (source.dataset, columns, products)
        with self._lock:
            if len(self._known) >= KNOWN_INPUTS:
                self._known.clear()
            program = self._programs.get(key)
            if program is not None:
                self._known[source.index, products] = (info, program)
                return program
            metadata = self.source.datasets[source.dataset]
            program = bind(self.definition, source.dataset, metadata, info, source.label, products)
            self._check_saved(program, source.label)
            program.row_s = self.row_s
            self._programs[key] = program
            self._known[source.index, products] = (info, program)
        self.learn(RunFacts(twins={n: s.same_as for n, s in program.steps.items() if s.same_as not in (None, n)}))
        return program

    def _check_saved(self, program: Program, label: str) -> None:
        """Refuse files of a dataset that cannot go to one file, as soon as the second of them is opened."""
        for save in program.saves:
            known, first = self._saved.setdefault(save.key, (save.columns, label))
            differing = sorted(set(known) ^ set(save.columns))
            if differing:
                name = differing[0]
                has, lacks = (first, label) if name in known else (label, first)
                more = f" (and {len(differing) - 1} more columns differ)" if len(differing) > 1 else ""
                raise DefinitionError(
                    f"save {save.key!r}: {has} has the column {name!r} and {lacks} has not{more}: a file has the same columns "
                    f"for all rows; leave it out with '-{name}', or give the files to different datasets",
                    column=name, file=label,
                )  # fmt: skip

    def opened(self, source: Input, info: FileInfo, program: Program) -> tuple[int, ...]:
        borders = info.borders
        if source.steps is not None:
            ends = {row for step in source.steps for row in step}
            borders = tuple(sorted({*borders, *ends}))
        defaults = dict.fromkeys((source.index, column) for column in program.defaults_used)
        self.learn(RunFacts(borders={source.index: borders}, defaults=defaults))
        return borders

    def unit_rows(self, dataset: str) -> float:
        rows, units = self._units.get(dataset, (0, 0))
        return rows / units if units else 0.0

    def open_input(self, index: int, before: str) -> tuple[Reader, str]:
        """Open an input and say what tells it from another; refuse one that is not the file that was first opened.

        ``before`` is what another worker said of it when it opened it first; empty if none has.
        """
        item = self.source.inputs[index]
        stamp = file_stamp(item)  # before it is opened: what replaces it meanwhile has another one
        reader = self.source.open(index)
        info = reader.info
        now = repr((info.identity, info.rows, stamp))
        if index not in self.facts.identities:
            self.learn(RunFacts(identities={index: info.identity}))
        first = self._stamps.setdefault(index, stamp)
        expected = self.expected.get(index, (self.facts.identities[index], info.rows))
        if before not in ("", now) or first != stamp or expected != (info.identity, info.rows):
            reader.close()
            raise self.replaced(item)
        return reader, now

    def check_unchanged(self, index: int) -> None:
        item = self.source.inputs[index]
        if self._stamps[index] != file_stamp(item):
            raise self.replaced(item)

    def replaced(self, item: Input) -> CorruptFileError:
        return CorruptFileError(
            f"{item.label} was replaced while it was being read: run again, on files that stay as they are",
            file=item.label,
        )

    def note_kept(self, partial: Partial) -> None:
        """Stop telling which rows the regions have where that becomes too much."""
        if not self.facts.keeping:
            partial.kept = ()
            return
        with self._lock:
            self._kept_bytes += sum(rows.data.nbytes for _, rows in partial.kept)
        if self._kept_bytes > KEPT_BYTES:
            self.learn(RunFacts(keeping=False))
            for program in list(self._programs.values()):
                program.keep_rows = False

    def note_reads(self, source: int, reads: list[tuple[str, int, int]]) -> None:
        found: dict[tuple[int, str], list[tuple[int, int]]] = {}
        for column, start, stop in reads:
            found.setdefault((source, column), []).append((start, stop))
        self.learn(RunFacts(reads=found))


# -- what steps rely on in another process ------------------------------------------------------
# Code and state of the user's own modules go along by value; a module that is imported anew has what its file says, not
# what the program made of it since.


def ambient() -> dict[str, Any]:
    found: dict[str, Any] = {"recursion": sys.getrecursionlimit()}
    awkward, numpy, decimal = map(sys.modules.get, ("awkward", "numpy", "decimal"))
    if awkward is not None:
        found["behavior"] = dict(awkward.behavior)
    if numpy is not None:
        found["errors"], found["printing"] = numpy.geterr(), numpy.get_printoptions()
    if decimal is not None:
        found["decimal"] = decimal.getcontext()
    return found


def restore(found: Mapping[str, Any]) -> None:
    sys.setrecursionlimit(found["recursion"])
    if found.get("behavior"):
        import awkward

        awkward.behavior.update(found["behavior"])
    if "errors" in found:
        import numpy as np

        np.seterr(**found["errors"])
        np.set_printoptions(**found["printing"])
    if "decimal" in found:
        import decimal

        decimal.setcontext(found["decimal"])


def seal(definition: Definition) -> dict[str, Mapping[str, str]]:
    return {name: found.parts for name, found in step_fingerprints(definition).items()}


def _load_imported(here: Mapping[str, Mapping[str, str]], sealed: Mapping[str, Mapping[str, str]]) -> bool:
    """Load modules that steps import while they run, and that are loaded at home already; say whether there were any."""
    loaded = False
    for name, parts in here.items():
        for part in parts.keys() - sealed[name].keys():
            found = re.match(r"module '([\w.]+)'", part)
            if found is not None and found[1] not in sys.modules:
                with contextlib.suppress(ImportError):
                    importlib.import_module(found[1])
                    loaded = True
    return loaded


def check_arrived(definition: Definition, sealed: Mapping[str, Mapping[str, str]]) -> None:
    """Refuse to run steps that are not here what they are at home: the answer would be another one."""
    here = seal(definition)
    while here != sealed and _load_imported(here, sealed):  # each may import others
        here = seal(definition)
    for name, parts in sealed.items():
        if here[name] != parts:
            changed = "; ".join(difference(parts, here[name])) or "something that it uses"
            raise EngineError(
                f"step {name!r} is not the same in a worker process, and would give another answer there ({changed}): it "
                'relies on something that was changed in this process after it was loaded; use engine="threads"'
            )
