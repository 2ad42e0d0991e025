"""What releasing outputs one by one saves: a generator of eight blocks and eight consumers, against all blocks at the end.

    python benchmarks/eager.py [--quick] [--json FILE]

Blocks come over a slow line from a server in another process, and consumers send them back over it, so that everybody
really waits and nobody needs a processor: what is seen is the order of things, not the number of cores. Two consumers run
at a time, beside the generator. Both programs run in turn, in the same session of worker processes.
"""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from typing import Any

import harness
import numpy as np

N, W = 8, 2
#: Bytes a second of a connection; a block takes a tenth of a second.
RATE = 10e6


def eager_bound(fetch: float, send: float) -> float:
    """The least time with outputs released one by one: block ``i`` is there at ``i * fetch``, ``W`` are sent at a time."""
    free = [0.0] * W
    for number in range(1, N + 1):
        soonest = min(range(W), key=free.__getitem__)
        free[soonest] = max(number * fetch, free[soonest]) + send
    return max(free)


def lazy_bound(fetch: float, send: float) -> float:
    """The least time with all outputs at the end."""
    return N * fetch + math.ceil(N / W) * send


def competitor(worker: harness.Worker, how: str, port: int) -> Any:
    ask = harness.asking(worker, how=how, port=port)

    def sample() -> harness.Sample:
        found = ask()
        return replace(found, wall=found.result["seconds"])

    return sample


def main() -> None:
    options = harness.options(__doc__.splitlines()[0])
    rounds = 5 if options.quick else 15
    command = [sys.executable, str(harness.PEERS / "slow_server.py"), str(RATE)]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server,
        harness.Worker("eager_tasks.py") as worker,
    ):
        assert server.stdout is not None
        port = int(server.stdout.readline())
        entrants = {how: competitor(worker, how, port) for how in ("eager", "lazy")}
        for entrant in entrants.values():
            entrant()  # workers are there, functions sent
        found = harness.interleave(entrants, rounds, extra=0 if options.quick else None)
        alone = [worker.ask(how="alone", port=port)["result"] for _ in range(rounds)]
        assert server.stdin is not None
        server.stdin.close()  # it ends
    fetch = float(np.median([one["fetch"] for one in alone]))
    send = float(np.median([one["send"] for one in alone]))
    bounds = {"eager": eager_bound(fetch, send), "lazy": lazy_bound(fetch, send)}

    report = harness.Report("Eager release", harness.machine("cloudpickle"))
    report.note(
        f"{N} blocks, {W} consumers at a time beside the generator; one block alone: {1e3 * fetch:.0f} ms to fetch,"
        f" {1e3 * send:.0f} ms to send. Medians of {rounds} interleaved rounds, {found.quality}."
    )
    report.table(
        ("outputs", "median", "theoretical bound", "over the bound"),
        [
            (how, harness.seconds(found.median(how)), harness.seconds(bounds[how]), f"{found.median(how) / bounds[how]:.3f}")
            for how in ("eager", "lazy")
        ],
    )  # fmt: skip
    report.note(
        f"The least that eager / lazy can be here: {bounds['eager'] / bounds['lazy']:.3f}"
        " (with equal times (N + 1) / (N + N / W), which is 0.75)."
    )
    value, interval = found.ratio("eager", "lazy")
    report.claim("eager release: time over that of all outputs at the end", value, 0.8, better="lower", interval=interval)  # fmt: skip
    report.finish(options.json)


if __name__ == "__main__":
    main()
