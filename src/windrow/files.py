"""``file``: a file whose content belongs to an analysis, such as corrections, a model or a table of cross sections.

Its content is known by a digest from the moment it is named. It is loaded once per process, when it is first used, and
never with another content than that. It pickles as path and digest, so that a worker elsewhere loads it itself.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib
import json
import os
import threading
import zlib
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from stat import S_ISREG
from typing import Any, Generic, TypeVar

from windrow.errors import CorruptFileError, DataError, MissingFileError, UsageError

T = TypeVar("T")


def file(path: str | os.PathLike[str], *, load: Callable[[str], Any] | None = None) -> File:
    """Name a file that steps use; calling what is returned gives its loaded content::

        corrections = wr.file("muon_sf.json.gz")

        @analysis.weight
        def muon_sf(Muon):
            return ak.prod(corrections()["sf"].evaluate(Muon.eta, Muon.pt), axis=1)

    A step may use it from outside, as above, or as a parameter ``(Muon, *, corrections=wr.file(...))``, which is the
    same object: it is called in both cases.

    Parameters
    ----------
    path
        A local file; it must be there.
    load
        Makes something of the path, for instance ``correctionlib.CorrectionSet.from_file`` or ``np.load``. It is called
        once per process, and what it returns is shared by the threads of it. By default ``.json`` and ``.json.gz`` are
        parsed, corrections in correctionlib's form become a ``CorrectionSet``, and any other file is its bytes.
    """
    return File(path, load)


class File:
    """A named file; ``file`` makes it."""

    __slots__ = ("_digest", "_load", "_path", "_stamp")

    def __init__(
        self, path: str | os.PathLike[str], load: Callable[[str], Any] | None = None, digest: str | None = None
    ) -> None:
        if load is not None and not callable(load):
            raise UsageError(f"file({str(path)!r}): load= is a function of a path, got {load!r}")
        # A worker may stand in another directory.
        self._path = os.path.abspath(os.path.expanduser(os.fspath(path)))  # noqa: PTH100, PTH111 - keeps what "~" and ".." mean
        self._load = load
        self._stamp: tuple[int, int] | None = None
        if digest is None:
            self._stamp = _stamp(self._path)
            if self._stamp is None:
                raise MissingFileError(f"no such file: {self._path}", file=self._path)
            digest = _digest(self._path)
        self._digest = digest

    @property
    def path(self) -> str:
        """Where the file is."""
        return self._path

    @property
    def fingerprint(self) -> str:
        """A digest of the content at the time the file was named."""
        return self._digest

    def __call__(self) -> Any:
        """Return the loaded content: the same object for all threads of a process."""
        value = _LOADED.get(self._key(), self._loaded)
        stamp = _stamp(self._path)
        # A file that is out of reach for a moment is no reason to stop: its content is here.
        if stamp is not None and stamp != self._stamp:
            self._refuse_change(stamp)
        return value

    def _loaded(self) -> Any:
        self._refuse_change(_stamp(self._path))
        value = (self._load or _load_by_suffix)(self._path)
        # Once more, as it may have been written to while it was loaded.
        self._refuse_change(None)
        return value

    def _refuse_change(self, stamp: tuple[int, int] | None) -> None:
        try:
            found = _digest(self._path)
        except FileNotFoundError as error:
            raise MissingFileError(
                f"no such file: {self._path} (it was there when it was named, with content {self._digest[:8]})",
                file=self._path,
            ) from error
        if found != self._digest:
            raise CorruptFileError(
                f"{self._path} has changed: its content was {self._digest[:8]} when it was named and is {found[:8]} "
                "now; name it again with wr.file(...) and run again",
                file=self._path,
            )
        if stamp is not None:
            self._stamp = stamp

    def __eq__(self, other: object) -> bool:
        return isinstance(other, File) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        return self._path, self._digest, self._load

    def __reduce__(self) -> Any:
        return File, (self._path, self._load, self._digest)

    def __repr__(self) -> str:
        return f"<file {self._path}, content {self._digest[:8]}>"


# -- once per process ------------------------------------------------------------------------------


class Once(Generic[T]):
    """At most ``limit`` values by key; threads that want the same one wait for the first to make it."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._making: dict[Any, threading.Lock] = {}
        self._values: OrderedDict[Any, T] = OrderedDict()

    def get(self, key: Any, make: Callable[[], T]) -> T:
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                return self._values[key]
            mine = self._making.setdefault(key, threading.Lock())
        with mine:
            with self._lock:
                if key in self._values:
                    return self._values[key]
            value = make()
            with self._lock:
                self._values[key] = value
                while len(self._values) > self._limit:
                    self._values.popitem(last=False)
            return value


#: Loaded files are found by what they are, as a worker unpickles a ``File`` anew for each piece of work. 64 are more than an
#: analysis names; the oldest go first, so that a long session does not keep every version it ever saw.
_LOADED: Once[Any] = Once(64)


def _stamp(path: str) -> tuple[int, int] | None:
    """Return what changes when a file is written to; None if there is no such file."""
    try:
        status = os.stat(path)  # noqa: PTH116 - called for every use
    except OSError:
        return None
    return (status.st_size, status.st_mtime_ns) if S_ISREG(status.st_mode) else None


def _digest(path: str) -> str:
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


# -- loading by suffix -----------------------------------------------------------------------------


def _load_by_suffix(path: str) -> Any:
    raw = Path(path).read_bytes()
    if not path.lower().endswith((".json", ".json.gz")):
        return raw
    try:
        text = (gzip.decompress(raw) if path.lower().endswith(".gz") else raw).decode()
        content = json.loads(text)
    except (ValueError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise CorruptFileError(f"{path} is not JSON: {error}", file=path) from error
    if isinstance(content, dict) and {"schema_version", "corrections"} <= content.keys():
        return _corrections(path, text)
    return content


def _corrections(path: str, text: str) -> Any:
    try:
        library = importlib.import_module("correctionlib")
    except ImportError as error:
        raise UsageError(
            f"{path} holds corrections, which need correctionlib: pip install 'windrow[hep]'; or say how to read it "
            "with load="
        ) from error
    try:
        return library.CorrectionSet.from_string(text)
    except (RuntimeError, ValueError) as error:
        raise DataError(f"{path} holds corrections that correctionlib cannot read: {error}", file=path) from error
