"""``@data_transformation``: not yet."""

from __future__ import annotations

from windrow.compat.pycompss.not_yet import data_transformation

__all__ = ["DataTransformation", "data_transformation"]

DataTransformation = data_transformation
