"""Order policies by name, and what they choose, said in the same way."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from windrow.errors import UsageError
from windrow.order.constraints import complete, repair

if TYPE_CHECKING:
    from windrow.order.model import Situation

__all__ = ["AS_ASKED", "POLICIES", "Chosen", "choose", "load"]

#: Names of policies that look at what was measured, apart from "adaptive".
POLICIES = ("hepframe", "path", "rank", "agreedy", "heft")
#: The policy that keeps the order it is given; rows are looked at for the cutflow's sake.
AS_ASKED = "as asked"


class Chosen(NamedTuple):
    """An order and what the model says about it."""

    order: tuple[str, ...]
    why: str
    cost: float  #: seconds per chunk
    written_cost: float
    steps: tuple[tuple[str, str], ...] = ()  #: why each step stands where it does
    current_cost: float = 0.0  #: of the order that was in force


def load(policy: Any) -> None:
    """Import what a policy consists of."""
    if isinstance(policy, str) and policy != AS_ASKED:
        import_module(f"windrow.order.{policy}")
    import_module("windrow.order.cost")


def choose(policy: Any, situation: Situation, effort: float = 1.0) -> Chosen:
    """Ask a policy: "adaptive", one of ``POLICIES``, or a user's function of a situation.

    ``effort`` is the share of the usual work that planning may take at most.
    """
    if policy == AS_ASKED:
        return _with_cost(situation, situation.current, "as asked for with order=")
    if policy == "adaptive":
        from windrow.order.adaptive import adaptive
        from windrow.order.subsets import BUDGET

        found = adaptive(situation, budget=effort * BUDGET)
        steps = tuple(zip(found.order, found.steps, strict=True))
        return Chosen(found.order, found.why, found.cost, found.written_cost, steps, found.current_cost)
    if isinstance(policy, str):
        order = import_module(f"windrow.order.{policy}").order(situation)
        why = f"as the policy {policy!r} says"
    else:
        order, why = _of_user(policy, situation), "as the function given as order= says"
    return _with_cost(situation, repair(order, situation.needs, situation.guards), why)


def _with_cost(situation: Situation, order: tuple[str, ...], why: str) -> Chosen:
    from windrow.order.cost import expected_cost

    cost, written, current = (
        expected_cost(situation, one).total for one in (order, situation.written, situation.current)
    )
    return Chosen(order, why, cost, written, (), current)


def _of_user(policy: Any, situation: Situation) -> tuple[str, ...]:
    names: tuple[Any, ...] = ()
    try:
        wanted = policy(situation)
        # The letters of a string are no names.
        if isinstance(wanted, Iterable) and not isinstance(wanted, str):
            names = tuple(wanted)
    except Exception as error:
        raise UsageError(f"the function given as order= raised {type(error).__name__}: {error}") from error
    if wanted is None:
        return situation.current
    if not names or not all(isinstance(name, str) for name in names):
        raise UsageError(
            f"the function given as order= returns a list of step names, or None for no change; it returned {wanted!r}"
        )
    return complete(names, situation.written, situation.needs)
