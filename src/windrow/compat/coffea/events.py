"""NanoEvents of ranges of rows, and a processor called with them: the worker's side of ``run_processor``."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from coffea.nanoevents import NanoEventsFactory
from coffea.nanoevents.util import key_to_tuple

from windrow.blocks.failing import first_line
from windrow.compat.coffea.workload import RangesSide, RangesWorkload
from windrow.data.formats.reader import translated
from windrow.data.formats.root import find_tree
from windrow.data.formats.root_files import open_file
from windrow.data.paths import is_remote, named_error
from windrow.errors import StepError, UsageError

if TYPE_CHECKING:
    from windrow.core.records import Rows
    from windrow.data.base import Input, Source

#: Files a worker keeps open: the one being read, and those of rows that are given back.
OPEN_FILES = 4


class OpenTree(NamedTuple):
    """A tree of an open file."""

    file: Any
    path: str
    rows: int
    uuid: str

    @classmethod
    def of(cls, item: Input) -> OpenTree:
        with translated(item.label):
            file = open_file(str(item.location))
            try:
                path, _ = find_tree(file, item)
                return cls(file, path, int(file[path].num_entries), str(file.file.uuid))
            except BaseException:
                file.close()
                raise


class EventsSide(RangesSide):
    """One worker's files, and the processor called with events of them."""

    def __init__(self, work: Processing) -> None:
        super().__init__(work)
        self._trees: OrderedDict[int, OpenTree] = OrderedDict()

    def open(self, number: int) -> tuple[int, str]:
        """Give rows and uuid of a file."""
        if number not in self._trees:
            self._trees[number] = OpenTree.of(self.work.source.inputs[number])
            if len(self._trees) > OPEN_FILES:
                self._trees.popitem(last=False)[1].file.close()
        self._trees.move_to_end(number)
        return self._trees[number].rows, self._trees[number].uuid

    def call(self, rows: Rows) -> Any:
        work, tree, item = self.work, self._trees[rows.input], self.work.source.inputs[rows.input]
        start, stop, source = rows.start, min(rows.stop, tree.rows), tree.file.file.source
        facts = {"dataset": item.dataset, "filename": item.label, "treename": tree.path}
        facts |= {"entrystart": start, "entrystop": stop, "fileuuid": tree.uuid}
        where = f"[dataset {item.dataset!r}, {item.label}, rows {start} to {stop}]"
        accessed: list[Any] = []
        read, begin = source.num_requested_bytes, perf_counter()
        try:
            events = NanoEventsFactory.from_root(
                tree.file, treepath=tree.path, schemaclass=work.schema, mode=work.mode, access_log=accessed,
                metadata=work.source.datasets[item.dataset] | facts, entry_start=start, entry_stop=stop,
            ).events()  # fmt: skip
            begin = perf_counter()
            out = work.function(events)
        except Exception as error:
            said = f"processor {work.name!r} raised {type(error).__name__}: {first_line(error)} {where}"
            # Want of memory and a link that failed are no fault of the processor.
            if any(isinstance(one, MemoryError) for one in causes(error)):
                raise MemoryError(said) from error
            lost = [one for one in causes(error) if isinstance(one, OSError) and is_remote(item.label)]
            raise (named_error(item.label, lost[0]) if lost else StepError(said, **facts)) from error
        spent, read = perf_counter() - begin, source.num_requested_bytes - read
        self.bytes_read += read
        columns = {f"{one.branch}-{key_to_tuple(one.buffer_key)[3]}" for one in accessed}
        metrics = {"bytesread": read, "columns": columns, "entries": stop - start, "processtime": spent, "chunks": 1}
        return {"out": out, "metrics": metrics}

    def close(self) -> None:
        while self._trees:
            self._trees.popitem()[1].file.close()


class Processing(RangesWorkload):
    """A processor over the files of a source."""

    side = EventsSide

    def __init__(
        self, name: str, process: Callable[[Any], Any], grid: int | None, source: Source, schema: Any, mode: str
    ) -> None:
        super().__init__(name, process, grid)
        if not isinstance(schema, type):
            raise UsageError(f"schema= is a class of coffea.nanoevents such as NanoAODSchema, got {schema!r:.80}")
        self.source, self.schema, self.mode = source, schema, mode

    def __getstate__(self) -> dict[str, Any]:
        """Take along what the program has set on the schema, such as ``warn_missing_crossrefs``: the class is coffea's own."""
        plain = {
            k: v for k, v in vars(self.schema).items() if isinstance(v, (bool, str, dict)) and not k.startswith("__")
        }
        return {**super().__getstate__(), "settings": plain}

    def __setstate__(self, state: dict[str, Any]) -> None:
        settings = state.pop("settings")
        super().__setstate__(state)
        for name, value in settings.items():
            setattr(self.schema, name, value)

    def label(self, number: int) -> str:
        return self.source.inputs[number].label


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Go through an exception and those that it came from."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        yield error
        seen.append(error)
        error = error.__cause__ or error.__context__
