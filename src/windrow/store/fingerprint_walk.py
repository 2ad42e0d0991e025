"""The way through everything a function or value consists of; each thing is looked at once.

It goes from thing to thing by a list, not by calling itself: how deep things lie in each other does not matter.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from windrow.store.fingerprint_code import plain
from windrow.store.fingerprint_graph import Node, Order, digest, digests
from windrow.store.fingerprint_libraries import Library, full_name
from windrow.store.fingerprint_names import InLibrary
from windrow.store.fingerprint_things import describe
from windrow.store.fingerprint_values import A_KEY, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


#: Things to look at before giving up: some seconds.
LIMIT = 1_000_000

#: Items of a value that are named one by one.
PARTS = 100

#: In the place of what the code itself writes to, where that does not count.
_WRITTEN = b"written"


class Walk:
    """All things found from one on, as nodes of a graph, and what to call them."""

    def __init__(self, thing: Any, name: str, *, exact: bool) -> None:
        #: The first one stands for what was asked for.
        self.nodes: list[Node] = [Node()]
        self.opaque: list[str] = []
        self.libraries: set[Library] = set()
        self.stores: set[str] = set()
        self._exact = exact
        # By node: the thing, which stays where it is as long as it is held; what it is called; where it was found.
        self._things: list[Any] = [None]
        self._names: list[str] = [""]
        self._from: list[tuple[int, int]] = [(0, 0)]
        self._words: list[Callable[[int], str] | None] = [None]
        self._numbers: dict[int, int] = {}
        self._taken: dict[str, int] = {}  # how often a name was given
        self._parts: dict[str, bytes | int] = {}
        self._labels: dict[str, int] = {}
        self._waiting: deque[int] = deque()
        child = self._reference(thing, 0, 0)
        self.nodes[0].children.append(child)
        if isinstance(child, int):
            self._names[child] = name
        else:
            self._parts[name or "the value"] = child
        self._written: set[int] = set()
        while self._waiting:
            self._look(self._waiting.popleft())
        for number in self._written:
            self.nodes[number] = Node(_WRITTEN)

    def parts(self) -> Mapping[str, bytes]:
        """Return a digest by name: of each part by itself, so that a change is found where it is and nowhere else."""
        parts = {name: digest(self.nodes[number].label) for name, number in self._labels.items()}
        # What has a name of its own is in what uses it by that name alone.
        names = [name.encode("utf-8", "surrogatepass") for name in self._names]
        alone = digests(
            [
                Node(
                    node.label,
                    [names[child] if isinstance(child, int) and names[child] else child for child in node.children],
                    node.order,
                )
                for node in self.nodes
            ]
        )
        for name, part in self._parts.items():
            if isinstance(part, bytes):
                parts[name] = digest(part)
            elif not names[part] or part == 1:
                parts.setdefault(name, alone[part])
        return parts

    def _reference(self, thing: Any, parent: int, place: int) -> bytes | int:
        """Return a plain value itself, and for anything else its number."""
        encoded = plain(thing)
        if encoded is not None:
            return encoded
        number = self._numbers.get(id(thing))
        if number is None:
            number = self._numbers[id(thing)] = len(self.nodes)
            self.nodes.append(Node())
            self._things.append(thing)
            self._names.append("")
            self._from.append((parent, place))
            self._words.append(None)
            self._waiting.append(number)
        return number

    def _look(self, number: int) -> None:
        thing = self._things[number]
        node = self.nodes[number]
        try:
            shape = describe(thing)
            if len(self.nodes) > LIMIT:
                raise Unknown  # noqa: TRY301 - as good as not to be looked into
        except Exception:  # noqa: BLE001 - whatever is wrong with it, it is not known what it is
            kind = full_name(type(thing)).removeprefix("builtins.")
            node.label = f"opaque {kind}".encode("utf-8", "surrogatepass")
            self.opaque.append(f"{self._way(number)} (a {kind})")
            return
        node.label = shape.label.encode("utf-8", "surrogatepass")
        node.order = shape.order
        if shape.label == "dict" and not self._exact:
            node.order = Order.NONE_OF_PAIRS
        self.libraries.update(shape.uses)
        self.stores.update(shape.stores)
        self.opaque += shape.hidden
        self._words[number] = shape.words
        if shape.name:
            self._name(number, self._names[number] or shape.name)
        elif number == 1:
            self._names[number] = self._names[number] or "the value"
        # Nobody wants to read which of a thousand numbers changed, and in a set there is no telling.
        few = len(shape.children) <= PARTS and shape.order is Order.AS_IT_IS
        has_parts = bool(self._names[number]) and (bool(shape.name) or few)
        if number == 1 and not has_parts:
            self._parts[self._names[number]] = number
        for place, child in enumerate(shape.children):
            reference = self._reference(child, number, place)
            if place in shape.written and not self._exact:
                if isinstance(reference, int):
                    self._written.add(reference)
                else:
                    reference = _WRITTEN
            node.children.append(reference)
            if has_parts and type(child) is not InLibrary:
                self._part(number, place, reference)

    def _name(self, number: int, name: str) -> None:
        count = self._taken[name] = self._taken.get(name, 0) + 1
        name = name if count == 1 else f"{name} ({count})"
        self._names[number] = name
        self._labels[name] = number

    def _part(self, parent: int, place: int, reference: bytes | int) -> None:
        """Give a part of something that has a name one as well; a global is known by its own alone."""
        word = self._word(parent, place)
        if word == A_KEY:
            return  # what is there under it says enough
        short = word.startswith("global ") and self._parts.get(word, reference) == reference
        self._parts[word if short else f"{word} of {self._names[parent]}"] = reference

    def _word(self, number: int, place: int) -> str:
        words = self._words[number]
        return f"item {place}" if words is None else words(place)

    def _way(self, number: int) -> str:
        said: list[str] = []
        while number and not self._names[number]:
            parent, place = self._from[number]
            if not parent:
                return " of ".join([*said, "the value"])
            said.append(self._word(parent, place))
            number = parent
        return " of ".join([*said, self._names[number]])
