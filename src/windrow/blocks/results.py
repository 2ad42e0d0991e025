"""What came back from a user's function: checked, turned into plain arrays, joined from blocks, taken for fewer rows.

Each check knows what was expected for so many rows and says what came instead. None means neither pass nor fail.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np

from windrow.blocks.columns import concatenate, take
from windrow.errors import StepResultError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from windrow.blocks.program import BoundStep
    from windrow.blocks.selection import Selection


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a cut said of each row: pass, fail, or (``undefined``) None."""

    passed: NDArray[np.bool_]
    undefined: NDArray[np.bool_] | None = None  #: None where every row has an answer

    @property
    def parts(self) -> tuple[NDArray[np.int8]]:
        """One number per row: 0 fail, 1 pass, 2 undefined."""
        codes = self.passed.astype(np.int8)
        if self.undefined is not None:
            codes[self.undefined] = 2
        return (codes,)

    def side(self, inverted: bool) -> NDArray[np.bool_]:
        """Rows on the wanted side; an undefined row is on neither."""
        if not inverted:
            return self.passed
        failed = ~self.passed
        return failed if self.undefined is None else failed & ~self.undefined


@dataclass(frozen=True, slots=True)
class UpDown:
    """A weight with its two variations."""

    nominal: Any
    up: Any
    down: Any

    @property
    def parts(self) -> tuple[Any, Any, Any]:
        return self.nominal, self.up, self.down


def updown(nominal: Any, up: Any, down: Any) -> UpDown:
    """Return a weight together with its variations up and down, from a ``weight`` step.

    Outputs that take ``weight`` are then also filled with this factor shifted, under the names ``<step>_up`` and
    ``<step>_down``; no cut is run again for it.
    """
    return UpDown(nominal, up, down)


def check_cut(step: str, value: Any, rows: int) -> Verdict:
    """Turn a cut's answer into one pass/fail/undefined per row."""
    if isinstance(value, ak.Array):
        return _awkward_cut(step, value, rows)
    if isinstance(value, np.ma.MaskedArray):
        missing = np.ma.getmaskarray(value)
        return _verdict(step, value.filled(False), rows, missing if missing.any() else None)
    if isinstance(value, (list, tuple)) or hasattr(value, "__array__"):
        value = _array(value)
        if isinstance(value, ak.Array):
            return _awkward_cut(step, value, rows)
    if not isinstance(value, np.ndarray) or value.ndim == 0:
        raise StepResultError(
            f"cut {step!r} must return one boolean per row ({rows} rows) but returned {_describe(value)}; "
            "compare whole columns, element by element, instead of reducing them to a single answer"
        )
    return _verdict(step, value, rows, None)


def check_column(step: str, value: Any, rows: int) -> Any:
    """Check that a column has one entry per row; return it as a NumPy or awkward array."""
    if isinstance(value, UpDown):
        raise StepResultError(f"column {step!r} returned wr.updown(...): only a weight has variations")
    if isinstance(value, np.ma.MaskedArray):
        value = ak.from_numpy(value)
    elif not isinstance(value, (ak.Array, np.ndarray)) and _is_list(value):
        value = _array(value)
    if not (isinstance(value, ak.Array) or (isinstance(value, np.ndarray) and value.ndim)):
        raise StepResultError(
            f"column {step!r} must return one entry per row ({rows} rows) but returned {_describe(value)}"
        )
    if len(value) != rows:
        raise StepResultError(
            f"column {step!r} must return one entry per row: expected length {rows}, got length {len(value)} "
            f"({_describe(value)}); select objects inside a row, and rows with a cut"
        )
    return value


def check_weight(step: str, value: Any, rows: int) -> UpDown | NDArray[np.float64]:
    """Check that a weight has one number per row; a single number holds for all rows."""
    if isinstance(value, UpDown):
        parts = (value.nominal, value.up, value.down)
        return UpDown(*(_numbers(step, part, rows) for part in parts))
    return _numbers(step, value, rows)


def _numbers(step: str, value: Any, rows: int) -> NDArray[np.float64]:
    try:
        plain = ak.to_numpy(value, allow_missing=False) if isinstance(value, ak.Array) else value
        if plain is None or np.ma.is_masked(plain) or np.iscomplexobj(plain):
            # NumPy would make a NaN of None, and forget masks and imaginary parts.
            raise TypeError("these are no plain numbers")  # noqa: TRY301
        numbers = np.asarray(plain, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise StepResultError(
            f"weight {step!r} must return one number per row but returned {_describe(value)}"
        ) from error
    if numbers.ndim == 0:
        return np.full(rows, numbers)
    if numbers.shape != (rows,):
        raise StepResultError(
            f"weight {step!r} must return one number per row: expected length {rows}, got {_describe(plain)}"
        )
    return numbers


def _awkward_cut(step: str, value: ak.Array, rows: int) -> Verdict:
    if value.ndim != 1:
        raise StepResultError(
            f"cut {step!r} must return one boolean per row but returned one list per row ({value.type}): "
            "did you mean ak.any(..., axis=1) or ak.all(..., axis=1)?"
        )
    if value.fields:
        raise StepResultError(f"cut {step!r} must return one boolean per row but returned records ({value.type})")
    missing = None
    if isinstance(value.type.content, ak.types.OptionType):
        missing = np.asarray(ak.is_none(value))
        if len(value) and missing.all():
            # All None: awkward does not know that the rest would have been booleans.
            return _verdict(step, np.zeros(len(value), dtype=bool), rows, missing)
        value = ak.fill_none(value, False)
        missing = missing if missing.any() else None
    return _verdict(step, ak.to_numpy(value), rows, missing)


def _verdict(step: str, value: NDArray[Any], rows: int, undefined: NDArray[np.bool_] | None) -> Verdict:
    if value.dtype != np.bool_:
        raise StepResultError(
            f"cut {step!r} must return booleans but returned {_describe(value)}; write the comparison out, for "
            "instance x > 0"
        )
    if value.shape != (rows,):
        raise StepResultError(
            f"cut {step!r} must return one boolean per row: expected shape ({rows},), got {_describe(value)}"
        )
    return Verdict(value, undefined)


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple)) or (hasattr(value, "__array__") and np.ndim(value) > 0)


def _array(value: Any) -> Any:
    try:
        return np.asarray(value)
    except ValueError:
        return ak.Array(value)  # lists of different lengths


def _describe(value: Any) -> str:
    if np.ma.is_masked(value):
        return f"a NumPy array of shape {value.shape} with masked values"
    if isinstance(value, np.ndarray):
        return f"a NumPy array of shape {value.shape} and type {value.dtype}"
    if isinstance(value, ak.Array):
        return f"an awkward array of type {value.type}"
    if value is None:
        return "None (is a return missing?)"
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 60 else text[:57] + '...'}"


def checked(step: BoundStep, value: Any, rows: int) -> Any:
    if step.kind == "cut":
        return check_cut(step.name, value, rows)
    if step.kind == "weight":
        return check_weight(step.name, value, rows)
    return check_column(step.name, value, rows)


def joined(parts: list[Any]) -> Any:
    """Join the checked answers of several blocks."""
    if isinstance(parts[0], Verdict):
        missing = None
        if any(part.undefined is not None for part in parts):
            missing = np.concatenate(
                [np.zeros(len(p.passed), bool) if p.undefined is None else p.undefined for p in parts]
            )
        return Verdict(np.concatenate([part.passed for part in parts]), missing)
    if any(isinstance(part, UpDown) for part in parts):
        # A block without variations has the nominal for all three.
        whole = [part if isinstance(part, UpDown) else UpDown(part, part, part) for part in parts]
        return UpDown(*(np.concatenate(side) for side in zip(*(p.parts for p in whole), strict=True)))
    return concatenate(parts)


def fewer_rows(value: Any, home: Selection, rows: Selection) -> Any:
    """Take an answer that was given for the rows of ``home`` for those of ``rows``, a subset."""
    where = rows.within(home)
    return value if where is None else take_answer(value, where)


def take_answer(value: Any, where: NDArray[np.int64]) -> Any:
    """Take an answer at some of its places."""
    if isinstance(value, Verdict):
        undefined = None if value.undefined is None else value.undefined[where]
        # None stands for "every row has an answer".
        some = undefined is not None and undefined.any()
        return Verdict(value.passed[where], undefined if some else None)
    if isinstance(value, UpDown):
        return UpDown(*(take(part, where) for part in value.parts))
    return take(value, where)
