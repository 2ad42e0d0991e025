"""ROOT files: finding the tree and choosing its reader.

Must not read data: the readers are in ``ttree`` and ``rntuple``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windrow.data.rntuple import RNTupleReader
from windrow.data.root_files import open_file, translated
from windrow.data.ttree import TTreeLayout, TTreeReader, ttree_layout
from windrow.errors import MissingTreeError

if TYPE_CHECKING:
    from windrow.data.base import Input, Reader

__all__ = ["open_root"]

_TREES = ("TTree", "TNtuple", "TNtupleD", "TChain")
_RNTUPLE = "ROOT::RNTuple"


def open_root(source: Input, grid: int | None = None, layout: Any = None) -> Reader:
    """Open the tree of a ROOT file for one thread; ``layout`` is what another reader found."""
    with translated(source.label):
        if isinstance(layout, TTreeLayout):
            return TTreeReader(source, layout)
        handle = open_file(str(source.location))
    try:
        with translated(source.label):
            path, kind = _find_tree(handle, source)
            tree = handle[path]
            if kind == _RNTUPLE:
                return RNTupleReader(source, handle, tree, grid, layout)
            return TTreeReader(source, ttree_layout(handle, path, tree, grid), handle)
    except BaseException:
        handle.close()
        raise


def _find_tree(handle: Any, source: Input) -> tuple[str, str]:
    """Return the path and class of the tree that is asked for, or the only one."""
    names = handle.classnames(recursive=True, cycle=False)
    trees = {n: kind for n, kind in names.items() if kind in _TREES or kind == _RNTUPLE}
    if source.tree is not None:
        wanted = source.tree.partition(";")[0].strip("/")
        if wanted in trees:
            return source.tree, trees[wanted]
        what = f"is a {names[wanted]}, not a tree" if wanted in names else "is not there"
        problem = f"tree {source.tree!r} {what}"
    elif len(trees) == 1:
        return next(iter(trees.items()))
    else:
        events = [n for n in trees if n.rpartition("/")[2].lower() == "events"]
        if len(events) == 1:
            return events[0], trees[events[0]]
        problem = "which of its trees? write FILE:TREE or tree=" if trees else "no tree in it"
    listed = ", ".join(sorted(trees)) or "none"
    raise MissingTreeError(
        f"{source.label}: {problem}; trees there are: {listed}", file=source.label
    )
