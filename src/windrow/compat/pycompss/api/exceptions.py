"""What tasks raise to end their group."""

from __future__ import annotations

from windrow.compat.pycompss.exceptions import COMPSsException

__all__ = ["COMPSsException"]
