"""What a PyCOMPSs task returns: as it says with ``returns=``, with an annotation, or with its return statements."""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import TYPE_CHECKING, Any, get_args, get_origin

from windrow.compat.pycompss.parameters import Parameter
from windrow.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["NOT_SAID", "Returns", "returns_of"]

#: ``returns=`` was not given.
NOT_SAID: Any = object()
#: One type for each value that a task returns; None where the type is not known.
Returns = tuple[type | None, ...]


def returns_of(name: str, function: Callable[..., Any], said: Any) -> Returns:
    """Say what a task returns."""
    if said is NOT_SAID:
        return _inferred(name, function)
    return _said(name, said, getattr(function, "__globals__", {}))


def _said(name: str, said: Any, names: dict[str, Any]) -> Returns:
    if said is None or said is False:
        return ()
    if isinstance(said, str):
        if said.strip().isdecimal():
            said = int(said)
        elif said in names and isinstance(names[said], int):  # the name of a global with the number
            said = names[said]
        else:
            return (None,)
    if isinstance(said, int):  # also True
        if said < 0:
            raise UsageError(f"task {name!r}: returns= is how many values it returns, got {said}")
        return (None,) * int(said)
    if isinstance(said, (list, tuple)):
        return tuple(one if isinstance(one, type) else None for one in said)
    if isinstance(said, (type, Parameter, dict)) or get_origin(said) is not None:
        return (said if isinstance(said, type) and get_origin(said) is None else None,)
    raise UsageError(f"task {name!r}: returns= is a number, a type, or a tuple or list of types; got {said!r}")


def _inferred(name: str, function: Callable[..., Any]) -> Returns:
    annotations = getattr(function, "__annotations__", {})
    if "return" in annotations:
        return _annotated(name, annotations["return"], getattr(function, "__globals__", {}))
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):  # typed in, or made by a program: it may return something
        return (None,)
    values = [one.value for one in _returns_in(tree.body[0])]
    given = [one for one in values if one is not None and not (isinstance(one, ast.Constant) and one.value is None)]
    if not given:
        return ()
    lengths = {len(one.elts) if isinstance(one, ast.Tuple) else 1 for one in given}
    return (None,) * (lengths.pop() if len(lengths) == 1 else 1)


def _annotated(name: str, said: Any, names: dict[str, Any]) -> Returns:
    if isinstance(said, str):  # from __future__ import annotations
        try:
            said = eval(said, names)  # noqa: S307 - what the interpreter would do
        except Exception:  # noqa: BLE001 - a name that only type checkers know
            return (None,)
    if said is None:
        return ()
    if get_origin(said) is tuple:
        inner = get_args(said)
        return (None,) if Ellipsis in inner else tuple(_plain(one) for one in inner)
    if isinstance(said, (list, tuple, int)):
        return _said(name, said, names)
    return (_plain(said),)


def _plain(said: Any) -> type | None:
    return said if isinstance(said, type) and get_origin(said) is None else None


def _returns_in(node: ast.AST) -> Iterator[ast.Return]:
    """Find the return statements of a function, not those of functions in it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Return):
            yield child
        elif not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            yield from _returns_in(child)
