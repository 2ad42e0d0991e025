"""Steps that return the wrong thing, or look at other rows than their own."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import awkward as ak
import numpy as np
import pytest

import windrow as wr
from windrow import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROWS = 60
UNIT = 10


def data() -> Any:
    random = np.random.default_rng(5)
    counts = np.arange(ROWS) % 4
    columns = {
        "x": np.arange(ROWS, dtype=np.float64),
        "k": np.arange(ROWS) % 3,
        "Muon_pt": ak.unflatten(random.random(counts.sum()), counts),
        "Muon_eta": ak.unflatten(random.random(counts.sum()), counts),
    }
    metadata = {"is_mc": True, "year": 2018}
    fileset = {"zmumu": columns}
    return wr.data.open(fileset, grid=UNIT, metadata={"zmumu": metadata})


def pipeline(**steps: Callable[..., Any]) -> Any:
    """A pipeline of steps named kind_name=function, with an output that counts."""
    analysis = wr.Pipeline("bad")
    for key, function in steps.items():
        kind, _, name = key.partition("_")
        function.__name__ = name
        getattr(analysis, kind)(function)
    if not any(key.startswith("output") for key in steps):

        @analysis.output
        def count(x):  # type: ignore[no-untyped-def]
            return len(x)

    return analysis


@contextlib.contextmanager
def refused(kind: type[errors.WindrowError], *words: str) -> Iterator[None]:
    """The error is of this kind, and its message has all the words."""
    with pytest.raises(kind) as info:
        yield
    for word in words:
        assert word in str(info.value), f"{word!r} is not in: {info.value}"


def run(analysis: Any, source: Any = None, **options: Any) -> Any:
    return analysis.run(data() if source is None else source, progress=False, **options)


def named(name: str, function: Any) -> Any:
    if not hasattr(function, "__code__"):  # a builtin has no name of its own to change
        return named(name, lambda x: function(x))
    function.__name__ = name
    return function


# --- what a step returns --------------------------------------------------------------------------


BAD_CUTS = {
    "short": (lambda x: (x > 1)[:-1], ("shape",)),
    "numbers": (lambda x: x * 1.0, ("bool", "float64")),
    "integers": (lambda k: k, ("bool", "int64")),
    "scalar": (lambda x: True, ("bool",)),
    "numpy_scalar": (lambda x: np.any(x > 1), ("bool",)),
    "nothing": (lambda x: None, ("None",)),
    "lists": (lambda Muon_pt: Muon_pt > 0.5, ("list", "ak.any")),
    "records": (lambda Muon: Muon, ("bool",)),
    "table": (lambda x: np.stack([x, x], axis=1) > 1, ("bool",)),
    "strings": (lambda x: np.array(["a"] * len(x)), ("bool",)),
}
BAD_COLUMNS = {
    "short": (lambda x: x[1:], ("length",)),
    "scalar": (lambda x: float(np.size(x)), ("float",)),
    "nothing": (lambda x: None, ("None",)),
    "transposed": (lambda x: np.stack([x, x]), ("length",)),
}


class TestResults:
    @pytest.mark.parametrize("case", BAD_CUTS)
    def test_cut(self, case: str) -> None:
        function, words = BAD_CUTS[case]
        analysis = pipeline(cut_tight=lambda x: x > 1)
        analysis.cut(named("broken", function))
        with refused(errors.StepResultError, "broken", "zmumu", *words):
            run(analysis)

    @pytest.mark.parametrize("case", BAD_COLUMNS)
    def test_column(self, case: str) -> None:
        function, words = BAD_COLUMNS[case]
        analysis = pipeline(cut_tight=lambda x: x > 1)
        analysis.column(named("broken", function))
        analysis.output(named("total", lambda broken: len(broken)))
        with refused(errors.StepResultError, "broken", "zmumu", *words):
            run(analysis)

    @pytest.mark.parametrize("case", [case for case in BAD_COLUMNS if case != "scalar"])
    def test_weight(self, case: str) -> None:
        function, words = BAD_COLUMNS[case]
        analysis = pipeline(cut_tight=lambda x: x > 1)
        analysis.weight(named("broken", function))
        analysis.output(named("total", lambda weight: float(weight.sum())))
        with refused(errors.StepResultError, "broken", "zmumu", *words):
            run(analysis)

    def test_the_message_tells_both_lengths(self) -> None:
        analysis = pipeline(cut_broken=lambda x: (x > 1)[:-1])
        with pytest.raises(errors.StepResultError, match=r"\b9\b.*\b10\b|\b10\b.*\b9\b"):
            run(analysis, chunk=UNIT, _block_rows=UNIT)

    def test_wrong_only_in_a_later_unit(self) -> None:
        analysis = pipeline(cut_broken=lambda x: (x > 1)[: None if x[0] < 30 else -1])
        with refused(errors.StepResultError, "broken", "zmumu"):
            run(analysis, chunk=UNIT, _block_rows=UNIT)

    @pytest.mark.parametrize("value", [object(), None, "lengths", "kinds"], ids=["object", "none", "lengths", "kinds"])
    def test_output_that_cannot_be_merged(self, value: Any) -> None:
        def odd(x):  # type: ignore[no-untyped-def]
            if value == "lengths":
                return np.zeros(int(x[0]) + 2)
            if value == "kinds":
                return {"a": 1} if x[0] < 30 else [1]
            return value

        with refused(errors.MergeError, "odd"):
            run(pipeline(output_odd=odd))


# --- row purity -----------------------------------------------------------------------------------


SEEN: list[int] = []


def _counter(x: Any) -> Any:
    SEEN.append(1)
    return x + len(SEEN)


IMPURE = {
    "mean": lambda x: x - x.mean(),
    "position": lambda x: np.arange(len(x)) * 1.0,
    "length": lambda x: x / len(x),
    "running": np.cumsum,
    "previous": lambda x: x - np.roll(x, 1),
    "sorted": lambda k: np.sort(k) * 1.0,
    "random": lambda x: np.random.default_rng().random(len(x)),
    "state": _counter,
    "share": lambda Muon_pt: 999 * ak.num(Muon_pt) / ak.sum(Muon_pt),
    "duplicates": lambda k: np.isin(np.arange(len(k)), np.unique(k, return_index=True)[1]) * 1.0,
}


class TestRowPurity:
    @pytest.mark.parametrize("case", IMPURE)
    @pytest.mark.parametrize("kind", ["cut", "column", "weight"])
    def test_a_step_that_looks_at_other_rows(self, case: str, kind: str) -> None:
        function = IMPURE[case]
        takes = "Muon_pt" if case == "share" else "k" if case in ("sorted", "duplicates") else "x"
        body = f"lambda {takes}: function({takes})" + (" * 7 % 2 >= 1" if kind == "cut" else "")
        analysis = pipeline(cut_tight=lambda x: x >= 0)
        getattr(analysis, kind)(named("crooked", eval(body, {"function": function})))
        reader = {"cut": "x", "column": "crooked", "weight": "weight"}[kind]
        analysis.output(named("total", eval(f"lambda {reader}: float(len({reader}))")))
        source = wr.data.open({"zmumu": wide()}, grid=UNIT)
        with refused(errors.RowPurityError, "crooked"):
            run(analysis, source)
        with refused(errors.RowPurityError, "crooked"):
            analysis.check(source)

    def test_pure_steps_pass(self) -> None:
        analysis = pipeline(
            cut_tight=lambda x: x >= 0,
            column_root=lambda x: np.where(x % 7 == 0, np.nan, np.sqrt(x)),
            column_first=lambda Muon_pt: ak.firsts(Muon_pt),
            column_good=lambda Muon: Muon[Muon.pt > 0.5],
            output_total=lambda root, first, good: [len(root), ak.to_list(first), ak.to_list(good)],
        )
        analysis.check(data())
        assert run(analysis)["total"][0] == UNIT

    def test_a_step_that_writes_into_its_input(self) -> None:
        """It may be refused, or have a copy of its own; it must not change what others read."""
        analysis = wr.Pipeline("writes")

        def doubled(x):  # type: ignore[no-untyped-def]
            x *= 2
            return x

        analysis.column(doubled)
        analysis.output(named("total", lambda x, doubled: [float(x.sum()), float(doubled.sum())]))
        try:
            result = run(analysis)
        except errors.StepError as error:
            message = str(error)
            assert "doubled" in message
        else:
            totals = np.array(result["total"]).reshape(-1, 2).sum(axis=0)
            assert totals.tolist() == [float(np.arange(ROWS).sum()), 2.0 * np.arange(ROWS).sum()]


def wide() -> dict[str, Any]:
    """Enough rows in one file for a sample, all of them alive."""
    counts = np.arange(600) % 4
    values = np.random.default_rng(2).random(counts.sum())
    return {"x": np.arange(600.0) + 1, "k": np.arange(600)[::-1] // 3, "Muon_pt": ak.unflatten(values, counts)}
