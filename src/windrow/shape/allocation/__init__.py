"""What tasks are granted: memory, disk, seconds and cores, learned from what tasks like them used. Pure."""

from __future__ import annotations

from windrow.shape.allocation.policy import Allocation, Key, NodeSize
from windrow.shape.allocation.strategies import STRATEGIES
from windrow.shape.allocation.usage import TaskUsage, UsageFit

__all__ = ["STRATEGIES", "Allocation", "Key", "NodeSize", "TaskUsage", "UsageFit"]
