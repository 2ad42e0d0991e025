"""Public names: what ``__all__`` promises is there, and nothing else is shown."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import windrow

MODULES = sorted(module.name for module in pkgutil.walk_packages(windrow.__path__, prefix="windrow."))


def test_there_are_modules() -> None:
    assert "windrow.pipeline.pipeline" in MODULES


def test_names_are_sorted_and_all_that_dir_shows() -> None:
    assert list(windrow.__all__) == sorted(windrow.__all__)
    assert len(set(windrow.__all__)) == len(windrow.__all__)
    assert dir(windrow) == list(windrow.__all__)


def test_every_name_can_be_imported() -> None:
    for name in windrow.__all__:
        assert getattr(windrow, name) is not None
    # In a new interpreter, where no other test has loaded anything.
    code = f"from windrow import {', '.join(windrow.__all__)}"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_names_that_are_not_public_are_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing_of_this_name'"):
        windrow.nothing_of_this_name  # noqa: B018


def test_a_star_import_gives_the_public_names() -> None:
    names: dict[str, object] = {}
    exec("from windrow import *", names)
    assert set(windrow.__all__) <= set(names)


def test_every_module_can_be_imported_and_has_the_names_it_promises() -> None:
    for name in MODULES:
        if name.endswith("__main__"):
            continue  # runs the command when imported
        module = importlib.import_module(name)
        public = getattr(module, "__all__", ())
        assert len(set(public)) == len(public), name
        missing = [entry for entry in public if not hasattr(module, entry)]
        assert missing == [], f"{name}.__all__ promises what is not there"


def test_the_package_says_that_it_is_typed() -> None:
    assert windrow.__file__ is not None
    assert (Path(windrow.__file__).parent / "py.typed").is_file()


def test_the_version_is_that_of_the_project() -> None:
    import tomllib

    project = Path(__file__).resolve().parents[1] / "pyproject.toml"
    assert tomllib.loads(project.read_text())["project"]["version"] == windrow.__version__
