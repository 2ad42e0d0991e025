"""The rules of the house: who may import whom, what is pure, how large things may be, and what is never written."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"

# --- the rules ------------------------------------------------------------------------------------

BOTTOM = {"errors", "units", "globs", "random", "_portable", "files"}
DECISIONS = {"order", "reuse", "shape", "place"}
WORKERS = {"engines", "blocks", "data", "store"}
FRONT_DOORS = {"pipeline", "tasks", "study", "loops"}
BELOW_RUN = BOTTOM | DECISIONS | WORKERS | {"core", "hep"}

#: What each room may import besides itself; imports point one way. Imports of types count too.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "globs": set(),
    "_portable": set(),
    "units": {"errors"},
    "random": {"errors", "_portable"},
    "core": {"errors"},
    **{decision: {"errors", "core"} for decision in DECISIONS},
    "data": BOTTOM,
    "store": BOTTOM | {"core"},
    "engines": BOTTOM | {"core"},
    "blocks": BOTTOM | {"core", "data"},
    "watch": BOTTOM | {"core", "store"},
    "files": BOTTOM,
    "hep": BOTTOM | {"data", "blocks", "files"},
    "run": BELOW_RUN | {"watch"},
    **{door: BELOW_RUN | {"watch", "run"} for door in FRONT_DOORS},
    "study": BELOW_RUN | {"watch", "run", "pipeline", "tasks"},
    "loops": BELOW_RUN | {"tasks"},
    "compat": BELOW_RUN | {"watch", "run"} | FRONT_DOORS,
    "cli": BELOW_RUN | {"watch", "run"} | FRONT_DOORS,
    "__main__": {"cli"},
}

#: Of these rooms a worker's code sees just the records and the types.
ONLY_THESE: dict[tuple[str, str], set[str]] = {
    ("blocks", "core"): {"windrow.core.records"},
    ("blocks", "data"): {"windrow.data.base", "windrow.data.skim.fragments"},
}

#: Against the direction, but types alone: (module, imported) -> why.
TYPES_ONLY = {("windrow.watch.progress", "windrow.run.loop"): "a watcher is an Observer, which the loop defines"}

PURE = DECISIONS | {"core"}

#: Clocks, threads, files, sockets, environment, logging and global random state.
IMPURE_MODULES = {
    "asyncio", "atexit", "builtins", "concurrent", "contextvars", "ctypes", "datetime", "email",
    "fcntl", "fileinput", "gc", "getpass", "glob", "http", "importlib", "io", "locale", "logging",
    "mmap", "multiprocessing", "os", "pathlib", "pickle", "platform", "queue", "random", "resource",
    "sched", "secrets", "select", "selectors", "shelve", "shutil", "signal", "socket",
    "socketserver", "sqlite3", "ssl", "subprocess", "sys", "tempfile", "threading", "time",
    "tracemalloc", "urllib", "uuid", "warnings", "weakref", "_thread",
}  # fmt: skip
IMPURE_CALLS = {
    "open", "print", "input", "exec", "eval", "compile", "__import__", "breakpoint", "globals", "id", "hash",
}  # fmt: skip

MODULE_LINES = 700
FUNCTION_LINES = 60
#: "module" or "module:function" -> why it may be longer.
LONGER: dict[str, str] = {}

#: Third-party modules that come with a declared package: module -> the package that brings it.
BROUGHT_ALONG = {"boost_histogram": "hist"}
#: Packages that an extra brings, and the room that alone imports them.
OF_EXTRAS = {
    "coffea": "windrow.compat.coffea",
    "dask_mpi": "windrow.engines.dask",
    "distributed": "windrow.engines.dask",
    "mpi4py": "windrow.engines.dask",
}

# --- reading the source ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Module:
    name: str
    path: Path
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=str(self.path))

    @cached_property
    def imports(self) -> list[Import]:
        """Every import, also those inside functions and those for types."""
        return list(_imports(self))

    @property
    def room(self) -> str:
        parts = self.name.split(".")
        return parts[1] if len(parts) > 1 else ""


@dataclass(frozen=True)
class Import:
    target: str
    line: int
    types_only: bool


def _module(path: Path) -> Module:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return Module(name, path, path.read_text(encoding="utf-8"))


#: Templates of new analyses are the user's: they import what an analysis does.
TEMPLATES = SOURCE / "windrow" / "cli" / "new" / "templates"
MODULES = {m.name: m for m in map(_module, sorted(SOURCE.rglob("*.py"))) if not m.path.is_relative_to(TEMPLATES)}


def named(name: str, text: str) -> Module:
    return Module(name, Path(f"{name}.py"), text)


def _imports(module: Module) -> Iterator[Import]:
    tree = module.tree
    typed = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and _is_type_checking(node.test)
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, id(node) in typed)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module.name.split(".")[: -node.level]
                base = ".".join([*package, base] if base else package)
            for alias in node.names:
                if (base, alias.name) == ("windrow", "__version__"):
                    continue  # a constant, which is there before anything else
                inner = f"{base}.{alias.name}"
                # from windrow.core import commands: the module, not a name of the package
                target = inner if inner in MODULES else base
                yield Import(target, node.lineno, id(node) in typed)


def _is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


# --- directions -----------------------------------------------------------------------------------


def wrong_directions(module: Module) -> list[str]:
    if not module.room:
        return []  # the package itself shows names of any room, lazily
    allowed = MAY_IMPORT.get(module.room)
    if allowed is None:
        return [f"{module.name}: the room {module.room!r} has no place in the house yet"]
    found = []
    for one in module.imports:
        parts = one.target.split(".")
        if parts[0] != "windrow" or (len(parts) > 1 and parts[1] == module.room):
            continue
        if one.types_only and (module.name, one.target) in TYPES_ONLY:
            continue
        room = parts[1] if len(parts) > 1 else ""
        only = ONLY_THESE.get((module.room, room))
        if room not in allowed or (only is not None and one.target not in only):
            found.append(f"{module.name}:{one.line} imports {one.target}")
    return found


def in_all_modules(offences: Callable[[Module], list[str]]) -> list[str]:
    return [offence for module in MODULES.values() for offence in offences(module)]


def test_imports_point_one_way() -> None:
    assert in_all_modules(wrong_directions) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("windrow.core.x", "from windrow.order.constraints import repair"),
        ("windrow.core.x", "import windrow.units"),
        ("windrow.order.x", "from windrow.shape import fixed"),
        ("windrow.blocks.x", "def f():\n    from windrow.core.scheduler import Scheduler"),
        ("windrow.blocks.x", "from windrow.data import open"),
        ("windrow.blocks.x", "import windrow"),
        ("windrow.data.x", "from ..blocks import tree"),
        (
            "windrow.engines.x",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from windrow.run.loop import A",
        ),
        ("windrow.watch.progress", "from windrow.run.loop import Observer"),
        ("windrow.pipeline.x", "from windrow.cli import main"),
        ("windrow.errors", "from windrow.units import parse_bytes"),
        ("windrow.attic.x", ""),
    ],
)
def test_a_wrong_direction_is_noticed(name: str, text: str) -> None:
    assert len(wrong_directions(named(name, text))) == 1


def test_exceptions_are_in_use() -> None:
    for (name, target), why in TYPES_ONLY.items():
        assert why
        found = [one for one in MODULES[name].imports if one.target == target]
        assert found
        assert all(one.types_only for one in found)


def test_modules_do_not_import_each_other_in_circles() -> None:
    graph = {
        name: {
            one.target
            for one in _top_level(module)
            if one.target in MODULES and one.target != name and not one.types_only
        }
        for name, module in MODULES.items()
    }
    while graph:
        free = [name for name, needs in graph.items() if not needs]
        assert free, f"these import each other in a circle, or wait for those that do: {sorted(graph)}"
        for name in free:
            del graph[name]
        for needs in graph.values():
            needs.difference_update(free)


def _top_level(module: Module) -> Iterator[Import]:
    top = {node.lineno for node in module.tree.body if isinstance(node, (ast.Import, ast.ImportFrom))}
    return (one for one in module.imports if one.line in top)


# --- purity ---------------------------------------------------------------------------------------


def impurities(module: Module) -> list[str]:
    found = [
        f"{module.name}:{one.line} imports {one.target}" for one in module.imports if not _is_pure_import(one.target)
    ]
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in IMPURE_CALLS:
                found.append(f"{module.name}:{node.lineno} calls {node.func.id}()")
        elif isinstance(node, ast.Attribute):
            text = ast.unparse(node)
            if re.fullmatch(r"(np|numpy)\.random\.\w+", text) and not text.endswith(".Generator"):
                found.append(f"{module.name}:{node.lineno} uses {text}")
        elif isinstance(node, ast.Global):
            found.append(f"{module.name}:{node.lineno} changes the globals {node.names}")
    return found


def _is_pure_import(target: str) -> bool:
    top, *rest = target.split(".")
    if top == "windrow":
        return True  # directions are another test
    if top == "numpy":
        return rest[:1] != ["random"]
    return top in sys.stdlib_module_names and top not in IMPURE_MODULES


def test_decisions_and_heart_are_pure() -> None:
    assert in_all_modules(lambda module: impurities(module) if module.room in PURE else []) == []


def test_the_pure_rooms_are_there() -> None:
    assert {"core", "order", "shape"} <= {m.room for m in MODULES.values()}


@pytest.mark.parametrize(
    "text",
    [
        "import time",
        "from os import path",
        "def f():\n    import threading",
        "import numba",
        "import awkward as ak",
        "from numpy.random import normal",
        "x = np.random.normal()",
        "rng = numpy.random.default_rng(0)",
        "handle = open('f')",
        "def f():\n    global count\n    count = 1",
    ],
)
def test_an_impurity_is_noticed(text: str) -> None:
    assert len(impurities(named("windrow.core.x", text))) == 1


def test_numpy_and_a_generator_that_is_given_are_pure() -> None:
    text = "import numpy as np\nimport heapq\ndef f(rng: np.random.Generator) -> float: ..."
    assert impurities(named("windrow.core.x", text)) == []


# --- sizes and words ------------------------------------------------------------------------------


def too_long(module: Module) -> list[str]:
    found = []
    lines = len(module.text.splitlines())
    if lines > MODULE_LINES and module.name not in LONGER:
        found.append(f"{module.name} has {lines} lines")
    for node in ast.walk(module.tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            size = (node.end_lineno or node.lineno) - node.lineno + 1
            if size > FUNCTION_LINES and f"{module.name}:{node.name}" not in LONGER:
                found.append(f"{module.name}:{node.name} has {size} lines")
    return found


def test_modules_and_functions_are_short() -> None:
    assert in_all_modules(too_long) == []


def test_what_is_too_long_is_noticed() -> None:
    body = "\n".join(["    x = 1"] * FUNCTION_LINES)
    assert len(too_long(named("windrow.x", f"def f():\n{body}"))) == 1
    assert len(too_long(named("windrow.x", "x = 1\n" * (MODULE_LINES + 1)))) == 1
    assert too_long(named("windrow.x", f"def f():\n{body[: -len('    x = 1')]}")) == []


def test_what_may_be_longer_exists_and_has_a_reason() -> None:
    for place, why in LONGER.items():
        assert why
        assert place.split(":")[0] in MODULES


def test_every_module_says_what_it_is() -> None:
    docstrings = {module.name: ast.get_docstring(module.tree) or "" for module in MODULES.values()}
    assert [name for name, docstring in docstrings.items() if len(docstring.split()) < 3] == []


def prints(module: Module) -> list[str]:
    return [
        f"{module.name}:{node.lineno} calls {node.func.id}()"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("print", "breakpoint")
    ]


def test_nothing_prints_but_the_command_line() -> None:
    assert in_all_modules(lambda module: prints(module) if module.room != "cli" else []) == []
    assert len(prints(named("windrow.core.x", "print('here')"))) == 1


#: Open questions belong to issues. (Written so that this file does not find itself.)
UNFINISHED = re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b")
MACHINE = re.compile(
    r"""(?<![\w.:/~*-])/(?:work|root|home|Users|tmp|mnt|scratch|private)/[\w.]"""  # paths of one machine
    r"""|\b(?:\d{1,3}\.){3}\d{1,3}\b"""  # addresses
    r"""|\b[\w-]+\.(?:internal|lan|corp|intranet)\b"""  # hosts
)


def _written_files() -> list[Path]:
    places = [ROOT / name for name in ("src", "docs", "examples", "benchmarks", "tests", ".ci")]
    kinds = {".py", ".md", ".toml", ".yml", ".yaml", ".json", ".txt", ".sh", ""}
    files = [p for place in places for p in sorted(place.rglob("*")) if p.suffix in kinds]
    files += [*sorted(ROOT.glob("*.md")), ROOT / "Makefile", ROOT / "pyproject.toml"]
    return [p for p in files if p.is_file() and "__pycache__" not in p.parts and p != Path(__file__)]


def lines_with(pattern: re.Pattern[str], text: str) -> list[str]:
    return [line for line in text.splitlines() if pattern.search(line)]


def test_nothing_is_left_open_and_no_machine_is_named() -> None:
    found = []
    for path in _written_files():
        name, text = str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
        found += [f"{name}: {line}" for line in lines_with(UNFINISHED, text)]
        if not name.startswith("tests"):  # tests make up hosts and paths
            found += [f"{name}: {line}" for line in lines_with(MACHINE, text)]
    assert found == []


@pytest.mark.parametrize(
    "text", ["open('/tmp/x.root')", "/work/main/src", "see /home/me/data", "http://10.0.0.7/simple", "db.corp"]
)
def test_a_machine_is_noticed(text: str) -> None:
    assert lines_with(MACHINE, text)


@pytest.mark.parametrize(
    "text", ["root://host//store/file.root", "docs/work/page.md", "version 1.2.3", "threading.local()"]
)
def test_other_text_is_left_in_peace(text: str) -> None:
    assert not lines_with(MACHINE, text)


# --- packages -------------------------------------------------------------------------------------


def test_third_party_packages_are_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {re.split(r"[<>=\[ ;]", entry)[0] for entry in project["dependencies"]}
    assert set(BROUGHT_ALONG.values()) <= declared
    brought = [entry for entries in project["optional-dependencies"].values() for entry in entries]
    assert set(OF_EXTRAS) <= {re.split(r"[<>=\[ ;]", entry)[0].replace("-", "_") for entry in brought}
    undeclared = sorted(
        f"{module.name}:{one.line} imports {one.target}"
        for module in MODULES.values()
        for one in module.imports
        if (top := one.target.split(".")[0]) not in sys.stdlib_module_names
        and top not in declared | {"windrow"} | set(BROUGHT_ALONG)
        and not (top in OF_EXTRAS and module.name.startswith(OF_EXTRAS[top]))
    )
    assert undeclared == []


def loaded_after(statement: str, heavy: str) -> list[str]:
    """Import in a new interpreter; return which of the heavy modules that loaded."""
    code = f"import sys\n{statement}\nprint(*[m for m in {heavy.split()!r} if m in sys.modules])"
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True,
        timeout=120,
    )  # fmt: skip
    return done.stdout.split()


HEAVY = "numpy awkward uproot numba rich click vector hist boost_histogram pyarrow psutil"


def test_importing_windrow_is_light() -> None:
    assert loaded_after("import windrow", HEAVY) == []


def test_writing_an_analysis_loads_no_machinery() -> None:
    statement = "import windrow as wr; wr.Pipeline('a')"
    assert loaded_after(statement, "numba uproot rich click pyarrow") == []
    assert loaded_after("import windrow.pipeline.pipeline", "numba uproot rich click pyarrow") == []


def test_the_test_for_light_imports_notices_heavy_ones() -> None:
    assert loaded_after("import numpy", HEAVY) == ["numpy"]
