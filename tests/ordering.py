"""What tests of orders have in common: runs that think all the time, policies that want anything, and a gain to be had."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np

import windrow as wr
from windrow.core.records import StepCost
from windrow.order.constraints import repair
from windrow.order.control.how_much import Sampling
from windrow.pipeline.definition.definition import dependencies
from windrow.pipeline.ordering import controller, situation
from windrow.shape import guided

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from windrow.order.model import Situation


@contextmanager
def eager(rows: int = 7) -> Iterator[None]:
    """Think after every chunk, whatever it costs, and look into every unit, however small the run is."""
    with (
        mock.patch.object(controller, "STAY_OUT_S", -1.0),
        mock.patch.object(controller, "PERIOD", 0.0),
        mock.patch.object(controller, "SHORTEST_S", 0.0),
        mock.patch.object(controller, "THINKING", 1e9),
        mock.patch.object(controller, "how_much", return_value=Sampling(1.0, rows)),
        mock.patch.object(guided, "QUEUE_S", 0.0),  # or most of a small run is given out before anything is known
    ):
        yield


@contextmanager
def costing(seconds: Mapping[str, float]) -> Iterator[None]:
    """Let steps cost so many seconds per row, and reading nothing, whatever was measured on a machine that may be busy."""
    costs = {name: StepCost.of_call(1000, 1000, 1000 * cost) for name, cost in seconds.items()}
    with (
        mock.patch.object(situation, "step_costs", return_value=costs),
        mock.patch.object(controller, "step_costs", return_value=costs),
        mock.patch.object(situation, "seconds_per_byte", return_value=0.0),
    ):
        yield


def shuffled(names: Sequence[str], needs: Mapping[str, Sequence[str]], rng: Any) -> tuple[str, ...]:
    """Make a random order in which everything comes after what it needs."""
    left, found = list(names), []
    while left:
        free = [name for name in left if not set(needs[name]) & set(left)]
        found.append(free[int(rng.integers(len(free)))])
        left.remove(found[-1])
    return tuple(found)


def fickle(seed: int) -> Any:
    """Make a policy that wants another legal order every time."""
    rng = np.random.default_rng(seed)

    def policy(situation: Situation) -> tuple[str, ...]:
        return shuffled(situation.written, situation.needs, rng)

    return policy


def legal(analysis: Any, seed: int) -> list[str]:
    """Make a random order of all steps of a pipeline that respects what they need."""
    needs = dependencies(analysis._steps)
    found = np.random.default_rng(seed).permutation(list(needs)).tolist()
    return list(repair(found, needs, ()))


def slow_first(*, by_column: bool = False) -> wr.Pipeline:
    """A costly cut that drops little is written above a cheap one that drops much, maybe by a column made for it."""
    made = wr.Pipeline("slow first")

    @made.cut
    def costly(x: Any) -> Any:
        y = x
        for _ in range(200):
            y = np.sin(y + x)
        return y > -0.99

    if by_column:
        made.column(lambda z: 2 * z, name="double")
        made.cut(lambda double: double > 1.8, name="cheap")
    else:
        cut_cheaply(made, 0.9)

    @made.output
    def total(x: Any) -> Any:
        return x.sum()

    return made


def cut_cheaply(made: wr.Pipeline, least: float) -> None:
    """Write the cheap cut, or write it anew."""
    made.cut(lambda z: z > least, name="cheap")
