"""A fingerprint changes with what a function does, with nothing else, and says where it could not look."""

from __future__ import annotations

import collections
import contextvars
import copyreg
import ctypes
import datetime as dt
import decimal
import enum
import fractions
import functools
import io
import itertools
import math
import operator
import pickle
import queue
import random
import re
import socket
import struct
import sys
import threading
import types
import weakref
from pathlib import Path
from typing import Any, NamedTuple

import awkward as ak
import hist
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import windrow as wr
from windrow.store.fingerprint.api import difference, fingerprint


def module(text: str, name: str = "analysis", **names: Any) -> types.ModuleType:
    """A module made of source; where it is found differs from one to the next."""
    made = types.ModuleType(name)
    made.__dict__.update(names)
    exec(compile(text, f"somewhere{len(text)}.py", "exec", dont_inherit=True), made.__dict__)
    return made


def of(text: str, **names: Any) -> Any:
    found = fingerprint(module(text, **names).f)
    assert found.opaque == ()
    return found


# --- what matters and what does not ---------------------------------------------------------------

SAME: dict[str, tuple[str, ...]] = {
    "comments and lines": ("def f(x):\n  return x+1", "\n\n# why\ndef f(x):\n\n  return (x +\n 1)"),
    "docstring": ("def f(x): return None", "def f(x):\n  'What for.'\n  return None"),
    "annotations": ("def f(x, y=1): return x", "def f(x: int, y: 'str' = 1) -> int: return x"),
    "local names": ("def f(x):\n  a = x\n  return a", "def f(x):\n  b = x\n  return b"),
    "what is not used": ("a = 1\ndef f(x): return x", "a = 2\ndef f(x): return x"),
    "order of definitions": (
        "def g(): return 1\ndef h(): return 2\ndef f(): return g() + h()",
        "def f(): return g() + h()\ndef h(): return 2\ndef g(): return 1",
    ),
    "order in sets": ("S = {'a', 'b', 'c'}\ndef f(): return S", "S = {'c', 'b', 'a'}\ndef f(): return S"),
    "one object or two": (
        "A = [1]\nT = (A, A)\ndef f(): return T",
        "T = ([1], [1])\ndef f(): return T",
    ),
    "a list made or written": ("T = [0, 1]\ndef f(): return T", "T = list(range(2))\ndef f(): return T"),
    "order of methods": (
        "class C:\n  def a(self): pass\n  def b(self): return 1\ndef f(): return C",
        "class C:\n  def b(self): return 1\n  def a(self): pass\ndef f(): return C",
    ),
}  # fmt: skip

OTHER: dict[str, tuple[str, ...]] = {
    "constant": ("def f(x): return x + 1", "def f(x): return x + 2"),
    "type of a constant": ("def f(x): return x + 1", "def f(x): return x + 1.0"),
    "sign of nothing": ("def f(x): return x + 0.0", "def f(x): return x + -0.0"),
    "operator": ("def f(x): return x + 1", "def f(x): return x - 1"),
    "names of arguments": ("def f(a, b): return a - b", "def f(b, a): return b - a"),
    "default": ("def f(x, y=1): return y", "def f(x, y=2): return y"),
    "keyword default": ("def f(*, y=1): return y", "def f(*, y=True): return y"),
    "global": ("A = 1\ndef f(x): return x + A", "A = 2\ndef f(x): return x + A"),
    "inside a list": ("A = [[1, 2]]\ndef f(): return A", "A = [[1, 3]]\ndef f(): return A"),
    "order of a mapping": ("A = {1: 2, 3: 4}\ndef f(): return A", "A = {3: 4, 1: 2}\ndef f(): return A"),
    "helper": ("def g(): return 1\ndef f(): return g()", "def g(): return 2\ndef f(): return g()"),
    "helper of a helper": (
        "def h(): return 1\ndef g(): return h()\ndef f(): return g()",
        "def h(): return 2\ndef g(): return h()\ndef f(): return g()",
    ),
    "global of a lambda": (
        "A = 1\ndef f(x): return map(lambda v: v + A, x)",
        "A = 2\ndef f(x): return map(lambda v: v + A, x)",
    ),
    "global of a comprehension": (
        "A = 1\ndef f(x): return [v + A for v in x]",
        "A = 2\ndef f(x): return [v + A for v in x]",
    ),
    "global of an inner class": (
        "A = 1\ndef f():\n  class C:\n    v = A\n  return C",
        "A = 2\ndef f():\n  class C:\n    v = A\n  return C",
    ),
    "a builtin that is not one": ("def f(x): return len(x)", "len = lambda x: 1\ndef f(x): return len(x)"),
    "a name that is not there": ("def f(x): return A", "A = None\ndef f(x): return A"),
    "which function of a library": (
        "from math import sin as g\ndef f(x): return g(x)",
        "from math import cos as g\ndef f(x): return g(x)",
    ),
    "which compiled function": (
        "from numpy import sin as g\ndef f(x): return g(x)",
        "from numpy import cos as g\ndef f(x): return g(x)",
    ),
    "either of two globals": (
        "A, B = [1], [2]\ndef f(x): return (A if x else B).index(1)",
        "A, B = [3], [2]\ndef f(x): return (A if x else B).index(1)",
    ),
    "a global by another name": (
        "A = [1]\ndef f(x):\n  for i in x:\n    b.index(1)\n    b = A",
        "A = [2]\ndef f(x):\n  for i in x:\n    b.index(1)\n    b = A",
    ),
    "closure": (
        "def m(a):\n  def f(): return a\n  return f\nf = m(1)",
        "def m(a):\n  def f(): return a\n  return f\nf = m(2)",
    ),
    "closure inside": (
        "def m(a):\n  def f(): return lambda: a\n  return f\nf = m(1)",
        "def m(a):\n  def f(): return lambda: a\n  return f\nf = m(2)",
    ),
    "method": (
        "class C:\n  def m(self): return 1\nc = C()\ndef f(): return c.m()",
        "class C:\n  def m(self): return 2\nc = C()\ndef f(): return c.m()",
    ),
    "method of a base": (
        "class B:\n  def m(self): return 1\nclass C(B): pass\ndef f(): return C().m()",
        "class B:\n  def m(self): return 2\nclass C(B): pass\ndef f(): return C().m()",
    ),
    "class attribute": ("class C:\n  a = 1\ndef f(): return C.a", "class C:\n  a = 2\ndef f(): return C.a"),
    "state": (
        "class C: pass\nc = C()\nc.a = 1\ndef f(): return c.a",
        "class C: pass\nc = C()\nc.a = 2\ndef f(): return c.a",
    ),
    "slots": (
        "class C: __slots__ = 'a'\nc = C()\nc.a = 1\ndef f(): return c.a",
        "class C: __slots__ = 'a'\nc = C()\nc.a = 2\ndef f(): return c.a",
    ),
    "a mapping with more": (
        "class C(dict): pass\nc = C(a=1)\ndef f(): return c",
        "class C(dict): pass\nc = C(a=1)\nc.b = 1\ndef f(): return c",
    ),
    "class of state": (
        "class C: pass\nclass D: pass\nc = C()\ndef f(): return c",
        "class C: pass\nclass D: pass\nc = D()\ndef f(): return c",
    ),
    "property": (
        "class C:\n  @property\n  def p(self): return 1\nc = C()\ndef f(): return c.p",
        "class C:\n  @property\n  def p(self): return 2\nc = C()\ndef f(): return c.p",
    ),
    "dataclass default": (
        "import dataclasses\n@dataclasses.dataclass\nclass C:\n  a: int = 1\ndef f(): return C()",
        "import dataclasses\n@dataclasses.dataclass\nclass C:\n  a: int = 2\ndef f(): return C()",
    ),
    "enum": (
        "import enum\nclass C(enum.Enum):\n  a = 1\ndef f(): return C.a",
        "import enum\nclass C(enum.Enum):\n  a = 2\ndef f(): return C.a",
    ),
    "named tuple": (
        "import collections\nC = collections.namedtuple('C', 'a b')\ndef f(): return C(1, 2).a",
        "import collections\nC = collections.namedtuple('C', 'b a')\ndef f(): return C(1, 2).a",
    ),
    "wrapper": (
        "import functools\ndef d(g):\n  @functools.wraps(g)\n  def w(x): return g(x) + 1\n  return w\n@d\ndef f(x): return x",
        "import functools\ndef d(g):\n  @functools.wraps(g)\n  def w(x): return g(x) + 2\n  return w\n@d\ndef f(x): return x",
    ),
    "wrapped": (
        "import functools\ndef d(g):\n  @functools.wraps(g)\n  def w(x): return g(x)\n  return w\n@d\ndef f(x): return x",
        "import functools\ndef d(g):\n  @functools.wraps(g)\n  def w(x): return g(x)\n  return w\n@d\ndef f(x): return -x",
    ),
    "wrapped by a library": (
        "import contextlib\n@contextlib.contextmanager\ndef f(): yield 1",
        "import contextlib\n@contextlib.contextmanager\ndef f(): yield 2",
    ),
    "cached": (
        "import functools\n@functools.lru_cache\ndef g(): return 1\ndef f(): return g()",
        "import functools\n@functools.lru_cache\ndef g(): return 2\ndef f(): return g()",
    ),
    "by type": (
        "import functools\n@functools.singledispatch\ndef f(x): return 1\n@f.register\ndef _(x: int): return 2",
        "import functools\n@functools.singledispatch\ndef f(x): return 1\n@f.register\ndef _(x: int): return 3",
    ),
    "partial": (
        "import functools\ndef g(a, b): return a\nf = functools.partial(g, 1)",
        "import functools\ndef g(a, b): return a\nf = functools.partial(g, 2)",
    ),
    "bound method": (
        "class C:\n  def __init__(self, a): self.a = a\n  def m(self): return self.a\nf = C(1).m",
        "class C:\n  def __init__(self, a): self.a = a\n  def m(self): return self.a\nf = C(2).m",
    ),
    "callable object": (
        "class C:\n  def __init__(self, a): self.a = a\n  def __call__(self): return self.a\nf = C(1)",
        "class C:\n  def __init__(self, a): self.a = a\n  def __call__(self): return self.a\nf = C(2)",
    ),
    "np.vectorize": (
        "import numpy as np\nf = np.vectorize(lambda x: x + 1)",
        "import numpy as np\nf = np.vectorize(lambda x: x + 2)",
    ),
    "numba": (
        "import numba\n@numba.njit\ndef f(x): return x + 1",
        "import numba\n@numba.njit\ndef f(x): return x + 2",
    ),
    "numba options": (
        "import numba\n@numba.njit\ndef f(x): return x + 1",
        "import numba\n@numba.njit(fastmath=True)\ndef f(x): return x + 1",
    ),
    "numba ufunc": (
        "import numba\n@numba.vectorize\ndef f(x): return x + 1",
        "import numba\n@numba.vectorize\ndef f(x): return x + 2",
    ),
    "function attribute": ("def f(): return f.a\nf.a = 1", "def f(): return f.a\nf.a = 2"),
    "recursion": (
        "def f(x): return x and f(x - 1)",
        "def f(x): return x or f(x - 1)",
    ),
    "mutual recursion": (
        "def g(x): return f(x) + 1\ndef f(x): return g(x)",
        "def g(x): return f(x) + 2\ndef f(x): return g(x)",
    ),
    "who calls whom in a circle": tuple(
        f"def a(x): return b(x)\ndef b(x): return c(x) + 1\ndef c(x): return a(x)\nA, B, C = {order}\ndef f(): return A, B, C"
        for order in ("a, b, c", "a, c, b")
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", SAME)
def test_what_does_not_matter(what: str) -> None:
    one, two = (of(text) for text in SAME[what])
    assert one.digest == two.digest
    assert difference(one.parts, two.parts) == []


@pytest.mark.parametrize("what", OTHER)
def test_what_matters(what: str) -> None:
    one, again, two = (of(text) for text in (OTHER[what][0], *OTHER[what]))
    assert one.digest == again.digest != two.digest
    assert one.own == again.own != two.own
    assert difference(one.parts, two.parts) != []


def test_running_it_does_not_change_it() -> None:
    text = "import math\nA = 2\ndef g(v): return v.real + A\ndef f(x):\n  s = 0\n  for v in x:\n    s += math.sqrt(g(v))\n  return [s]"
    made = module(text)
    before = fingerprint(made.f)
    for _ in range(1000):
        made.f([1, 2.0, 3])
    assert fingerprint(made.f) == before


def test_a_cache_of_results_does_not_change_it() -> None:
    made = module("import functools\n@functools.lru_cache\ndef f(x): return x")
    before = fingerprint(made.f)
    made.f(1)
    assert fingerprint(made.f) == before


# --- modules --------------------------------------------------------------------------------------


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes modules of a user's, and forgets those that were loaded."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)

    def write(**texts: str) -> None:
        for name in set(sys.modules) - before:
            if name.startswith("mine_"):
                del sys.modules[name]
        for name, text in texts.items():
            path = tmp_path / f"{name.replace('_IN_', '/')}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)

    yield write
    write()


USES = {
    "attribute": ("import mine_h\ndef f(x): return mine_h.scale(x) + mine_h.CUT", True),
    "name": ("from mine_h import scale, CUT\ndef f(x): return scale(x) + CUT", True),
    "import inside": ("import mine_h\ndef f(x):\n  import mine_h as h\n  return h.scale(x) + h.CUT", True),
    "from inside": ("import mine_h\ndef f(x):\n  from mine_h import scale, CUT\n  return scale(x) + CUT", True),
    "closure": ("import mine_h\ndef m(h):\n  def f(x): return h.scale(x) + h.CUT\n  return f\nf = m(mine_h)", True),
    "all of it": ("import mine_h\ndef g(h): return h.scale\ndef f(x): return g(mine_h)", False),
}  # fmt: skip


@pytest.mark.parametrize("way", USES)
def test_of_modules_of_the_users_own_what_is_used_counts(package: Any, way: str) -> None:
    text, only_what_is_used = USES[way]
    made = []
    for scale, cut, other in ((1, 1, 1), (1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2)):
        package(
            mine_h=f"# {scale}\nimport math\nfrom mine_t import TABLE\nCUT = {cut}\nOTHER: dict[str, tuple[str, ...]] = {other}\n"
            f"def scale(x): return math.sqrt(x) * {scale} * TABLE",
            mine_t="TABLE = 3",
        )
        made.append(of(text))
    first, again, scaled, cut, other = (one.digest for one in made)
    assert first == again
    assert len({first, scaled, cut}) == 3
    assert (first == other) is only_what_is_used
    package(mine_t="TABLE = 4")
    assert of(text).digest != other
    assert ("python", f"{sys.version_info.major}.{sys.version_info.minor}") in made[0].libraries


def test_modules_in_packages_and_in_circles(package: Any) -> None:
    made = []
    for number in (1, 1, 2):
        package(
            mine_p_IN___init__="",
            mine_p_IN_a="from . import b\ndef g(): return b.h()",
            mine_p_IN_b=f"from . import a\ndef h(): return {number}",
        )
        made.append(of("import mine_p.a\ndef f(): return mine_p.a.g()"))
    assert made[0].digest == made[1].digest != made[2].digest
    assert difference(made[1].parts, made[2].parts) == ["function 'h' changed"]


def test_a_module_that_makes_up_its_names_counts_whole(package: Any) -> None:
    made = []
    for number in (1, 2):
        package(mine_h=f"def __getattr__(name): return {number}")
        made.append(of("import mine_h\ndef f(): return mine_h.anything").digest)
    assert made[0] != made[1]


def test_a_module_that_is_not_there_is_no_failure() -> None:
    assert of("def f():\n  import mine_missing.part\n  return mine_missing.part.g()").digest


def test_libraries_count_by_version(monkeypatch: pytest.MonkeyPatch) -> None:
    from windrow.store.fingerprint import libraries

    text = "import numpy as np, awkward as ak\ndef f(x):\n  import json\n  return json.dumps(ak.sum(np.sqrt(x)))"
    one = of(text)
    assert dict(one.libraries).keys() == {"numpy", "awkward", "python"}
    assert dict(one.libraries)["numpy"] == np.__version__

    known = libraries._library
    monkeypatch.setattr(
        libraries, "_library", lambda name, file: ("numpy", "99") if "numpy" in name else known(name, file)
    )  # fmt: skip
    two = of(text)
    assert two.digest != one.digest
    assert two.own == one.own
    changed = f"library numpy changed from {np.__version__} to 99"
    assert difference(one.parts, two.parts) == [changed]


def test_windrow_and_its_objects_count_by_version() -> None:
    found = of("import windrow as wr\ndef f(x): return wr.hep.lumi_mask({'1': [[1, 2]]})")
    assert [name for name, _ in found.libraries] == ["windrow"]


# --- words ----------------------------------------------------------------------------------------


def test_a_change_is_named(tmp_path: Path) -> None:
    text = """
THRESHOLD = {threshold}
TABLE = {{"a": [1, {item}]}}
def deep(x): return x + {deep}
def helper(x): return deep(x) > THRESHOLD
def make(corrections, limit):
    def f(x, *, above={above}):
        return helper(x) * corrections()["sf"] * limit * TABLE["a"][1] + above
    return f
f = make(corrections, {limit})
"""
    before = {"threshold": 1, "item": 1, "deep": 1, "above": 1, "limit": 1}
    path = tmp_path / "jec.json"

    def made(content: str = '{"sf": 1}', **changed: int) -> Any:
        path.write_text(content)
        return of(text.format(**before | changed), corrections=wr.file(path)).parts

    first = made()
    assert difference(first, made()) == []
    for changed, words in (
        ({"threshold": 2}, "global 'THRESHOLD' changed"),
        ({"item": 2}, "global 'TABLE' changed"),
        ({"deep": 2}, "function 'deep' changed"),
        ({"above": 2}, "default 'above' of function 'f' changed"),
        ({"limit": 2}, "closure variable 'limit' of function 'f' changed"),
        ({"content": '{"sf": 2}'}, "file jec.json changed"),
    ):
        assert difference(first, made(**changed)) == [words]


def test_what_comes_and_goes_is_named() -> None:
    one = of("def g(): return 1\ndef f(): return g()").parts
    two = of("A = 1\ndef f(): return A").parts
    assert difference(one, two) == ["function 'f' changed", "function 'g' is gone", "global 'A' is new"]
    assert difference({"all of it": "1"}, {"all of it": "2"}) != []


def test_values_are_compared_in_words_too() -> None:
    for one, two, words in (
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, "item 'b' of the options changed"),
        (1, 2, "the options changed"),
        ({1, 2}, {1, 3}, "the options changed"),
        (list(range(1000)), list(range(999)), "the options changed"),
    ):
        made = [fingerprint(value, name="the options").parts for value in (one, two)]
        assert difference(*made) == [words]


def test_two_things_of_one_name_are_told_apart() -> None:
    text = "A = 1\ndef f(): return A + other()"
    other = [module(f"A = {n}\ndef g(): return A").g for n in (2, 2, 3)]
    one, again, two = (of(text, other=function) for function in other)
    assert one.digest == again.digest
    assert difference(one.parts, two.parts) == ["global 'A' of function 'g' changed"]


def test_the_load_function_of_a_file_counts(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("1")
    (tmp_path / "b.txt").write_text("1")
    a, b = (fingerprint(wr.file(tmp_path / name)) for name in ("a.txt", "b.txt"))
    assert a.digest == b.digest
    assert fingerprint(wr.file(tmp_path / "a.txt", load=np.loadtxt)).digest != a.digest


# --- values ---------------------------------------------------------------------------------------

plain = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-3, 3),
        st.integers(),
        st.floats(),
        st.sampled_from([0.0, -0.0, 1.0, math.nan, math.inf]),
        st.complex_numbers(),
        st.text(max_size=3),
        st.binary(max_size=3),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner),
        st.tuples(inner, inner),
        st.dictionaries(st.text(max_size=2), inner, max_size=3),
    ),
    max_leaves=6,
)


def bits(value: Any) -> Any:
    """What makes a plain value what it is, said independently of the code that is tested."""
    if isinstance(value, float):
        return "float", struct.pack(">d", value)
    if isinstance(value, complex):
        return "complex", struct.pack(">dd", value.real, value.imag)
    if isinstance(value, (list, tuple)):
        return type(value).__name__, tuple(map(bits, value))
    if isinstance(value, dict):
        return "dict", tuple((key, bits(item)) for key, item in value.items())
    return type(value).__name__, value


@given(plain, plain)
def test_plain_values_are_equal_if_every_bit_is(one: Any, two: Any) -> None:
    assert (fingerprint(one).digest == fingerprint(two).digest) is (bits(one) == bits(two))


@given(plain)
def test_a_copy_is_the_same(value: Any) -> None:
    assert fingerprint(value) == fingerprint(pickle.loads(pickle.dumps(value)))


@given(st.lists(st.text(max_size=3), unique=True, max_size=8), st.randoms())
def test_sets_have_no_order_and_mappings_have_one(names: list[str], rng: random.Random) -> None:
    shuffled = rng.sample(names, len(names))
    assert fingerprint(set(names)).digest == fingerprint(set(shuffled)).digest
    one, two = (dict.fromkeys(order) for order in (names, shuffled))
    assert (fingerprint(one).digest == fingerprint(two).digest) is (names == shuffled)
    assert fingerprint(one, exact=False).own == fingerprint(two, exact=False).own


class Point(NamedTuple):
    x: int
    y: int = 2


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Size(enum.IntEnum):
    SMALL = 1


class Named(dict[str, int]):
    pass


def _long_and_dirty(fill: int) -> Any:
    """Numbers with unused bytes between and inside them, filled with something."""
    raw = np.full(64, fill, np.uint8)
    gaps = raw.view(np.dtype({"names": ["a"], "formats": ["i4"], "offsets": [4], "itemsize": 16}))
    gaps["a"] = 7
    return gaps


_TABLE = pa.table({"a": [1, 2, None]})

EQUAL: list[tuple[Any, Any]] = [
    (np.arange(6.0)[::2], np.array([0.0, 2.0, 4.0])),
    (np.asfortranarray(np.arange(6).reshape(2, 3)), np.arange(6).reshape(2, 3)),
    (_long_and_dirty(1), _long_and_dirty(2)),
    (np.longdouble(1) / 3, np.longdouble(1) / 3),
    (np.array(["a", {1: 2}], object), np.array(["a", {1: 2}], object)),
    (np.random.default_rng(1), np.random.default_rng(1)),
    (np.array(["abc"], np.dtypes.StringDType()), np.array(["abc"], np.dtypes.StringDType())),
    (np.ma.array([1, 2], mask=[False, True]), np.ma.array([1, 2], mask=[False, True])),
    (ak.Array([[1], [2, 3]]), ak.Array([[9], [1], [2, 3]])[1:]),
    (ak.Array([{"a": 1}])[0], ak.Array([{"a": 2}, {"a": 1}])[1]),
    (_TABLE, pa.concat_tables([_TABLE[:1], _TABLE[1:]])),
    (pa.array([1, 2]), pa.array([0, 1, 2])[1:]),
    (hist.axis.Regular(3, 0, 1, name="x"), hist.axis.Regular(3, 0, 1, name="x")),
    (hist.Hist.new.Reg(3, 0, 1).Weight(), hist.Hist.new.Reg(3, 0, 1).Weight()),
    (object(), object()),
    (range(3), range(0, 3, 1)),
    (Path("a") / "b", Path("a/b")),
    (re.compile("a"), re.compile("a")),
    (operator.itemgetter(1), operator.itemgetter(1)),
    (types.MappingProxyType({"a": 1}), types.MappingProxyType({"a": 1})),
    (dt.datetime(2020, 1, 1, tzinfo=dt.UTC), dt.datetime(2020, 1, 1, tzinfo=dt.UTC)),
]

DIFFERENT: list[Any] = [
    1, 1.0, True, None, ..., 0.0, -0.0, "1", b"1", bytearray(b"1"), (1,), [1], {1}, frozenset({1}),
    {"a": 1}, Named(a=1), collections.OrderedDict(a=1), collections.defaultdict(int, a=1),
    collections.defaultdict(list, a=1), collections.Counter("a"), collections.deque([1]), collections.deque([1], 2),
    types.MappingProxyType({"a": 1}), types.SimpleNamespace(a=1), Point(1), Point(1, 3), (1, 2), Colour.RED, Colour.BLUE,
    Size.SMALL, Colour, range(3), range(4), slice(3), fractions.Fraction(1, 2), decimal.Decimal("1"),
    decimal.Decimal("1.0"), dt.date(2020, 1, 1), dt.datetime(2020, 1, 1), dt.timedelta(1), re.compile("a"),
    re.compile("a", re.I), Path("a"), operator.itemgetter(1), operator.itemgetter(2), operator.attrgetter("a"),
    np.float64(1), np.float32(1), np.int64(1), np.array(1.0), np.array([1.0]), np.array([[1.0]]), np.array([1.0], ">f8"),
    np.array([1]), np.array([-0.0]), np.array([0.0]), np.array(["1"]), np.array([1], object), np.array([1.0], object),
    np.zeros(1, [("a", "f8")]), np.zeros(1, [("b", "f8")]), np.dtype("f8"), np.dtype("f4"), np.dtype([("a", "f8")]),
    np.datetime64("2020-01-01"), np.datetime64("2020-01-01", "s"), np.add, np.subtract, np.random.default_rng(1),
    np.random.default_rng(2), np.random.RandomState(1), np.ma.array([1.0], mask=[True]), math.sin, math.cos, len, int, str,
    str.upper, "a".upper, "b".upper, [].append, ak.Array([1]), ak.Array([1.0]), ak.Array([[1]]), ak.Array([None, 1]),
    ak.Array([{"a": 1}]), ak.Array([{"b": 1}]), ak.with_name([{"a": 1}], "Muon"), pa.array([1]), pa.array([1.0]),
    pa.table({"a": [1]}), pa.table({"b": [1]}), pa.int8(), pa.int16(), pa.schema([("a", pa.int8())]),
    hist.axis.Regular(3, 0, 1), hist.axis.Regular(4, 0, 1), hist.axis.Regular(3, 0, 1, name="x"),
    hist.axis.Variable([0, 1 / 3, 2 / 3, 1]), hist.axis.StrCategory(["a"]), hist.axis.StrCategory(["a"], growth=True),
    hist.Hist.new.Reg(3, 0, 1).Double(), hist.Hist.new.Reg(3, 0, 1).Weight(), hist.Hist.new.Reg(3, 0, 1).Double().fill(0.5),
    math, np, list[int], list[str], int | str, math.nan, 1j, functools.partial(max, 1), functools.partial(max, 2),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(EQUAL)))
def test_values_that_are_equal(number: int) -> None:
    one, two = map(fingerprint, EQUAL[number])
    assert one.opaque == ()
    assert one.digest == two.digest


def test_values_that_are_not_equal() -> None:
    found: dict[str, Any] = {}
    for value in DIFFERENT:
        made = fingerprint(value)
        assert made.opaque == (), value
        assert made.digest not in found, (value, found.get(made.digest))
        found[made.digest] = value


def test_a_mapped_file_counts_by_its_content(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(3))
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    assert fingerprint(mapped).digest == fingerprint(np.arange(3)).digest
    assert fingerprint(mapped).opaque == ()


def test_corrections_count_by_what_is_in_them() -> None:
    correctionlib = pytest.importorskip("correctionlib")
    text = (
        '{"schema_version": 2, "corrections": [{"name": "sf", "version": 1, "inputs": [], '
        '"output": {"name": "o", "type": "real"}, "data": %s}]}'
    )
    one, again, two = (correctionlib.CorrectionSet.from_string(text % n) for n in (1.0, 1.0, 2.0))
    sets = (one, again, two)
    for values in (sets, [corrections["sf"] for corrections in sets]):
        made = [fingerprint(value) for value in values]
        assert made[0].opaque == ()
        assert made[0].digest == made[1].digest != made[2].digest


def test_tables_of_pandas_count_by_what_is_in_them() -> None:
    pandas = pytest.importorskip("pandas")
    columns = {"a": [1, 2], "b": ["x", None], "t": pandas.to_datetime(["2020-01-01"] * 2, utc=True)}
    frame = pandas.DataFrame(columns)
    assert fingerprint(frame).opaque == ()
    assert fingerprint(frame).digest == fingerprint(pandas.DataFrame(columns)).digest
    others = [frame.rename(columns={"a": "c"}), frame.set_index("a"), frame.iloc[::-1], frame["a"]]
    others += [frame.assign(b=["x", "y"]), frame.assign(a=frame.a.astype(float)), frame.astype({"b": "category"})]
    assert len({fingerprint(one).digest for one in [frame, *others]}) == 8


# --- circles --------------------------------------------------------------------------------------


def ring(labels: str) -> Any:
    rings: list[list[Any]] = [[label] for label in labels]
    for one, after in zip(rings, [*rings[1:], rings[0]], strict=True):
        one.append(after)
    return rings[0]


@given(st.text("ab", min_size=1, max_size=5), st.text("ab", min_size=1, max_size=5))
def test_circles_are_the_same_if_they_are_made_of_the_same(one: str, two: str) -> None:
    assert (fingerprint(ring(one)).digest == fingerprint(ring(two)).digest) is (one == two)


def test_what_is_deep_or_in_itself_is_no_failure() -> None:
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    inside: dict[str, Any] = {}
    inside["me"] = inside
    assert fingerprint(deep).opaque == fingerprint(inside).opaque == ()
    assert fingerprint(deep).digest != fingerprint([deep]).digest
    shared: list[Any] = [1]
    for _ in range(200):
        shared = [shared, shared]  # 2 ** 200 of them, if one went through them all
    assert fingerprint(shared).digest != fingerprint([shared, 1]).digest


# --- opaque ---------------------------------------------------------------------------------------

OPAQUE: dict[str, Any] = {
    "lock": threading.Lock,
    "queue": queue.Queue,
    "thread": threading.Thread,
    "local": threading.local,
    "open file": io.StringIO,
    "generator": lambda: (i for i in [1]),
    "iterator": lambda: iter([1]),
    "counter": itertools.count,
    "map": lambda: map(int, []),
    "weak": lambda: weakref.ref(Point),
    "ctypes": lambda: ctypes.pointer(ctypes.c_int(1)),
    "context": lambda: contextvars.ContextVar("x"),
    "random": random.SystemRandom,
    "memory": lambda: memoryview(b"a"),
    "frame": sys._getframe,
    "made ufunc": lambda: np.frompyfunc(lambda x: x, 1, 1),
    "builder": ak.ArrayBuilder,
    "keys": lambda: {}.keys(),
    "bound": lambda: threading.Lock().acquire,
}


@pytest.mark.parametrize("kind", OPAQUE)
def test_what_hides_something_is_opaque(kind: str) -> None:
    value = OPAQUE[kind]()
    assert fingerprint(value).opaque
    assert fingerprint([1, {"a": value}]).opaque


def test_what_is_opaque_says_where_it_is() -> None:
    with socket.socket() as client:
        text = "class Holder: pass\nheld = Holder()\nheld.log = [client]\ndef make(client):\n  def pt(x, y=client): return client, held\n  return pt\nf = make(client)"
        found = fingerprint(module(text, client=client).f)
        assert found.opaque == ("default 'y' of function 'pt' (a socket.socket)",)
        assert fingerprint(module(text.replace("y=client", "y=1"), client=client).f).opaque == (
            "closure variable 'client' of function 'pt' (a socket.socket)",
        )
        text = text.replace("y=client", "y=1").replace("return client, held", "return held")
        assert fingerprint(module(text, client=client).f).opaque == (
            "item 0 of attribute 'log' of global 'held' of function 'pt' (a socket.socket)",
        )
        assert fingerprint({"a": client}, name="the options").opaque == ("item 'a' of the options (a socket.socket)",)


class Hostile:
    def __init__(self) -> None:
        self.__dict__["a"] = 1

    def _no(self, *_: Any) -> Any:
        raise RuntimeError("nobody may call this")

    __repr__ = __str__ = __eq__ = __hash__ = __getattr__ = __getattribute__ = _no
    __reduce__ = __reduce_ex__ = __getstate__ = __iter__ = __len__ = __bool__ = _no
    __class__ = property(_no)


class HostileKey:
    asked = 0

    def __hash__(self) -> int:
        type(self).asked += 1
        return 1

    def __eq__(self, other: object) -> bool:
        type(self).asked += 1
        return self is other


class Broken:
    @property
    def fingerprint(self) -> str:
        raise RuntimeError("no")


def test_no_code_of_the_users_runs() -> None:
    made = object.__new__(Hostile)
    assert fingerprint(made).opaque == ()
    assert fingerprint([made, {"a": made}]).opaque == ()
    keys = collections.defaultdict(int, {HostileKey(): 1, HostileKey(): 2})
    members = {HostileKey(), HostileKey()}
    asked = HostileKey.asked
    assert fingerprint([keys, members, Named(a=1)]).opaque == ()
    assert HostileKey.asked == asked


def test_what_fails_when_asked_is_opaque() -> None:
    assert len(fingerprint([Broken()]).opaque) == 1
    assert "Broken" in fingerprint(Broken()).opaque[0]


# --- what is read where nobody sees it ------------------------------------------------------------

UNSEEN: dict[str, tuple[str, str]] = {
    "import os\ndef f(): return os.environ['A']": ("f", "os.environ"),
    "import os\ndef f(): return os.environ.get('A')": ("f", "os.environ"),
    "import os as o\ndef f(): return o.getenv('A')": ("f", "os.getenv"),
    "from os import environ\ndef f(): return environ.get('A')": ("f", "os.environ"),
    "from os import getenv as g\ndef f(): return g('A')": ("f", "os.getenv"),
    "def f():\n  import os\n  return os.environ['A']": ("f", "os.environ"),
    "def f():\n  from os import environ as e\n  return e['A']": ("f", "os.environ"),
    "import os\ndef f(p): return os.path.expandvars(p)": ("f", "os.path.expandvars"),
    "import os\ndef g(): return os.environ['A']\ndef f(): return g()": ("g", "os.environ"),
    "import os\ndef f(): return [os.environ[a] for a in 'AB']": ("f", "os.environ"),
    "import os\ndef f(): return os.getcwd()": ("f", "os.getcwd"),
    "from os import getcwd as here\ndef f(): return here()": ("f", "os.getcwd"),
    "from pathlib import Path\ndef f(): return Path.cwd()": ("f", "pathlib.Path.cwd"),
    "import pathlib\ndef f(): return pathlib.Path.cwd()": ("f", "pathlib.Path.cwd"),
    "def f():\n  from pathlib import Path\n  return Path.cwd()": ("f", "pathlib.Path.cwd"),
    "import sys\ndef f(): return sys.argv[-1]": ("f", "sys.argv"),
    "def f():\n  from sys import argv\n  return argv[1:]": ("f", "sys.argv"),
    "import importlib\ndef f(): return importlib.import_module('m')": ("f", "importlib.import_module()"),
    "from importlib import import_module as i\ndef f(): return i('m')": ("f", "importlib.import_module()"),
    "def f(): return __import__('m').h": ("f", "__import__()"),
    "class B: pass\ndef f(): return B.__subclasses__()": ("f", "__subclasses__()"),
    "A = 1\ndef f(): return globals()['A']": ("f", "globals()"),
    "A = 1\ndef f(): return eval('A')": ("f", "eval()"),
    "A = 1\ndef f(): return list(map(eval, ['A']))": ("f", "eval()"),
    "A = 1\ne = eval\ndef f(): return e('A')": ("f", "eval()"),
    "def f(x): exec('x.append(A)')": ("f", "exec()"),
    "def f(x): return '{x}'.format(**locals())": ("f", "locals()"),
    "def f(x): return '{x}'.format(**vars())": ("f", "vars()"),
    "def f(x):\n  class C:\n    a = vars()\n  return C": ("f", "vars()"),
    "def f(x): return dir()": ("f", "dir()"),
}  # fmt: skip


@pytest.mark.parametrize("text", UNSEEN)
def test_code_that_reads_what_it_does_not_name_is_opaque(text: str) -> None:
    function, how = UNSEEN[text]
    (found,) = fingerprint(module(text).f).opaque
    assert f"function {function!r}" in found
    assert f"({how})" in found


@pytest.mark.parametrize(
    "text",
    [
        "import os\ndef f(): return os.path.join('a', os.sep)",
        "import sys, importlib\ndef f(): return sys.maxsize, importlib.invalidate_caches",
        "from pathlib import Path\ndef f(x): return Path(x).name, x.cwd, x.argv",
        "def f(x): return vars(x), dir(x)",
        "def f(x): return x.eval('a'), x.globals(), x.environ",
        "def eval(x): return x\ndef f(x): return eval(x)",
        "def f(globals): return globals()",
    ],
)
def test_code_that_looks_like_it_is_not_opaque(text: str) -> None:
    assert fingerprint(module(text).f).opaque == ()


@pytest.mark.parametrize("thing", ["os.environ", "os.getenv", "eval", "globals"])
def test_what_reads_them_is_opaque_wherever_it_is_kept(thing: str) -> None:
    made = module(f"import os\ndef f(x, y={thing}): return x")
    (found,) = fingerprint(made.f).opaque
    assert found.startswith("default 'y' of function 'f'")


@pytest.mark.parametrize("text", ["import mine_u\n  return mine_u.A", "from mine_u.part import g\n  return g()"])
def test_a_module_that_is_not_loaded_is_opaque(package: Any, text: str) -> None:
    package(mine_u_IN___init__="A = 1", mine_u_IN_part="def g(): return 1")
    (found,) = fingerprint(module(f"def f():\n  {text}").f).opaque
    assert "which is not loaded yet: import it at the top" in found


# --- what is frozen -------------------------------------------------------------------------------

FROZEN: dict[str, tuple[str, bool]] = {
    "a number": ("A = 1.0\n@D\ndef f(x): return x * A", True),
    "an array": ("import numpy as np\nA = np.ones(2)\n@D\ndef f(x): return x * A[0]", True),
    "a closure": ("def m(a):\n  @D\n  def f(x): return x * a\n  return f\nf = m(1.0)", True),
    "nothing": ("@D\ndef f(x): return x * 2.0", False),
    "libraries": ("import math\nfrom numpy import sqrt\n@D\ndef f(x): return sqrt(x) * math.pi", False),
    "functions": ("@D\ndef g(x): return x + 1\n@D\ndef f(x): return g(x)", False),
}  # fmt: skip

DECORATORS = {
    "jit": "import numba\nD = numba.njit\n",
    "vectorize": "import numba\nD = numba.vectorize\n",
    "cache": "import functools\nD = functools.cache\n",
}


@pytest.mark.parametrize(
    ("decorator", "what"),
    [
        # Compiling takes seconds: one that freezes something and one that does not say it.
        pytest.param(
            *both, marks=[pytest.mark.slow] * (both[0] != "cache" and both[1] not in ("a number", "functions"))
        )
        for both in itertools.product(DECORATORS, FROZEN)
    ],
)
def test_values_frozen_by_use_are_opaque(decorator: str, what: str) -> None:
    text, frozen = FROZEN[what]
    made = module(DECORATORS[decorator] + text)
    before = fingerprint(made.f)
    assert before.opaque == ()
    made.f(2.0)
    after = fingerprint(made.f)
    assert after.digest == before.digest
    assert bool(after.opaque) is frozen
    assert all("function 'f'" in one for one in after.opaque)


def test_what_a_helper_reads_is_in_the_answers_too() -> None:
    made = module(
        "import functools\nA = 1\ndef h(): return A\ndef g(): return h()\n@functools.cache\ndef f(): return g()"
    )
    assert made.f() == 1
    assert len(fingerprint(made.f).opaque) == 1
    made.f.cache_clear()
    assert fingerprint(made.f).opaque == ()


def test_signatures_that_were_given_freeze_at_once() -> None:
    text = "import numba\nA = 1.0\n@numba.njit('f8(f8)')\ndef f(x): return x * A"
    (found,) = fingerprint(module(text).f).opaque
    assert "compiled function 'f' has frozen" in found


# --- what is written to ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "stores"),
    [
        ("def f():\n  global A\n  A = 1", ("A",)),
        ("def f():\n  global A\n  del A", ("A",)),
        ("C = {}\ndef f(x): C[x] = 1", ("C[...]",)),
        ("C = {}\ndef f(x): C[x] += 1", ("C[...]",)),
        ("C = {}\ndef f(x): C[x or 1] = 1", ("C[...]",)),
        ("C = [[]]\ndef f(x): C[0][x] = 1", ("C[...]",)),
        ("C = {}\ndef f(x):\n  c = C\n  c[x] = 1", ("C[...]",)),
        ("C = {}\ndef f(x): del C[x]", ("C[...]",)),
        ("class C: pass\ndef f(x): C.a = x", ("C.a",)),
        ("class C: pass\ndef f(x): del C.a", ("C.a",)),
        ("C = []\ndef f(x): C.append(x)", ("C.append()",)),
        ("C = {}\ndef g(x): C.update(x)\ndef f(x): g(x)", ("C.update()",)),
        ("def m(n):\n  def f():\n    nonlocal n\n    n += 1\n  return f\nf = m(1)", ("n",)),
        ("def m(n):\n  def f():\n    def g():\n      nonlocal n\n      n += 1\n    g()\n  return f\nf = m(1)", ("n",)),
        ("def f(n):\n  def g():\n    nonlocal n\n    n += 1\n  g()", ()),
        ("def f(x):\n  c = {}\n  c[1] = 2\n  c.update(x)\n  x.a = 3", ()),
        ("T = 'a,b'\ndef f(x): return T.split(',')", ()),
    ],
)
def test_writing_to_what_others_see_is_noticed(text: str, stores: tuple[str, ...]) -> None:
    assert fingerprint(module(text).f).stores_globals == stores


def test_how_far_a_program_has_come_can_be_left_out() -> None:
    made = module("C, N = {}, 0\ndef f(x):\n  global N\n  N += 1\n  C[x] = g(x)\ndef g(x): return C.get(x)")
    before = fingerprint(made.f), fingerprint(made.f, exact=False)
    made.f(1)
    after = fingerprint(made.f), fingerprint(made.f, exact=False)
    assert before[0].digest != after[0].digest
    assert before[1].digest == after[1].digest


def test_a_class_is_the_same_after_an_instance_was_pickled() -> None:
    class Scale:
        def __init__(self, factor: float) -> None:
            self.factor = factor

    scale = Scale(2.0)
    before = fingerprint(scale)
    copyreg._slotnames(Scale)  # type: ignore[attr-defined]  # what pickling does, and leaves in the class
    assert "__slotnames__" in vars(Scale)
    assert fingerprint(scale) == before
