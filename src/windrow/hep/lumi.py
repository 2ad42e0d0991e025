"""Luminosity sections: which of them are certified, and which were seen.

A section is a run and a number in it. Both fit 32 bits, so that a section is one 64-bit key, a range of sections an
interval of keys, and asking for a row one binary search.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import zlib
from collections.abc import Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.errors import MissingFileError, SpecError, UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray


_LIMIT = 2**32
_EXPECTED = 'expected {"run": [[first, last], ...], ...}, as in {"273158": [[1, 1279]]}'


def lumi_mask(json: str | os.PathLike[str] | Mapping[Any, Any]) -> LumiMask:
    """Return a ready cut: true for rows of the certified luminosity sections.

    ``analysis.cut(wr.hep.lumi_mask("golden.json"), name="golden", when="not is_mc")`` reads the columns ``run`` and
    ``luminosityBlock``; for columns of other names add ``reads={"luminosityBlock": "lumi"}``.

    Parameters
    ----------
    json
        The path of the file (it may be gzip-compressed), or what is in it: ``{"273158": [[1, 1279]], ...}``, both ends
        of a range included. Ranges may overlap and come in any order.
    """
    if isinstance(json, Mapping):
        return LumiMask(json)
    return LumiMask(_read(Path(os.fspath(json)).expanduser()), str(json))


class LumiMask:
    """Says for each row whether its luminosity section is in the list; pickles, and is equal by content."""

    __name__ = "lumi_mask"  #: the step's name where none is given

    def __init__(self, ranges: Mapping[Any, Any], label: str = "the luminosity mask") -> None:
        self.label = label
        self._first, self._last = _intervals(ranges, label)

    def __call__(self, run: Any, luminosityBlock: Any) -> NDArray[np.bool_]:  # noqa: N803 - the names of the columns
        """Return one truth value per row."""
        keys, known = _keys(run, luminosityBlock)
        if not len(self._first):
            return np.zeros(len(keys), dtype=bool)
        place = np.searchsorted(self._first, keys, side="right") - 1
        # In front of the first interval the place is -1, the last interval, which begins above the key.
        inside: NDArray[np.bool_] = (self._first[place] <= keys) & (keys <= self._last[place])
        return inside & known

    @property
    def fingerprint(self) -> str:
        """A digest of the sections themselves: how the file was formatted does not count."""
        content = np.concatenate((self._first, self._last)).astype("<u8").tobytes()
        return hashlib.blake2b(content, digest_size=16).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LumiMask) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        runs = len(np.unique(self._first >> np.uint64(32)))
        return f"<LumiMask of {self.label}: {runs} runs, {len(self._first)} ranges>"


def lumi_ranges(run: Any, lumi: Any) -> dict[str, list[list[int]]]:
    """Return the luminosity sections of these rows in the form that ``lumi_mask`` and brilcalc read."""
    keys, known = _keys(run, lumi)
    if not known.all():
        raise UsageError("runs and luminosity sections are whole numbers from 0 to 2**32 - 1")
    keys = np.unique(keys)
    runs, numbers = keys >> np.uint64(32), keys & np.uint64(_LIMIT - 1)
    # A range ends where the next section is not the next number, or is of another run.
    ends = np.append((np.diff(numbers) != 1) | (np.diff(runs) != 0), True)[: len(keys)]
    begins = np.append(True, ends)[: len(keys)]
    ranges: dict[str, list[list[int]]] = {}
    for one, first, last in zip(runs[begins].tolist(), numbers[begins].tolist(), numbers[ends].tolist(), strict=True):
        ranges.setdefault(str(one), []).append([first, last])
    return ranges


# -- inside ---------------------------------------------------------------------------------------


def _keys(run: Any, lumi: Any) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Return one key per row, and which of them mean something: those of numbers that fit 32 bits."""
    columns = [np.asarray(run), np.asarray(lumi)]
    for name, column in zip(("run", "luminosityBlock"), columns, strict=True):
        if column.dtype.kind not in "iu" and column.size:
            raise UsageError(
                f"a luminosity section is told by whole numbers, but the column for {name!r} holds {column.dtype}"
            )
    first, second = (np.atleast_1d(column) for column in columns)
    if first.shape != second.shape or first.ndim != 1:
        raise UsageError(
            f"one run and one luminosity section for each row: got shapes {first.shape} and {second.shape}"
        )
    known: NDArray[np.bool_] = (first >= 0) & (first < _LIMIT) & (second >= 0) & (second < _LIMIT)
    return (first.astype(np.uint64) << np.uint64(32)) | second.astype(np.uint64), known


def _intervals(ranges: Mapping[Any, Any], label: str) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return first and last keys, ascending; ranges that overlap or touch are joined."""
    pairs = sorted(
        ((run << 32) | first, (run << 32) | last)
        for key, items in ranges.items()
        for run in (_run(key, label),)
        for first, last in _pairs(key, items, label)
    )
    joined: list[list[int]] = []
    for first, last in pairs:
        # Ranges that touch are joined only within a run: section 2**32 - 1 is the end of one.
        if joined and first <= joined[-1][1] + 1 and first >> 32 == joined[-1][1] >> 32:
            joined[-1][1] = max(joined[-1][1], last)
        else:
            joined.append([first, last])
    array = np.array(joined, dtype=np.uint64).reshape(-1, 2)
    return np.ascontiguousarray(array[:, 0]), np.ascontiguousarray(array[:, 1])


def _run(key: Any, label: str) -> int:
    text = str(key).strip()
    if not text.isdecimal() or not int(text) < _LIMIT:
        raise SpecError(f"{label}: {key!r} is not a run number; {_EXPECTED}")
    return int(text)


def _pairs(run: Any, items: Any, label: str) -> list[tuple[int, int]]:
    def is_number(value: Any) -> bool:
        whole = isinstance(value, Integral) and not isinstance(value, bool)
        return whole and 0 <= value < _LIMIT

    if not isinstance(items, Sequence) or isinstance(items, str):
        raise SpecError(f"{label}, run {run}: got {items!r:.60}; {_EXPECTED}")
    for item in items:
        pair = isinstance(item, Sequence) and not isinstance(item, str) and len(item) == 2
        if not pair or not all(map(is_number, item)) or item[0] > item[1]:
            raise SpecError(f"{label}, run {run}: {item!r:.60} is not a range [first, last]; {_EXPECTED}")
    return [(int(first), int(last)) for first, last in items]


def _read(path: Path) -> Mapping[Any, Any]:
    if not path.is_file():
        raise MissingFileError(f"no such file: {path} (the list of luminosity sections)", file=str(path))
    raw = path.read_bytes()
    try:
        content = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    except (ValueError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise SpecError(f"{path} is not JSON ({error}); {_EXPECTED}") from error
    if not isinstance(content, Mapping):
        raise SpecError(f"{path} holds a JSON {type(content).__name__}; {_EXPECTED}")
    return content
