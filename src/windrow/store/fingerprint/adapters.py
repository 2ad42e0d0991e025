"""Values of libraries that ``__reduce_ex__`` tells nothing stable about: arrays, tables, corrections, compiled functions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xxhash

if TYPE_CHECKING:
    from windrow.store.fingerprint.libraries import Library


#: What a key of a mapping is to it.
A_KEY = "a key"


class Unknown(Exception):
    """What cannot be looked into."""


class Shape(NamedTuple):
    """What a thing is by itself, and what it consists of."""

    label: str
    children: Sequence[Any] = ()
    words: Callable[[int], str] | None = None  #: what each child is to it; an item where it does not say
    is_set: bool = False  #: whether its children have no order
    name: str = ""  #: what it is called wherever it is found: a function, a class, a file
    uses: tuple[Library, ...] = ()
    hidden: tuple[str, ...] = ()  #: what it takes from where it cannot be looked into
    frozen: tuple[Any, str] | None = None  #: a function whose earlier globals may be in it, and what to say then
    # Of functions: what their code writes to outside itself, and by which words; how it takes random numbers, and by which
    # words; whether it reads values; whether all that its names mean is in what was found.
    stores: tuple[str, ...] = ()
    written: frozenset[str] = frozenset()
    draws: tuple[str, ...] = ()
    judged: frozenset[str] = frozenset()
    reads_values: bool = False
    is_settled: bool = True


def words(*said: str) -> Callable[[int], str]:
    return said.__getitem__


# -- NumPy -----------------------------------------------------------------------------------------


def describe_array(value: Any) -> Shape:
    """Describe an array by the values in it: how they lie in memory is not in it."""
    values = np.ndarray.view(value, np.ndarray)
    dtype = values.dtype
    label = f"array {values.shape}"
    if dtype.names is not None:
        # One by one: there may be anything in the gaps between them.
        fields = [values[name] for name in dtype.names]
        return Shape(label, [dtype, *fields], words("the type", *map(repr, dtype.names)))
    if dtype.hasobject or dtype.kind == "T":
        return Shape(label, [dtype, values.ravel().tolist()])
    if dtype.char in "gG":  # extended precision leaves bytes unused, with anything in them
        return Shape(label, [dtype, [repr(one) for one in values.ravel()]])
    content = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    return Shape(label, [dtype, xxhash.xxh3_128_digest(content.data)])


def _ufunc(value: Any) -> Shape:
    name = value.__name__
    for module in (np, sys.modules.get("scipy.special")):
        if getattr(module, name, None) is value:
            return Shape(f"ufunc {name}", [module])
    raise Unknown  # made of a function that it does not show


# -- awkward and Arrow -----------------------------------------------------------------------------


def _awkward(value: Any) -> Shape:
    # Not asked of itself: columns and classes of the user's answer for its attributes.
    layout, behavior, attrs = (object.__getattribute__(value, name) for name in ("_layout", "_behavior", "_attrs"))
    if hasattr(layout, "at"):  # a record
        layout = [layout.array[layout.at : layout.at + 1]]
    return Shape("awkward", [layout, behavior, attrs])


def _awkward_layout(value: Any) -> Shape:
    awkward = sys.modules["awkward"]
    if not value.is_all_materialized:
        raise Unknown  # reading it now could take as long as the run
    form, length, buffers = awkward.to_buffers(awkward.to_packed(value, highlevel=False))
    return Shape("layout", [form.to_json(), length, {key: np.asarray(buffers[key]) for key in sorted(buffers)}])


def _arrow(value: Any) -> Shape:
    """Describe tables and arrays in one piece: in how many they are says nothing."""
    arrow = sys.modules["pyarrow"]
    label = type(value).__name__
    if isinstance(value, arrow.RecordBatch):
        value = arrow.Table.from_batches([value])
    elif isinstance(value, arrow.ChunkedArray):
        value = arrow.table({"x": arrow.chunked_array(value.chunks, type=value.type)})
    elif isinstance(value, arrow.Array):
        value = arrow.table({"x": value})
    table = value.combine_chunks()
    sink = arrow.BufferOutputStream()
    with arrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return Shape(f"arrow {label}", [xxhash.xxh3_128_digest(memoryview(sink.getvalue()))])


# -- histograms and corrections --------------------------------------------------------------------


def _histogram(value: Any) -> Shape:
    from boost_histogram.serialization import to_uhi

    written = dict(to_uhi(value))
    written.pop("writer_info", None)  # which version wrote it
    return Shape("histogram", [written, dict(vars(value))])


def _correction(value: Any) -> Shape:
    return Shape("correction", [{name: part for name, part in vars(value).items() if name != "_base"}])


# -- numba: globals are in compiled code as they were when it was compiled ---------------------------


def _dispatcher(value: Any) -> Shape:
    # Signatures that were given stay as they are; others come with use.
    given = [] if value._can_compile else sorted(map(str, value.nopython_signatures))
    return _compiled([value.targetoptions, given], value.py_func, is_compiled=bool(value.overloads))


def _compiled_ufunc(value: Any) -> Shape:
    builder = getattr(value, "gufunc_builder", None)
    function = value._dispatcher.py_func if builder is None else builder.py_func
    given = sorted(map(str, value.types)) if value._frozen else []
    return _compiled([getattr(builder, "signature", None), given], function, is_compiled=bool(value.types))


def _compiled(facts: list[Any], function: Any, *, is_compiled: bool) -> Shape:
    said = f"what compiled function {function.__name__!r} has frozen of the globals it read when it was compiled"
    return Shape("compiled", [function, *facts], frozen=(function, said) if is_compiled else None)


#: Classes that those of the user's may be made of, which cannot hold more.
DERIVABLE = {"awkward.highlevel.Array", "awkward.highlevel.Record"}
#: How to describe objects of a class, by its full name, so that no library is loaded for it.
ADAPTERS: dict[str, Callable[[Any], Shape]] = {
    "numpy.generic": lambda v: Shape("scalar", [v.dtype, repr(v) if v.dtype.char in "gG" else v.tobytes()]),
    "numpy.ufunc": _ufunc,
    "numpy.random._generator.Generator": lambda v: Shape("generator", [v.bit_generator]),
    "numpy.random.bit_generator.BitGenerator": lambda v: Shape("bits", [v.state]),
    "awkward.highlevel.Array": _awkward,
    "awkward.highlevel.Record": _awkward,
    "awkward.contents.content.Content": _awkward_layout,
    "pyarrow.lib.Table": _arrow,
    "pyarrow.lib.RecordBatch": _arrow,
    "pyarrow.lib.Array": _arrow,
    "pyarrow.lib.ChunkedArray": _arrow,
    "boost_histogram.histogram.Histogram": _histogram,
    "correctionlib.highlevel.CorrectionSet": _correction,
    "correctionlib.highlevel.Correction": _correction,
    "correctionlib.highlevel.CompoundCorrection": _correction,
    "numba.core.dispatcher.Dispatcher": _dispatcher,
    "numba.np.ufunc.dufunc.DUFunc": _compiled_ufunc,
    "numba.np.ufunc.gufunc.GUFunc": _compiled_ufunc,
    "numba.core.ccallback.CFunc": lambda v: _compiled([str(v._sig)], v._pyfunc, is_compiled=True),
}
