"""The directory of a run: manifest, event log, summary and result, for its owner alone.

Every file is written beside its place and moved there when it is whole. Nothing that is not ours is removed or
replaced. A new run puts what an earlier one left into ``previous/`` and removes it when it has a result itself; the
journal of the earlier one is removed, or taken over by a run that continues it. A result is a pickle, and reading a
pickle runs code: it is read only from where no other user can write.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import cramjam
import xxhash

from windrow.errors import CorruptFileError, DataError, MissingFileError, UsageError
from windrow.store import disk
from windrow.store.disk import LOCK, check_private, part_of, write_whole
from windrow.store.journal.journal import JOURNAL, Journal, remove_journal
from windrow.store.journal.journal import NAMES as JOURNAL_NAMES

#: Version of the layout of a run directory. Version 1 had a journal of several files.
FORMAT = 2

MANIFEST = "manifest.json"
EVENTS = "events.jsonl"
SUMMARY = "summary.json"
RESULT = "result.pickle"
REPORT = "report.html"
TRACE = "trace.json"

#: Every file of a run directory, besides its journal. What belongs to an earlier run goes first result, last manifest.
NAMES = (RESULT, SUMMARY, REPORT, TRACE, EVENTS, MANIFEST)

#: Directory for what an earlier run left, while a new one has no result yet.
PREVIOUS = "previous"

_KIND = "windrow run"
_RESULT_MAGIC = b"windrow result\n\0"
_RESULT_FORMAT = 1
_RESULT_HEADER = struct.Struct("<16sIQ16s")  # magic, format, length of what follows, its xxh3 digest


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """A directory that holds one run; the one who made it holds its lock until ``close``."""

    path: Path
    _lock: disk.DirectoryLock | None = field(default=None, compare=False, repr=False)

    @classmethod
    def create(cls, path: str | os.PathLike[str]) -> Self:
        """Make a run directory; what an earlier run left in it is moved to ``previous/``, and its journal removed.

        A directory with other files in it is accepted as long as none has a name of ours, and no other run is going on
        in it.
        """
        return cls._take(Path(path), keep_journal=False)

    @classmethod
    def resume(cls, path: str | os.PathLike[str]) -> Self:
        """Take over a run directory with its journal; what else an earlier run left is moved to ``previous/``.

        Where no run has been, or none came far enough to leave something, this is a new one: jobs are submitted again
        as they are. Where a run has ended and left no journal, that is said, since nothing of it can be reused.
        """
        return cls._take(Path(path), keep_journal=True)

    @classmethod
    def _take(cls, place: Path, *, keep_journal: bool) -> Self:
        if not place.exists():
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not place.is_dir():
            raise UsageError(f"a run directory is a directory, and {place} is a file")
        names = {entry.name for entry in place.iterdir()}
        if keep_journal and Journal.exists(place):
            disk.refuse_if_shared(place)  # what was written by others would be run
        disk.keep_others_out(place, ours=is_run_directory(place) or names <= {LOCK})
        lock = disk.take_lock(place)
        if lock is None:
            raise UsageError(f"another run is going on in {place}: wait until it has ended, or name another directory")
        try:
            _refuse_files_of_others(place)
            _refuse_other_format(place)
            if (place / PREVIOUS).exists():
                _refuse_files_of_others(place / PREVIOUS)
            if keep_journal:
                _take_over(place)
            else:
                # In this order there is never one in a directory that has no manifest.
                remove_journal(place)
                _set_aside(place)
        except BaseException:
            lock.release()
            raise
        return cls(place, lock)

    def close(self) -> None:
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        place = Path(path)
        if not place.is_dir():
            raise MissingFileError(f"no run directory {place}", file=str(place))
        if not is_run_directory(place):
            raise DataError(f"{place} is not the directory of a run: it has no {MANIFEST} that Windrow wrote")
        _refuse_other_format(place)
        return cls(place)

    @property
    def log(self) -> Path:
        return self.path / EVENTS

    def write_manifest(self, facts: dict[str, Any]) -> None:
        """Write what is known of the run; keys that are there already are kept unless given anew."""
        known = self.read_manifest() if is_run_directory(self.path) else {}
        manifest = {**known, **facts, "kind": _KIND, "format": FORMAT}
        text = json.dumps(_named_by_text(manifest), indent=2, default=str)
        write_whole(self.path / MANIFEST, [text.encode() + b"\n"])

    def read_manifest(self) -> dict[str, Any]:
        try:
            manifest = json.loads((self.path / MANIFEST).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(f"{self.path / MANIFEST} cannot be read: {error}") from error
        if not isinstance(manifest, dict):
            raise DataError(f"{self.path / MANIFEST} is no manifest of a run")
        return manifest

    def write_summary(self, text: str) -> None:
        write_whole(self.path / SUMMARY, [text.encode()])

    def read_summary(self) -> dict[str, Any]:
        try:
            found = json.loads((self.path / SUMMARY).read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise self._no(SUMMARY) from error
        except ValueError as error:
            raise CorruptFileError(f"{self.path / SUMMARY} is not JSON: {error}") from error
        return dict(found)

    def write_log(self, text: str) -> None:
        write_whole(self.path / EVENTS, [text.encode()])

    def close_log(self) -> None:
        """Close the log, which is written as the run goes, to other users."""
        if self.log.exists():
            self.log.chmod(0o600)

    def write_result(self, content: bytes) -> None:
        packed = bytes(cramjam.zstd.compress(content, level=3))
        digest = xxhash.xxh3_128_digest(packed)
        header = _RESULT_HEADER.pack(_RESULT_MAGIC, _RESULT_FORMAT, len(packed), digest)
        write_whole(self.path / RESULT, [header, packed])

    def read_result(self) -> bytes:
        if not (self.path / RESULT).exists():
            raise self._no(RESULT)
        return read_result_file(self.path / RESULT)

    def forget_previous(self) -> None:
        """Remove what an earlier run left, unless that was complete and this one is not."""
        previous = self.path / PREVIOUS
        if not (_is_complete(previous) and not _is_complete(self.path)):
            _clear(previous)

    def _no(self, name: str) -> MissingFileError:
        manifest = self.read_manifest()
        state, started = manifest.get("state", "unknown"), manifest.get("started", "unknown")
        why = {"running": "the run is still going on, or was killed", "failed": "the run failed"}.get(
            state, f"its state is {state!r}"
        )
        todo = "run the analysis again, with resume=True if what is done shall count"
        if (self.path / PREVIOUS / RESULT).exists():
            todo += f"; the result of the run before it is in {self.path / PREVIOUS}"
        return MissingFileError(
            f"{self.path} has no {name}: {why} (started {started}); {todo}", file=str(self.path / name)
        )


# -- what an earlier run left ------------------------------------------------------------------


def _refuse_files_of_others(place: Path) -> None:
    if not place.is_dir():
        raise UsageError(f"{place} is a file, and a run needs a directory of that name")
    names = sorted((*NAMES, *JOURNAL_NAMES))
    taken = [name for name in names if os.path.lexists(place / name)]
    if taken and not is_run_directory(place):
        raise UsageError(
            f"{place} is not the directory of a run, and has files a run would replace: {', '.join(taken)}; "
            "name a new directory"
        )


def _refuse_other_format(place: Path) -> None:
    """Refuse a directory of another version: files of its run would be left among those of a new one."""
    if not is_run_directory(place):
        return
    version = RunDirectory(place).read_manifest().get("format")
    if version != FORMAT:
        whose = "a newer" if isinstance(version, int) and version > FORMAT else "an earlier"
        raise DataError(
            f"{place} was made by {whose} version of Windrow (format {version}, this one has {FORMAT}): name another "
            "directory, or remove this one and run again; the version that made it can still read it"
        )


def _take_over(place: Path) -> None:
    """Set aside all but the journal. There is a manifest at all times: without one the journal would belong to no run."""
    if Journal.exists(place):
        _set_aside(place, but=MANIFEST)
        manifest = {"kind": _KIND, "format": FORMAT, "state": "running"}
        write_whole(place / MANIFEST, [json.dumps(manifest).encode() + b"\n"])
    elif (place / RESULT).exists():
        raise UsageError(
            f"resume=True: nothing to continue in {place}: the run there has a result, and no {JOURNAL} to go on from; "
            "say resume=False, which starts from the beginning and keeps that result until there is a new one"
        )
    else:
        remove_journal(place)
        _set_aside(place)


def _set_aside(place: Path, but: str | None = None) -> None:
    """Move a result and what belongs to it to ``previous/``; a run that has none is removed.

    Whenever this is interrupted, the result is in a directory that has a manifest.
    """
    previous = place / PREVIOUS
    better = _is_complete(previous) and not _is_complete(place)
    if (place / RESULT).exists() and not better:
        _clear(previous)
        previous.mkdir(mode=0o700, exist_ok=True)
        disk.keep_others_out(previous, ours=True)
        write_whole(previous / MANIFEST, [(place / MANIFEST).read_bytes()])
        for name in NAMES:
            if name != but and os.path.lexists(place / name):
                (place / name).replace(previous / name)
    _clear(place, but=but, and_itself=False)


def _is_complete(place: Path) -> bool:
    if not (place / RESULT).exists() or not is_run_directory(place):
        return False
    return RunDirectory(place).read_manifest().get("state") == "complete"


def _clear(place: Path, *, but: str | None = None, and_itself: bool = True) -> None:
    for name in NAMES:
        if name != but:
            (place / name).unlink(missing_ok=True)
        part_of(place / name).unlink(missing_ok=True)
    if and_itself:
        with contextlib.suppress(OSError):  # not there, or with files that are not ours
            place.rmdir()


def time_text() -> str:
    """Time of day, as manifests have it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


# -- files -------------------------------------------------------------------------------------


def _named_by_text(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _named_by_text(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_named_by_text(item) for item in value]
    return value


def manifest_in(place: Path) -> dict[str, Any]:
    """Return what the manifest of a directory says; nothing where there is none that can be read."""
    try:
        manifest = json.loads((place / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return manifest if isinstance(manifest, dict) else {}


def is_run_directory(place: Path) -> bool:
    return manifest_in(place).get("kind") == _KIND


def read_result_file(path: Path) -> bytes:
    """Return the content of a result file, if no other user can have written it and every byte is there."""
    # What is checked is what is read: the open file, not a name that may come to mean another one.
    with path.open("rb") as stream:
        check_private(path, os.fstat(stream.fileno()))
        content = stream.read()
    if not content.startswith(_RESULT_MAGIC):
        raise CorruptFileError(f"{path} is not a result that Windrow wrote", file=str(path))
    whole = len(content) >= _RESULT_HEADER.size
    _, version, length, digest = _RESULT_HEADER.unpack_from(content) if whole else (b"", 1, 0, b"")
    packed = memoryview(content)[_RESULT_HEADER.size :]
    if version > _RESULT_FORMAT:
        raise DataError(
            f"{path} has format {version}, this Windrow reads formats up to {_RESULT_FORMAT}: use a newer Windrow"
        )
    if not whole or version < 1 or len(packed) != length or xxhash.xxh3_128_digest(packed) != digest:
        raise CorruptFileError(
            f"{path} is cut off or has changed: it should hold {length} bytes, with a checksum that it does not have; run the "
            "analysis again, or copy the file again",
            file=str(path),
        )
    return bytes(cramjam.zstd.decompress(packed))
