"""What a run makes, taken apart into things that can be kept and used again by themselves.

A product is an output in a region, a region's cutflow (with which rows it has), the sums of all lanes, or a saved file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from windrow.pipeline.definition.definition import matching_regions

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from windrow.pipeline.definition.definition import Definition


class Product(NamedTuple):
    """One thing that a run makes for a dataset."""

    kind: Literal["output", "cutflow", "ends", "save"]
    name: str = ""
    region: str | None = None

    @property
    def said(self) -> str:
        where = "" if self.region is None else f" in region {self.region!r}"
        what = {"ends": "the sums of all lanes", "cutflow": "the cutflow"}.get(self.kind, f"{self.kind} {self.name!r}")
        return f"{what}{where}"


def products_of(definition: Definition) -> tuple[Product, ...]:
    found = [Product("cutflow", "", region) for region in definition.regions]
    for step in definition.steps.values():
        if step.kind == "output":
            regions: tuple[str | None, ...] = (None,)
            if step.regions is not None:
                regions = matching_regions(step, definition.regions)
            found += [Product("output", step.name, region) for region in regions]
    if definition.saves or definition.nminus1:
        found.append(Product("ends"))
    return (*found, *(Product("save", save.path) for save in definition.saves))


def classes(
    parts: Sequence[frozenset[Product] | None], everything: Iterable[Product]
) -> list[tuple[frozenset[Product], tuple[int, ...]]]:
    groups: dict[tuple[int, ...], list[Product]] = {}
    for product in everything:
        where = tuple(number for number, mine in enumerate(parts) if mine is None or product in mine)
        groups.setdefault(where, []).append(product)
    return [(frozenset(products), where) for where, products in groups.items() if where]
