"""Values of libraries that keep them in compiled code, and how to get at them; only libraries that are loaded."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from windrow.store.fingerprint_libraries import full_name, library_of_class
from windrow.store.fingerprint_unseen import has_frozen_something
from windrow.store.fingerprint_values import Shape, Unknown, hashed, mro_of

if TYPE_CHECKING:
    from collections.abc import Callable


def describe_known(value: Any) -> Shape | None:
    """Describe a value of a library that is known here; None for others."""
    for kind in mro_of(type(value)):
        describe = _DESCRIBED.get(full_name(kind))
        if describe is None or library_of_class(kind) is None:
            continue
        if library_of_class(type(value)) is None and describe not in _MADE_TO_BE_DERIVED:
            raise Unknown  # a class of the user's may hold more
        shape = describe(value)
        return shape._replace(children=[*shape.children, type(value)])
    return None


# -- awkward ---------------------------------------------------------------------------------------


def _awkward_array(value: Any) -> Shape:
    layout, behavior, attrs = _awkward_parts(value)
    return Shape("awkward", [layout, behavior, attrs])


def _awkward_record(value: Any) -> Shape:
    layout, behavior, attrs = _awkward_parts(value)
    row = layout.array[layout.at : layout.at + 1]
    return Shape("awkward record", [row, behavior, attrs])


def _awkward_parts(value: Any) -> list[Any]:
    # Not asked of itself: columns and classes of the user's answer for its attributes.
    names = ("_layout", "_behavior", "_attrs")
    return [object.__getattribute__(value, name) for name in names]


def _awkward_layout(value: Any) -> Shape:
    awkward = sys.modules["awkward"]
    if not value.is_all_materialized:
        raise Unknown  # reading it now could take as long as the run
    form, length, buffers = awkward.to_buffers(awkward.to_packed(value, highlevel=False))
    content = {key: np.asarray(buffers[key]) for key in sorted(buffers)}
    return Shape("layout", [form.to_json(), length, content])


# -- Arrow and pandas ------------------------------------------------------------------------------


def _arrow_table(value: Any) -> Shape:
    arrow = sys.modules["pyarrow"]
    # In one piece: in how many it is says nothing.
    table = value.combine_chunks()
    sink = arrow.BufferOutputStream()
    with arrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return Shape("table", [hashed(memoryview(sink.getvalue()))])


def _arrow_batch(value: Any) -> Shape:
    return Shape("batch", [sys.modules["pyarrow"].Table.from_batches([value])])


def _arrow_array(value: Any) -> Shape:
    arrow = sys.modules["pyarrow"]
    if type(value).__name__ == "ChunkedArray":
        value = arrow.chunked_array(value.chunks, type=value.type)
    return Shape("arrow", [arrow.table({"x": value})])


def _arrow_type(value: Any) -> Shape:
    arrow = sys.modules["pyarrow"]
    schema = value if isinstance(value, arrow.Schema) else arrow.schema([("x", value)])
    return Shape("arrow type", [schema.serialize().to_pybytes()])


def _frame(value: Any) -> Shape:
    columns = [value.iloc[:, number] for number in range(value.shape[1])]
    return Shape("frame", [value.index, value.columns, [column.array for column in columns], value.attrs])


def _series(value: Any) -> Shape:
    return Shape("series", [value.index, value.name, value.array, value.attrs])


def _index(value: Any) -> Shape:
    levels = [value.get_level_values(number) for number in range(value.nlevels)]
    content = [level.array for level in levels] if value.nlevels > 1 else [value.array]
    return Shape("index", [list(value.names), content])


def _column(value: Any) -> Shape:
    if hasattr(value, "codes"):
        return Shape("categories", [value.codes, value.categories, bool(value.ordered)])
    if isinstance(value.dtype, np.dtype):
        return Shape("column", [value.to_numpy()])
    return Shape("column", [str(value.dtype), value.to_numpy(dtype=object)])


# -- histograms and corrections --------------------------------------------------------------------


def _histogram(value: Any) -> Shape:
    from boost_histogram.serialization import to_uhi

    written = dict(to_uhi(value))
    written.pop("writer_info", None)  # which version wrote it
    return Shape("histogram", [written, dict(vars(value))])


def _axis(value: Any) -> Shape:
    from boost_histogram import Histogram

    return Shape("axis", [Histogram(value), dict(vars(value))])


def _correction(value: Any) -> Shape:
    """All but the compiled part, which is made of the rest."""
    own = {name: part for name, part in vars(value).items() if name != "_base"}
    return Shape("correction", [own])


# -- numba -----------------------------------------------------------------------------------------


def _dispatcher(value: Any) -> Shape:
    # Signatures that were given stay as they are; others come with use.
    given = [] if value._can_compile else sorted(map(str, value.nopython_signatures))
    shape = Shape("jit", [value.py_func, value.targetoptions, given])
    return _frozen(shape, value.py_func, compiled=bool(value.overloads))


def _vectorized(value: Any) -> Shape:
    given = sorted(map(str, value.types)) if value._frozen else []
    function = value._dispatcher.py_func
    return _frozen(Shape("vectorize", [function, given]), function, compiled=bool(value.types))


def _general_vectorized(value: Any) -> Shape:
    builder = value.gufunc_builder
    given = sorted(map(str, value.types)) if value._frozen else []
    shape = Shape("guvectorize", [builder.py_func, builder.signature, given])
    return _frozen(shape, builder.py_func, compiled=bool(value.types))


def _callback(value: Any) -> Shape:
    return _frozen(Shape("cfunc", [value._pyfunc, str(value._sig)]), value._pyfunc, compiled=True)


def _frozen(shape: Shape, function: Any, *, compiled: bool) -> Shape:
    """Add that globals are in compiled code as they were then, if it reads any."""
    if not compiled or not has_frozen_something(function):
        return shape
    words = f"what compiled function {function.__name__!r} has frozen of the globals it read when it was compiled"
    return shape._replace(hidden=(words,))


def _zone(value: Any) -> Shape:
    if value.key is None:
        raise Unknown  # read from a file that it does not name
    return Shape("zone", [value.key])


def _timestamp(value: Any) -> Shape:
    return Shape("timestamp", [value.isoformat(), str(value.tz), value.unit])


_DESCRIBED: dict[str, Callable[[Any], Shape]] = {
    "awkward.highlevel.Array": _awkward_array,
    "awkward.highlevel.Record": _awkward_record,
    "awkward.contents.content.Content": _awkward_layout,
    "pyarrow.lib.Table": _arrow_table,
    "pyarrow.lib.RecordBatch": _arrow_batch,
    "pyarrow.lib.Array": _arrow_array,
    "pyarrow.lib.ChunkedArray": _arrow_array,
    "pyarrow.lib.Schema": _arrow_type,
    "pyarrow.lib.DataType": _arrow_type,
    "pandas.DataFrame": _frame,
    "pandas.core.frame.DataFrame": _frame,
    "pandas.Series": _series,
    "pandas.core.series.Series": _series,
    "pandas.Index": _index,
    "pandas.core.indexes.base.Index": _index,
    "pandas.api.extensions.ExtensionArray": _column,
    "pandas.core.arrays.base.ExtensionArray": _column,
    "pandas.Timestamp": _timestamp,
    "pandas._libs.tslibs.timestamps.Timestamp": _timestamp,
    "zoneinfo.ZoneInfo": _zone,
    "boost_histogram.histogram.Histogram": _histogram,
    "boost_histogram.axis.Axis": _axis,
    "correctionlib.highlevel.CorrectionSet": _correction,
    "correctionlib.highlevel.Correction": _correction,
    "correctionlib.highlevel.CompoundCorrection": _correction,
    "numba.core.dispatcher.Dispatcher": _dispatcher,
    "numba.np.ufunc.dufunc.DUFunc": _vectorized,
    "numba.np.ufunc.gufunc.GUFunc": _general_vectorized,
    "numba.core.ccallback.CFunc": _callback,
}

#: Records of an analysis are classes of the user's; they cannot hold more than the array does.
_MADE_TO_BE_DERIVED = (_awkward_array, _awkward_record)
