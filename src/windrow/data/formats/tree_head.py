"""A lean way to read what a TTree says about its branches, where all of them hold numbers or lists of numbers.

uproot makes a dozen Python objects for every branch, a third of a second for a file of NanoAOD. This module knows the one layout
that such files have (TTree 20, TBranch 13, one leaf each) and gives up on anything else: uproot reads that. It never guesses.
"""

from __future__ import annotations

import struct
from array import array
from typing import Any, NamedTuple

import numpy as np

from windrow.data.formats.baskets import Baskets

#: Set in a number of bytes; what is not counted is laid out differently.
_COUNTED = 0x4000_0000
#: A class that is named here for the first time, and one that was named before.
_NEW_CLASS, _KNOWN_CLASS = 0xFFFF_FFFF, 0x8000_0000
#: Positions of objects and classes are counted from the begin of the key, and from 2.
_FIRST_POSITION = 2
#: Bit of an object that others refer to: another number follows then.
_REFERENCED = 1 << 4
#: By the class of a leaf: its numbers, signed and unsigned.
_NUMBERS = {
    f"TLeaf{letter}": (np.dtype(signed), np.dtype(signed.replace("i", "u")))
    for letter, signed in zip("OBSILGFD", ("?", ">i1", ">i2", ">i4", ">i8", ">i8", ">f4", ">f8"), strict=True)
}

_U4, _COUNT_VERSION, _TWO = struct.Struct(">I"), struct.Struct(">IH"), struct.Struct(">II")
_OBJECT, _ARRAY, _LEAF = struct.Struct(">hII"), struct.Struct(">ii"), struct.Struct(">iii??I")
_TREE = struct.Struct(">qqqqqdiiiiIqqqqqq")
_BRANCH, _BASKETS = struct.Struct(">iiiiq"), struct.Struct(">iIiqqqq")


#: Last rows of ranges of clusters, rows of a cluster in each, and in what comes after the last range.
Clusters = tuple[list[int], list[int], int]


class Head(NamedTuple):
    """A tree of branches of plain numbers, or of lists of them, whose baskets are all in the file."""

    rows: int
    clusters: Clusters
    branches: list[tuple[Baskets, int]]  #: with the stored bytes of each


def read_head(handle: Any, path: str) -> Head | None:
    """Return what the tree of an open file says of itself; None if uproot has to read it."""
    key = handle.key(path)
    if key.fClassName != "TTree":
        return None
    chunk, cursor = key.get_uncompressed_chunk_cursor()
    try:
        return _Parse(chunk.raw_data.tobytes(), cursor.origin).tree()
    except (_Unknown, struct.error, LookupError, ValueError):  # damaged ones too: uproot says what is wrong
        return None


class _Unknown(Exception):
    pass


class _Parse:
    def __init__(self, data: bytes, origin: int) -> None:
        self._data = data
        self._at = 0
        self._origin = origin - _FIRST_POSITION
        self._classes: dict[int, str] = {}
        self._leaves: dict[int, str] = {}  #: branch of the leaf at this position

    def tree(self) -> Head:
        self._enter(20)
        self._names()
        for _ in range(3):  # how it would be drawn
            self._skip()
        numbers = self._take(_TREE)
        ends, sizes = (self._numbers(">i8", numbers[10]) for _ in range(2))
        self._skip()
        branches = [self._branch() for _ in range(self._length())]
        if len({branch.name for branch, _ in branches}) != len(branches):
            raise _Unknown  # which is which is told by uproot
        return Head(numbers[0], (ends, sizes, numbers[15]), branches)

    def _branch(self) -> tuple[Baskets, int]:
        kind, _ = self._object()
        end = self._enter(13)
        name, _ = self._names()
        self._skip()
        writing = self._take(_BRANCH)[3]
        self._skip()
        _, most, _, rows, _, _, stored_bytes = self._take(_BASKETS)
        if kind != "TBranch" or self._length() != 0 or self._length() != 1:
            raise _Unknown
        stored, counter = self._leaf(name)
        self._skip()  # baskets that are in here: there are none, or the rows do not add up
        sizes, starts, seeks = (self._numbers(one, most) for one in (">i4", ">i8", ">i8"))
        count = next((place for place, seek in enumerate(seeks) if seek == 0 or place == writing), most)
        entries = array("q", starts[: count + 1] if count else (0,))
        self._text()
        if self._at != end or entries[-1] != rows or len(entries) != count + 1:
            raise _Unknown
        baskets = Baskets(
            name=name.rstrip("."), path=name, plain=True, stored=stored, jagged=counter is not None, counter=counter,
            entries=entries, seeks=array("q", seeks[:count]), sizes=array("q", sizes[:count]),
        )  # fmt: skip
        return baskets, stored_bytes

    def _leaf(self, branch: str) -> tuple[np.dtype[Any], str | None]:
        kind, position = self._object()
        end = self._enter(1)
        self._enter(2)
        _, title = self._names()
        length, _, _, _, unsigned, counted_by = self._take(_LEAF)
        counter = self._leaves[counted_by] if counted_by else None
        if length != 1 or title.count("[") != (counter is not None):
            raise _Unknown  # several numbers at a time
        self._leaves[position] = branch
        self._at = end
        return _NUMBERS[kind][unsigned], counter

    # -- what ROOT writes for any object -----------------------------------------------------------

    def _take(self, layout: struct.Struct) -> tuple[Any, ...]:
        found = layout.unpack_from(self._data, self._at)
        self._at += layout.size
        return found

    def _enter(self, version: int) -> int:
        """Read the head of an object and return where it ends."""
        begin = self._at
        count, found = self._take(_COUNT_VERSION)
        if not count & _COUNTED or found != version:
            raise _Unknown
        return int(begin + 4 + (count ^ _COUNTED))

    def _skip(self) -> None:
        (count,) = self._take(_U4)
        if not count & _COUNTED:
            raise _Unknown
        self._at += count ^ _COUNTED

    def _object(self) -> tuple[str, int]:
        """Read the class of what a pointer points to, and its position."""
        begin = self._at - self._origin
        count, tag = self._take(_TWO)
        if not count & _COUNTED or not tag & _KNOWN_CLASS:
            raise _Unknown
        if tag == _NEW_CLASS:
            end = self._data.index(0, self._at)
            self._classes[begin + 4] = self._data[self._at : end].decode()
            self._at = end + 1
            return self._classes[begin + 4], begin
        return self._classes[tag ^ _KNOWN_CLASS], begin

    def _base(self) -> None:
        version, _, bits = self._take(_OBJECT)
        if version != 1 or bits & _REFERENCED:
            raise _Unknown

    def _names(self) -> tuple[str, str]:
        self._enter(1)
        self._base()
        return self._text(), self._text()

    def _length(self) -> int:
        """Read the head of a list of objects."""
        self._enter(3)
        self._base()
        self._text()
        return int(self._take(_ARRAY)[0])

    def _text(self) -> str:
        length = self._data[self._at]
        self._at += 1
        if length == 255:
            (length,) = self._take(_U4)
        self._at += length
        return self._data[self._at - length : self._at].decode()

    def _numbers(self, kind: str, count: int) -> list[int]:
        found = np.frombuffer(self._data, kind, count, self._at + 1)
        self._at += 1 + found.nbytes
        return found.tolist()  # type: ignore[no-any-return]
