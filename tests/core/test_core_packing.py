"""Resources and the ready queue alone: nothing oversubscribed, nothing starved, nothing scanned."""

from __future__ import annotations

import gc
import sys
from collections import Counter
from heapq import heappop
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searching import examples
from windrow.core.chains import Chains
from windrow.core.dispatch import Dispatch
from windrow.core.nodes import Node
from windrow.core.packing import MAX_GUESTS, Packing
from windrow.core.ready import Ready
from windrow.core.records import ONE_CORE, Needs, Task
from windrow.core.transitions import TaskState
from windrow.errors import InternalError

if TYPE_CHECKING:
    from collections.abc import Callable

    from windrow.core.offerers import Grant


def make(*workers: dict[str, float], pools: dict[str, dict[str, float]] | None = None) -> Packing:
    """Make workers that all share all pools."""
    packing = Packing(ONE_CORE)
    for name, offers in (pools or {}).items():
        packing.set_pool(name, Needs.of(offers))
    for number, offers in enumerate(workers):
        packing.join(number, Needs.of(offers), tuple(pools or ()))
    return packing


def find(packing: Packing, needs: dict[str, float], **more: Any) -> int | None:
    return packing.find(packing.kind(Needs.of(needs)), **more)


# -- who serves a need


def test_a_need_is_served_by_the_worker_that_offers_the_name_else_by_a_pool() -> None:
    packing = make({"cores": 2}, pools={"machine": {"cores": 8, "memory": 100}})
    assert find(packing, {"cores": 3}) is None  # the worker offers cores: the pool's do not count
    assert find(packing, {"cores": 2, "memory": 100}) == 0
    grant = packing.reserve(0, Needs.of({"cores": 1, "memory": 60}))
    assert find(packing, {"cores": 1, "memory": 60}) is None
    assert find(packing, {"cores": 1, "memory": 40}) == 0
    packing.free(grant)
    assert find(packing, {"cores": 2, "memory": 100}) == 0


def test_one_of_several_pools_serves_a_need_whole() -> None:
    packing = make({"cores": 4}, pools={"card a": {"gpu": 1}, "card b": {"gpu": 1}})
    assert find(packing, {"gpu": 2}) is None
    needs = Needs.of({"cores": 1, "gpu": 1})
    first, second = packing.reserve(0, needs), packing.reserve(0, needs)
    assert {grant.parts[1][0].name for grant in (first, second)} == {"card a", "card b"}
    assert find(packing, {"gpu": 1}) is None
    with pytest.raises(InternalError, match="no gpu=1 free"):
        packing.reserve(0, needs)


def test_a_pool_is_shared_by_its_workers_only() -> None:
    packing = Packing(ONE_CORE)
    packing.set_pool("disk", Needs.of({"bandwidth": 100}))
    packing.join(0, ONE_CORE, ("disk",))
    packing.join(1, ONE_CORE, ("disk",))
    packing.join(2, ONE_CORE, ())
    io = Needs.of({"bandwidth": 60})
    worker = find(packing, {"bandwidth": 60})
    assert worker in (0, 1)
    packing.reserve(worker, io)
    assert find(packing, {"bandwidth": 60}) is None
    assert find(packing, {"bandwidth": 40}) == 1 - worker  # an idle one is preferred


def test_fractions_add_up() -> None:
    packing = make({"gpu": 1})
    needs = Needs.of({"gpu": 0.1})
    grants = [packing.reserve(0, needs) for _ in range(10)]
    assert find(packing, {"gpu": 0.1}) is None
    for grant in grants:
        packing.free(grant)
    assert find(packing, {"gpu": 1}) == 0


def test_a_worker_is_not_flooded_with_tasks_that_need_nothing_of_it() -> None:
    packing = make({"cores": 1}, {"cores": 1})
    kind = packing.kind(Needs())
    placed: Counter[int] = Counter()
    while (worker := packing.find(kind)) is not None:
        placed[worker] += 1
        packing.reserve(worker, Needs())
    assert placed == {0: MAX_GUESTS, 1: MAX_GUESTS}


def test_a_preferred_worker_is_taken_if_it_has_room() -> None:
    packing = make({"cores": 1}, {"cores": 1}, {"cores": 1})
    assert find(packing, {"cores": 1}, prefer=[7, 2, 1]) == 2
    packing.reserve(2, ONE_CORE)
    assert find(packing, {"cores": 1}, prefer=[2, 1]) == 1
    assert find(packing, {"cores": 1}, prefer=[2]) == 0


# -- changes


def test_workers_leave_close_and_come_back() -> None:
    packing = make({"cores": 1}, pools={"machine": {"memory": 10}})
    grant = packing.reserve(0, Needs.of({"cores": 1, "memory": 10}))
    packing.leave(0)
    assert find(packing, {"cores": 1}) is None
    packing.join(0, ONE_CORE, ("machine",))
    assert find(packing, {"cores": 1}) == 0
    assert find(packing, {"memory": 1}) is None  # the lost task has it until somebody says so
    packing.free(grant)
    assert find(packing, {"cores": 1, "memory": 10}) == 0
    packing.close(0)
    assert find(packing, {"cores": 1}) is None
    assert not packing.possible(packing.kind(ONE_CORE))


def test_an_offer_that_shrinks_below_what_is_taken_gives_nothing_more() -> None:
    packing = make({"cores": 4})
    grants = [packing.reserve(0, ONE_CORE) for _ in range(3)]
    packing.set_offers(0, Needs.of({"cores": 2}))
    bench = packing.benches[0]
    assert bench.cut
    packing.free(grants.pop())
    assert not bench.cut
    assert find(packing, {"cores": 1}) is None
    packing.free(grants.pop())
    assert find(packing, {"cores": 1}) == 0


def test_what_is_impossible_is_known_with_the_largest_offer() -> None:
    packing = make({"cores": 2}, {"cores": 4}, pools={"machine": {"memory": 16}})
    assert packing.possible(packing.kind(Needs.of({"cores": 4, "memory": 16})))
    assert not packing.possible(packing.kind(Needs.of({"cores": 5})))
    assert not packing.possible(packing.kind(Needs.of({"gpu": 1})))
    assert (packing.largest("cores"), packing.largest("memory"), packing.largest("gpu")) == (4, 16, 0)
    packing.set_offers(0, Needs.of({"cores": 5}))
    assert packing.possible(packing.kind(Needs.of({"cores": 5})))


def test_rows_are_told_who_has_room() -> None:
    packing = make({"cores": 1}, {"memory": 9}, {"memory": 9}, pools={"machine": {"cores": 1}})
    assert [packing.room_for_rows(worker) for worker in range(3)] == [True] * 3
    packing.touched.clear()
    grant = packing.reserve(1, ONE_CORE)
    assert set(packing.touched) >= {2}  # they share the core; worker 0 has its own
    assert 0 not in packing.touched
    assert [packing.room_for_rows(worker) for worker in range(3)] == [True, False, False]
    packing.free(grant)
    assert packing.room_for_rows(2)


# -- holding for a task that waited too long


def test_what_is_held_is_nobody_elses() -> None:
    packing = make({"cores": 4})
    grants = [packing.reserve(0, ONE_CORE) for _ in range(4)]
    large = packing.kind(Needs.of({"cores": 3}))
    packing.hold(7, large)
    for _ in range(2):
        packing.free(grants.pop())
        assert find(packing, {"cores": 1}) is None
        assert packing.find(large, key=7) is None
    packing.free(grants.pop())
    assert find(packing, {"cores": 1}) is None
    assert packing.find(large, key=7) == 0
    assert packing.holding is None
    packing.reserve(0, large.needs)
    assert find(packing, {"cores": 1}) is None


def test_a_hold_goes_with_its_worker() -> None:
    packing = make({"cores": 2}, {"cores": 1})
    grant = packing.reserve(0, ONE_CORE)
    packing.hold(7, packing.kind(Needs.of({"cores": 2})))
    assert find(packing, {"cores": 1}) == 1
    packing.leave(0)
    packing.free(grant)
    assert packing.holding is None
    packing.join(0, Needs.of({"cores": 2}), ())
    assert find(packing, {"cores": 2}) == 0


# -- against a plain model

NAMES = ["cores", "memory", "gpu"]
amounts = st.dictionaries(st.sampled_from(NAMES), st.integers(1, 4), max_size=3)


class Plain:
    """The rule of the house, written down plainly and slowly."""

    def __init__(self, packing: Packing) -> None:
        self.packing = packing
        self.offers: dict[Any, dict[str, int]] = {}
        self.pools: dict[int, tuple[str, ...]] = {}
        self.grants: list[tuple[int, Grant]] = []

    def free(self, who: Any) -> Counter[str]:
        left = Counter(self.offers.get(who, {}))
        for worker, grant in self.grants:
            for offerer, name, amount in grant.parts:
                if (worker if offerer is grant.bench else offerer.name) == who:
                    left[name] -= int(amount)
        return left

    def fits(self, worker: int, needs: dict[str, int]) -> bool:
        for name, amount in needs.items():
            if name in self.offers[worker]:
                if self.free(worker)[name] < amount:
                    return False
            elif not any(self.free(pool)[name] >= amount for pool in self.pools[worker]):
                return False
        guests = [g for w, g in self.grants if w == worker and g.guest]
        own = [name for name in needs if name in self.offers[worker]]
        return bool(own) or len(guests) < MAX_GUESTS


@given(st.data())
@settings(max_examples=examples(120))
def test_a_place_is_found_exactly_when_there_is_one(data: st.DataObject) -> None:
    packing = Packing(ONE_CORE)
    plain = Plain(packing)
    for _ in range(data.draw(st.integers(1, 25))):
        act = data.draw(st.sampled_from(["join", "pool", "leave", "task", "task", "task", "free"]))
        worker = data.draw(st.integers(0, 3))
        if act == "join" and worker not in plain.pools:
            offers = data.draw(amounts)
            pools = tuple(data.draw(st.sets(st.sampled_from(["p", "q"]))))
            plain.offers[worker], plain.pools[worker] = offers, pools
            packing.join(worker, Needs.of(offers), pools)
        elif act == "pool":
            pool, offers = data.draw(st.sampled_from(["p", "q"])), data.draw(amounts)
            plain.offers[pool] = offers
            packing.set_pool(pool, Needs.of(offers))
        elif act == "leave" and worker in plain.pools:
            del plain.offers[worker], plain.pools[worker]
            for grant in [grant for who, grant in plain.grants if who == worker]:
                packing.free(grant)
            plain.grants = [one for one in plain.grants if one[0] != worker]
            packing.leave(worker)
        elif act == "free" and plain.grants:
            at = data.draw(st.integers(0, len(plain.grants) - 1))
            packing.free(plain.grants.pop(at)[1])
        elif act == "task":
            needs = data.draw(amounts)
            found = find(packing, dict(needs))
            able = [one for one in plain.pools if plain.fits(one, needs)]
            assert (found in able) if able else (found is None)
            if found is not None:
                plain.grants.append((found, packing.reserve(found, Needs.of(needs))))
        for one in plain.pools:
            assert packing.room_for_rows(one) == plain.fits(one, {"cores": 1})


# -- the queue


def test_priority_first_then_age_whatever_the_kind() -> None:
    packing = make({"cores": 4})
    ready = Ready(packing.kinds.values())
    small, large = packing.kind(ONE_CORE), packing.kind(Needs.of({"cores": 4}))
    for key, (kind, priority) in enumerate([(small, 0), (large, 0), (small, 2), (large, -1), (small, 0)]):
        ready.push(kind, key, priority, key)
    order = []
    while heads := ready.heads():
        order.append(heads[0][0][2])
        ready.remove(order[-1])
    assert order == [2, 0, 1, 4, 3]


def test_a_kind_can_be_left_out_and_a_task_put_back() -> None:
    packing = make({"cores": 4})
    ready = Ready(packing.kinds.values())
    small, large = packing.kind(ONE_CORE), packing.kind(Needs.of({"cores": 4}))
    ready.push(large, 1, 0, 1)
    ready.push(small, 2, 0, 2)
    assert [(kind, head[2]) for head, kind in ready.heads({large})] == [(small, 2)]
    ready.remove(1)
    assert [(kind, head[2]) for head, kind in ready.heads()] == [(small, 2)]
    ready.push(large, 1, 0, 1)
    assert [(kind, head[2]) for head, kind in ready.heads()] == [(large, 1), (small, 2)]
    assert (len(ready), 1 in ready, list(ready.waiting(large))) == (2, True, [1])


def lines_run(function: Callable[[], Any]) -> int:
    """Count the lines of Python that a call executes, loops and comprehensions included."""
    count = 0

    def tracer(frame: Any, event: str, arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return tracer

    before = sys.gettrace()
    gc.disable()  # what is collected may have finalizers in Python, and is none of ours
    sys.settrace(tracer)
    try:
        function()
    finally:
        sys.settrace(before)
        gc.enable()
    return count


def placement_cost(tasks: int, workers: int) -> int:
    offers: dict[str, float] = {"cores": 1, "memory": 4}
    packing = make(*[offers] * workers, pools={"disk": {"bandwidth": 1000}})
    ready = Ready(packing.kinds.values())
    needs: list[dict[str, float]] = [
        {"cores": 1}, {"cores": 1, "memory": 2}, {"cores": 2}, {"bandwidth": 1}, {"cores": 1, "gpu": 1},
    ]  # fmt: skip
    kinds = [packing.kind(Needs.of(one)) for one in needs]
    for key in range(tasks):
        ready.push(kinds[key % 5], key, key % 3, key)

    def place_one() -> None:
        heads = ready.heads()
        while heads:
            (_, _, key, _), kind = heappop(heads)
            worker = packing.find(kind)
            if worker is not None:
                ready.remove(key)
                packing.free(packing.reserve(worker, kind.needs))
                return

    return max(lines_run(place_one) for _ in range(20))


def test_a_placement_costs_the_same_however_many_tasks_and_workers_there_are() -> None:
    assert placement_cost(100_000, 200) == placement_cost(500, 4) < 1500


def test_kinds_of_which_no_task_waits_are_forgotten() -> None:
    packing = make({"cores": 4})
    waits = packing.kind(Needs.of({"cores": 3}))
    Ready(packing.kinds.values()).push(waits, 1, 0, 1)
    kinds = [packing.kind(Needs.of({"cores": 1 + 1 / number})) for number in range(1, 500)]
    assert len(packing.kinds) <= 64
    assert not waits.gone
    assert packing.kind(waits.needs) is waits
    assert all(kind.gone == (packing.kinds.get(kind.needs) is not kind) for kind in kinds)
    assert packing.kind(kinds[0].needs) is not kinds[0]


def pass_cost(kinds: int) -> int:
    packing = make({"cores": 9})
    packing.reserve(0, Needs.of({"cores": 9}))
    dispatch = Dispatch(packing, lambda *_: None, lambda _: None, Chains(packing))
    for number in range(kinds):
        task = Task(number, "t", (), 1, Needs.of({"cores": 1 + number / kinds}))
        node = Node(task, number)
        node.state = TaskState.READY
        dispatch.add(node)
    return lines_run(dispatch.place_before_rows)


def test_a_pass_over_many_kinds_looks_at_each_of_them_once() -> None:
    assert pass_cost(400) < 5 * pass_cost(100)
