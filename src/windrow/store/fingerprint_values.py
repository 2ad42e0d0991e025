"""What a value consists of: its type, its content, and the values inside it.

Nothing of the user's runs: attributes are taken from where they are kept, never asked for. What may hide something, such
as an open file or an object made by compiled code, is ``Unknown`` rather than guessed at.
"""

from __future__ import annotations

import array
import collections
import dataclasses
import datetime as dt
import decimal
import functools
import gc
import logging
import operator
import os
import pathlib
import re
import struct
import sys
import types
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xxhash

from windrow.store.fingerprint_graph import Order
from windrow.store.fingerprint_libraries import Library, library_of_class, names_of
from windrow.store.fingerprint_unseen import has_frozen_something

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


#: What a key of a mapping is to it.
A_KEY = "a key"


class Unknown(Exception):
    """What cannot be looked into."""


class Shape(NamedTuple):
    """What a thing is by itself, and what it consists of."""

    label: str
    children: Sequence[Any] = ()
    words: Callable[[int], str] | None = None  #: what each child is to it; an item where it does not say
    order: Order = Order.AS_IT_IS
    name: str = ""  #: what it is called wherever it is found: a function, a class, a file
    uses: tuple[Library, ...] = ()
    stores: tuple[str, ...] = ()  #: what its code writes to outside itself
    written: frozenset[int] = frozenset()  #: those of the children that are written to
    hidden: tuple[str, ...] = ()  #: what it takes from where it cannot be looked into


# Asked of ``type`` itself: a class of the user may answer for its attributes with code.
mro_of: Callable[[type], tuple[type, ...]] = type.__dict__["__mro__"].__get__


def static_attribute(kind: type, name: str) -> Any:
    """Return what a class or those it is made of keep under a name; None if nothing."""
    for one in mro_of(kind):
        names = names_of(one)
        if name in names:
            return names[name]
    return None


def describe_value(value: Any) -> Shape | None:
    """Describe a value of a type that is known here; None for others."""
    kind = type(value)
    describe = _DESCRIBED.get(kind)
    if describe is not None:
        return describe(value)
    if kind is np.ndarray or kind is np.memmap:
        return _array(value)
    for base in mro_of(kind):
        # A class of the user's that is made of one may hold more.
        if base in _WITH_SUBCLASSES and library_of_class(kind) is not None:
            return _WITH_SUBCLASSES[base](value)
    return None


# -- containers and small things -------------------------------------------------------------------


class _Pairs(NamedTuple):
    """Keys and values of a mapping of another type; no mapping, as making one asks the keys whether they are equal."""

    items: list[tuple[Any, Any]]


class _Unordered(NamedTuple):
    """Members of a set of another type."""

    members: list[Any]


def _mapping(value: dict[Any, Any]) -> Shape:
    return _pairs(list(dict.items(value)))


def _pairs(items: list[tuple[Any, Any]]) -> Shape:
    """In the order it has: what goes through a mapping may depend on it, if only in the last digit of a sum."""
    children = [part for pair in items for part in pair]
    return Shape("dict", children, lambda n: f"item {_key(items[n // 2][0])}" if n % 2 else A_KEY)


def _words(*words: str) -> Callable[[int], str]:
    return words.__getitem__


def _key(key: Any) -> str:
    return repr(key) if type(key) in (str, int, float, bool, bytes) else f"of a {type(key).__name__}"


def _proxy(value: Any) -> Shape:
    (inside,) = gc.get_referents(value)  # what it shows; asking it could run code of the user's
    return Shape("mappingproxy", [inside])


def _datetime(value: Any) -> Shape:
    return Shape(type(value).__name__, [value.isoformat(), value.fold, value.tzinfo])


def _timezone(value: dt.timezone) -> Shape:
    return Shape("timezone", [dt.timezone.utcoffset(value, None), value.tzname(None)])


def _compiled_call(value: Any) -> Shape:
    return Shape(type(value).__name__, [value.__reduce__()[1:]])


def _cached(value: Any) -> Shape:
    inside = value.__wrapped__
    hidden = []
    if value.cache_info().currsize and has_frozen_something(inside):
        hidden.append(f"what cached function {inside.__name__!r} remembers of earlier globals")
    return Shape("cached", [inside], _words("the function"), hidden=tuple(hidden))


def _field(value: dataclasses.Field[Any]) -> Shape:
    """Without its type, which is an annotation."""
    kept = ("name", "default", "default_factory", "init", "repr", "hash", "compare", "kw_only")
    return Shape("field", [getattr(value, name) for name in kept], _words(*kept))


_DESCRIBED: dict[type, Callable[[Any], Shape]] = {
    dict: _mapping,
    collections.OrderedDict: lambda v: _mapping(v)._replace(label="OrderedDict"),
    list: lambda v: Shape("list", list(v)),
    tuple: lambda v: Shape("tuple", v),
    set: lambda v: Shape("set", list(v), order=Order.NONE),
    frozenset: lambda v: Shape("frozenset", list(v), order=Order.NONE),
    _Pairs: lambda v: _pairs(v.items),
    _Unordered: lambda v: Shape("set", v.members, order=Order.NONE),
    collections.deque: lambda v: Shape("deque", [v.maxlen, *v]),
    collections.defaultdict: lambda v: Shape(
        "defaultdict", [v.default_factory, _Pairs(list(dict.items(v)))], _words("the factory", "the content")
    ),
    bytearray: lambda v: Shape("bytearray", [bytes(v)]),
    array.array: lambda v: Shape("array", [v.typecode, v.tobytes()]),
    range: lambda v: Shape("range", [v.start, v.stop, v.step]),
    slice: lambda v: Shape("slice", [v.start, v.stop, v.step]),
    types.MappingProxyType: _proxy,
    re.Pattern: lambda v: Shape("pattern", [v.pattern, v.flags]),
    dt.date: lambda v: Shape("date", [v.toordinal()]),
    dt.time: _datetime,
    dt.datetime: _datetime,
    dt.timedelta: lambda v: Shape("timedelta", [v.days, v.seconds, v.microseconds]),
    dt.timezone: _timezone,
    decimal.Decimal: lambda v: Shape("decimal", [str(v)]),
    object: lambda _: Shape("object"),  # made to be told from everything else
    types.GenericAlias: lambda v: Shape("alias", [v.__origin__, v.__args__]),
    types.UnionType: lambda v: Shape("union", [v.__args__]),
    operator.itemgetter: _compiled_call,
    operator.attrgetter: _compiled_call,
    operator.methodcaller: _compiled_call,
    staticmethod: lambda v: Shape("staticmethod", [v.__func__], _words("the function")),
    classmethod: lambda v: Shape("classmethod", [v.__func__], _words("the function")),
    property: lambda v: Shape("property", [v.fget, v.fset, v.fdel]),
    functools.cached_property: lambda v: Shape("cached_property", [v.func], _words("the function")),
    functools.partial: lambda v: Shape(
        "partial", [v.func, v.args, v.keywords], _words("the function", "the arguments", "the keywords")
    ),
    functools._lru_cache_wrapper: _cached,
    dataclasses.Field: _field,
    types.MemberDescriptorType: lambda v: Shape(f"slot {v.__name__}"),
    type(collections.namedtuple("_", "x").__dict__["x"]): _compiled_call,  # noqa: PYI024 - just its field
}


# -- NumPy -----------------------------------------------------------------------------------------


def _array(value: Any) -> Shape:
    """Describe an array by the values in it: how they lie in memory is not in it."""
    values = np.ndarray.view(value, np.ndarray)
    dtype = values.dtype
    label = f"array {values.shape}"
    if dtype.names is not None:
        # One by one: there may be anything in the gaps between them.
        fields = [values[name] for name in dtype.names]
        return Shape(label, [dtype, *fields], _words("the type", *map(repr, dtype.names)))
    if dtype.hasobject or dtype.kind == "T":
        return Shape(label, [dtype, values.ravel().tolist()])
    if dtype.char in "gG":
        return Shape(label, [dtype, _long(values)])
    return Shape(label, [dtype, hashed(np.ascontiguousarray(values))])


def hashed(buffer: Any) -> bytes:
    """Return a digest of the bytes of a contiguous buffer."""
    if isinstance(buffer, np.ndarray):
        buffer = buffer.reshape(-1).view(np.uint8)
    return xxhash.xxh3_128_digest(buffer)


def _long(values: Any) -> list[str]:
    """Extended precision leaves bytes unused, with anything in them."""
    return [repr(one) for one in values.ravel()]


def _dtype(value: Any) -> Shape:
    if value.subdtype is not None:
        base, shape = value.subdtype
        return Shape(f"dtype of {shape}", [base])
    if value.names is None:
        return Shape(f"dtype {value.str} {value.name}")
    fields = [value.fields[name] for name in value.names]
    label = f"dtype {value.names!r} {value.itemsize} {[field[1] for field in fields]}"
    return Shape(label, [field[0] for field in fields])


def _ufunc(value: Any) -> Shape:
    name = value.__name__
    for module in (np, sys.modules.get("scipy.special")):
        if getattr(module, name, None) is value:
            return Shape(f"ufunc {name}", [module])
    raise Unknown  # made of a function that it does not show


def _vectorized(value: Any) -> Shape:
    kept = ("pyfunc", "otypes", "signature", "excluded", "cache")
    own = vars(value)
    return Shape("vectorize", [own.get(name) for name in kept], _words(*kept))


_WITH_SUBCLASSES: dict[type, Callable[[Any], Shape]] = {
    np.generic: lambda v: Shape("scalar", [np.asarray(v)]),
    np.dtype: _dtype,
    np.ufunc: _ufunc,
    np.vectorize: _vectorized,
    np.random.Generator: lambda v: Shape("generator", [v.bit_generator]),
    np.random.BitGenerator: lambda v: Shape(type(v).__name__, [v.state]),
    np.random.RandomState: lambda v: Shape("state", [v.get_state(legacy=False)]),
    pathlib.PurePath: lambda v: Shape("path", [os.fspath(v)]),
    logging.Logger: lambda v: Shape(f"logger {v.name}"),  # what is logged is no result
}


# -- objects ---------------------------------------------------------------------------------------

#: Types of which one knows all that is in them, though compiled; classes may be made of them.
_BASES: dict[type, Callable[[Any], Any]] = {
    object: lambda _: None,
    dict: lambda v: _Pairs(list(dict.items(v))),
    list: lambda v: list(list.__iter__(v)),
    tuple: lambda v: tuple(tuple.__iter__(v)),
    set: lambda v: _Unordered(list(set.__iter__(v))),
    frozenset: lambda v: _Unordered(list(frozenset.__iter__(v))),
    str: str.__str__,
    bytes: bytes.__bytes__,
    int: int.__int__,
    float: float.__float__,
    complex: complex.__complex__,
    np.ndarray: lambda v: np.ndarray.view(v, np.ndarray),
    collections.OrderedDict: lambda v: _Pairs(list(collections.OrderedDict.items(v))),
    collections.defaultdict: lambda v: [_factory(v), _Pairs(list(dict.items(v)))],
    collections.deque: lambda v: list(collections.deque.__iter__(v)),
    functools.partial: lambda v: [functools.partial.__reduce__(v)[2][:3]],
    types.SimpleNamespace: lambda _: None,
}

_factory: Callable[[Any], Any] = names_of(collections.defaultdict)["default_factory"].__get__

_POINTER = struct.calcsize("P")


def describe_state(value: Any) -> Shape:
    """Describe an object by its class, its attributes, and what it is by the type that its class is made of."""
    kind = type(value)
    classes = mro_of(kind)
    base = next(one for one in classes if one in _BASES)
    above = classes[: classes.index(base)]
    if _hides_something(kind, base, above):
        raise Unknown
    own: dict[str, Any] = {}
    for one in reversed(classes):
        kept = names_of(one)
        holder = kept.get("__dict__")
        if type(holder) is types.GetSetDescriptorType:
            own |= holder.__get__(value, kind)
        for name, slot in kept.items():
            if type(slot) is types.MemberDescriptorType:
                try:
                    own[name] = slot.__get__(value, kind)
                except AttributeError:
                    continue  # not set yet
    if any(type(name) is not str for name in own):
        raise Unknown
    names = sorted(own)
    children = [kind, _BASES[base](value), *(own[name] for name in names)]
    words = ["the class", "the content", *(f"attribute {name!r}" for name in names)]
    return Shape(f"object {names!r}", children, words.__getitem__)


def _hides_something(kind: type, base: type, above: tuple[type, ...]) -> bool:
    """Whether an object is larger than what is known of it: then compiled code keeps something there."""
    slots = sum(type(entry) is types.MemberDescriptorType for one in above for entry in names_of(one).values())
    names = _offset_of_names(kind)
    # Counted from the end if an object may have any size, and in front of the object if it is just negative.
    slots += _offset_of_names(base) == 0 and (names > 0 or (names < 0 and _size_of_item(base) > 0))
    slots += _offset_of_weak(kind) > 0 and _offset_of_weak(base) <= 0
    return _size(kind) - _size(base) != slots * _POINTER


_size: Callable[[type], int] = names_of(type)["__basicsize__"].__get__
_size_of_item: Callable[[type], int] = names_of(type)["__itemsize__"].__get__
_offset_of_names: Callable[[type], int] = names_of(type)["__dictoffset__"].__get__
_offset_of_weak: Callable[[type], int] = names_of(type)["__weakrefoffset__"].__get__
