"""Parts of partials: what belongs to some products."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from windrow.blocks.cutflow_counts import is_end
from windrow.blocks.outputs import Leaf
from windrow.blocks.tree import Nodes
from windrow.pipeline.products import Product

if TYPE_CHECKING:
    from windrow.blocks.chunk import Partial


def project(partial: Partial, products: frozenset[Product]) -> Partial:
    """Leave in a partial just what belongs to some products; nothing is copied."""
    regions = {product.region for product in products if product.kind == "cutflow"}
    ends = Product("ends") in products
    nodes: Nodes[Leaf] = Nodes()
    for node, leaf in partial.nodes.values.items():
        nodes.values[node] = Leaf(
            {key: value for key, value in leaf.outputs.items() if Product("output", *key[:2]) in products},
            {key: lines for key, lines in leaf.counts.items() if key[1] in regions or (ends and is_end(key[1]))},
            leaf.given_up if ends else {},
            # Windows are looked at with the eyes of each region, so one region is enough to need them whole.
            leaf.windows if regions else (),
        )
    kept = tuple((region, rows) for region, rows in partial.kept if region in regions)
    fragments = partial.fragments if any(product.kind == "save" for product in products) else ()
    return replace(partial, nodes=nodes, kept=kept, fragments=fragments)
