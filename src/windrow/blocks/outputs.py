"""Outputs of one chunk: evaluated unit by unit on the rows of their region, and the way two of them become one.

An output is called once per variation of the weight. Values merge by the rules of coffea's accumulators, without mutating
either: mappings key by key, sets unite, everything else adds. What would add up to nonsense (text, tuples,
None) is refused with a word on what to return instead.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np

from windrow.blocks.calls import Meter, Stopwatch, sealed
from windrow.blocks.cutflow_counts import merge_counts
from windrow.blocks.failing import LeftOut, RowsFailed, is_about_rows, named_error, raise_from
from windrow.blocks.fetch_ahead import outputs_of
from windrow.blocks.histogram import BinFinder
from windrow.blocks.probe import bounded
from windrow.blocks.program import NOMINAL
from windrow.errors import MergeError, error_text
from windrow.units import estimate_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from windrow.blocks.chunk import ChunkRun
    from windrow.blocks.cutflow_counts import Counts
    from windrow.blocks.program import BoundOutput
    from windrow.blocks.selection import Selection
    from windrow.core.records import Window


def merge_values(left: Any, right: Any) -> Any:
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        merged = dict(left)
        for key, value in right.items():
            merged[key] = merge_values(merged[key], value) if key in merged else value
        return _like(left, merged)
    if isinstance(left, AbstractSet) and isinstance(right, AbstractSet):
        return left | right
    if left is None or isinstance(left, (str, bytes, tuple)):
        raise MergeError(
            f"values of type {type(left).__name__} do not add up; return a number, an array, a histogram, a list, a set "
            "or a mapping of them, or say how with merge="
        )
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray) and left.shape != right.shape:
        raise MergeError(
            f"arrays of shapes {left.shape} and {right.shape} do not add up; to collect values return a list, or say "
            "merge=lambda a, b: np.concatenate([a, b])"
        )
    try:
        return left + right
    except MergeError:
        raise
    except Exception as error:
        raise MergeError(
            f"{type(left).__name__} and {type(right).__name__} do not add up ({type(error).__name__}: {error}); "
            "say how with merge="
        ) from error


def try_merging(value: Any) -> None:
    """Raise now if a value could not be merged with another of its kind, rather than at the end of a long run."""
    if isinstance(value, np.ndarray) and value.ndim and value.dtype != object:
        return  # whether shapes will agree is not known yet
    merge_values(value, value)


def _like(example: Mapping[Any, Any], merged: dict[Any, Any]) -> Mapping[Any, Any]:
    # defaultdict, Counter and coffea's own mappings keep their type where they can be copied and changed.
    if type(example) is dict or not isinstance(example, MutableMapping):
        return merged
    try:
        result = copy.copy(example)
    except TypeError:
        return merged
    for key, value in merged.items():
        result[key] = value  # not update(), which adds once more in a Counter
    return result


#: (output, region or None, variation)
OutputKey = tuple[str, str | None, str]

#: Kinds of which Python may give the same object for equal values.
_CONSTANTS = (int, float, complex, frozenset, np.generic)


@dataclass(slots=True)
class Value:
    """An output's value with the way to add two of them."""

    value: Any
    merge: Callable[[Any, Any], Any] | None

    def plus(self, other: Value, key: OutputKey) -> Value:
        """Add another value of the same output; neither is changed."""
        if self.value is other.value and not isinstance(self.value, _CONSTANTS):
            raise MergeError(
                f"output {key[0]!r} (region {key[1]!r}) returned the same object for different rows, so that they would "
                "be counted several times: make a new one inside the function",
                step=key[0],
            )
        try:
            merged = (self.merge or merge_values)(self.value, other.value)
        except Exception as error:
            raise MergeError(f"output {key[0]!r} (region {key[1]!r}) cannot be merged: {error}", step=key[0]) from error
        return Value(merged, self.merge)


@dataclass(slots=True)
class Leaf:
    """The outputs and cutflow lines of one unit, or of several that were merged."""

    outputs: dict[OutputKey, Value]
    counts: Counts
    given_up: dict[str, str] = field(default_factory=dict)  #: optional lane -> why it has no count
    windows: tuple[Window, ...] = ()  #: what all cuts say of some of the rows

    @property
    def nbytes(self) -> int:
        """Bytes of its outputs, as far as they are known."""
        return sum(estimate_bytes(value.value) for value in self.outputs.values())


def merge_leaves(left: Leaf, right: Leaf) -> Leaf:
    """Add two leaves; what only one has is taken over, a variation that only one has meets the other's nominal."""
    outputs = dict(left.outputs)
    for key, value in right.outputs.items():
        other = left.outputs.get(key) or _nominal(left, key)
        outputs[key] = value if other is None else other.plus(value, key)
    for key, value in left.outputs.items():
        if key not in right.outputs and (nominal := _nominal(right, key)) is not None:
            outputs[key] = value.plus(nominal, key)
    windows = bounded((*left.windows, *right.windows))
    return Leaf(outputs, merge_counts(left.counts, right.counts), {**right.given_up, **left.given_up}, windows)


def _nominal(leaf: Leaf, key: OutputKey) -> Value | None:
    """What stands for a variation that a leaf does not have; a copy, as a user's merge may change what it is given."""
    if key[2] == NOMINAL:
        return None
    nominal = leaf.outputs.get((key[0], key[1], NOMINAL))
    if nominal is None or nominal.merge is None:
        return nominal
    return Value(copy.deepcopy(nominal.value), nominal.merge)


def evaluate_outputs(run: ChunkRun) -> list[dict[OutputKey, Value]]:
    """Evaluate every output on every unit that has rows for it."""
    units = len(run.borders) - 1
    results: list[dict[OutputKey, Value]] = [{} for _ in range(units)]
    finder = BinFinder(run)
    for lane, outputs in _by_lane(run):
        selection = run.selections[lane]
        if not selection.count and not run.forced:
            continue
        arguments = [argument for output in outputs for argument in output.arguments]
        together = Meter()
        with together.reading(run.store):
            run.caller.prepare(outputs_of(lane), arguments, selection)
        size, count = together.bytes_read, len(outputs)
        for number, output in enumerate(outputs):
            meter = run.meters.setdefault(output.name, Meter())
            # What was read for all of them is charged in equal parts, which add up to it.
            meter.bytes_read += size * (number + 1) // count - size * number // count
            meter.read_s += together.read_s / count
            with meter.reading(run.store):
                _evaluate(run, output, selection, results, meter, finder)
        run.pack(selection)
    return results


def _by_lane(run: ChunkRun) -> Iterator[tuple[int, list[BoundOutput]]]:
    found: dict[int, list[BoundOutput]] = {}
    for output in run.program.outputs:
        found.setdefault(output.lane, []).append(output)
    yield from sorted(found.items())


def _evaluate(
    run: ChunkRun,
    output: BoundOutput,
    selection: Selection,
    results: list[dict[OutputKey, Value]],
    meter: Meter,
    finder: BinFinder,
) -> None:
    meter.rows_out += selection.count
    region = run.program.lanes[output.lane].region
    ends = selection.cut_at(run.borders)
    failed: dict[int, tuple[LeftOut, ...]] = {}  #: unit -> rows to do without
    try:
        run.caller.prepare(output.name, output.arguments, selection)
        watch = Stopwatch(run.store)
        bins = finder.find(output, selection)
        plain = [a for a in output.arguments if a.kind != "weight"]
        arguments = run.caller.gather(plain, selection, (output.lane,)) if bins is None else []
        places = [n for n, a in enumerate(output.arguments) if a.kind == "weight"]
        for variation, weight in _variations(run, output, selection):
            filled = list(arguments)
            for place in places:
                filled.insert(place, sealed(weight))
            call = _Call(run, output, filled, selection, _extra(output, region, variation))
            for unit in range(len(results)):
                start, stop = int(ends[unit]), int(ends[unit + 1])
                if (start == stop and not run.forced) or unit in failed:
                    continue
                pick = None if stop - start == selection.count else slice(start, stop)
                try:
                    if bins is None:
                        value = call(pick, meter)
                    else:
                        value = bins.fill(weight, start, stop)
                        meter.call(stop - start, watch.seconds())
                        watch = Stopwatch(run.store)
                except Exception as error:
                    failed[unit] = call.offending(start, stop, error)
                    if not failed[unit]:
                        raise
                    continue
                _check(run, output, region, value)
                results[unit][output.name, region, variation] = Value(value, output.merge)
    except Exception as error:  # noqa: BLE001 - it is raised again, named
        if run.forced:
            run.failed_empty[output.name] = f"output {output.name!r} fails on zero rows ({error_text(error)})"
            return
        raise_from(named_error(run, output, selection, error), error)
    if failed:
        raise RowsFailed(tuple(row for rows in failed.values() for row in rows))


@dataclass(frozen=True, slots=True)
class _Call:
    """An output with everything it is called with but the rows."""

    run: ChunkRun
    output: BoundOutput
    arguments: list[Any]
    selection: Selection
    extra: dict[str, Any]

    def __call__(self, pick: Any, meter: Meter | None = None) -> Any:
        caller = self.run.caller
        value = caller.call(self.output, self.arguments, self.selection, pick, meter, self.extra)
        return _read_now(value)

    def offending(self, start: int, stop: int, error: Exception) -> tuple[LeftOut, ...]:
        """Find the rows of a unit on which it fails by themselves; none if it is not for a few rows that it does."""
        run = self.run
        if run.search is None or run.store.read_error is not None or not is_about_rows(error):
            return ()
        positions = self.selection.positions()

        def ask(index: NDArray[np.int64]) -> Exception | None:
            run.stop_if_asked()
            try:
                self(positions.searchsorted(index))
            except Exception as raised:
                if run.store.read_error is not None:
                    raise
                return raised
            return None

        return run.search.find(run, self.output, positions[start:stop], ask, error)


def _variations(
    run: ChunkRun, output: BoundOutput, selection: Selection
) -> Iterator[tuple[str, NDArray[np.float64] | None]]:
    if not output.takes_weight:
        yield NOMINAL, None
        return
    factors = [run.store.made(name, selection) for name in output.weights]
    # befores[k]: the product of the first k factors. The rest is multiplied one by one, always in the order
    # of definition, so that a variation has the bits of the plain product.
    befores: list[Any] = [None]
    for factor in factors:
        befores.append(factor if befores[-1] is None else befores[-1] * factor)
    yield NOMINAL, np.ones(selection.count) if befores[-1] is None else befores[-1]
    for number, name in enumerate(output.weights):
        if run.varied.get(name):
            for side in ("up", "down"):
                shifted = run.store.made(f"{name} {side}", selection)
                weight = shifted if befores[number] is None else befores[number] * shifted
                for factor in factors[number + 1 :]:
                    weight = weight * factor
                yield f"{name}_{side}", weight


def _read_now(value: Any) -> Any:
    """Read the fields that a value still only promises: later the file is closed, or other rows are asked for."""
    if isinstance(value, ak.Array):
        return ak.materialize(value)
    if type(value) is dict:
        return {key: _read_now(item) for key, item in value.items()}
    if type(value) is list and any(isinstance(item, (ak.Array, dict, list)) for item in value):
        return [_read_now(item) for item in value]
    return value


def _extra(output: BoundOutput, region: str | None, variation: str) -> dict[str, Any]:
    extra: dict[str, Any] = {}
    if output.wants_region:
        extra["region"] = region
    if output.wants_variation:
        extra["variation"] = variation
    return extra


def _check(run: ChunkRun, output: BoundOutput, region: str | None, value: Any) -> None:
    if value is None:
        raise MergeError(
            f"output {output.name!r} (region {region!r}) cannot be merged: it returned None; return the histogram, "
            "number or array that was filled",
            step=output.name,
        )
    token = f"output {output.name}"
    if output.merge is None and token in run.program.unchecked:
        try:
            try_merging(value)
        except MergeError as error:
            raise MergeError(
                f"output {output.name!r} (region {region!r}) cannot be merged: {error}", step=output.name
            ) from error
        run.program.unchecked.discard(token)
