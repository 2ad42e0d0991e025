"""One Dask cluster of two workers, used by Dask itself, by coffea's executor and by Windrow."""

from __future__ import annotations

import resource
import time
import warnings
from functools import cache
from typing import Any

import numpy as np
import realistic_coffea
import realistic_common as c
import realistic_windrow
from coffea import processor
from coffea.nanoevents import NanoAODSchema, NanoEventsFactory
from protocol import serve

import windrow as wr

NanoAODSchema.warn_missing_crossrefs = False
warnings.filterwarnings("ignore")
WORKERS = 2
#: Rows of a unit of the many small ones, and doubles of a large argument.
UNIT, LARGE = 1_000, 12_500_000


@cache
def client() -> Any:
    from distributed import Client, LocalCluster

    cluster = LocalCluster(
        n_workers=WORKERS, threads_per_worker=1, dashboard_address=None, worker_dashboard_address=None,
        host="127.0.0.1", memory_limit=0,
    )  # fmt: skip
    return Client(cluster)


# -- the selection


def select(path: str, start: int, stop: int) -> Any:
    events = NanoEventsFactory.from_root(
        {path: "Events"}, schemaclass=NanoAODSchema, entry_start=start, entry_stop=stop, mode="virtual"
    ).events()
    return realistic_coffea.Selection().process(events)


def add(parts: list[Any]) -> Any:
    return processor.accumulate(parts)


def selection(how: str, path: str, rows: int, chunk: int) -> Any:
    if how == "windrow pipeline":
        return realistic_windrow.run(path, engine=client(), workers=None)
    fileset = {"data": {"files": {path: "Events"}}}
    if how == "windrow processor":
        out = wr.run_processor(realistic_coffea.Selection(), fileset, engine=client(), progress=False)
    elif how == "coffea DaskExecutor":
        executor = processor.DaskExecutor(client=client(), status=False)
        out = processor.Runner(executor=executor, schema=NanoAODSchema, chunksize=chunk)(
            fileset, realistic_coffea.Selection()
        )
    else:
        borders = [*range(0, rows, chunk), rows]
        parts = client().map(select, [path] * (len(borders) - 1), borders[:-1], borders[1:], pure=False)
        out = client().submit(add, parts, pure=False).result()
    return c.told({tuple(key.split("/")): one for key, one in out.items()})


# -- tasks


def noop(number: int) -> int:
    return number


def unit(number: int) -> float:
    x = np.random.default_rng(number).normal(size=UNIT)
    return float(x[x > 0].sum())


def units(first: int, last: int) -> float:
    return sum(map(unit, range(first, last)))


def plus(left: float, right: float) -> float:
    return left + right


def make(number: int) -> Any:
    return np.full(LARGE, float(number))


def both(left: Any, right: Any) -> float:
    return float(left[0] + right[-1])


def halve(submit: Any, level: list[Any]) -> Any:
    while len(level) > 1:
        level = [
            *(submit(plus, *pair) for pair in zip(level[::2], level[1::2], strict=False)),
            *level[len(level) // 2 * 2 :],
        ]
    return level[0]


def with_dask(what: str, count: int) -> Any:
    def submit(function: Any, *args: Any) -> Any:
        return client().submit(function, *args, pure=False)

    if what == "first":
        return submit(noop, 1).result()
    if what == "tree":
        return halve(submit, client().map(noop, range(count), pure=False)).result()
    if what == "large":
        made = client().map(make, range(count), pure=False)
        return sum(client().gather([submit(both, made[n], made[(n + 1) % count]) for n in range(count)]))
    return sum(
        client().gather(client().map(noop if what == "no-op" else unit, range(count), pure=False, batch_size=1000))
    )


def with_graph(what: str, count: int) -> Any:
    from dask import delayed

    function = unit if what == "units" else noop
    leaves = [delayed(function)(number) for number in range(count)]
    if what == "tree":
        return client().compute(halve(lambda one, *args: delayed(one)(*args), leaves)).result()
    return sum(client().gather(client().compute(leaves)))


def in_bags(_: str, count: int) -> Any:
    """The sizes that somebody has chosen by hand: eight tasks for each worker."""
    borders = [count * n // (8 * WORKERS) for n in range(8 * WORKERS + 1)]
    return sum(client().gather(client().map(units, borders[:-1], borders[1:], pure=False)))


TASKS = {function: wr.task(function) for function in (noop, unit, plus, make, both)}


def with_windrow(what: str, count: int) -> Any:
    with wr.Session(engine=client(), progress=False):
        if what == "first":
            return TASKS[noop](1).result()
        if what == "tree":
            return halve(lambda one, *args: TASKS[one](*args), [TASKS[noop](n) for n in range(count)]).result()
        if what == "large":
            made = [TASKS[make](n) for n in range(count)]
            sums = [TASKS[both](made[n], made[(n + 1) % count]) for n in range(count)]
            del made  # what somebody holds when a session ends is brought to him
            return sum([one.result() for one in sums])
        return sum([one.result() for one in [TASKS[noop if what == "no-op" else unit](n) for n in range(count)]])


WAYS = {"dask futures": with_dask, "dask graph": with_graph, "dask, by hand": in_bags, "windrow": with_windrow}


def run(what: str, how: str, count: int = 0, path: str = "", rows: int = 0, chunk: int = 0) -> Any:
    client()
    before = resource.getrusage(resource.RUSAGE_SELF)
    begin = time.perf_counter()
    result = selection(how, path, rows, chunk) if what == "selection" else WAYS[how](what, count)
    wall = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_SELF)
    # The scheduler of Dask, its client and our driver are in this process.
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return {"result": result, "seconds": wall, "driver_cpu": cpu}


if __name__ == "__main__":
    serve(run, "distributed", "coffea", "awkward", "uproot", "hist", "numpy")
    client().cluster.close()
