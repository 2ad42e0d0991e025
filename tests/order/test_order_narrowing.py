"""Which cuts are blamed for rows on which a step raises."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.order.narrowing import narrow


def table(*rows: str) -> Any:
    return np.array([[letter == "x" for letter in row] for row in rows], dtype=bool)


@pytest.mark.parametrize(
    ("rejects", "expected"),
    [
        (table("x.."), ("a",)),
        (table("xxx"), ("c",)),  # of equals, the nearest above the step
        (table("xx.", ".xx"), ("b",)),  # one alone is better than two
        (table("x..", "..x"), ("a", "c")),
        (table("xx.", "xx.", "..x"), ("b", "c")),
        (table("x..", "..."), None),  # nobody explains the second
        (table(), None),
    ],
)
def test_the_fewest_cuts_that_explain_all_cases(rejects: Any, expected: Any) -> None:
    assert narrow("abc", rejects.reshape(-1, 3)) == expected


@st.composite
def tables(draw: st.DrawFn) -> Any:
    cuts = draw(st.integers(1, 6))
    rows = draw(st.lists(st.lists(st.booleans(), min_size=cuts, max_size=cuts), max_size=12))
    return np.array(rows, dtype=bool).reshape(-1, cuts)


def explains(rejects: Any, cuts: Any) -> bool:
    return all(any(row[cut] for cut in cuts) for row in rejects.tolist())


@given(tables())
def test_whatever_is_blamed_explains_everything_and_nothing_idle_is(rejects: Any) -> None:
    names = [f"cut{number}" for number in range(rejects.shape[1])]
    blamed = narrow(names, rejects)
    covers = [
        chosen
        for size in range(1, len(names) + 1)
        for chosen in combinations(range(len(names)), size)
        if explains(rejects, chosen)
    ]
    if not len(rejects) or not covers:
        assert blamed is None
        return
    assert blamed is not None
    numbers = [names.index(name) for name in blamed]
    assert numbers == sorted(set(numbers))
    assert explains(rejects, numbers)
    if len(numbers) > 1:
        assert not any(explains(rejects, set(numbers) - {one}) for one in numbers)
    if len(covers[0]) == 1:
        assert numbers == [max(one for (one, *more) in covers if not more)]
