"""Names of data files: which strings are files, which part is the tree, what a glob matches.

Looks at the file system to expand globs and to find missing files; opens nothing.
"""

from __future__ import annotations

import errno
import glob
import os
import re
from pathlib import Path
from typing import Literal

from windrow.errors import MissingFileError, SpecError
from windrow.globs import matching

PARQUET_SUFFIXES = (".parquet", ".parq", ".pq")
SUFFIXES = (".root", *PARQUET_SUFFIXES)
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/]*")
_SUFFIX_THEN_TREE = re.compile(r"(?i)^(.*\.(?:root|parquet|parq|pq)):([^:]*)$")


def is_remote(path: str) -> bool:
    """Say whether the path names another machine (or a protocol) rather than a local file."""
    return bool(_SCHEME.match(path)) and not path.startswith("file://")


#: Protocols that an extra of Windrow brings the packages for.
_EXTRAS = {"root": "xrootd", "roots": "xrootd", "xroot": "xrootd", "xroots": "xrootd"}


def missing_package(path: str, reason: object) -> str:
    """Say what to install to read a remote file whose protocol no installed package speaks."""
    protocol = path.partition("://")[0].lower()
    extra = _EXTRAS.get(protocol)
    if extra is not None:
        return f"{path}: reading {protocol}:// needs more packages: pip install 'windrow[{extra}]'"
    return f"{path} needs a package that is not there: {reason}"


def split_tree(text: str) -> tuple[str, str | None]:
    """Split ``file.root:Tree``; colons of ``root://host:1094//file`` and of existing paths stay."""
    scheme = _SCHEME.match(text)
    head = scheme.group() if scheme else ""
    rest = text[len(head) :]
    if ":" not in rest or (not head and Path(text).exists()):
        return text, None
    match = _SUFFIX_THEN_TREE.match(rest)
    if match:
        path, tree = match.groups()
    elif head:
        return text, None  # a colon in a URL that follows no data file is the URL's own
    else:
        path, _, tree = rest.rpartition(":")
    if not path or not tree.strip():
        raise SpecError(f"{text!r} is neither a file nor FILE:TREE")
    return head + path, tree.strip()


def is_named_like_file(text: str) -> bool:
    """Say whether a string means a data file by its suffix or as a URL."""
    path, _ = split_tree(text)
    return path.lower().endswith(SUFFIXES) or bool(_SCHEME.match(path))


def looks_like_file(text: str) -> bool:
    """Say whether a string means a data file: by its name, or as an existing file or glob."""
    path, _ = split_tree(text)
    if is_named_like_file(text):
        return True
    try:
        there = Path(path).is_file()
    except OSError:  # too long for a file's name
        return False
    return there or (glob.has_magic(path) and bool(_matches(path)))


def named_error(label: str, error: OSError) -> OSError:
    """Return an error of a link or file system that says which file it concerns; it may pass the next time."""
    if label in str(error):
        return error
    return OSError(error.errno or errno.EIO, f"{label}: {error.strerror or error}")


def file_format(path: str) -> Literal["root", "parquet"]:
    return "parquet" if path.lower().endswith(PARQUET_SUFFIXES) else "root"


def _matches(pattern: str) -> list[str]:
    # Path.glob takes no absolute patterns and would drop a leading "./" the user wrote.
    return sorted(path for path in matching(pattern) if Path(path).is_file())


def expand(path: str) -> list[str]:
    """Return the files a path or glob means; a local one that is not there is an error at once."""
    path = path.removeprefix("file://")
    if is_remote(path):
        if "*" in path:
            raise SpecError(f"{path}: globs work for local files only; list the remote files")
        return [path]
    local = os.path.expanduser(path)  # noqa: PTH111 - Path would normalise what is shown to the user
    if Path(local).is_file():
        return [local]
    if Path(local).is_dir():
        raise SpecError(f"{path} is a directory; name its files, such as {path.rstrip('/')}/*.root")
    if not glob.has_magic(local):
        raise MissingFileError(f"no such file: {path}{_where(local)}", file=path)
    found = _matches(local)
    if not found:
        raise MissingFileError(f"no file matches {path}{_where(local)}", file=path)
    return found


def _where(path: str) -> str:
    """Say where a relative path was looked for: the usual mistake is the working directory."""
    return "" if Path(path).is_absolute() else f" (looked in {Path.cwd()})"
