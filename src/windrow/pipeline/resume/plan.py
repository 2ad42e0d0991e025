"""How a run begins: with everything to do, or with what an earlier run in the same directory left done.

What was written down counts where the file is the same, all of its rows are asked for, and the digest of a product is the
one it has now. All else is run: for the rows and the products that are missing, and for nothing else.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cache
from importlib import metadata as installed
from types import FunctionType
from typing import TYPE_CHECKING, Any

from windrow import __version__
from windrow.core.inputs import union_of
from windrow.core.intervals import Intervals
from windrow.core.ledger import Entry
from windrow.core.records import InputSpec
from windrow.pipeline.definition.definition import Product, factors, products_of, with_all_they_read
from windrow.pipeline.resume.input_digest import InputIdentities
from windrow.pipeline.run.partials import unpack
from windrow.pipeline.run.workload import Feed
from windrow.reuse.coverage import Covered, divide, first_rows
from windrow.store.fingerprint.api import fingerprint
from windrow.store.fingerprint.libraries import content_of, full_name, library_of_class, library_of_names

if TYPE_CHECKING:
    from windrow.blocks.chunk import Partial
    from windrow.core.ledger import Ledger
    from windrow.core.records import Plan
    from windrow.data.base import Input, Source
    from windrow.pipeline.definition.definition import Definition, Product
    from windrow.pipeline.definition.options import Options
    from windrow.pipeline.run.partials import UnitedPartial
    from windrow.reuse.coverage import Ranges
    from windrow.store.fingerprint.api import Fingerprint
    from windrow.store.fingerprint.libraries import Library
    from windrow.store.journal.journal import Blob, Journal, KnownInput


@dataclass(slots=True)
class ResumePlan:
    """What a run has to do, and what is done already."""

    specs: list[InputSpec]
    journal: Journal | None = None
    feeds: dict[int, Feed] = field(default_factory=dict)  #: of the scheduler's inputs that are not whole ones
    limits: dict[str, int] | None = None  #: rows left for inputs that were never opened, by dataset
    digests: dict[str, dict[Product, Identity]] = field(default_factory=dict)  #: by dataset
    known: dict[int, KnownInput] = field(default_factory=dict)  #: by input of the source
    wanted: dict[int, Ranges] = field(default_factory=dict)  #: rows asked for, of known inputs
    used: dict[int, list[tuple[Blob, frozenset[Product]]]] = field(default_factory=dict)
    parts: dict[int, list[int]] = field(default_factory=dict)  #: inputs of the scheduler, of known inputs of the source
    decisions: list[str] = field(default_factory=list)
    done_rows: int = 0  #: for which nothing has to be run
    limited: bool = False  #: whether rows are left out on purpose

    def feeds_of(self, index: int) -> list[int]:
        return self.parts.get(index, []) if index in self.known else [index]

    def account(self, index: int, ledger: Ledger) -> list[Entry]:
        found = [entry for number in self.feeds_of(index) for entry in ledger.account(number)]
        if index in self.known:
            others = Intervals((entry.start, entry.stop or entry.start) for entry in found)
            found += [Entry(*gap, "done", "") for start, stop in self.wanted[index] for gap in others.gaps(start, stop)]
        return _joined(sorted(found, key=lambda entry: entry.start))

    def last_row(self, index: int, ledger: Ledger) -> int:
        if index in self.wanted:
            return max((stop for _, stop in self.wanted[index]), default=0)
        return ledger.last_row(index)

    def partials(
        self, index: int, fresh: Mapping[int, Sequence[UnitedPartial]], definition: Definition
    ) -> list[tuple[frozenset[Product] | None, Partial]]:
        found: list[tuple[frozenset[Product] | None, Partial]] = []
        for number in self.feeds_of(index):
            products = self.feeds[number].products if number in self.feeds else None
            found += [(products, united.whole()) for united in fresh.get(number, ())]
        for blob, mine in self.used.get(index, ()):
            assert self.journal is not None
            found.append((mine, unpack(self.journal.read(blob), index, definition.steps)))
        return found

    def is_asked(self, index: int) -> bool:
        known = self.known.get(index)
        return known is None or not known.rows or bool(self.wanted.get(index))


def _joined(entries: Sequence[Entry]) -> list[Entry]:
    joined: list[Entry] = []
    for entry in entries:
        last = joined[-1] if joined else None
        if last is not None and entry.state == last.state == "done" and entry.start == last.stop:
            joined[-1] = last._replace(stop=entry.stop)
        else:
            joined.append(entry)
    return joined


def begin_anew(source: Source) -> ResumePlan:
    return ResumePlan([_spec(item) for item in source.inputs])


def begin(
    definition: Definition,
    source: Source,
    journal: Journal,
    max_rows: int | None,
    steps: Mapping[str, Fingerprint],
    *,
    skip: bool = False,
    orders: Mapping[str, tuple[str, ...]] | None = None,
) -> ResumePlan:
    """Find out what is done already according to a journal, which may be empty.

    Nothing is forgotten here, since a look at a few rows or at a slip of the pen must not cost what an earlier run did;
    ``JournalWriter`` does when it has something better. With ``skip``, a row that fails leaves everything, so what is kept
    counts only if it has all there is to make. ``orders`` are those that were asked for, by dataset: cutflows show them.
    """
    plan = ResumePlan([], journal, limited=max_rows is not None)
    for dataset, metadata in source.datasets.items():
        reader = _Reader(definition, dataset, metadata, steps)
        found = {product: reader.identity(product) for product in products_of(definition)}
        order = (orders or {}).get(dataset)
        for product, identity in found.items():
            if order is not None and product.kind == "cutflow":
                # A line of one is what is left after the steps before it.
                found[product] = replace(identity, digest=f"{identity.digest} {' '.join(order)}")
        plan.digests[dataset] = found
    inputs = journal.inputs()
    if not inputs:
        plan.specs = begin_anew(source).specs
        return plan
    same = InputIdentities(source)
    there = [(item, inputs[key]) for item, key in zip(source.inputs, same.keys, strict=True) if key in inputs]
    plan.known = {item.index: before for item, before in there if same.is_same(item, before)}
    changed = len(there) - len(plan.known)
    if changed:
        plan.decisions.append(
            f"resume: {changed} of {len(source.inputs)} files have changed and are read again (they, their friends, or "
            "their units)"
        )
    asked = [(item.dataset, _asked(item, plan.known.get(item.index))) for item in source.inputs]
    wanted, limits = first_rows(asked, max_rows)
    plan.limits = limits if max_rows is not None else None
    blobs: dict[str, list[Blob]] = {}
    for blob in journal.blobs():
        blobs.setdefault(blob.input, []).append(blob)
    for item, rows in zip(source.inputs, wanted, strict=True):
        if rows is None:
            plan.known.pop(item.index, None)
            plan.specs.append(_spec(item))
        else:
            mine = blobs.get(same.keys[item.index], [])
            _divide(plan, item, rows, mine, len(source.inputs), whole=skip)
    plan.decisions += _said(plan, definition)
    return plan


def asked_orders(plans: Mapping[str, Plan], options: Options) -> dict[str, tuple[str, ...]]:
    exact = [pattern for pattern, kind in options.cutflow.items() if kind == "exact"]
    return {
        dataset: plan.order
        for dataset, plan in plans.items()
        if isinstance(options.order, tuple | dict) or any(fnmatchcase(dataset, one) for one in exact)
    }


def _divide(plan: ResumePlan, item: Input, rows: Ranges, blobs: list[Blob], inputs: int, *, whole: bool) -> None:
    known = plan.known[item.index]
    plan.wanted[item.index] = rows
    by_digest: dict[str, Product] = {}
    for number, (product, identity) in enumerate(plan.digests[item.dataset].items()):
        # Nothing that was written down has such a name: what is opaque or a file is made again.
        again = bool(identity.opaque) or product.kind == "save"
        by_digest[f"again {number}" if again else identity.digest] = product
    numbered = {blob.id: blob for blob in blobs}
    covered = [
        Covered(blob.id, frozenset(blob.products), blob.rows)
        for blob in blobs
        if not whole or by_digest.keys() <= set(blob.products)
    ]
    reuse = divide(rows, frozenset(by_digest), covered)
    for number, digests in reuse.used.items():
        products = frozenset(by_digest[digest] for digest in digests)
        plan.used.setdefault(item.index, []).append((numbered[number], products))
    plan.done_rows += sum(stop - start for start, stop in rows)
    for place, portion in enumerate(reuse.portions):
        # Parts beyond the first of an input are numbered after all inputs.
        number = item.index if place == 0 else inputs + len(plan.feeds)
        plan.done_rows -= sum(stop - start for start, stop in portion.ranges)
        products = frozenset(by_digest[digest] for digest in portion.products)
        plan.parts.setdefault(item.index, []).append(number)
        plan.feeds[number] = Feed(item.index, None if len(products) == len(by_digest) else products)
        spec = _spec(item)
        spec = replace(spec, id=number, rows=known.rows, borders=known.borders, ranges=portion.ranges, limited=False)
        plan.specs.append(spec)


def _said(plan: ResumePlan, definition: Definition) -> Iterable[str]:
    done = f"nothing has to be run for {plan.done_rows:,} rows that are done already"
    yield f"resume: {done if plan.done_rows else 'no rows are done already'}"
    again = {product for feed in plan.feeds.values() for product in feed.products or ()}
    order = [product for product in products_of(definition) if product in again]
    if order:
        yield (
            "resume: done again or for the first time, for rows of which others are there: "
            + ", ".join(product.said for product in order)
        )
    every = [identity for digests in plan.digests.values() for identity in digests.values()]
    for what in dict.fromkeys(name for identity in every for name in identity.opaque):
        yield f"resume: {what} cannot be looked into, so what depends on it is never taken for the same; give the step version="


# -- inputs ------------------------------------------------------------------------------------


def _spec(item: Input) -> InputSpec:
    return InputSpec(id=item.index, category=item.dataset, label=item.label, ranges=item.steps)


def _asked(item: Input, known: KnownInput | None) -> Ranges | None:
    return None if known is None else tuple(Intervals(union_of(item.steps, known.rows)))


# -- what a product is the same by: a digest of everything its content follows from -------------
# What cannot be looked into makes a product *opaque*: it is never taken for the same.


#: Packages that read files and hold arrays: other versions may give other numbers.
_FOUNDATIONS = ("numpy", "awkward", "uproot", "pyarrow", "numba")

#: Raised when what is kept of a run means something else than before.
MEANING = 4


@dataclass(frozen=True, slots=True)
class Identity:
    """What a product is the same by."""

    digest: str
    opaque: tuple[str, ...] = ()


class _Reader:
    def __init__(
        self, definition: Definition, dataset: str, metadata: Mapping[str, Any], steps: Mapping[str, Fingerprint]
    ) -> None:
        self.definition = definition
        self.steps = steps
        self.active = {
            name: step
            for name, step in definition.steps.items()
            if step.when is None or step.when.holds(metadata, dataset)
        }
        self.weights = [n for n in definition.written if n in self.active and self.active[n].kind == "weight"]
        self.metadata = metadata
        self.dataset = dataset
        self.registered = _registered()

    def identity(self, product: Product) -> Identity:
        definition = self.definition
        read = with_all_they_read(self.active, self._roots(product))
        needed = [name for name in definition.steps if name in read]
        words = [str(MEANING), __version__, *product.said.split("\0"), self.dataset]
        opaque: list[str] = []
        for name in needed:
            found = self.steps[name]
            words += [name, found.digest]
            opaque += found.opaque
            step = definition.steps[name]
            if "dataset" in step.reserved:
                seen = fingerprint(dict(self.metadata), name="metadata")
                words.append(seen.digest)
                opaque += seen.opaque
            if "rng" in step.reserved:
                words += [str(definition.seed), *definition.identity]
        words += self._shape(product)
        words.append(self.registered.digest)
        if any(definition.steps[name].version is None for name in needed):
            opaque += self.registered.opaque
        words += (f"{name} {_version(name)}" for name in _FOUNDATIONS)
        text = "\x1f".join(words).encode("utf-8", "surrogatepass")
        return Identity(hashlib.blake2b(text, digest_size=16).hexdigest(), tuple(dict.fromkeys(opaque)))

    def _roots(self, product: Product) -> Iterator[str]:
        """Name the steps a product's content comes from directly."""
        regions = self.definition.regions
        if product.kind in ("ends", "save"):
            yield from self.definition.steps
            return
        yield from regions[product.region] if product.region is not None else ()
        if product.kind == "output":
            yield product.name
            yield from factors(self.definition.steps, product.name, product.region, self.weights)
        else:
            yield from self.weights

    def _shape(self, product: Product) -> list[str]:
        """What else shows in a product: which cuts, on which side, between which weights."""
        definition = self.definition
        if product.kind in ("ends", "save"):
            return [repr((definition.regions, definition.nminus1, definition.saves))]
        if product.region is None:
            return []
        cuts = definition.regions[product.region]
        used = {cut for every in definition.regions.values() for cut in every}
        first = next((name for name in definition.written if name in used), None)
        shown = [
            f"{name} {cuts.get(name)} {name == first}"
            for name in definition.written
            if name in cuts or name in self.weights or name == first
        ]
        there = [name for name in cuts if name in self.active]
        return [*(shown if product.kind == "cutflow" else map(repr, cuts.items())), *there]


# -- behaviours of records -------------------------------------------------------------------------

#: Their versions are in every digest, and what they register may come late, with the first file.
_COUNTED = ("awkward", "windrow")


def _registered() -> Fingerprint:
    """Look into what was registered for records of awkward arrays: no code names it, and all code may use it.

    What the user wrote counts by content. That of libraries counts by their versions and by what is registered under
    which name: there are hundreds, and to look into each of them would take longer than the rest.
    """
    awkward = sys.modules.get("awkward")
    own: list[tuple[Any, Any]] = []
    others: list[str] = []
    for key, value in list(getattr(awkward, "behavior", {}).items()):
        library = _library_of(value)
        if library is None:
            own.append((key, value))
        elif library[0] not in _COUNTED:
            kind = value if isinstance(value, type) else type(value)
            name = value.__code__.co_qualname if type(value) is FunctionType else full_name(kind)
            others.append(f"{_key_said(key)} {name} {' '.join(library)}")
    # In no order: who was imported first does not matter.
    own.sort(key=lambda entry: _key_said(entry[0]))
    return fingerprint([own, "\n".join(sorted(others))], name="awkward.behavior")


def _library_of(value: Any) -> Library | None:
    """Return whose code it is; the user's if a function of a library was given something of the user's."""
    if isinstance(value, type):
        return library_of_class(value)
    if type(value) is not FunctionType:
        return None
    for cell in value.__closure__ or ():
        inside = content_of(cell)
        if isinstance(inside, (type, FunctionType)) and _library_of(inside) is None:
            return None
    return library_of_names(value.__globals__)


def _key_said(key: Any) -> str:
    if type(key) is str:
        return key
    if type(key) is tuple:
        return f"({','.join(map(_key_said, key))})"
    if isinstance(key, type):
        return full_name(key)
    return f"{full_name(type(key))} {getattr(key, '__name__', '')}"


@cache
def _version(package: str) -> str:
    try:
        return installed.version(package)
    except installed.PackageNotFoundError:
        return ""
