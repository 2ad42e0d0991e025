"""ROOT files: finding the tree and choosing its reader.

Must not read data: the readers are in ``ttree`` and ``rntuple``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from windrow.data.formats.reader import translated
from windrow.data.formats.rntuple import RNTupleReader
from windrow.data.formats.root_files import open_file
from windrow.data.formats.ttree import TTreeLayout, TTreeReader, ttree_layout
from windrow.errors import MissingTreeError

if TYPE_CHECKING:
    from windrow.data.base import Input, Reader


#: What ROOT calls the things that have rows.
RNTUPLE = "ROOT::RNTuple"
_TREES = ("TTree", "TNtuple", "TNtupleD", "TChain", RNTUPLE)


def open_root(source: Input, grid: int | None = None, layout: Any = None) -> Reader:
    """Open the tree of a ROOT file for one thread; ``layout`` is what another reader found."""
    with translated(source.label):
        if isinstance(layout, TTreeLayout):
            return TTreeReader(source, layout)
        handle = open_file(str(source.location))
    try:
        with translated(source.label):
            path, kind = find_tree(handle, source)
            if kind == RNTUPLE:
                return RNTupleReader(source, handle, handle[path], grid, layout)
            return TTreeReader(source, ttree_layout(handle, path, grid), handle)
    except BaseException:
        handle.close()
        raise


def trees_in(handle: Any) -> dict[str, str]:
    """Return the class of everything in an open file that has rows, by its path."""
    names = handle.classnames(recursive=True, cycle=False)
    return {name: kind for name, kind in names.items() if kind in _TREES}


def chosen_tree(trees: Iterable[str], asked: str | None) -> str | None:
    """Return the tree a run reads: the one asked for, the only one, or the only one called Events."""
    known = list(trees)
    if asked is not None:
        return _plain(asked) if _plain(asked) in known else None
    if len(known) > 1:
        known = [name for name in known if name.rpartition("/")[2].lower() == "events"]
    return known[0] if len(known) == 1 else None


def _plain(tree: str) -> str:
    return tree.partition(";")[0].strip("/")


def find_tree(handle: Any, source: Input) -> tuple[str, str]:
    """Return the path and class of the tree to read; the path asked for may have a cycle."""
    trees = trees_in(handle)
    found = chosen_tree(trees, source.tree)
    if found is not None:
        return source.tree or found, trees[found]
    if source.tree is not None:
        kind = handle.classnames(recursive=True, cycle=False).get(_plain(source.tree))
        what = f"is a {kind}, not a tree" if kind else "is not there"
        problem = f"tree {source.tree!r} {what}"
    else:
        problem = "which of its trees? write FILE:TREE or tree=" if trees else "no tree in it"
    listed = ", ".join(sorted(trees)) or "none"
    raise MissingTreeError(f"{source.label}: {problem}; trees there are: {listed}", file=source.label)
