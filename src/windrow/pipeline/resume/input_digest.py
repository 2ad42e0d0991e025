"""What an input is the same by, from one run to the next: everything that its rows come from, and its units.

A joined input reads more files than the one it is named by, so a source may have a method ``made_of(index)``: words that
say how an input is put together, and the inputs of other sources that it is put together from.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

from windrow.data.source import stamp_of
from windrow.errors import WindrowError
from windrow.store.fingerprint.api import fingerprint
from windrow.store.journal.journal import KnownInput

if TYPE_CHECKING:
    from windrow.data.base import Input, Source


#: Between the parts of an identity: the file's own, what else counts, and when the file's status last changed.
_NEXT = "\x1f"


def own_identity(known: KnownInput) -> str:
    """What a file identified itself as when it was opened; of arrays, the digest of their content."""
    return known.identity.rsplit(_NEXT, 2)[0]


class InputIdentities:
    """The identities of the inputs of one source; arrays are looked through once."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.keys = _keys(source)  #: under which the inputs are found again
        self._contents: dict[int, str] = {}  #: by id of what an input's location is

    def known(self, item: Input, identity: str, rows: int, borders: tuple[int, ...]) -> KnownInput:
        size, mtime, ctime = _times(item) or (None, None, None)
        own = self._content(item) if item.format == "arrays" else identity
        return KnownInput(
            key=self.keys[item.index],
            dataset=item.dataset,
            label=item.label,
            identity=_NEXT.join((own, self._rest(item), str(ctime))),
            rows=rows,
            borders=borders,
            size=size,
            mtime_ns=mtime,
        )

    def is_same(self, item: Input, known: KnownInput) -> bool:
        """Say whether an input has the rows and units it had: by what the file system says, else by opening it."""
        own, *others = known.identity.rsplit(_NEXT, 2)
        if len(others) != 2 or others[0] != self._rest(item):
            return False
        if item.format == "arrays":
            return own == self._content(item)
        now = _times(item)
        if now is not None and (*now[:2], str(now[2])) == (known.size, known.mtime_ns, others[1]):
            return True
        try:
            reader = self._source.open(item.index)
        except (WindrowError, OSError):
            return False
        try:
            return (reader.info.identity, reader.info.rows) == (own, known.rows)
        finally:
            reader.close()

    def _rest(self, item: Input) -> str:
        """Digest what else counts: rows asked for, units, and all that is read beside the file."""
        words = _NEXT.join(self._words(self._source, item.index))
        return hashlib.blake2b(words.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()

    def _words(self, source: Source, index: int) -> Iterator[str]:
        item = source.inputs[index]
        yield repr((item.format, item.tree, item.steps, getattr(source, "grid", None)))
        made_of = getattr(source, "made_of", None)
        if made_of is None:
            return
        said, others = made_of(index)
        yield said
        for other, number in others:
            # What the input is named by is compared by itself, with more patience.
            if other.inputs[number] is not self._source.inputs[index]:
                yield self._beside(other, other.inputs[number])
            yield from self._words(other, number)

    def _beside(self, source: Source, item: Input) -> str:
        if item.format == "arrays":
            return self._content(item)
        status = _times(item)
        if status is not None:
            return repr((item.label, status))
        try:
            reader = source.open(item.index)
        except (WindrowError, OSError):
            return secrets.token_hex()
        reader.close()
        return repr((item.label, reader.info.identity, reader.info.rows))

    def _content(self, item: Input) -> str:
        """Digest arrays; those that cannot be looked into are never the same."""
        found = self._contents.get(id(item.location))
        if found is None:
            looked = fingerprint(dict(item.location.columns))
            found = f"opaque {secrets.token_hex()}" if looked.opaque else looked.digest
            self._contents[id(item.location)] = found
        return found


def _keys(source: Source) -> list[str]:
    seen: dict[str, int] = {}
    keys = []
    for item in source.inputs:
        name = _NEXT.join((item.dataset, item.label, item.tree or ""))
        seen[name] = seen.get(name, 0) + 1
        keys.append(name if seen[name] == 1 else f"{name}{_NEXT}{seen[name]}")
    return keys


#: Device, inode, size and time of the last change of a local file: another one means another content.
FileStamp: TypeAlias = tuple[int, int, int, int]


def file_stamp(item: Input) -> FileStamp | None:
    """Say what a local file is by; None for what is no local file, or is gone."""
    found = stamp_of(item)
    return None if found is None else found[:4]


def _times(item: Input) -> tuple[int, int, int] | None:
    """Size, and times of the last change of a local file: of its content, which can be set back, and of anything."""
    found = stamp_of(item)
    return None if found is None else found[2:]
