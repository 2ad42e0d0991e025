"""The invariants of graphs and resources, recomputed from scratch; a part of ``validate``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow.core.nodes import ENDS
from windrow.core.transitions import AttemptState, TaskState
from windrow.errors import InternalError

if TYPE_CHECKING:
    from windrow.core.offerers import Grant, Offerer
    from windrow.core.scheduler import Scheduler

__all__ = ["validate_tasks"]


def validate_tasks(scheduler: Scheduler) -> None:
    """Raise InternalError with the story if an invariant does not hold."""
    _states(scheduler)
    _outputs(scheduler)
    _whereabouts(scheduler)
    _resources(scheduler)


def _check(holds: bool, story: str) -> None:
    if not holds:
        raise InternalError(story)


def _states(scheduler: Scheduler) -> None:
    """Every task is in exactly one place, the one of its state."""
    tasks = scheduler.tasks
    for node in tasks.graph.nodes.values():
        places = {
            TaskState.READY: node.id in tasks.dispatch.ready,
            TaskState.FETCHING: node.id in tasks.dispatch.fetching,
            TaskState.RUNNING: node.id in tasks.running,
        }
        found = [state.name for state, there in places.items() if there]
        wanted = [node.state.name] if node.state in places else []
        _check(found == wanted, f"task {node.id} is {node.state.name}, but found as {found}")
        _check(
            (node.id in tasks.graph.open) == (node.state not in ENDS),
            f"task {node.id} is {node.state.name}, and open says otherwise",
        )
        missing = sum(output.handle is None for output in node.reads.values()) + len(node.unended)
        if node.state not in ENDS:
            _check(missing == node.missing, f"task {node.id} misses {missing}, not {node.missing}")
        if node.state in (TaskState.READY, TaskState.FETCHING):
            _check(not missing, f"task {node.id} is {node.state.name} and misses {missing}")
        if node.state is TaskState.WAITING:
            _check(missing > 0, f"task {node.id} waits for nothing")
        if node.state is TaskState.DOUBTED:
            source = tasks.provisional.source(node)
            _check(source is not None, f"nothing that task {node.id} read is in doubt")
        _check(
            bool(node.pending) == (node.state is TaskState.FETCHING)
            and all(output.fetching for output in node.pending.values()),
            f"task {node.id} is {node.state.name} and waits for copies of {list(node.pending)}",
        )
    for attempt in tasks.attempts.values():
        counts = tasks.running.get(attempt.node.id) is attempt
        _check(
            attempt.state <= AttemptState.CANCELLING
            and scheduler.crew.workers.get(attempt.worker.id) is attempt.worker
            and counts == (attempt.state is not AttemptState.CANCELLING),
            f"attempt {attempt.id} of task {attempt.node.id} is {attempt.state.name}",
        )


def _outputs(scheduler: Scheduler) -> None:
    """An output exists only while it is needed, and what is needed exists or will."""
    graph = scheduler.tasks.graph
    for output in graph.outputs.values():
        held = scheduler.tasks.provisional.held
        readers = [one.id for one in output.consumers.values() if one.state not in ENDS or one.id in held]
        _check(sorted(readers) == sorted(output.readers), f"{output.name!r} has other readers")
        _check(
            (output.handle is not None) == (output.kept or output.here),
            f"{output.name!r} exists nowhere, or is somewhere and does not exist",
        )
        if output.handle is not None:
            _check(output.needed, f"{output.name!r} is kept, and nobody needs it")
            _check(not (output.here and output.fetching), f"{output.name!r} is fetched twice")
        maker = output.maker
        if maker is not None and maker.state is TaskState.DONE and not graph.frozen:
            _check(
                output.handle is not None or not output.needed or output.name in graph.lacking,
                f"{output.name!r} is gone, somebody needs it, and task {maker.id} rests",
            )


def _whereabouts(scheduler: Scheduler) -> None:
    """What exists is held once, and kept by a worker that lives."""
    tasks, crew = scheduler.tasks, scheduler.crew
    held = {(number, name) for number, names in tasks.places.held.items() for name in names}
    exist = [one for one in tasks.graph.outputs.values() if one.handle is not None]
    handles = {(one.handle.id, one.name) for one in exist if one.handle is not None}
    _check(held == handles, f"{held} are held, but {handles} exist")
    for output in exist:
        handle = output.handle
        assert handle is not None
        life = handle.worker, handle.incarnation
        there = output.name in tasks.places.kept.get(life, {})
        _check(there == output.kept, f"{output.name!r}: kept {output.kept}, found {there}")
        _check(not there or crew.find(*life) is not None, f"{output.name!r} is kept by nobody")
    fetching = sorted(one.name for one in exist if one.fetching)
    _check(fetching == sorted(tasks.places.fetching), "fetches of outputs disagree")
    for worker in crew.workers.values():
        life = worker.id, worker.incarnation
        tied = sum(not one.here for one in tasks.places.kept.get(life, {}).values())
        tied += sum(one.worker is worker for one in tasks.attempts.values())
        _check(tied == worker.tied, f"worker {worker.id} is tied by {tied}, counted {worker.tied}")


def _resources(scheduler: Scheduler) -> None:
    """What is taken is the sum over live attempts, and never more than is offered."""
    crew = scheduler.crew
    packing = crew.packing
    chains = []
    for one in scheduler.tasks.attempts.values():
        if one.chain not in chains:
            chains.append(one.chain)
    for chain in chains:
        mine = [one for one in scheduler.tasks.attempts.values() if one.chain is chain]
        workers = {one.worker.id for one in mine}
        _check(
            len(workers) == 1 and set(chain.attempts) == {one.id for one in mine},
            f"attempts {sorted(chain.attempts)} hold something together at workers {sorted(workers)}",
        )
        later = list(chain.attempts.values())[1:]
        _check(
            all(one.queued and not one.started for one in later),
            f"attempts {[one.id for one in later]} run beside one that they hold something together with",
        )
    grants: list[Grant] = [chain.grant for chain in chains]
    grants += [one.grant for one in crew.workers.values() if one.grant is not None]
    offerers: list[Offerer] = [*packing.benches.values(), *packing.pools.values()]
    _check(set(packing.benches) == set(crew.workers), "workers offer that are none")
    for offerer in offerers:
        sums: dict[str, float] = {}
        for grant in grants:
            for who, name, amount in grant.parts:
                if who is offerer:
                    sums[name] = sums.get(name, 0) + amount
        for name in {**offerer.taken, **sums}:
            taken, summed = offerer.taken.get(name, 0), sums.get(name, 0)
            close = abs(taken - summed) <= 1e-6 * max(taken, summed, 1)
            _check(close, f"{offerer.name}: {name}={taken} is taken, attempts have {summed}")
            enough = summed <= offerer.offers.get(name, 0) * (1 + 1e-6)
            _check(enough or offerer.cut, f"{offerer.name} has given more {name} than it has")
    for worker in crew.workers.values():
        if worker.drain is None and worker.id not in packing.touched:
            room = packing.room_for_rows(worker.id, more=worker.busy > 0)
            _check(worker.usable == room, f"worker {worker.id} has room for rows: {room}")
