"""Random numbers that nobody has chosen are not reused, however the code comes by them; those of a seed are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import windrow as wr
from windrow.store.fingerprint.api import fingerprint

if TYPE_CHECKING:
    from pathlib import Path

#: What the functions find outside.
OUTSIDE = """
import functools, importlib, os, random, secrets, sys, types, uuid
import numpy as np
import numpy.random as npr
from numpy.random import PCG64, Generator, default_rng as new_rng
from random import Random, SystemRandom, random as draw, seed as begin
RNG, PYTHONS, OLD, SYSTEMS = np.random.default_rng(1), Random(1), np.random.RandomState(1), SystemRandom()
BOUND, TABLE, KEPT = RNG.normal, {"a": [RNG]}, types.SimpleNamespace(rng=RNG)
PART, SEED, NONE = functools.partial(random.gauss, 0, 1), 5, None
SEEDS = np.random.SeedSequence(5)
def noise(): return np.random.normal()
def starts(): random.seed(5)
class Own(Random): pass
class Holds:
    rng = np.random.default_rng(1)
    def draw(self): return self.rng.random()
class Has:
    def __init__(self): self.rng = Random()
    def draw(self): return self.rng.random()
class Made:
    def __init__(self): self.rng = np.random.default_rng(1)
    def draw(self): return self.rng.random()
    def size(self): return 1
HAS = Made()
"""

DRAWS = {
    "another name": "return new_rng().random()",
    "None": "return np.random.default_rng(None).random()",
    "None by name": "return np.random.default_rng(seed=None).random()",
    "None of a variable": "seed = None\nreturn np.random.default_rng(seed).random()",
    "None of a global": "return np.random.default_rng(NONE).random()",
    "None in a branch": "return np.random.default_rng(None if x else 5).random()",
    "arguments of nobody": "return np.random.default_rng(*x).random()",
    "bits": "return Generator(PCG64()).random()",
    "bits of a module": "return np.random.Generator(np.random.MT19937()).random()",
    "entropy": "return np.random.SeedSequence().entropy",
    "a class of the user's": "return Own().random()",
    "an old one": "return npr.RandomState().rand()",
    "a variable": "R = random.Random\nreturn R().random()",
    "a list": "return [Random][0]().random()",
    "handed on": "return list(map(Random, x))",
    "an import": "from numpy.random import default_rng as g\nreturn g().random()",
    "an import for a function inside": "import numpy as np\nreturn (lambda: np.random.rand())()",
    "an import under one of two names": "import random as r\nr = r\nreturn r.random()",
    "an import with a dot": "import numpy.random as r\nreturn r.rand()",
    "an import, begun after a function inside": "import numpy as np\ng = lambda: np.random.rand()\ny = g()\nnp.random.seed(x)\nreturn y",
    "inside": "return [random.random() for _ in range(3)]",
    "begun with nothing": "random.seed()\nreturn random.random()",
    "begun with None": "random.seed(None)\nreturn random.random()",
    "begun with nothing, of numpy": "np.random.seed()\nreturn np.random.rand()",
    "begun in one branch": "if x: random.seed(1)\nreturn random.random()",
    "begun in a loop": "for one in x: random.seed(one)\nreturn random.random()",
    "begun in vain": "try:\n  x()\n  random.seed(1)\nexcept OSError: pass\nreturn random.random()",
    "begun too late": "first = random.random()\nrandom.seed(1)\nreturn first",
    "begun too late for a helper": "first = noise()\nnp.random.seed(1)\nreturn first",
    "begun with a draw": "random.seed(random.random())\nreturn random.random()",
    "begun elsewhere": "random.seed(1)\nreturn np.random.rand()",
    "begun by a function inside": "def g(): random.seed(1)\nreturn random.random()",
    "a function": "return draw()",
    "a part of one": "return PART()",
    "a name that is looked up": "return getattr(random, 'random')()",
    "a module in a variable": "numbers = np.random\nreturn numbers.rand()",
    "the system": "return SystemRandom().random()",
    "the system's module": "return random.SystemRandom().random()",
    "the system's object": "return SYSTEMS.random()",
    "secrets": "return secrets.token_hex()",
    "secrets of a function": "from secrets import randbelow\nreturn randbelow(5)",
    "a name for anything": "return uuid.uuid4()",
    "a name for anything else": "return uuid.uuid1()",
    "bytes": "return os.urandom(8)",
    "a global": "return RNG.random()",
    "a global of Python's": "return PYTHONS.random()",
    "an old global": "return OLD.rand()",
    "a method of a global": "return BOUND()",
    "a global in a table": "return TABLE['a'][0].random()",
    "a global in a namespace": "return KEPT.rng.random()",
    "a global in an object": "return HAS.draw()",
    "a class that holds one": "return Holds().draw()",
    "a class that makes one": "return Has().draw()",
}

#: A state that all share draws even if it is begun with a seed, and so does what is not seen to be given one.
IN_DOUBT = {
    "begun": "random.seed(x)\nreturn random.random()",
    "begun under another name": "begin(x)\nreturn draw()",
    "begun for a helper": "np.random.seed(x)\nreturn noise() + np.random.rand()",
    "begun for a function inside": "import numpy as np\nnp.random.seed(x)\nreturn [np.random.rand() for _ in range(3)]",
    "begun after a branch": "if x < 0: return None\ny = 1 if x else 2\nrandom.seed(y)\nreturn random.random()",
    "begun in a with": "np.random.seed(x)\nwith np.errstate(all='ignore'): return np.random.rand()",
    "one of two": "return new_rng(x if x is not None else 5).random()",
    "of a list": "return new_rng([n for n in range(x)]).random()",
    "entropy without a seed": "return new_rng(np.random.SeedSequence(spawn_key=(x,))).random()",
    "a default of a function inside": "def g(seed=None): return new_rng(seed).random()\nreturn g()",
    "entropy of a global": "return new_rng(SEEDS).random()",
    "one of two modules": "m = np if x else random\nreturn m.random.rand()",
    "a class that is asked for": "return isinstance(x, random.Random)",
}  # fmt: skip

SEEDED = {
    "an argument": "return np.random.default_rng(x).random()",
    "an argument by name": "return np.random.default_rng(seed=x).random()",
    "another name": "return new_rng(x).random()",
    "a number": "return random.Random(5).random()",
    "a global": "return Random(SEED).random()",
    "a computed one": "return new_rng([x, len(str(x)[1:8]), max(3, x)]).random()",
    "several": "return [new_rng(n).random() for n in range(x)]",
    "bits": "return Generator(PCG64(x)).random()",
    "entropy": "return new_rng(np.random.SeedSequence(x, spawn_key=(1,))).random()",
    "an old one": "return npr.RandomState(seed=x).rand()",
    "an import": "from numpy.random import default_rng as g\nreturn g(x).random()",
    "an import for a function inside": "import numpy as np\nr = np.random.default_rng(x)\nreturn [np.sqrt(n) for n in r.random(3)]",
    "an import with a dot": "import numpy.random as r\nreturn r.default_rng(x).random()",
    "asked for the class": "return isinstance(x, (int, np.random.Generator))",
    "a class of which nothing draws": "return Made().size()",
    "other things of the modules": "return os.path.join('a', 'b'), uuid.UUID(int=x), secrets.compare_digest('a', 'b')",
    "a generator that it is given": "return x.random(), x.seed",
}  # fmt: skip


def made(body: str) -> Any:
    """Make a function of a script."""
    names: dict[str, Any] = {"__name__": "program"}
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    exec(f"{OUTSIDE}\ndef f(x=1):\n{lines}", names)
    return names["f"]


def draws_from(function: Any) -> tuple[str, ...]:
    """Say how a function draws."""
    return fingerprint(function).draws


@pytest.mark.parametrize("what", DRAWS)
def test_what_draws_is_found(what: str) -> None:
    assert draws_from(made(DRAWS[what]))


@pytest.mark.parametrize("what", IN_DOUBT)
def test_in_doubt_it_draws(what: str) -> None:
    assert draws_from(made(IN_DOUBT[what]))


@pytest.mark.parametrize("what", SEEDED)
def test_what_is_seeded_does_not_draw(what: str) -> None:
    found = fingerprint(made(SEEDED[what]))
    assert (found.draws, found.opaque) == ((), ())


def test_what_a_function_is_given_by_default() -> None:
    """A default is a value from outside; one that is None is no seed."""
    names: dict[str, Any] = {"__name__": "program"}
    exec(OUTSIDE, names)
    for text in (
        "def f(r=random.random): return r()",
        "def f(*, r=RNG): return r.random()",
        "def f(r=Random): return r()",
        "def f(seed=None): return new_rng(seed)",
        "def f(*, seed=None): return (lambda: new_rng(seed))()",
        "def m(rng):\n  return lambda: rng.random()\nf = m(RNG)",
    ):
        exec(text, names)
        assert draws_from(names["f"]), text
    for text in ("def f(seed=5): return new_rng(seed)", "def f(seed): return new_rng(seed)"):
        exec(text, names)
        assert draws_from(names["f"]) == (), text


def test_they_are_not_reused_and_it_is_said_why(tmp_path: Path) -> None:
    said = {
        "return new_rng().random()": "makes a generator of random numbers without a seed (default_rng())",
        "return RNG.random()": "draws from a generator that is outside of it (Generator)",
        "return os.urandom(8)": "asks the system for random numbers (urandom)",
        "random.seed()\nreturn random.random()": "draws from the global state of random",
    }
    for body, why in said.items():
        with wr.Session(engine="inline", store=tmp_path / "store", reuse=True) as opened:
            task = wr.task(made(body))
            assert task().result() != task().result()
            assert why in opened.reuse_stats.reasons[task.declared.name]


def test_the_current_directory_counts_for_a_command(tmp_path: Path) -> None:
    """It is in the key of each call, so that a body may name it; anything else from the environment is not."""
    names: dict[str, Any] = {"__name__": "program", "wr": wr}
    exec(OUTSIDE, names)
    exec("def f(to: wr.OutFile): return 'echo %s > {to}' % os.getcwd()", names)
    exec("def g(to: wr.OutFile): return 'echo %s > {to}' % [os.getcwd(), sys.argv]", names)
    with wr.Session(engine="inline", store=tmp_path / "store") as opened:
        for name in "fg":
            wr.command(names[name])(str(tmp_path / name)).result()
        assert [*opened.reuse_stats.reasons] == ["g"]
        assert "(sys.argv)" in opened.reuse_stats.reasons["g"]
