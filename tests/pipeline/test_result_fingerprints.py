"""A step's digest changes with what the step does, and with nothing else."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import windrow as wr
from windrow.pipeline.definition.steps import When, define
from windrow.pipeline.resume.step_digest import different_steps, fingerprint, parameters_said

if TYPE_CHECKING:
    from pathlib import Path


def step(text: str, **options: Any) -> Any:
    """A step made of source, as a file that was read has it."""
    names: dict[str, Any] = {"np": np}
    exec(compile(text, "analysis.py", "exec"), names)
    return define("cut", names["f"], **options)


PLAIN = "def f(x, *, above=1.0): return x > above"


@pytest.mark.parametrize(
    "text",
    [
        "\n\n\ndef f(x, *, above=1.0):\n    # why\n    return (x  >  above)",
        "def f(x, *, above=1.0):\n    'What it is for.'\n    return x > above",
        "def f(x: float, *, above: float = 1.0) -> bool: return x > above",
    ],
)
def test_the_way_it_is_laid_out_does_not_matter(text: str) -> None:
    assert fingerprint(step(text)) == fingerprint(step(PLAIN))


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("def f(x, *, above=1.5): return x > above", {}),
        ("def f(x, *, above=1): return x > above", {}),
        ("def f(x, *, above=1.0): return x < above", {}),
        ("def f(x, *, above=1.0): return x > above + 1", {}),
        ("def f(x, *, above=1.0): return np.abs(x) > above", {}),
        ("def f(x, *, above=1.0): return [v for v in x > above]", {}),
        ("def f(x=2, *, above=1.0): return x > above", {}),
        ("def f(y, *, above=1.0): return y > above", {}),
        (PLAIN, {"reads": {"x": "z"}}),
        (PLAIN, {"after": ("other",)}),
        (PLAIN, {"each": True}),
        (PLAIN, {"when": When.parse("is_mc", step="f")}),
    ],
)
def test_what_it_does_matters(text: str, options: dict[str, Any]) -> None:
    assert fingerprint(step(text, **options)) != fingerprint(step(PLAIN))


def test_inner_functions_matter() -> None:
    one, two = (step(f"def f(x):\n    def g(v): return v + {n}\n    return g(x) > 0") for n in (1, 2))
    assert fingerprint(one) != fingerprint(two)


def above(limit: Any) -> Any:
    def f(x: Any) -> Any:
        return x > limit

    return f


class Known:
    def __init__(self, content: str) -> None:
        self.content = content

    @property
    def fingerprint(self) -> str:
        return self.content


class Opaque:
    """Has a repr that is an address."""


@pytest.mark.parametrize(
    ("one", "two", "same"),
    [
        (1, 2, False),
        (1, 1.0, False),
        (True, 1, False),
        ("a", "b", False),
        ([1, 2], [1, 2], True),
        ([1, 2], (1, 2), False),
        ({"a": [1], "b": 2}, {"b": 2, "a": [1]}, True),
        ({"a": [1]}, {"a": [2]}, False),
        ({"a", "b"}, {"b", "a"}, True),
        (np.arange(3.0), np.arange(3.0), True),
        (np.arange(3.0), np.arange(3), False),
        (np.zeros(500), np.eye(1, 500)[0], False),
        (np.zeros(500), np.zeros(500), True),
        (Known("a"), Known("a"), True),
        (Known("a"), Known("b"), False),
        (Opaque(), Opaque(), True),
        (np, os, False),
        (above(1), above(1), True),
        (above(1), above(2), False),
        (functools.partial(above, 1), functools.partial(above, 2), False),
        (np.add, np.subtract, False),
    ],
)
def test_values_of_parameters_and_closures_count_by_what_they_are(one: Any, two: Any, same: bool) -> None:
    closures = [fingerprint(define("cut", above(value))) for value in (one, two)]
    assert (closures[0] == closures[1]) is same

    def made(value: Any) -> Any:
        def f(x: Any, *, limit: Any = value) -> Any:
            return x > limit

        return define("cut", f)

    assert (fingerprint(made(one)) == fingerprint(made(two))) is same


def test_callables_with_attributes_count_by_them() -> None:
    class Above:
        def __init__(self, limit: float) -> None:
            self.limit = limit

        def __call__(self, x: Any) -> Any:
            return x > self.limit

    one, again, other = (fingerprint(define("cut", Above(limit), name="f")) for limit in (1.0, 1.0, 2.0))
    assert one == again != other


def test_a_value_that_cannot_be_looked_at_is_no_failure() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    inside: list[Any] = []
    inside.append(inside)
    for value in (Broken(), inside, {"a": Broken()}):
        assert fingerprint(define("cut", above(value)))


CODE = """
import sys
from windrow.pipeline.resume.step_digest import fingerprint
from windrow.pipeline.definition.steps import define
def f(x, *, names=frozenset({"a", "b", "c"})):
    return (x in {"u", "v", "w"}) & (x == 1)
print(fingerprint(define("cut", f)))
"""


def test_it_is_the_same_in_every_process() -> None:
    found = {
        subprocess.run(
            [sys.executable, "-c", CODE],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1
    assert found.pop().strip()


def test_a_file_counts_by_its_content(tmp_path: Path) -> None:
    made = []
    for content in ("1", "1", "2"):
        (tmp_path / "limit.json").write_text(content)
        made.append(fingerprint(define("cut", above(wr.file(tmp_path / "limit.json")))))
    assert made[0] == made[1] != made[2]


# --- two results ----------------------------------------------------------------------------------


def cutting(value: float, *, least: int = 0) -> Any:
    analysis = wr.Pipeline("cutting")

    @analysis.cut
    def hard(x: Any, *, above: float = value) -> Any:
        return x > above

    @analysis.output
    def count(x: Any) -> int:
        return max(len(x), least)

    return analysis


def run(name: str, value: float, **options: Any) -> wr.Result:
    result: wr.Result = cutting(value, **options).run({name: {"x": np.arange(5.0)}}, progress=False)
    return result


def test_other_parameters_are_refused_with_their_values() -> None:
    with pytest.raises(wr.errors.UsageError, match="'hard' has above=0 and above=1"):
        wr.merge(run("a", 0), run("b", 1))
    assert wr.merge(run("a", 0), run("b", 0))["count"] == {"a": 4, "b": 4}


def test_other_code_is_refused_also_in_the_third() -> None:
    results = [run("a", 0), run("b", 0), run("c", 0, least=2)]
    words = "results number 1 and 3, 'count', or something that it uses, is written in another way"
    with pytest.raises(wr.errors.UsageError, match=words):
        wr.merge(*results)


def analysis_of(text: str, name: str, rows: int = 5) -> wr.Result:
    """The result of an analysis that is written in a file of its own."""
    names: dict[str, Any] = {"wr": wr}
    exec(compile(text, "analysis.py", "exec"), names)
    result: wr.Result = names["analysis"].run({name: {"x": np.arange(1.0 * rows)}}, progress=False)
    return result


USES = """
LIMIT = 2.0
SEEN = {}
def helper(x): return x > LIMIT
analysis = wr.Pipeline("a")
@analysis.output
def count(x):
    SEEN[len(x)] = True
    return int(helper(x).sum())
"""


@pytest.mark.parametrize(("old", "new"), [("LIMIT = 2.0", "LIMIT = 1.0"), ("x > L", "x >= L")])
def test_what_a_step_uses_belongs_to_it(old: str, new: str) -> None:
    with pytest.raises(wr.errors.UsageError, match="'count', or something that it uses, is written"):
        wr.merge(analysis_of(USES, "a"), analysis_of(USES.replace(old, new), "b"))


def test_what_a_step_has_seen_so_far_does_not_belong_to_it() -> None:
    one, two = analysis_of(USES, "a"), analysis_of(USES, "b", rows=4)
    assert wr.merge(one, two)["count"] == {"a": 2, "b": 1}


def test_what_cannot_be_looked_into_is_taken_to_be_the_same() -> None:
    one, two = (fingerprint(define("cut", above(threading.Lock()))) for _ in range(2))
    assert one == two


def test_results_that_do_not_say_are_believed() -> None:
    old = replace(run("a", 0), fingerprints={}, parameters={})
    merged = wr.merge(old, run("b", 1))
    assert merged["count"] == {"a": 4, "b": 3}
    with pytest.raises(wr.errors.UsageError, match="results number 2 and 3"):
        wr.merge(old, run("b", 1), run("c", 2))
    with pytest.raises(wr.errors.UsageError, match="above=1 and above=2"):
        wr.merge(merged, run("c", 2))


def test_code_of_another_python_cannot_be_compared_but_parameters_can() -> None:
    result = run("b", 0, least=2)
    other = replace(result, fingerprints=dict.fromkeys(result.fingerprints, "other:0"))
    assert wr.merge(run("a", 0), other)["count"] == {"a": 4, "b": 4}
    changed = replace(other, parameters={**other.parameters, "hard": {"above": "3"}})
    with pytest.raises(wr.errors.UsageError, match="above=0 and above=3"):
        wr.merge(run("a", 0), changed)


def test_long_values_are_cut_off_and_missing_ones_named() -> None:
    (said,) = different_steps({"s": "a:1"}, {"s": "a:2", "t": "a:3"}, ({"s": {"p": "1" * 100}}, {"s": {"q": "2"}}))
    assert said == f"'s' has p={'1' * 57}... and p=nothing, q=nothing and q=2"


def test_parameters_are_said_as_they_are_written() -> None:
    made = step("def f(x, *, a=1, b='two', c=(3.0, None)): return x")
    assert parameters_said(made) == {"a": "1", "b": "'two'", "c": "(3.0, None)"}
