"""What a product is the same by: a digest of everything its content follows from.

That is the steps it needs, their order where that shows, and the dataset's metadata where a step sees it. What cannot be
looked into makes a product *opaque*: it is never taken for the same.
"""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass
from functools import cache
from importlib import metadata as installed
from types import FunctionType
from typing import TYPE_CHECKING, Any

from windrow import __version__
from windrow.pipeline.definition.definition import dependencies, factors
from windrow.pipeline.definition.products import Product, products_of
from windrow.store.fingerprint.api import fingerprint
from windrow.store.fingerprint.libraries import full_name, library_of_class, library_of_names
from windrow.store.fingerprint.names import content_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from windrow.pipeline.definition.definition import Definition
    from windrow.store.fingerprint.api import Fingerprint
    from windrow.store.fingerprint.libraries import Library


#: Packages that read files and hold arrays: other versions may give other numbers.
_FOUNDATIONS = ("numpy", "awkward", "uproot", "pyarrow", "numba")

#: Raised when what is kept of a run means something else than before.
MEANING = 4


@dataclass(frozen=True, slots=True)
class Identity:
    """What a product is the same by."""

    digest: str
    opaque: tuple[str, ...] = ()


def identities(
    definition: Definition, dataset: str, metadata: Mapping[str, Any], steps: Mapping[str, Fingerprint]
) -> dict[Product, Identity]:
    reader = _Reader(definition, dataset, metadata, steps)
    return {product: reader.identity(product) for product in products_of(definition)}


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
        self.needs = dependencies(definition.steps)
        self.registered = _registered()

    def identity(self, product: Product) -> Identity:
        definition = self.definition
        needed = self._closure(self._roots(product))
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

    def _closure(self, roots: Iterable[str]) -> list[str]:
        found: set[str] = set()
        waiting = list(roots)
        while waiting:
            name = waiting.pop()
            if name in found or name not in self.active:
                continue
            found.add(name)
            step = self.active[name]
            columns = {read.column for read in step.reads}
            waiting += [column for column in columns if column in self.needs]
        return [name for name in self.definition.steps if name in found]

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
            others.append(f"{_said(key)} {name} {' '.join(library)}")
    # In no order: who was imported first does not matter.
    own.sort(key=lambda entry: _said(entry[0]))
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


def _said(key: Any) -> str:
    if type(key) is str:
        return key
    if type(key) is tuple:
        return f"({','.join(map(_said, key))})"
    if isinstance(key, type):
        return full_name(key)
    return f"{full_name(type(key))} {getattr(key, '__name__', '')}"


@cache
def _version(package: str) -> str:
    try:
        return installed.version(package)
    except installed.PackageNotFoundError:
        return ""
