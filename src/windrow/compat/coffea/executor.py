"""An executor for ``coffea.processor.Runner``: its items are put together to files, and cut as the run asks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from coffea.processor import Runner, accumulate
from coffea.processor.executor import ExecutorBase, WorkItem

from windrow.compat.coffea.events import causes
from windrow.compat.coffea.run import run_ranges
from windrow.compat.coffea.workload import RangesSide, RangesWorkload
from windrow.core.intervals import Intervals
from windrow.core.records import InputSpec
from windrow.errors import MergeError, StepError
from windrow.pipeline.definition.options import Options, check_count
from windrow.pipeline.run.engine_choice import TINY_ROWS

if TYPE_CHECKING:
    from windrow.core.records import Rows

#: Tasks that a worker gets of items that cannot be put together, so that all workers end at about the same time.
TASKS = 8


@dataclass
class Executor(ExecutorBase):  # type: ignore[misc]
    """Windrow as an executor of coffea's ``Runner``; the chunk size given to that does not matter."""

    workers: int | None = None
    engine: Any = "auto"
    memory: str | float | None = None  #: of all workers together
    timeout: str | float | None = None  #: seconds a range may take
    grid: int | None = None  #: rows of a range, where floats are to have the same bits in every run
    progress: bool | Callable[[Any], Any] | None = None
    rundir: Any = None
    retries: int = 3  #: for the Runner: how often it calls a function again that raised

    def __call__(self, items: Iterable[Any], function: Callable[[Any], Any], accumulator: Any) -> tuple[Any, int]:
        """Call the function for all items and add up what it gives."""
        work = Calls(self.function_name or self.desc, function, self.grid, items)
        options = Options(
            engine=self.engine, workers=self.workers, memory=self.memory, timeout=self.timeout, rundir=self.rundir,
            progress=self.progress if self.status else False,
        )  # fmt: skip
        if not work.files:
            work.grid, options.chunk = None, max(len(work.single) // (TASKS * options.workers), 1)
        small = sum(rows.total for _, rows in work.files) <= TINY_ROWS
        try:
            ended = run_ranges(work, work.specs(), options, small=small)
        except (StepError, MemoryError, OSError) as error:
            # What the function raised, as from coffea's own executors.
            own = error if isinstance(error, MergeError) else error.__cause__ or error
            raise own from own.__cause__
        return accumulate([accumulator, ended.output]), 0


class CallsSide(RangesSide):
    """One worker's calls."""

    def open(self, number: int) -> tuple[int, str]:
        files = self.work.files
        return (max(stop for _, stop in files[number][1]) if number < len(files) else len(self.work.single)), ""

    def call(self, rows: Rows) -> Any:  # noqa: RET503 - the last try returns or raises
        work, (number, start, stop) = self.work, rows
        tries = work.tries if number < len(work.files) else [work.function]
        for function in tries:
            try:
                if number == len(work.files):
                    return accumulate(map(function, work.single[start:stop]))
                return function(replace(work.files[number][0], entrystart=start, entrystop=stop))
            except Exception as error:
                kind = MemoryError if any(isinstance(one, MemoryError) for one in causes(error)) else StepError
                if kind is MemoryError or function is tries[-1]:
                    raise kind(f"{work.name} raised {type(error).__name__}: {error}") from error


class Calls(RangesWorkload):
    """A function and the items to call it for: each file of which items name rows is an input, all other items together are one."""

    side = CallsSide

    def __init__(self, name: str, function: Callable[[Any], Any], grid: int | None, items: Iterable[Any]) -> None:
        super().__init__(name, function, None if grid is None else check_count("grid", grid))
        self.tries = [function]
        if isinstance(function, partial) and function.func is Runner.automatic_retries:
            retries, skipped, call = function.args
            # Only fewer rows help where memory is wanted, unless coffea is told to leave such rows out.
            if not isinstance(skipped, tuple) or not issubclass(MemoryError, skipped):
                self.tries = [call] * retries + [partial(function.func, 0, skipped, call, **function.keywords)]
        self.single: list[Any] = []
        files: dict[Any, tuple[Any, Intervals]] = {}
        for item in items:
            if isinstance(item, WorkItem) and len(item):
                _, rows = files.setdefault(replace(item, entrystart=0, entrystop=0), (item, Intervals()))
                if rows.add(item.entrystart, item.entrystop):
                    continue
            self.single.append(item)
        self.files = list(files.values())

    def specs(self) -> list[InputSpec]:
        specs = [
            InputSpec(id=number, category=str(item.dataset), label=str(item.filename), ranges=tuple(rows))
            for number, (item, rows) in enumerate(self.files)
        ]
        return [*specs, InputSpec(id=len(specs), category=self.name, label="items")] if self.single else specs

    def label(self, number: int) -> str:
        return str(self.files[number][0].filename) if number < len(self.files) else "the items"
