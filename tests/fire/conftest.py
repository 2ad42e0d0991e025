"""Failures of helpers are explained as those of tests are."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("fire.leftovers")
