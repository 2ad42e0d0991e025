"""NanoEvents of ranges of rows, and a processor called with them: the worker's side of ``run_processor``."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, MutableMapping, MutableSet
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
from windrow.errors import StepError, StepResultError

if TYPE_CHECKING:
    from windrow.core.records import Rows
    from windrow.data.base import Input, Source

#: Files a worker keeps open: the one being read, and those of rows that are given back.
OPEN_FILES = 4


class Processing(RangesWorkload):
    """A processor over the files of a source."""

    def __init__(self, name: str, process: Callable[[Any], Any], source: Source, schema: Any, mode: str) -> None:
        super().__init__(name)
        self.process, self.source, self.schema, self.mode = process, source, schema, mode

    def label(self, number: int) -> str:
        return self.source.inputs[number].label

    def make_side(self) -> EventsSide:
        return EventsSide(self)


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
        self._work = work
        self._trees: OrderedDict[int, OpenTree] = OrderedDict()

    def open(self, number: int) -> tuple[int, str]:
        """Give rows and uuid of a file; an empty one counts as a row, so that the processor sees it."""
        tree = self._trees.get(number)
        if tree is None:
            tree = self._trees[number] = OpenTree.of(self._work.source.inputs[number])
            if len(self._trees) > OPEN_FILES:
                self._trees.popitem(last=False)[1].file.close()
        self._trees.move_to_end(number)
        return max(tree.rows, 1), tree.uuid

    def call(self, rows: Rows) -> Any:
        work, tree, item = self._work, self._trees[rows.input], self._work.source.inputs[rows.input]
        start, stop, source = rows.start, min(rows.stop, tree.rows), tree.file.file.source
        facts = {"dataset": item.dataset, "filename": item.label, "treename": tree.path, "entrystart": start, "entrystop": stop}
        metadata = {**work.source.datasets[item.dataset], **facts, "fileuuid": tree.uuid}
        where = f"[dataset {item.dataset!r}, {item.label}, rows {start} to {stop}]"
        read, accessed, begin = source.num_requested_bytes, [], perf_counter()  # type: ignore[var-annotated]
        try:
            events = NanoEventsFactory.from_root(
                tree.file, treepath=tree.path, schemaclass=work.schema, metadata=metadata, mode=work.mode,
                entry_start=start, entry_stop=stop, access_log=accessed,
            ).events()  # fmt: skip
            begin = perf_counter()
            out = work.process(events)
        except Exception as error:
            said = f"processor {work.name!r} raised {type(error).__name__}: {first_line(error)} {where}"
            # Want of memory and a link that failed are no fault of the processor.
            if any(isinstance(one, MemoryError) for one in causes(error)):
                raise MemoryError(said) from error
            lost = [one for one in causes(error) if isinstance(one, OSError)]
            raise named_error(item.label, lost[0]) if lost and is_remote(item.label) else StepError(said, **facts) from error
        spent, read = perf_counter() - begin, source.num_requested_bytes - read
        check_output(out, f"processor {work.name!r} returned", where)
        self.bytes_read += read
        columns = {f"{one.branch}-{key_to_tuple(one.buffer_key)[3]}" for one in accessed}
        metrics = {"bytesread": read, "columns": columns, "entries": stop - start, "processtime": spent, "chunks": 1}
        return {"out": out, "metrics": metrics}

    def close(self) -> None:
        while self._trees:
            self._trees.popitem()[1].file.close()


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Go through an exception and those that it came from."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        yield error
        seen.add(id(error))
        error = error.__cause__ or error.__context__


def check_output(value: Any, said: str, where: str, key: str = "") -> None:
    """Refuse what coffea could not add up, before there is a second output to add it to."""
    if isinstance(value, MutableMapping):
        for name, one in value.items():
            check_output(one, said, where, f"{key}[{name!r}]")
    elif value is None or not (isinstance(value, MutableSet) or hasattr(type(value), "__add__")):
        raise StepResultError(
            f"{said} {type(value).__name__}{f' as output{key}' if key else ''}, which cannot be added up; expected numbers, "
            f"histograms, sets, lists, arrays, coffea's accumulators, or dictionaries of these {where}"
        )
