"""The list of HEFT, the scheduler that HEP-Frame was compared with: the longest remaining work first.

H. Topcuoglu, S. Hariri, M.-Y. Wu, "Performance-effective and low-complexity task scheduling for heterogeneous
computing", IEEE Transactions on Parallel and Distributed Systems 13 (2002) 260, https://doi.org/10.1109/71.993206. A
task's upward rank is its cost plus the greatest rank of those that wait for it; tasks are taken by decreasing rank. That
makes the longest chain finish early when nothing is ever dropped - it knows nothing of rows that are discarded, so
heavy cuts come first.

What was left open: where a task runs. Every step of a pipeline runs where its rows are, one after the other, so there
is one processor, nothing is sent, and only the list is left. Columns and weights are tasks as cuts are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow.order.published.propositions import seconds_per_row

if TYPE_CHECKING:
    from windrow.order.model import Situation


def order(situation: Situation) -> tuple[str, ...]:
    """Sort all steps by decreasing upward rank; equals stay as they are written, which is legal."""
    rank = upward_ranks(situation)
    return tuple(sorted(situation.written, key=lambda name: -rank[name]))


def upward_ranks(situation: Situation) -> dict[str, float]:
    """Each step's seconds per row, plus the longest chain of those that wait for it."""
    rank = dict.fromkeys(situation.written, 0.0)
    for name in reversed(situation.written):  # whoever waits for a step is written below it
        rank[name] += seconds_per_row(situation, situation.steps[name])
        for need in situation.needs[name]:
            rank[need] = max(rank[need], rank[name])
    return rank
