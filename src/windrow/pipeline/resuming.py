"""How a run begins: with everything to do, or with what an earlier run in the same directory left done.

What was written down counts where the file is the same, its rows are whole units of what is asked for, and the digest
of a product is the one it has now. All else is run: for the rows and the products that are missing, and no others.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from windrow.core.intervals import Intervals
from windrow.core.ledger import Entry
from windrow.core.records import InputSpec
from windrow.pipeline.collecting import unpack
from windrow.pipeline.identities import Identity, identities
from windrow.pipeline.input_identity import InputIdentities, own_identity
from windrow.pipeline.products import products_of
from windrow.pipeline.workload import Feed
from windrow.reuse.coverage import Covered, divide, first_rows, is_torn

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from windrow.blocks.chunk import Partial
    from windrow.core.ledger import Ledger
    from windrow.core.records import Plan
    from windrow.data.base import Input, Source
    from windrow.pipeline.bind import Definition
    from windrow.pipeline.options import Options
    from windrow.pipeline.products import Product
    from windrow.reuse.coverage import Portion, Ranges
    from windrow.store.fingerprint.api import Fingerprint
    from windrow.store.journal import Blob, Journal, KnownInput


@dataclass(slots=True)
class Beginning:
    """What a run has to do, and what is done already."""

    specs: list[InputSpec]
    journal: Journal | None = None
    feeds: dict[int, Feed] = field(default_factory=dict)  #: of the scheduler's inputs that are not whole ones
    limits: dict[str, int] | None = None  #: rows left for inputs that were never opened, by dataset
    digests: dict[str, dict[Product, Identity]] = field(default_factory=dict)  #: by dataset
    known: dict[int, KnownInput] = field(default_factory=dict)  #: by input of the source
    wanted: dict[int, Ranges] = field(default_factory=dict)  #: rows asked for, of known inputs
    used: dict[int, list[tuple[Blob, frozenset[Product]]]] = field(default_factory=dict)
    decisions: list[str] = field(default_factory=list)
    done_rows: int = 0  #: for which nothing has to be run
    torn_rows: int = 0  #: that were done, and cannot be taken over by the unit
    limited: bool = False  #: whether rows are left out on purpose
    extra: int = 0  #: parts beyond the first of an input; they are numbered after all inputs

    parts: dict[int, list[int]] = field(default_factory=dict)  #: of known inputs of the source

    def feeds_of(self, index: int) -> list[int]:
        """List the scheduler's inputs that are parts of one of the source."""
        return self.parts.get(index, []) if index in self.known else [index]

    def account(self, index: int, ledger: Ledger) -> list[Entry]:
        """List what became of the rows of an input of the source, in order."""
        found = [entry for number in self.feeds_of(index) for entry in ledger.account(number)]
        if index in self.known:
            others = Intervals()
            for entry in found:
                others.add(entry.start, entry.stop or entry.start)
            found += [Entry(*gap, "done", "") for start, stop in self.wanted[index] for gap in others.gaps(start, stop)]
        return _joined(sorted(found, key=lambda entry: entry.start))

    def last_row(self, index: int, ledger: Ledger) -> int:
        """Give the end of the last row of an input that the run is asked for."""
        if index in self.wanted:
            return max((stop for _, stop in self.wanted[index]), default=0)
        return ledger.last_row(index)

    def partials(
        self, index: int, fresh: Mapping[int, Sequence[Partial]], definition: Definition
    ) -> list[tuple[frozenset[Product] | None, Partial]]:
        """Give what there is of an input of the source, made now or taken over, with the products it has."""
        found: list[tuple[frozenset[Product] | None, Partial]] = []
        for number in self.feeds_of(index):
            products = self.feeds[number].products if number in self.feeds else None
            found += [(products, partial) for partial in fresh.get(number, ())]
        for blob, mine in self.used.get(index, ()):
            assert self.journal is not None
            found.append((mine, unpack(self.journal.read(blob), index, definition.steps)))
        return found

    def is_asked(self, index: int) -> bool:
        """Say whether the run is asked for rows of an input, or for an input that has none."""
        known = self.known.get(index)
        return known is None or not known.rows or bool(self.wanted.get(index))

    def file_identity(self, item: Input) -> str:
        """What a known file identified itself as when it was opened."""
        return own_identity(self.known[item.index])


def _joined(entries: Sequence[Entry]) -> list[Entry]:
    """Make one entry of neighbours that are done: nobody cares when."""
    joined: list[Entry] = []
    for entry in entries:
        last = joined[-1] if joined else None
        if last is not None and entry.state == last.state == "done" and entry.start == last.stop:
            joined[-1] = last._replace(stop=entry.stop)
        else:
            joined.append(entry)
    return joined


def begin_anew(source: Source) -> Beginning:
    """Everything is to do."""
    return Beginning([_spec(item) for item in source.inputs])


def begin(
    definition: Definition,
    source: Source,
    journal: Journal,
    max_rows: int | None,
    steps: Mapping[str, Fingerprint],
    *,
    skip: bool = False,
    orders: Mapping[str, tuple[str, ...]] | None = None,
) -> Beginning:
    """Find out what is done already according to a journal, which may be empty.

    Nothing is forgotten here, since a look at a few rows or at a slip of the pen must not cost what an earlier run did;
    ``Journaling`` does when it has something better. With ``skip``, a row that fails leaves everything, so what is kept
    counts only if it has all there is to make. ``orders`` are those that were asked for, by dataset: cutflows show them.
    """
    result = Beginning([], journal, limited=max_rows is not None)
    for dataset, metadata in source.datasets.items():
        found = identities(definition, dataset, metadata, steps)
        order = (orders or {}).get(dataset)
        result.digests[dataset] = found if order is None else _in_order(found, order)
    inputs = journal.inputs()
    if not inputs:
        result.specs = begin_anew(source).specs
        return result
    same = InputIdentities(source)
    keys = same.keys
    for item in source.inputs:
        before = inputs.get(keys[item.index])
        if before is not None and same.is_same(item, before):
            result.known[item.index] = before
    changed = sum(keys[item.index] in inputs for item in source.inputs) - len(result.known)
    if changed:
        result.decisions.append(
            f"resume: {changed} of {len(source.inputs)} files have changed and are read again (they, their friends, or "
            "their units)"
        )
    wanted, limits = first_rows(
        [
            (item.dataset, _asked(item, result.known[item.index]) if item.index in result.known else None)
            for item in source.inputs
        ],
        max_rows,
    )
    result.limits = limits if max_rows is not None else None
    blobs: dict[str, list[Blob]] = {}
    for blob in journal.blobs():
        blobs.setdefault(blob.input, []).append(blob)
    for item, rows in zip(source.inputs, wanted, strict=True):
        if rows is None:
            result.known.pop(item.index, None)
            result.specs.append(_spec(item))
        else:
            mine = blobs.get(keys[item.index], [])
            _divide(result, item, rows, mine, len(source.inputs), whole=skip)
    result.decisions += _said(result, definition)
    return result


def asked_orders(plans: Mapping[str, Plan], options: Options) -> dict[str, tuple[str, ...]]:
    """The orders of steps that were asked for, by dataset, be it for an exact cutflow."""
    exact = [pattern for pattern, kind in options.cutflow.items() if kind == "exact"]
    return {
        dataset: plan.order
        for dataset, plan in plans.items()
        if isinstance(options.order, tuple | dict) or any(fnmatchcase(dataset, one) for one in exact)
    }


def _in_order(products: Mapping[Product, Identity], order: tuple[str, ...]) -> dict[Product, Identity]:
    """Tell cutflows apart by the order of the steps: a line of one is what is left after those before it."""
    return {
        product: replace(mine, digest=f"{mine.digest} {' '.join(order)}") if product.kind == "cutflow" else mine
        for product, mine in products.items()
    }


def _divide(result: Beginning, item: Input, rows: Ranges, blobs: list[Blob], inputs: int, *, whole: bool) -> None:
    """Take over what is there of a known input, and put the rest among what is to do."""
    known = result.known[item.index]
    result.wanted[item.index] = rows
    by_digest: dict[str, Product] = {}
    for number, (product, identity) in enumerate(result.digests[item.dataset].items()):
        # Nothing that was written down has such a name: what is opaque or a file is made again.
        again = bool(identity.opaque) or product.kind == "save"
        by_digest[f"again {number}" if again else identity.digest] = product
    covered = [
        Covered(blob.id, frozenset(blob.products), tuple(blob.rows))
        for blob in blobs
        if not whole or by_digest.keys() <= set(blob.products)
    ]
    reuse = divide(rows, known.borders, frozenset(by_digest), covered)
    numbered = {blob.id: blob for blob in blobs}
    result.torn_rows += sum(
        stop - start
        for kept in covered
        if kept.id not in reuse.used and kept.products & by_digest.keys()
        for start, stop in (kept.rows if is_torn(kept.rows, rows, known.borders) else ())
    )
    for number, digests in reuse.used.items():
        products = frozenset(by_digest[digest] for digest in digests)
        result.used.setdefault(item.index, []).append((numbered[number], products))
    to_do = 0
    for place, portion in enumerate(reuse.portions):
        to_do += sum(stop - start for start, stop in portion.ranges)
        _add(result, item, known, portion, by_digest, place, inputs)
    result.done_rows += sum(stop - start for start, stop in rows) - to_do


def _add(
    result: Beginning,
    item: Input,
    known: KnownInput,
    portion: Portion,
    by_digest: Mapping[str, Product],
    place: int,
    inputs: int,
) -> None:
    number = item.index if place == 0 else inputs + result.extra
    result.extra += place > 0
    result.parts.setdefault(item.index, []).append(number)
    products = frozenset(by_digest[digest] for digest in portion.products)
    everything = len(products) == len(by_digest)
    result.feeds[number] = Feed(item.index, None if everything else products)
    result.specs.append(
        InputSpec(
            id=number,
            category=item.dataset,
            label=item.label,
            rows=known.rows,
            borders=known.borders,
            ranges=portion.ranges,
            limited=False,
        )
    )


def _said(result: Beginning, definition: Definition) -> Iterable[str]:
    """Say what is taken over and what is done again, and why."""
    yield f"resume: nothing has to be run for {result.done_rows:,} rows that are done already"
    if result.torn_rows:
        yield (
            f"resume: {result.torn_rows:,} rows that were done are run again, because they are not whole units of their "
            "file (max_rows, or rows that were left out), and sums cannot be taken apart"
        )
    again: dict[Product, None] = {}
    for feed in result.feeds.values():
        if feed.products is not None:
            again.update(dict.fromkeys(feed.products))
    order = [product for product in products_of(definition) if product in again]
    if order:
        yield (
            "resume: done again or for the first time, for rows of which others are there: "
            + ", ".join(product.said for product in order)
        )
    opaque: dict[str, None] = {}
    for digests in result.digests.values():
        for identity in digests.values():
            opaque.update(dict.fromkeys(identity.opaque))
    for what in opaque:
        yield f"resume: {what} cannot be looked into, so what depends on it is never taken for the same; give the step version="


# -- inputs ------------------------------------------------------------------------------------


def _spec(item: Input) -> InputSpec:
    return InputSpec(id=item.index, category=item.dataset, label=item.label, ranges=item.steps)


def _asked(item: Input, known: KnownInput) -> Any:
    rows = known.rows
    if item.steps is None:
        return ((0, rows),) if rows else ()
    asked = Intervals()
    for start, stop in sorted(item.steps):
        for gap in asked.gaps(max(start, 0), min(stop, rows)) if start < min(stop, rows) else ():
            asked.add(*gap)
    return tuple(asked)
