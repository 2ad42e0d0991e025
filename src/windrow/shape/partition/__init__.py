"""Loop partitioners: how many rows the next chunk of a loop gets, by a named scheme. Pure."""

from __future__ import annotations

from windrow.shape.partition.partitioner import Partitioner, partition
from windrow.shape.partition.schemes import register

__all__ = ["Partitioner", "partition", "register"]
