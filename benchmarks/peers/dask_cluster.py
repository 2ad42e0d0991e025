"""One Dask cluster of two workers, used by Dask itself, by coffea's executor and by Windrow."""

from __future__ import annotations

import resource
import time
import warnings
from functools import cache
from typing import Any

import numpy as np
import pyarrow.parquet as pq
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
#: Doubles of a large argument.
LARGE = 12_500_000


@cache
def client() -> Any:
    from distributed import Client, LocalCluster

    cluster = LocalCluster(
        n_workers=WORKERS, threads_per_worker=1, dashboard_address=None, worker_dashboard_address=None,
        memory_limit=0,
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


@cache
def small_units(path: str) -> Any:
    return pq.ParquetFile(path)


def passes(x: Any) -> Any:
    """Decide about rows by an iteration, which takes some 2 us a row."""
    y = x
    for _ in range(100):
        y = np.sin(y) + 0.1 * x
    return y > 5


def units(path: str, first: int, last: int) -> int:
    """Count the rows of some row groups that pass."""
    x = small_units(path).read_row_groups(range(first, last), columns=["x"])["x"].to_numpy()
    return int(passes(x).sum())


def counting() -> wr.Pipeline:
    made = wr.Pipeline("units")

    @made.cut
    def some(x):
        return passes(x)

    made.region("some", "some")

    @made.output
    def count(x):
        return len(x)

    return made


def by_units(how: str, path: str, count: int) -> int:
    if how == "windrow":
        return int(counting().run(path, engine="dask", client=client(), progress=False)["count", "some"])
    each = {"dask futures": 1, "dask, by hand": count // (8 * WORKERS)}[how]
    borders = [*range(0, count, each), count]
    parts = client().map(units, [path] * (len(borders) - 1), borders[:-1], borders[1:], pure=False, batch_size=1000)
    return sum(client().gather(parts))


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
    return sum(client().gather(client().map(noop, range(count), pure=False, batch_size=1000)))


def with_graph(what: str, count: int) -> Any:
    from dask import delayed

    leaves = [delayed(noop)(number) for number in range(count)]
    if what == "tree":
        return client().compute(halve(lambda one, *args: delayed(one)(*args), leaves)).result()
    return sum(client().gather(client().compute(leaves)))


TASKS = {function: wr.task(function) for function in (noop, plus, make, both)}


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
        return sum([one.result() for one in [TASKS[noop](n) for n in range(count)]])


WAYS = {"dask futures": with_dask, "dask graph": with_graph, "windrow": with_windrow}


def run(what: str, how: str, count: int = 0, path: str = "", rows: int = 0, chunk: int = 0) -> Any:
    client()
    before = resource.getrusage(resource.RUSAGE_SELF)
    begin = time.perf_counter()
    if what == "selection":
        result = selection(how, path, rows, chunk)
    else:
        result = by_units(how, path, count) if what == "units" else WAYS[how](what, count)
    wall = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_SELF)
    # The scheduler of Dask, its client and our driver are in this process.
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return {"result": result, "seconds": wall, "driver_cpu": cpu}


if __name__ == "__main__":
    serve(run, "distributed", "coffea", "awkward", "uproot", "hist", "numpy")
    client().cluster.close()
