"""Connected components of a graph: each node takes the largest label of its neighbours, until nothing changes.

python examples/daphne/connected_components.py [--nodes 200000] [--scheme auto] [--queues centralized]
"""

from __future__ import annotations

import argparse

import numba
import numpy as np
import scipy.sparse

import windrow as wr


def power_law(nodes: int, edges: int, seed: int = 1) -> scipy.sparse.csr_array:
    """A graph in which few nodes have most neighbours, in no order."""
    rng = np.random.default_rng(seed)
    weights = rng.permutation(1.0 / (np.arange(nodes) + 10.0))
    sources = rng.choice(nodes, edges, p=weights / weights.sum())
    return _graph(nodes, sources, rng.integers(0, nodes, edges))


def drifting(nodes: int, edges: int, seed: int = 1) -> scipy.sparse.csr_array:
    """A graph whose first nodes have ten times as many neighbours as its last ones."""
    rng = np.random.default_rng(seed)
    weights = np.linspace(10.0, 1.0, nodes)
    sources = rng.choice(nodes, edges, p=weights / weights.sum())
    return _graph(nodes, sources, rng.integers(0, nodes, edges))


def _graph(nodes, sources, targets):
    return scipy.sparse.csr_array((np.ones(len(sources)), (sources, targets)), shape=(nodes, nodes))


@numba.njit
def largest(start, stop, begins, neighbours, labels, new):
    for node in range(start, stop):
        label = labels[node]
        for place in range(begins[node], begins[node + 1]):
            label = max(label, labels[neighbours[place]])
        new[node] = label


def sequential(graph, most=100):
    labels = np.arange(1, graph.shape[0] + 1)
    for _ in range(most):
        new = np.empty_like(labels)
        largest(0, len(labels), graph.indptr, graph.indices, labels, new)
        if (new == labels).all():
            break
        labels = new
    return labels


def parallel(graph, most=100, **options):
    labels = np.arange(1, graph.shape[0] + 1)
    for _ in range(most):
        new = np.empty_like(labels)
        wr.parallel_for(largest, len(labels), args=(graph.indptr, graph.indices, labels, new), **options)
        if (new == labels).all():
            break
        labels = new
    return labels


def main() -> None:
    parser = argparse.ArgumentParser(description="Connected components of a graph.")
    parser.add_argument("--nodes", type=int, default=200_000)
    parser.add_argument("--scheme", default="auto")
    parser.add_argument("--queues", default="centralized")
    parser.add_argument("--timing", action="store_true", help="print the phases of each loop")
    given = parser.parse_args()
    graph = drifting(given.nodes, 10 * given.nodes)
    report = wr.LoopReport()
    labels = parallel(graph, partition=given.scheme, queues=given.queues, timing=given.timing, report=report)
    print(report.explain())
    print(f"{len(np.unique(labels)):,} components; equal to the plain loop: {(labels == sequential(graph)).all()}")


if __name__ == "__main__":
    main()
