"""Shared things against a plain simulation that keeps what everybody still wants."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windrow.engines.simulated.devices import Device, FairShare, cores_rate
from windrow.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from windrow.engines.simulated.devices import User

Visit = tuple[float, float, float]  # comes, wants, goes at the latest

NFS = Device(streams=(1, 2, 4, 8), rates=(100.0, 180.0, 200.0, 120.0))
RATES: list[Callable[[int], float]] = [NFS.rate, cores_rate(1), cores_rate(3), lambda users: 7.5]


def fluid(visits: list[Visit], rate: Callable[[int], float]) -> dict[int, float]:
    """When each visitor is done, from what is left for everybody; who goes early is not in it."""
    ends: dict[int, float] = {}
    left: dict[int, float] = {}
    to_come = sorted(range(len(visits)), key=lambda i: visits[i][0])
    now = 0.0
    while to_come or left:
        share = rate(len(left)) / len(left) if left else 0.0
        comes = visits[to_come[0]][0] if to_come else inf
        done = min((now + amount / share for amount in left.values()), default=inf)
        goes = min((visits[i][2] for i in left), default=inf)
        after = min(comes, done, goes)
        for visitor in left:
            left[visitor] -= (after - now) * share
        now = after
        for visitor in [i for i, amount in left.items() if amount <= 1e-9 * visits[i][1]]:
            ends[visitor] = now
            del left[visitor]
        for visitor in [i for i in left if visits[i][2] <= now]:
            del left[visitor]
        while to_come and visits[to_come[0]][0] <= now:
            visitor = to_come.pop(0)
            if visits[visitor][2] > now:
                left[visitor] = visits[visitor][1]
    return ends


def shared(visits: list[Visit], rate: Callable[[int], float]) -> tuple[dict[int, float], FairShare]:
    """The same with the class under test."""
    thing = FairShare(rate)
    inside: dict[int, User] = {}
    ends: dict[int, float] = {}
    plan = [(come, 1, i) for i, (come, _, go) in enumerate(visits) if go > come]
    plan += [(go, 0, i) for i, (come, _, go) in enumerate(visits) if come < go < inf]
    for time, comes, visitor in [*sorted(plan), (inf, 0, -1)]:
        while thing.next <= time and thing.next < inf:
            now, user = thing.done()
            ends[user.what] = now
        if comes:
            inside[visitor] = thing.enter(visitor, visits[visitor][1], time)
        elif visitor in inside:
            thing.leave(inside[visitor], time)
    return ends, thing


times = st.floats(0, 50, allow_nan=False).map(lambda t: round(t, 3))
amounts = st.floats(0.01, 500, allow_nan=False).map(lambda a: round(a, 2))
patience = st.one_of(st.just(inf), st.floats(0.5, 30).map(lambda t: round(t, 3)))


@given(st.lists(st.tuples(times, amounts, patience), min_size=1, max_size=25), st.sampled_from(RATES))
def test_everybody_is_done_when_the_plain_simulation_says(
    drawn: list[tuple[float, float, float]], rate: Callable[[int], float]
) -> None:
    visits = [(come, want, come + wait) for come, want, wait in drawn]
    expected = fluid(visits, rate)
    found, thing = shared(visits, rate)
    assert thing.users == 0
    assert thing.next == inf
    # Whoever is done at the very moment his patience ends may be counted either way.
    edge = {i for i, end in {**expected, **found}.items() if abs(end - visits[i][2]) < 1e-6}
    assert found.keys() - edge == expected.keys() - edge
    for visitor in found.keys() & expected.keys():
        assert found[visitor] == pytest.approx(expected[visitor], rel=1e-9, abs=1e-9)


@given(st.lists(st.tuples(times, amounts), min_size=1, max_size=40))
def test_a_lock_gives_a_second_per_second(drawn: list[tuple[float, float]]) -> None:
    _, thing = shared([(come, want, inf) for come, want in drawn], cores_rate(1))
    assert thing.busy_s == pytest.approx(sum(want for _, want in drawn))


def test_equals_are_done_together_in_the_order_they_came() -> None:
    thing = FairShare(NFS.rate)
    for name in "abc":
        thing.enter(name, 50.0, 1.0)
    rate = (180.0 + 200.0) / 2  # three streams: half way between two and four
    ends = [thing.done() for _ in range(3)]
    assert [user.what for _, user in ends] == ["a", "b", "c"]
    assert {time for time, _ in ends} == {1.0 + 3 * 50.0 / rate}


@pytest.mark.parametrize(("users", "rate"), [(1, 100), (2, 180), (3, 190), (4, 200), (6, 160), (8, 120), (99, 120)])
def test_a_curve_is_straight_between_its_points_and_level_after_them(users: int, rate: float) -> None:
    assert NFS.rate(users) == rate


@pytest.mark.parametrize(
    ("streams", "rates"), [((), ()), ((2, 4), (1, 2)), ((1, 4, 2), (1, 2, 3)), ((1, 2), (1,)), ((1, 2), (1, 0))]
)
def test_a_curve_that_cannot_be_is_refused(streams: tuple[int, ...], rates: tuple[float, ...]) -> None:
    with pytest.raises(UsageError):
        Device(streams=streams, rates=rates)


def test_a_negative_latency_is_refused() -> None:
    with pytest.raises(UsageError, match="latency"):
        Device(streams=(1,), rates=(1.0,), latency_s=-1.0)
