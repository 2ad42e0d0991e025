"""What a run says about where it ran: versions and sizes, never names or places."""

from __future__ import annotations

import getpass
import json
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from windrow.watch.environment import commit_of, environment, installed_packages


def test_versions_are_those_installed() -> None:
    facts = environment()
    assert facts["packages"]["numpy"] == version("numpy")
    assert facts["python"] == platform.python_version()
    assert f"numpy=={version('numpy')}" in installed_packages()


def test_it_names_no_host_user_or_place() -> None:
    text = json.dumps(environment())
    for name in (platform.node(), str(Path.home()), str(Path.cwd())):
        assert name not in text
    assert f'"{getpass.getuser()}"' not in text


def git(directory: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words],
        cwd=directory, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.strip()


def test_the_commit_is_the_one_checked_out(tmp_path: Path) -> None:
    assert commit_of(tmp_path) is None or (tmp_path / ".git").exists() is False
    try:
        git(tmp_path, "init", "-q")
    except FileNotFoundError:
        pytest.skip("git is not installed")
    assert commit_of(tmp_path) is None  # nothing is committed
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "one")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert commit_of(below) == git(tmp_path, "rev-parse", "HEAD")
    git(tmp_path, "pack-refs", "--all")
    assert commit_of(below) == git(tmp_path, "rev-parse", "HEAD")
    git(tmp_path, "worktree", "add", "-q", str(tmp_path / "second"), "-b", "other")
    git(tmp_path / "second", "commit", "-q", "--allow-empty", "-m", "two")
    assert commit_of(tmp_path / "second") == git(tmp_path / "second", "rev-parse", "HEAD")
    assert commit_of(tmp_path / "second") != commit_of(tmp_path)
    git(tmp_path, "checkout", "-q", "--detach")
    assert commit_of(below) == git(tmp_path, "rev-parse", "HEAD")
