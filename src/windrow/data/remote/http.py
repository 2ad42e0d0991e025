"""Byte ranges of one file on a web server, many of them in one request.

A request names all its ranges and the answer has them as parts (RFC 9110, section 14). Servers that
do not know that are asked for one range at a time, on a few connections at once. Connections stay
open and need no threads: requests are sent first and answers read in turn. Must not retry what
failed, but for a kept connection that the server has closed meanwhile: that is the scheduler's.
"""

from __future__ import annotations

import errno
import http.client
import re
from base64 import b64encode
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from time import perf_counter
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

from windrow.errors import CorruptFileError

Range = tuple[int, int]  #: first byte, and the one after the last

#: Ranges of one request at most: Apache takes 200 by default, and 150 fill 4 of the 8 KB that most
#: servers take as a line.
MOST_RANGES = 150

#: Ranges that are so close are asked for as one: a part of an answer has about as many bytes around it.
NEAR = 256

#: The same where each range is a request: as many bytes as a link of 100 MB/s brings in half a
#: millisecond, so that a NanoAOD column's neighbours do not multiply the bytes.
NEAR_SINGLE = 65_536

#: Connections of a file that is asked for one range at a time: what browsers use, and servers expect.
CONNECTIONS = 6

#: A server that answers with the whole file is believed if the file is not larger than this.
SMALL_FILE = 2 << 20

REDIRECTS = (301, 302, 303, 307, 308)
MOST_REDIRECTS = 5
TIMEOUT_S = 60.0

_CONTENT_RANGE = re.compile(r"bytes\s+(\d+)-(\d+)/(\d+|\*)")
_STALE = (http.client.RemoteDisconnected, ConnectionError)


def coalesced(ranges: Sequence[Range], near: int, most: int | None = None) -> list[Range]:
    """Join ranges that overlap or lie within ``near`` bytes, then the nearest until ``most`` are left.

    What is more than ``NEAR_SINGLE`` apart is never joined: another request is cheaper.
    """
    joined: list[list[int]] = []
    for start, stop in sorted(ranges):
        if joined and start - joined[-1][1] <= near:
            joined[-1][1] = max(joined[-1][1], stop)
        else:
            joined.append([start, stop])
    out = [(start, stop) for start, stop in joined]
    if most is None or len(out) <= most:
        return out
    gaps = sorted(after[0] - before[1] for before, after in pairwise(out))
    limit = min(gaps[len(out) - most - 1], NEAR_SINGLE)
    return out if limit <= near else coalesced(out, limit)


class Blocks:
    """Pieces of a file, found by place."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._data: list[memoryview] = []
        self.size: int | None = None  #: of the file, where an answer told

    def add(self, start: int, data: bytes | memoryview) -> None:
        place = bisect_right(self._starts, start)
        self._starts.insert(place, start)
        self._data.insert(place, memoryview(data))

    def find(self, start: int, stop: int) -> memoryview | None:
        """Return the bytes [start, stop) if one piece has them."""
        place = bisect_right(self._starts, start)
        # Pieces of different requests may overlap by a gap that was fetched along.
        for number in range(place - 1, max(place - 3, -1), -1):
            first, data = self._starts[number], self._data[number]
            if stop - first <= len(data):
                return data[start - first : stop - first]
        return None

    @property
    def total_bytes(self) -> int:
        return sum(map(len, self._data))

    def clear(self) -> None:
        self._starts.clear()
        self._data.clear()


def multipart(body: bytes, content_type: str) -> Iterator[tuple[int, memoryview, int | None]]:
    """Yield (first byte, data, size of the file) for each part of a multipart/byteranges answer."""
    match = re.search(r'boundary="?([^";]+)"?', content_type, re.IGNORECASE)
    if match is None:
        raise _broken(f"an answer in parts does not name their border: {content_type!r}")
    border = b"--" + match.group(1).strip().encode()
    view = memoryview(body)
    at = body.find(border)
    while at >= 0:
        at += len(border)
        if body[at : at + 2] == b"--":
            return
        end = body.find(b"\r\n\r\n", at)
        head = body[at : max(end, at)].decode("latin-1")
        found = _CONTENT_RANGE.search(head)
        if end < 0 or found is None:
            raise _broken(f"a part of an answer does not say which bytes it has: {head[:100]!r}")
        first, last = int(found.group(1)), int(found.group(2))
        data = view[end + 4 : end + 5 + last - first]
        if len(data) != last - first + 1:
            raise _broken(f"bytes {first}-{last} of an answer end after {len(data)}")
        yield first, data, None if found.group(3) == "*" else int(found.group(3))
        at = body.find(border, end + 4 + len(data))
    raise _broken("an answer in parts has no end")


def _broken(what: str) -> OSError:
    return OSError(errno.EIO, what)


class HttpFile:
    """One file of a web server, for one thread."""

    def __init__(self, url: str) -> None:
        self._original = self._url = url
        self._idle: list[Any] = []
        self._in_parts = True  #: until the server shows that it cannot
        self._arrived = False  #: the place the server sent us to has given something
        self._size: int | None = None  #: what the first answer said
        self._tags: dict[str, str] = {}  #: place -> what the server calls this version of the file
        self.requests = 0
        self.first_byte_s: float | None = None  #: from sending the last request to the beginning of its answer

    def close(self) -> None:
        """Close the connections; they open again when they are needed."""
        while self._idle:
            self._idle.pop().close()

    def ends(self, head: int, tail: int) -> Blocks:
        """Fetch the first and the last bytes, and learn the file's size, in one request."""
        found = Blocks()
        self._ask([f"0-{head - 1},-{tail}"], found)
        size = found.size
        if size is None:
            # The server gave nothing, or did not say of how much: a single range always says.
            self._in_parts = False
            self._ask([f"0-{head - 1}"], found)
            size = found.size
        if size is None:
            raise _broken(f"{self._original}: the server does not say how large the file is")
        wanted = [(0, min(head, size)), (max(size - tail, 0), size)]
        missing = [one for one in wanted if size and found.find(*one) is None]
        if missing:
            self._in_parts = False
            self._ask([_text(one) for one in missing], found)
        return found

    def fetch(self, ranges: Sequence[Range]) -> Blocks:
        """Fetch byte ranges: in one request if the server can, else several at once."""
        found = Blocks()
        missing = list(ranges)
        if self._in_parts and len(missing) > 1:
            fine = coalesced(missing, NEAR, MOST_RANGES)
            batches = [fine[n : n + MOST_RANGES] for n in range(0, len(fine), MOST_RANGES)]
            self._ask([",".join(map(_text, batch)) for batch in batches], found)
            missing = [one for one in missing if found.find(*one) is None]
            self._in_parts = not missing
        if missing:
            self._ask([_text(one) for one in coalesced(missing, NEAR_SINGLE)], found)
            for one in missing:
                if found.size is not None and one[1] > found.size:
                    raise self._too_short(_text(one))
                if found.find(*one) is None:
                    raise _broken(f"{self._original}: the server did not give bytes {_text(one)}")
        return found

    # -- one request after the other -----------------------------------------------------------

    def _ask(self, wanted: Sequence[str], into: Blocks) -> None:
        """Send requests, several before the first answer is read, and keep what they bring."""
        waiting: deque[tuple[Any, str, bool, float]] = deque()
        try:
            for one in wanted:
                if len(waiting) == CONNECTIONS:
                    self._take(*waiting.popleft(), into)
                waiting.append(self._send(one))
            while waiting:
                self._take(*waiting.popleft(), into)
        except http.client.HTTPException as exc:
            raise _broken(f"{self._original}: {type(exc).__name__} {exc}") from exc
        finally:
            # Answers that nobody read make a connection useless.
            for connection, *_ in waiting:
                connection.close()

    def _send(self, wanted: str, *, fresh: bool = False) -> tuple[Any, str, bool, float]:
        parts = urlsplit(self._url)
        kept = not fresh and bool(self._idle)
        connection = self._idle.pop() if kept else _connection(parts)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        headers = {"Range": f"bytes={wanted}", "User-Agent": "windrow"}
        if parts.username is not None and self._url == self._original:
            secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            headers["Authorization"] = "Basic " + b64encode(secret.encode()).decode()
        began = perf_counter()
        try:
            connection.request("GET", target, headers=headers)
        except _STALE:
            connection.close()
            if not kept:
                raise
            return self._send(wanted, fresh=True)
        except BaseException:
            connection.close()
            raise
        self.requests += 1
        return connection, wanted, kept, began

    def _take(self, connection: Any, wanted: str, kept: bool, began: float, into: Blocks) -> None:
        for _ in range(MOST_REDIRECTS):
            answer = None
            try:
                with suppress(*(_STALE if kept else ())):
                    answer = connection.getresponse()
                if answer is None:
                    connection.close()
                    connection, _, kept, began = self._send(wanted, fresh=True)
                    answer = connection.getresponse()
                self.first_byte_s = perf_counter() - began
                moved = self._moved(answer)
                if not moved:
                    self._keep(answer, wanted, into)
                    self._refuse_change(answer, into.size)
            except BaseException:
                connection.close()
                raise
            if not moved:
                self._put_back(connection, answer)
                return
            connection.close()
            self.close()  # they lead to the place that sent us away
            connection, _, kept, began = self._send(wanted, fresh=True)
        connection.close()
        raise _broken(f"{self._original}: sent on {MOST_REDIRECTS} times")

    def _moved(self, answer: Any) -> bool:
        if answer.status in REDIRECTS and answer.getheader("Location"):
            self._url = urljoin(self._url, answer.getheader("Location"))
            return True
        if answer.status in (401, 403, 404, 410) and self._arrived:
            self._url, self._arrived = self._original, False  # it was for a while only
            return True
        self._arrived = answer.status < 400 and self._url != self._original
        return False

    def _put_back(self, connection: Any, answer: Any) -> None:
        parts = urlsplit(self._url)
        here = connection.host == parts.hostname and parts.port in (None, connection.port)
        if here and answer.isclosed() and not answer.will_close:
            self._idle.append(connection)
        else:
            connection.close()

    def _keep(self, answer: Any, wanted: str, into: Blocks) -> None:
        status, kind = answer.status, answer.getheader("Content-Type", "")
        if status == 206 and kind.lower().startswith("multipart/byteranges"):
            for start, data, size in multipart(answer.read(), kind):
                into.add(start, data)
                into.size = size if size is not None else into.size
        elif status == 206:
            found = _CONTENT_RANGE.match(answer.getheader("Content-Range", ""))
            if found is None:
                raise _broken(f"{self._original}: an answer does not say which bytes it has")
            into.add(int(found.group(1)), answer.read())
            into.size = None if found.group(3) == "*" else int(found.group(3))
        elif status == 200:
            self._keep_whole(answer, wanted, into)
        elif status == 416:
            self._keep_nothing(answer, wanted, into)
        elif status in (404, 410):
            raise FileNotFoundError(errno.ENOENT, "the server has no such file", self._original)
        elif status in (401, 403):
            raise PermissionError(errno.EACCES, f"the server says {status}", self._original)
        else:
            raise _broken(f"{self._original}: the server says {status} {answer.reason}")

    def _refuse_change(self, answer: Any, size: int | None) -> None:
        """Raise if the file is not the one that was opened: rows of two files must not be mixed."""
        tag = answer.getheader("ETag") or ""
        if not tag or tag.startswith("W/"):
            tag = answer.getheader("Last-Modified") or ""
        same = not tag or self._tags.setdefault(self._url, tag) == tag
        if size is not None:
            self._size = size if self._size is None else self._size
            same = same and size == self._size
        if not same:
            raise CorruptFileError(
                f"{self._original} was replaced while it was being read: run again, on files that stay as they are",
                file=self._original,
            )

    def _keep_whole(self, answer: Any, wanted: str, into: Blocks) -> None:
        length = int(answer.getheader("Content-Length") or -1)
        if 0 <= length <= SMALL_FILE:
            into.add(0, answer.read())
            into.size = length
        elif "," not in wanted:
            raise OSError(
                errno.EOPNOTSUPP,
                f"{self._original}: the server gives whole files only ({length} bytes); copy the "
                "file, or use a server that serves ranges",
            )
        # Else: the body is left unread, and the ranges will be asked for one by one.

    def _keep_nothing(self, answer: Any, wanted: str, into: Blocks) -> None:
        said = re.search(r"\*/(\d+)", answer.getheader("Content-Range", ""))
        answer.read()
        if "," in wanted:
            return  # some servers say so of a list in which one range is not right
        if said is None or int(said.group(1)):
            raise self._too_short(wanted)
        into.size = 0

    def _too_short(self, wanted: str) -> EOFError:
        return EOFError(f"{self._original} has no bytes {wanted}: it was cut, or replaced")


def _text(one: Range) -> str:
    return f"{one[0]}-{one[1] - 1}"


def _connection(parts: Any) -> Any:
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    if not parts.hostname:
        raise OSError(errno.EINVAL, f"no host in {parts.geturl()!r}")
    return kind(parts.hostname, parts.port, timeout=TIMEOUT_S)
