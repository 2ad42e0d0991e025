"""A stream of Arrow record batches from a socket of this machine, in Arrow's stream format."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

from windrow.errors import DataError, SpecError

if TYPE_CHECKING:
    from collections.abc import Iterator


#: Seconds in which whoever sends the stream has to begin to listen: both may be started at the same time.
CONNECT_S = 10.0
#: Between two tries.
AGAIN_S = 0.05


def loopback_address(text: str) -> tuple[str, int]:
    """Split ``tcp://localhost:5555``; only this machine, as nothing here says who may send or listen."""
    host, colon, port = text.removeprefix("tcp://").rpartition(":")
    host = host.strip("[]")
    if not colon or not port.isdigit() or not 0 < int(port) < 65536:
        raise SpecError(f"a socket is given as tcp://localhost:PORT, got {text!r}")
    if not _is_loopback(host):
        raise SpecError(
            f"{text!r} is not on this machine: streams are read from localhost only, as they are neither encrypted nor "
            "is it known who sends them; bring the port here, for instance with ssh -L"
        )
    return host, int(port)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class SocketTap:
    """Connects to a port and reads until the sender ends the stream or closes the connection."""

    def __init__(self, address: str) -> None:
        self._address = loopback_address(address)
        self.label = f"stream {address}"
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None

    def opened(self) -> SocketTap:
        """Give what one run reads from."""
        return SocketTap(self.label.removeprefix("stream "))

    def batches(self) -> Iterator[tuple[str, Any]]:
        """Give batches with what to call them."""
        import pyarrow as pa

        connection = self._connected()
        if connection is None:
            return
        with connection, connection.makefile("rb") as file:
            try:
                with pa.ipc.open_stream(file) as reader:
                    for number, batch in enumerate(reader):
                        yield f"batch {number} of {self.label}", batch
            except (pa.ArrowException, OSError) as error:
                if not self._stopped.is_set():
                    raise DataError(
                        f"{self.label} is no stream of Arrow record batches, or broke off: {error}"
                    ) from error
            finally:
                with self._lock:
                    self._socket = None

    def _connected(self) -> socket.socket | None:
        until = time.monotonic() + CONNECT_S
        while not self._stopped.is_set():
            try:
                found = socket.create_connection(self._address, timeout=1.0)
            except OSError as error:
                if time.monotonic() > until:
                    raise DataError(f"{self.label}: nobody answers there: {error}") from error
                self._stopped.wait(AGAIN_S)
                continue
            found.settimeout(None)
            with self._lock:
                self._socket = found
            if self._stopped.is_set():
                found.close()
                return None
            return found
        return None

    def stop(self) -> bool:
        """End the stream from this side; who waits for the next batch returns."""
        self._stopped.set()
        with self._lock:
            if self._socket is not None:
                with contextlib.suppress(OSError):  # the other side may have closed it already
                    self._socket.shutdown(socket.SHUT_RDWR)
        return True
