"""Rows of a loop that depend on each other, as far as the text of its body shows it: such a loop is refused."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from windrow.errors import UsageError


@lru_cache(64)
def refuse_dependent(name: str, function: Callable[..., Any], rows: int) -> None:
    """Raise where a kernel writes to what other rows read or write."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError, IndentationError):
        return  # no text: nothing can be seen
    body = next((node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)), None)
    if body is None:
        return
    shared = {one for node in ast.walk(body) if isinstance(node, ast.Global | ast.Nonlocal) for one in node.names}
    for written in _written_names(body):
        if written in shared:
            raise UsageError(
                f"{name} assigns to {written!r}, which all rows share: rows that run at the same time would lose what others "
                "assign. Return what each chunk (start, stop) gives, and give reduce=, such as operator.add"
            )
    row_names = _row_names(body, rows)
    stores, own_names = list(_subscripts(body, ast.Store)), set(_written_names(body))
    for node, first in stores:
        if isinstance(first, ast.Constant) and isinstance(node.value, ast.Name) and node.value.id not in own_names:
            raise UsageError(
                f"{name} writes to {ast.unparse(node)}, the same place for all rows: what rows that run at the same time write "
                "there would be lost. Return what each chunk (start, stop) gives, and give reduce=, such as operator.add"
            )
    own = {ast.unparse(node.value) for node, first in stores if isinstance(first, ast.Name) and first.id in row_names}
    for node, first in _subscripts(body, ast.Load):
        if ast.unparse(node.value) in own and _is_neighbour(first, row_names):
            raise UsageError(
                f"{name} reads {ast.unparse(node)} and writes that of its own row: a row needs what another one wrote, so "
                "that rows cannot run at the same time. Write to another array, or run the loop as it is"
            )


def _written_names(body: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(body):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _row_names(body: ast.FunctionDef, rows: int) -> set[str]:
    """The names of a row: the only argument, or what runs over a range of both."""
    arguments = [one.arg for one in (*body.args.posonlyargs, *body.args.args)]
    if rows == 1:
        return set(arguments[:1])
    found = set()
    for node in ast.walk(body):
        if isinstance(node, ast.For) and isinstance(node.target, ast.Name) and isinstance(node.iter, ast.Call):
            used = {one.id for one in ast.walk(node.iter) if isinstance(one, ast.Name)}
            if used.issuperset(arguments[:2]):
                found.add(node.target.id)
    return found


def _subscripts(body: ast.FunctionDef, kind: type[ast.expr_context]) -> Iterator[tuple[ast.Subscript, ast.expr]]:
    """Give what is indexed, with the first index."""
    for node in ast.walk(body):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, kind):
            yield node, node.slice.elts[0] if isinstance(node.slice, ast.Tuple) and node.slice.elts else node.slice


def _is_neighbour(index: ast.expr, rows: set[str]) -> bool:
    """Say whether an index is a row and something: ``i - 1``."""
    if not isinstance(index, ast.BinOp) or not isinstance(index.op, ast.Add | ast.Sub):
        return False
    sides = (index.left, index.right)
    return any(isinstance(one, ast.Name) and one.id in rows for one in sides) and any(
        isinstance(one, ast.Constant) for one in sides
    )
