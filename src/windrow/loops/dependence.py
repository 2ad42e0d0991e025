"""Rows of a loop that depend on each other, as far as the text of its body shows it: such a loop is refused."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from windrow.errors import UsageError

ADVICE = "Return what each chunk (start, stop) gives, and give reduce=, such as operator.add"


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
    nodes = list(ast.walk(body))
    assigned = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for node in nodes:
        for written in node.names if isinstance(node, ast.Global | ast.Nonlocal) else ():
            if written in assigned:
                raise UsageError(
                    f"{name} assigns to {written!r}, which all rows share: rows that run at the same time would lose what "
                    f"others assign. {ADVICE}"
                )
    row_names = _row_names(body, rows)
    places = [node for node in nodes if isinstance(node, ast.Subscript)]
    own = set()  #: what is written at the row's own place
    for place in places:
        if isinstance(place.ctx, ast.Store):
            index = _first_index(place)
            if isinstance(index, ast.Constant) and isinstance(place.value, ast.Name) and place.value.id not in assigned:
                raise UsageError(
                    f"{name} writes to {ast.unparse(place)}, the same place for all rows: what rows that run at the same time "
                    f"write there would be lost. {ADVICE}"
                )
            if isinstance(index, ast.Name) and index.id in row_names:
                own.add(ast.unparse(place.value))
    for place in places:
        if isinstance(place.ctx, ast.Load) and ast.unparse(place.value) in own and _is_neighbour(place, row_names):
            raise UsageError(
                f"{name} reads {ast.unparse(place)} and writes that of its own row: a row needs what another one wrote, so "
                "that rows cannot run at the same time. Write to another array, or run the loop as it is"
            )


def _row_names(body: ast.FunctionDef, rows: int) -> set[str]:
    """The names of a row: the only argument, or what runs over a range of both."""
    arguments = [one.arg for one in (*body.args.posonlyargs, *body.args.args)]
    if rows == 1:
        return set(arguments[:1])
    loops = (node for node in ast.walk(body) if isinstance(node, ast.For) and isinstance(node.iter, ast.Call))
    return {
        loop.target.id
        for loop in loops
        if isinstance(loop.target, ast.Name)
        and {one.id for one in ast.walk(loop.iter) if isinstance(one, ast.Name)}.issuperset(arguments[:2])
    }


def _first_index(place: ast.Subscript) -> ast.expr:
    return place.slice.elts[0] if isinstance(place.slice, ast.Tuple) and place.slice.elts else place.slice


def _is_neighbour(place: ast.Subscript, rows: set[str]) -> bool:
    """Say whether an index is a row and something: ``i - 1``."""
    index = _first_index(place)
    if not isinstance(index, ast.BinOp) or not isinstance(index.op, ast.Add | ast.Sub):
        return False
    sides = (index.left, index.right)
    return any(isinstance(one, ast.Name) and one.id in rows for one in sides) and any(
        isinstance(one, ast.Constant) for one in sides
    )
