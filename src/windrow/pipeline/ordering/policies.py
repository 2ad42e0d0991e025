"""Order policies by name, and what they choose, said in the same way."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from windrow.errors import UsageError
from windrow.order.constraints import complete, repair
from windrow.order.model import Decision

if TYPE_CHECKING:
    from windrow.order.model import Situation

#: Names of policies that look at what was measured, apart from "adaptive": modules of ``windrow.order.published``.
POLICIES = ("hepframe", "path", "rank", "agreedy", "heft")
#: The one at whose checkpoints all chunks end, as it was published.
WITH_BARRIER = "path"
#: The policy that keeps the order it is given; rows are looked at for the cutflow's sake.
AS_ASKED = "as asked"


def load(policy: Any) -> None:
    import_module("windrow.order.adaptive" if policy == "adaptive" else "windrow.order.cost")
    if policy in POLICIES:
        import_module(f"windrow.order.published.{policy}")


def choose(policy: Any, situation: Situation, effort: float = 1.0) -> Decision:
    """Ask a policy: "adaptive", one of ``POLICIES``, a rule of ``windrow.order``, or a user's function of a situation.

    ``effort`` is the share of the usual work that planning may take at most.
    """
    if policy == "adaptive":
        from windrow.order.adaptive import adaptive

        return adaptive(situation, effort=effort)
    from windrow.order.published.propositions import Rule

    if policy == AS_ASKED:
        order, why = situation.current, "as asked for with order="
    elif isinstance(policy, str | Rule):
        rule = import_module(f"windrow.order.published.{policy}").order if isinstance(policy, str) else policy
        order, why = rule(situation), f"as the policy {policy!r} says"
        if isinstance(rule, Rule):
            why += f": {rule.explain(situation)}"
    else:
        order, why = repair(_of_user(policy, situation), situation.needs), "as the function given as order= says"
    from windrow.order.cost import expected_cost

    cost, written_cost, current_cost = (
        expected_cost(situation, one).total for one in (order, situation.written, situation.current)
    )
    return Decision(order=order, why=why, cost=cost, written_cost=written_cost, current_cost=current_cost)


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
