"""A web server of byte ranges with a slow link, for tests and benchmarks.

In a test it runs in threads of the process (``RangeServer(folder)``); as a program it serves until its
input ends and prints its address first: ``python range_server.py FOLDER LATENCY_S BYTES_PER_S``.
"""

from __future__ import annotations

import json
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Literal

__all__ = ["RangeServer"]

PIECE = 1 << 16


class RangeServer:
    """Serves the files of a folder; counts requests, and may be told to misbehave."""

    def __init__(self, folder: Path, latency_s: float = 0.0, bytes_per_s: float | None = None) -> None:
        self.folder = folder
        self.latency_s = latency_s
        self.bytes_per_s = bytes_per_s
        #: what a list of ranges gets: all of them, the first one, or the whole file
        self.lists: Literal["all", "first", "whole"] = "all"
        self.ranges = True  #: False: no range at all, ever
        self.requests: list[str] = []  #: the Range header of each
        self.body_bytes = 0
        self.answers: list[int] = []  #: statuses to give next; 0: hang up; 206: as usual
        self.short = False  #: hang up in the middle of an answer
        self._lock = threading.Lock()
        self._free_at = 0.0
        server = self

        class Handler(_Handler):
            owner = server

        self._http = _Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._http.shutdown()
        self._thread.join()
        self._http.close_all()

    def note(self, wanted: str) -> int:
        """Count a request; return the status that was ordered for it."""
        with self._lock:
            self.requests.append(wanted)
            return self.answers.pop(0) if self.answers else 206

    def carry(self, size: int, earliest: float) -> float:
        """Wait until the link, which all connections share, has carried some bytes; return when that was.

        A thread that wakes up late catches up: its bytes could have been carried from ``earliest`` on.
        """
        with self._lock:
            self.body_bytes += size
            if not self.bytes_per_s:
                return earliest
            self._free_at = max(self._free_at, earliest) + size / self.bytes_per_s
            done = self._free_at
        left = done - time.monotonic()
        # Shorter sleeps are not kept to; they are slept with the next piece.
        if left > 0.001:
            time.sleep(left)
        return done


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    #: connections that are not yet closed
    open_sockets: set[Any]

    def __init__(self, *arguments: Any) -> None:
        self.open_sockets = set()
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.open_sockets.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.open_sockets.discard(request)
        super().shutdown_request(request)

    def close_all(self) -> None:
        for request in list(self.open_sockets):
            self.shutdown_request(request)
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients hang up."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True
    owner: RangeServer

    def do_GET(self) -> None:
        owner = self.owner
        if self.path == "/_statistics":
            self._say(200, json.dumps([len(owner.requests), owner.body_bytes]).encode())
            return
        wanted = self.headers.get("Range", "")
        status = owner.note(wanted)
        time.sleep(owner.latency_s)
        if status == 0:
            self.close_connection = True
            return
        if status != 206:
            self._say(status, b"no")
        elif self.path.startswith("/moved/"):
            self._say(302, b"", {"Location": self.path.removeprefix("/moved")})
        else:
            self._file(owner.folder / self.path.lstrip("/"), wanted)

    _version = ""

    def _file(self, path: Path, wanted: str) -> None:
        owner = self.owner
        if not path.is_file():
            self._say(404, b"not here")
            return
        size = path.stat().st_size
        self._version = f'"{size}-{path.stat().st_mtime_ns}"'
        ranges = _parsed(wanted, size)
        if not owner.ranges or not wanted or (owner.lists == "whole" and len(ranges) > 1):
            self._say(200, path.read_bytes())
            return
        if not ranges:
            self._say(416, b"", {"Content-Range": f"bytes */{size}"})
            return
        if owner.lists == "first":
            ranges = ranges[:1]
        with path.open("rb") as file:
            parts = []
            for first, last in ranges:
                file.seek(first)
                parts.append((f"bytes {first}-{last}/{size}", file.read(last - first + 1)))
        if len(parts) == 1:
            self._say(206, parts[0][1], {"Content-Range": parts[0][0]})
            return
        body = b"".join(
            b"\r\n--BORDER\r\nContent-Type: application/octet-stream\r\n"
            b"Content-Range: " + place.encode() + b"\r\n\r\n" + data
            for place, data in parts
        )
        kind = {"Content-Type": "multipart/byteranges; boundary=BORDER"}
        self._say(206, body + b"\r\n--BORDER--\r\n", kind)

    def _say(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if self._version and status in (200, 206):
            self.send_header("ETag", self._version)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.owner.short and status == 206:
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
            return
        done = time.monotonic()
        for start in range(0, len(body), PIECE):
            piece = body[start : start + PIECE]
            done = self.owner.carry(len(piece), done)
            self.wfile.write(piece)
        self.wfile.flush()

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - as in the base
        """Say nothing."""


def _parsed(wanted: str, size: int) -> list[tuple[int, int]]:
    """Return (first, last) of each range of a header that the file has."""
    found = []
    for first, last in re.findall(r"(\d*)-(\d*)", wanted.removeprefix("bytes=")):
        if first:
            start, end = int(first), int(last) if last else size - 1
        else:
            start, end = max(size - int(last), 0), size - 1
        if start < size:
            found.append((start, min(end, size - 1)))
    return found


if __name__ == "__main__":
    server = RangeServer(Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]))
    sys.stdout.write(server.url + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    server.close()
