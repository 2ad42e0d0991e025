"""A server on this machine with a slow line: each connection has so many bytes a second, either way.

``GET`` gets a block, ``PUT`` has one taken. Prints its port, and ends when its standard input does. Needs the standard
library alone.
"""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
import time

#: Bytes of a block, and of a piece of it: the line's rate is kept piece by piece.
BLOCK = 1_000_000
PIECE = 50_000


def paced(started: float, done: int, rate: float) -> None:
    """Wait until so many bytes may have passed."""
    ahead = started + done / rate - time.monotonic()
    if ahead > 0:
        time.sleep(ahead)


def serve(connection: socket.socket, rate: float) -> None:
    with connection, contextlib.suppress(OSError):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        order = connection.recv(3, socket.MSG_WAITALL)
        started = time.monotonic()
        if order == b"GET":
            for done in range(0, BLOCK, PIECE):
                paced(started, done + PIECE, rate)
                connection.sendall(b"x" * PIECE)
            return
        total = 0
        while total < BLOCK:
            got = connection.recv(min(PIECE, BLOCK - total), socket.MSG_WAITALL)
            if not got:
                return
            total += len(got)
            paced(started, total, rate)
        connection.sendall(b"ok")


def main() -> None:
    rate = float(sys.argv[1])
    listener = socket.create_server(("localhost", 0), backlog=32)
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()

    def accept() -> None:
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=serve, args=(connection, rate), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
