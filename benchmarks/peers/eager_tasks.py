"""The programs of ``benchmarks/eager.py``: blocks are fetched over a slow line, and each is sent on over it."""

from __future__ import annotations

import socket
import time
from typing import Any

from protocol import serve

import windrow as wr

N, W = 8, 2
BLOCK = 1_000_000


def fetch(port: int) -> bytes:
    with socket.create_connection(("localhost", port)) as line:
        line.sendall(b"GET")
        return line.recv(BLOCK, socket.MSG_WAITALL)


def send(port: int, block: bytes) -> int:
    with socket.create_connection(("localhost", port)) as line:
        line.sendall(b"PUT" + block)
        assert line.recv(2, socket.MSG_WAITALL) == b"ok"
    return len(block)


@wr.task(outputs=N)
def eager(port: int) -> Any:
    for _ in range(N):
        yield fetch(port)


@wr.task(outputs=N)
def lazy(port: int) -> tuple[bytes, ...]:
    return tuple(fetch(port) for _ in range(N))


@wr.task(resources={"consumer": 1})
def consume(port: int, block: bytes) -> int:
    return send(port, block)


def run(session: wr.Session, how: str, port: int) -> dict[str, float]:
    """One program, or what one fetching and one sending take without it."""
    began = time.perf_counter()
    if how == "alone":
        block = fetch(port)
        middle = time.perf_counter()
        send(port, block)
        return {"fetch": middle - began, "send": time.perf_counter() - middle}
    blocks = session.submit(eager if how == "eager" else lazy, port)
    found = session.gather([session.submit(consume, port, block) for block in blocks])
    assert found == [BLOCK] * N
    return {"seconds": time.perf_counter() - began}


if __name__ == "__main__":
    # A slot for the one that makes blocks, and W for those that use them.
    with wr.Session(engine="processes", workers=W + 1, resources={"consumer": W}) as session:
        serve(lambda how, port: run(session, how, port), "numpy")
