"""The exception that a PyCOMPSs task raises to end the group it belongs to."""

from __future__ import annotations

__all__ = ["COMPSsException"]


class COMPSsException(Exception):
    """Raised in a task of a ``TaskGroup``: the rest of the group is cancelled, and the group's end raises it."""

    #: Trying the task again would say the same.
    final = True
