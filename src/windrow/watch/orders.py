"""Noticing that steps are put into another order: a plan is made at every checkpoint, and most change nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from windrow.core.records import Plan

__all__ = ["OrdersSeen"]


class OrdersSeen:
    """The order that each category was last known to have."""

    __slots__ = ("_orders",)

    def __init__(self) -> None:
        self._orders: dict[str, tuple[str, ...]] = {}

    def launched(self, plan: Plan) -> None:
        """See a plan in use; the first one of a category tells what it began with."""
        if plan.category not in self._orders:
            self._orders[plan.category] = plan.order

    def changed(self, plan: Plan) -> bool:
        """See a plan that was made; say whether its order is another one."""
        before = self._orders.get(plan.category)
        self._orders[plan.category] = plan.order
        return plan.order != (plan.written if before is None else before)
