"""Leaves out what takes minutes, unless it is asked for: ``make fire``."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("fire.leftovers")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "fire" in config.getoption("markexpr"):
        return
    long = [item for item in items if item.get_closest_marker("fire") is not None]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]
