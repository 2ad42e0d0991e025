"""Parts of partials: what belongs to some products, and what there is of an input put together from several parts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from windrow.blocks.counts import Layout, LineCounts
from windrow.blocks.outputs import Leaf
from windrow.blocks.tree import Nodes
from windrow.pipeline.products import Product

if TYPE_CHECKING:
    from windrow.blocks.chunk import Partial

__all__ = ["project"]


def project(partial: Partial, products: frozenset[Product]) -> Partial:
    """Leave in a partial just what belongs to some products; nothing is copied."""
    nodes: Nodes[Leaf] = Nodes()
    for node, leaf in partial.nodes.values.items():
        nodes.values[node] = _leaf(leaf, products)
    regions = {product.region for product in products if product.kind == "cutflow"}
    kept = tuple((region, rows) for region, rows in partial.kept if region in regions)
    fragments = partial.fragments if any(p.kind == "save" for p in products) else ()
    asked = partial.asked if regions else ()
    return replace(partial, nodes=nodes, kept=kept, asked=asked, fragments=fragments)


def _leaf(leaf: Leaf, products: frozenset[Product]) -> Leaf:
    outputs = {key: value for key, value in leaf.outputs.items() if Product("output", key[0], key[1]) in products}
    regions = frozenset(p.region for p in products if p.kind == "cutflow" and p.region is not None)
    tables: dict[Layout, LineCounts] = {}
    if regions:
        for plan, lines in leaf.tables.items():
            mine, counts = _lines(plan, lines, regions)
            tables[mine] = tables[mine] + counts if mine in tables else counts
    # Windows are looked at with the eyes of each region, so one region is enough to need them whole.
    windows = leaf.windows if regions else ()
    finals = {region: sums for region, sums in leaf.finals.items() if region in regions}
    if Product("ends") in products:
        return Leaf(outputs, tables, leaf.given_up, leaf.ends, windows, finals)
    return Leaf(outputs, tables, windows=windows, finals=finals)


def _lines(plan: Layout, lines: LineCounts, regions: frozenset[str]) -> tuple[Layout, LineCounts]:
    """Leave some regions in a table."""
    keep = [number for number, region in enumerate(plan.regions) if region in regions]
    if len(keep) == len(plan.regions):
        return plan, lines
    rows: list[int] = []
    first = []
    for number in keep:
        first.append(len(rows))
        begin = plan.first[number]
        rows += range(begin, plan.end(plan.regions[number]) + 1)
    smaller = Layout(
        plan.order,
        tuple(plan.regions[number] for number in keep),
        tuple(plan.lines[number] for number in keep),
        tuple(first),
        len(rows),
    )
    return smaller, LineCounts(lines.counts[rows], lines.sums[rows])
