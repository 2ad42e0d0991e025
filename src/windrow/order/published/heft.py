"""The list of HEFT, the scheduler that HEP-Frame was compared with: the longest remaining work first.

H. Topcuoglu, S. Hariri, M.-Y. Wu, "Performance-effective and low-complexity task scheduling for heterogeneous
computing", IEEE Transactions on Parallel and Distributed Systems 13 (2002) 260, https://doi.org/10.1109/71.993206. A
task's upward rank is its cost plus the greatest rank of those that wait for it; tasks are taken by decreasing rank. That
makes the longest chain finish early when nothing is ever dropped - it knows nothing of rows that are discarded, so
heavy cuts come first.

What was left open: where a task runs. Every step of a pipeline runs where its rows are, one after the other, so there
is one processor, nothing is sent, and only the list is left. Columns and weights are tasks as cuts are. The whole of
it, tasks on processors, is in ``benchmarks/paper_heft.py``.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TYPE_CHECKING, TypeVar

from windrow.order.published.propositions import seconds_per_row

if TYPE_CHECKING:
    from windrow.order.model import Situation

TaskT = TypeVar("TaskT", bound="Hashable")


def order(situation: Situation) -> tuple[str, ...]:
    """Sort all steps by decreasing upward rank; equals stay as they are written, which is legal."""
    seconds = {name: seconds_per_row(situation, situation.steps[name]) for name in situation.written}
    rank = upward_ranks(seconds, {name: dict.fromkeys(situation.needs[name], 0.0) for name in seconds})
    return tuple(sorted(seconds, key=lambda name: -rank[name]))


def upward_ranks(seconds: Mapping[TaskT, float], needs: Mapping[TaskT, Mapping[TaskT, float]]) -> dict[TaskT, float]:
    """Each task's seconds, plus the longest chain of those that wait for it.

    Tasks are given after those they need; ``needs`` has the seconds that sending from each of those takes.
    """
    rank = dict.fromkeys(seconds, 0.0)
    for task in reversed(list(seconds)):
        rank[task] += seconds[task]
        for need, sending_s in needs[task].items():
            rank[need] = max(rank[need], sending_s + rank[task])
    return rank
