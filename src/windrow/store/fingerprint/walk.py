"""The way through everything a function or value consists of: one walk, in which each thing is looked at once.

What has a name - a function, a class, a module, a file - and each of its parts is digested by itself, and what uses it has
its name in its place, so that a change is found where it is and nowhere else. A part is digested from the bottom up: whether
two equal things are one or two does not matter. If it goes in circles, its things are numbered as they are met, and then it
does. Things wait in a list: how deep they lie in each other does not matter.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import FunctionType
from typing import Any, NamedTuple

from windrow.store.fingerprint.adapters import A_KEY, Shape, Unknown
from windrow.store.fingerprint.code import digest, plain, read_code
from windrow.store.fingerprint.describe import describe
from windrow.store.fingerprint.libraries import (
    InLibrary,
    Library,
    content_of,
    full_name,
    library_of_class,
    library_of_names,
    static_attribute,
)
from windrow.store.fingerprint.randomness import draw_of
from windrow.units import format_bytes

#: Things to look at before giving up: some seconds.
LIMIT = 1_000_000
#: Items of a value that are named one by one.
PARTS = 100

#: In the place of the name of what was asked for, and of what the code itself writes to, where that does not count.
_ROOT, _WRITTEN = "\0", b"written"

#: Of which the things inside say whether they have changed.
_HOLDERS = (FunctionType, list, dict, set)


def contents(one: Any) -> list[Any]:
    """List what a function or container is made of now; the same things mean that it has not changed."""
    if type(one) is dict:
        return [*one, *one.values()]
    if type(one) is not FunctionType:
        return list(one)
    inside = [*map(content_of, one.__closure__ or ()), *one.__dict__, *one.__dict__.values()]
    if library_of_names(one.__globals__) is not None:
        return inside  # what its decorator or factory was given
    inside += [one.__code__, one.__defaults__, *(one.__kwdefaults__ or {}).values()]
    return inside + [one.__globals__[name] for name in read_code(one.__code__).names if name in one.__globals__]


class Way:
    """How one came to a thing: what it is to the thing that it was found in."""

    __slots__ = ("number", "said", "up")

    def __init__(self, said: Callable[[int], str] | None, number: int, up: Way | str) -> None:
        self.said, self.number, self.up = said, number, up

    def __str__(self) -> str:
        word = f"item {self.number}" if self.said is None else self.said(self.number)
        return f"{word} of {self.up}"


class _Circle(Exception):
    """A part goes in circles."""


class Open(NamedTuple):
    """A thing some of whose children are still to be digested."""

    thing: Any
    shape: Shape
    way: Way | str
    pieces: list[bytes]  #: of the children so far


class Walk:
    """All that was found from one thing on."""

    def __init__(
        self,
        thing: Any,
        name: str = "",
        *,
        exact: bool = True,
        identity: bool = False,
        most: float | None = None,
        frozen: bool = True,
    ) -> None:
        """Walk through a thing.

        ``identity`` says whether it counts which things in it are one; ``most`` is what an array may have in bytes; without
        ``frozen`` it is not looked for values that compiled functions and caches have of earlier globals.
        """
        self.opaque: set[str] = set()
        self.draws: set[str] = set()  #: how random numbers are taken that nobody has chosen
        self.libraries: set[Library] = set()
        self.stores: set[str] = set()
        self.reads_values = False  #: whether functions read values that may be others by the next call
        #: Functions and containers, with what was in them; and whether nothing else was found that can change.
        self.held: list[tuple[Any, list[Any]]] = []
        self.is_settled = True
        self._exact, self._most, self._frozen = exact, most, frozen
        self._numbers: dict[int, bytes] | None = {} if identity else None
        self._name = name or "the value"
        self._parts: dict[str, bytes] = {}
        self._silent: set[str] = set()  #: parts that are said by other names
        self._owners: dict[str, Any] = {}  #: by part: the thing, or the bytes of a plain value
        self._names: dict[int, bytes] = {}  #: of things that have one
        self._taken: dict[str, int] = {}  #: how often a name was given
        self._digests: dict[int, bytes] = {}  #: of things that have none
        #: By identity: things, which are kept so that no others get that, and what was found of them.
        self._shapes: dict[int, tuple[Any, Shape]] = {}
        self._written: set[str] = set()
        self._waiting: deque[tuple[str, Any, str, bool]] = deque()
        shape = None if plain(thing) is not None else self._look(thing, self._name, judged=False)
        if shape is not None and (shape.name or (_is_short(shape) and not identity)):
            self._name = name or shape.name or self._name
            self._add_named(_ROOT, thing, shape)
        else:
            self._waiting.append((_ROOT, thing, self._name, False))
        while self._waiting:
            self._add_part(*self._waiting.popleft())
        if not exact:
            self._parts.update(dict.fromkeys(self._written, _WRITTEN))
        self.own = digest(*(piece for name, part in sorted(self._parts.items()) for piece in (_bytes(name), part)))

    @property
    def digest(self) -> bytes:
        return digest(self.own, *(f"{name} {version}".encode() for name, version in sorted(self.libraries)))

    def parts(self) -> dict[str, bytes]:
        return {name.replace(_ROOT, self._name): part for name, part in self._parts.items() if name not in self._silent}

    # -- parts that have names

    def _add_named(self, name: str, thing: Any, shape: Shape) -> None:
        """Digest what has a name without its parts, and have those wait, each under a name of its own."""
        self._taken[shape.name] = self._taken.get(shape.name, 0) + 1
        self._names[id(thing)] = b"@" + _bytes(name)
        said = [
            f"item {number}" if shape.words is None else shape.words(number) for number in range(len(shape.children))
        ]
        # In the order that they have, but for mappings whose order does not count.
        in_order = said if self._exact or shape.label != "dict" else sorted(said)
        self._parts[name] = digest(_label(shape), *map(_bytes, in_order))
        above = name if name != _ROOT else self._name
        for word, child in zip(said, shape.children, strict=True):
            if word == A_KEY:
                continue  # what is there under it names it
            key = f"{word} of {name}"
            encoded = plain(child)
            same = child if encoded is None else encoded
            owner = self._owners.setdefault(word, same)
            is_same = owner is same or (type(owner) is bytes is type(same) and owner == same)
            if word.startswith("global ") and is_same:
                key = word  # a global is known by its own name alone
            if word in shape.written:
                self._written.add(key)
            if key not in self._parts:
                self._parts[key] = b""
                self._waiting.append((key, child, f"{word} of {above}", word in shape.judged))

    def _add_part(self, part: str, thing: Any, where: str, judged: bool) -> None:
        try:
            found = self._digest(thing, where, judged=judged, numbers=self._numbers)
        except _Circle:
            found = self._digest(thing, where, judged=judged, numbers={})
        self._parts[part] = digest(found)
        if type(thing) is InLibrary or found is self._names.get(id(thing)):
            self._silent.add(part)

    # -- what is in a part

    def _digest(
        self, thing: Any, where: Way | str, *, judged: bool = False, numbers: dict[int, bytes] | None = None
    ) -> bytes:
        """Digest a thing from the bottom up; with ``numbers``, things met before are written as their numbers."""
        done = self._piece(thing, where, numbers, judged=judged)
        if isinstance(done, bytes):
            return done
        waiting, inside = [done], {id(thing)}
        while True:
            one = waiting[-1]
            if len(one.pieces) < len(one.shape.children):
                number = len(one.pieces)
                child = one.shape.children[number]
                if numbers is None and id(child) in inside:
                    raise _Circle
                found = self._piece(child, Way(one.shape.words, number, one.way), numbers)
                if isinstance(found, bytes):
                    one.pieces.append(found)
                else:
                    inside.add(id(child))
                    waiting.append(found)
                continue
            waiting.pop()
            inside.discard(id(one.thing))
            made = self._together(one)
            if numbers is None:
                self._digests[id(one.thing)] = made
            if not waiting:
                return made
            waiting[-1].pieces.append(made)

    def _piece(
        self, one: Any, way: Way | str, numbers: dict[int, bytes] | None, *, judged: bool = False
    ) -> bytes | Open:
        """Return what is written for a thing, if that is known without looking at its children."""
        encoded = plain(one)
        if encoded is not None:
            return b"=" + encoded
        known = self._names.get(id(one)) or (self._digests if numbers is None else numbers).get(id(one))
        if known is not None:
            return known
        shape = self._look(one, way, judged=judged)
        if shape.name:
            count = self._taken.get(shape.name, 0) + 1
            self._add_named(shape.name if count == 1 else f"{shape.name} ({count})", one, shape)
            return self._names[id(one)]
        if not shape.children:
            return _label(shape)
        if numbers is not None:
            if shape.is_set:
                return self._members(shape, way)
            if type(one) is not tuple:
                numbers[id(one)] = b"@%d" % len(numbers)
        return Open(one, shape, way, [])

    def _members(self, shape: Shape, way: Way | str) -> bytes:
        """Digest a set where things are numbered: each member by itself, as there is no order to number them in."""
        try:
            return digest(_label(shape), *sorted(self._digest(child, way) for child in shape.children))
        except _Circle:
            self.opaque.add(f"{way} (a set in a circle)")
            return b"set"

    def _together(self, one: Open) -> bytes:
        pieces = one.pieces
        if one.shape.is_set:
            pieces = sorted(pieces)
        elif one.shape.label == "dict" and not self._exact:
            pieces = [piece for pair in sorted(zip(pieces[::2], pieces[1::2], strict=True)) for piece in pair]
        return digest(_label(one.shape), *pieces)

    # -- what is found

    def _look(self, one: Any, way: Way | str, *, judged: bool) -> Shape:
        if id(one) in self._shapes:
            return self._shapes[id(one)][1]
        kind = type(one)
        if kind in _HOLDERS:
            self.held.append((one, contents(one)))
        try:
            if len(self._shapes) > LIMIT:
                raise Unknown  # noqa: TRY301 - as good as not to be looked into
            shape = self._large(one) or describe(one)
        except Exception:  # noqa: BLE001 - whatever is wrong with it, it is not known what it is
            name = full_name(kind).removeprefix("builtins.")
            shape = Shape(f"opaque {name}", hidden=(f"{way} (a {name})",))
        self._shapes[id(one)] = (one, shape)
        self.libraries.update(shape.uses)
        self.stores.update(shape.stores)
        self.draws.update(shape.draws)
        self.opaque.update(shape.hidden)
        self.reads_values = self.reads_values or shape.reads_values
        if not judged and (said := draw_of(one)):
            self.draws.add(said)
        if shape.frozen is not None and self._frozen:
            function, said = shape.frozen
            if Walk(function, frozen=False).reads_values:
                self.opaque.add(said)
        if kind in _HOLDERS:
            self.is_settled = self.is_settled and shape.is_settled
        elif kind is not tuple and kind is not frozenset and (shape.children or not shape.uses):
            self.is_settled = False
        return shape

    def _large(self, one: Any) -> Shape | None:
        """Refuse an array that takes long to digest, where that is done with every call."""
        kind = type(one)
        if self._most is None or static_attribute(kind, "nbytes") is None or library_of_class(kind) is None:
            return None
        size = int(one.nbytes)
        if size <= self._most:
            return None
        said = f"an array of {format_bytes(size)} among its globals (or say reuse='content')"
        return Shape("large array", hidden=(said,))


def _label(shape: Shape) -> bytes:
    return _bytes(f"{shape.label} {len(shape.children)}")


def _is_short(shape: Shape) -> bool:
    """Whether the items of a value are named one by one: in a set there is no telling, and a thousand are too many to read."""
    if shape.label == "dict" and any(type(key) not in (str, int, bool) for key in shape.children[::2]):
        return False
    return 0 < len(shape.children) <= PARTS and not shape.is_set


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
