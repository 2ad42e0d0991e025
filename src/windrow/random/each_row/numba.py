"""``rng`` in a compiled step with ``each=True``: a type of Numba's with the calls of ``RowRng``.

``rng("jer")`` is resolved while compiling, so the name must be a constant; where it is none, the step
runs in plain Python. Keys depend on the seed and are not compiled in: each (name, method) of this
process has a place in a table, and a compiled step reads its keys from one made for the seed.
Importing this imports Numba.
"""

# ruff: noqa: A002, ARG001 - users write object=; what describes a method to Numba has its arguments for show

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
from numba.core import cgutils
from numba.core import types as numba_types
from numba.core.errors import TypingError
from numba.core.typing import signature
from numba.extending import intrinsic, lower_builtin, models, overload_method, register_model

from windrow.errors import UsageError
from windrow.random.arrays.numpy import LARGEST_MEAN, DrawRequest, make_object
from windrow.random.each_row import python, scalars
from windrow.random.philox import LOW32, stream_key

if TYPE_CHECKING:
    from numpy.typing import NDArray


types: Any = numba_types  # half of its names are made when it is imported

#: (name, method) -> its place in every table of keys; it only grows, under Numba's own lock.
_PLACES: dict[tuple[str, str], int] = {}


def table(seed: int) -> NDArray[np.uint64]:
    """Return the keys of everything that compiled steps of this process draw, for one seed."""
    keys = [stream_key(seed, name, method) for name, method in tuple(_PLACES)]
    return np.array(keys or [0], np.uint64)


# -- one number of one counter, kept: compiling a step then compiles none of this ----------------------


@scalars.kept
def _uniform_number(key: Any, identity: Any, counter: Any) -> Any:
    return scalars.unit(scalars.block(key, identity, counter)[0])


@scalars.kept
def _normal_number(key: Any, identity: Any, counter: Any) -> Any:
    return scalars.quantile(scalars.centred(scalars.block(key, identity, counter)[0]))


@scalars.kept
def _exponential_number(key: Any, identity: Any, counter: Any) -> Any:
    return 0.0 - scalars.log(scalars.above_zero(scalars.block(key, identity, counter)[0]))


@scalars.kept
def _integers_number(key: Any, identity: Any, counter: Any, start: Any, stop: Any) -> Any:
    span = np.uint64(stop) - np.uint64(start)
    return np.int64(scalars.high_word(scalars.block(key, identity, counter)[0], span) + np.uint64(start))


@scalars.kept
def _poisson_number(key: Any, identity: Any, counter: Any, mean: Any) -> Any:
    one, other = scalars.block(key, identity, counter)
    return scalars.poisson_of(key, identity, counter, one, other, mean, scalars.poisson_terms(mean))


#: Method -> its number, the parameters NumPy wants for the same, those the number takes.
_SAMPLES: dict[str, tuple[Any, tuple[Any, ...], tuple[Any, ...]]] = {
    "uniform": (_uniform_number, (0.0, 1.0), ()),
    "normal": (_normal_number, (0.0, 1.0), ()),
    "exponential": (_exponential_number, (1.0,), ()),
    "integers": (_integers_number, (-50, 1000), (-50, 1000)),
    "poisson": (_poisson_number, (33.3,), (33.3,)),
}


@cache
def _check_bits(method: str) -> None:
    """Compare a method's compiled numbers with NumPy's; the step runs in plain Python if they differ."""
    one, numpy_parameters, parameters = _SAMPLES[method]
    identity = np.arange(1, 513, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    plain = make_object(DrawRequest(0x0123456789ABCDEF, method, 3, numpy_parameters), identity, 2)
    key, counter = np.uint64(0x0123456789ABCDEF), np.uint64(2 << 32 | 3)
    fast = np.array([one(key, row, counter, *parameters) for row in identity])
    if plain.tobytes() != fast.tobytes():
        raise TypingError(f"rng(...).{method} is not the same here compiled and in NumPy")


# -- types ---------------------------------------------------------------------------------------------


class _RngType(types.Callable):  # type: ignore[misc]
    """``rng`` of one row: its identity, and where the keys are."""

    def __init__(self) -> None:
        super().__init__("windrow.rng")

    def get_call_type(self, context: Any, args: Any, kws: Any) -> Any:  # noqa: ARG002
        """Return the type of ``rng(name)``; None where the name is no constant."""
        if kws or len(args) != 1 or not isinstance(args[0], types.StringLiteral):
            return None
        return signature(_StreamType(args[0].literal_value), args[0], recvr=self)

    def get_call_signatures(self) -> Any:
        """Return nothing: the calls there can be are as many as names."""
        return (), False

    def get_impl_key(self, sig: Any) -> Any:  # noqa: ARG002
        return self


class _StreamType(types.Type):  # type: ignore[misc]
    """A stream: its name is part of the type, so the methods know their keys' places."""

    def __init__(self, stream: str) -> None:
        super().__init__(f"windrow.stream({stream!r})")
        self.stream = stream


RNG = _RngType()
_KEYS = types.CPointer(types.uint64)


@register_model(_RngType)
@register_model(_StreamType)
class _Model(models.StructModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, [("identity", types.uint64), ("keys", _KEYS)])


@intrinsic  # type: ignore[untyped-decorator]
def row_rng(typing: Any, identity: Any, keys: Any) -> Any:
    """Make the ``rng`` of a row; the table of keys must outlive it."""

    def build(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        made = cgutils.create_struct_proxy(RNG)(context, builder)
        made.identity = args[0]
        made.keys = context.make_array(sig.args[1])(context, builder, args[1]).data
        return made._getvalue()

    return RNG(types.uint64, keys), build


@lower_builtin(RNG, RNG, types.StringLiteral)  # type: ignore[untyped-decorator]
def _name_stream(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    of_rng = cgutils.create_struct_proxy(RNG)(context, builder, value=args[0])
    made = cgutils.create_struct_proxy(sig.return_type)(context, builder)
    made.identity, made.keys = of_rng.identity, of_rng.keys
    return made._getvalue()


@intrinsic  # type: ignore[untyped-decorator]
def _identity(typing: Any, stream: Any) -> Any:
    def read(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        return cgutils.create_struct_proxy(sig.args[0])(context, builder, value=args[0]).identity

    return types.uint64(stream), read


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def _key(typing: Any, stream: Any, method: Any) -> Any:
    _check_bits(method.literal_value)
    place = _PLACES.setdefault((stream.stream, method.literal_value), len(_PLACES))

    def read(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        keys = cgutils.create_struct_proxy(sig.args[0])(context, builder, value=args[0]).keys
        return builder.load(cgutils.gep(builder, keys, place))

    return types.uint64(stream, method), read


# -- methods -----------------------------------------------------------------------------------
# ``object`` is the name that users write, as in ``RowStream``.

_SHIFT32 = np.uint64(32)


@numba.njit(nogil=True)  # type: ignore[untyped-decorator]
def _counter(index: Any, draw: Any) -> Any:
    if not (0 <= index <= LOW32 and 0 <= draw <= LOW32):
        raise UsageError(python.WRONG_NUMBER)
    return (np.uint64(index) << _SHIFT32) | np.uint64(draw)


@overload_method(_StreamType, "uniform")  # type: ignore[untyped-decorator]
def _uniform(stream: Any, low: Any = 0.0, high: Any = 1.0, object: Any = 0, draw: Any = 0) -> Any:
    def number(stream: Any, low: Any = 0.0, high: Any = 1.0, object: Any = 0, draw: Any = 0) -> Any:
        low, high = float(low), float(high)
        if not (low < high and math.isfinite(high - low)):
            raise UsageError(python.WRONG_UNIFORM)
        key = _key(stream, "uniform")
        value = _uniform_number(key, _identity(stream), _counter(object, draw))
        if low == 0.0 and high == 1.0:
            return value
        return min(value * (high - low) + low, np.nextafter(high, low))

    return number


@overload_method(_StreamType, "normal")  # type: ignore[untyped-decorator]
def _normal(stream: Any, loc: Any = 0.0, scale: Any = 1.0, object: Any = 0, draw: Any = 0) -> Any:
    def number(stream: Any, loc: Any = 0.0, scale: Any = 1.0, object: Any = 0, draw: Any = 0) -> Any:
        loc, scale = float(loc), float(scale)
        if not (math.isfinite(loc) and math.isfinite(scale) and scale >= 0.0):
            raise UsageError(python.WRONG_NORMAL)
        key = _key(stream, "normal")
        value = _normal_number(key, _identity(stream), _counter(object, draw))
        return value if loc == 0.0 and scale == 1.0 else value * scale + loc

    return number


@overload_method(_StreamType, "exponential")  # type: ignore[untyped-decorator]
def _exponential(stream: Any, scale: Any = 1.0, object: Any = 0, draw: Any = 0) -> Any:
    def number(stream: Any, scale: Any = 1.0, object: Any = 0, draw: Any = 0) -> Any:
        scale = float(scale)
        if not (math.isfinite(scale) and scale >= 0.0):
            raise UsageError(python.WRONG_SCALE)
        key = _key(stream, "exponential")
        return _exponential_number(key, _identity(stream), _counter(object, draw)) * scale

    return number


@overload_method(_StreamType, "integers")  # type: ignore[untyped-decorator]
def _integers(stream: Any, low: Any, high: Any = None, object: Any = 0, draw: Any = 0) -> Any:
    one = high is None or isinstance(high, types.NoneType | types.Omitted)
    if not all(isinstance(bound, types.Integer) for bound in ((low,) if one else (low, high))):
        return None

    def number(stream: Any, low: Any, high: Any = None, object: Any = 0, draw: Any = 0) -> Any:
        start = np.int64(0 if one else low)
        stop = np.int64(low if one else high)
        if start >= stop:
            raise UsageError(python.WRONG_INTEGERS)
        key = _key(stream, "integers")
        counter = _counter(object, draw)
        return _integers_number(key, _identity(stream), counter, start, stop)

    return number


@overload_method(_StreamType, "poisson")  # type: ignore[untyped-decorator]
def _poisson(stream: Any, lam: Any, object: Any = 0, draw: Any = 0) -> Any:
    def number(stream: Any, lam: Any, object: Any = 0, draw: Any = 0) -> Any:
        mean = float(lam)
        if not 0.0 <= mean <= LARGEST_MEAN:
            raise UsageError(python.WRONG_MEAN)
        key = _key(stream, "poisson")
        return _poisson_number(key, _identity(stream), _counter(object, draw), mean)

    return number
