"""Conditions over fileset metadata: ``when="is_mc and year in (2016, 2017)"``.

A condition is parsed once, when a step is defined, and asked per dataset. The syntax tree is walked, never evaluated as code.
A typo must never silently switch off a weight: every name must be in the metadata of every dataset, even where ``and`` would
not look at it, and comparisons that can only be false (a year with a text) are errors.
"""

from __future__ import annotations

import ast
import numbers
import operator
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from windrow.errors import DefinitionError, UnknownNameError, UsageError, nearest

_ALLOWED = (
    "names of metadata keys, not/and/or, ==, !=, <, <=, >, >=, in, not in, "
    "numbers, strings, True/False/None, tuples, lists or sets of those, and parentheses"
)
_COMPARE: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Eq: ("==", operator.eq),
    ast.NotEq: ("!=", operator.ne),
    ast.Lt: ("<", operator.lt),
    ast.LtE: ("<=", operator.le),
    ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge),
    ast.In: ("in", lambda one, other: one in other),
    ast.NotIn: ("not in", lambda one, other: one not in other),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """A condition that says in which datasets a step exists."""

    text: str  #: as it was written
    step: str
    names: tuple[str, ...]  #: the metadata keys it reads, in the order written
    _tree: ast.expr = field(compare=False, repr=False)

    @classmethod
    def parse(cls, expression: str, *, step: str) -> When:
        if not isinstance(expression, str):
            raise DefinitionError(
                f'step {step!r}: when= is a text such as "is_mc and year == 2016", '
                f"but got a {type(expression).__name__}"
            )
        try:
            tree = ast.parse(expression.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            reason = error.msg if isinstance(error, SyntaxError) else str(error)
            raise DefinitionError(
                f"step {step!r}: when={expression!r} cannot be read ({reason}); allowed are {_ALLOWED}"
            ) from error
        refused = _refused_part(tree, truth=True)
        if refused is not None:
            raise DefinitionError(
                f"step {step!r}: when={expression!r} has {ast.unparse(refused)!r}, which is not allowed "
                f"there; allowed are {_ALLOWED}"
            )
        found = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
        found.sort(key=lambda node: (node.lineno, node.col_offset))
        return cls(text=expression, step=step, names=tuple(dict.fromkeys(node.id for node in found)), _tree=tree)

    def holds(self, metadata: Mapping[str, Any], dataset: str) -> bool:
        for name in self.names:
            if name not in metadata:
                there = ", ".join(repr(key) for key in metadata) or "none at all"
                raise UnknownNameError(
                    f"step {self.step!r}: when={self.text!r} reads the metadata key "
                    f"{name!r}, which dataset {dataset!r} does not have (it has {there})"
                    + nearest(name, map(str, metadata)),
                    step=self.step,
                    dataset=dataset,
                    key=name,
                )
        try:
            return _truth(self._tree, metadata)
        except UsageError as error:
            raise UsageError(
                f"step {self.step!r}, dataset {dataset!r}: when={self.text!r} {error}"
            ) from error.__cause__


def _refused_part(node: ast.expr, *, truth: bool) -> ast.expr | None:
    """Find the first part outside the language; ``truth``: the part is asked for true or false."""
    match node:
        case ast.BoolOp(values=parts):
            asked = True
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            parts, asked = [operand], True
        case ast.Compare(left=left, ops=ops, comparators=others) if all(type(op) in _COMPARE for op in ops):
            parts, asked = [left, *others], False
        case ast.Name() | ast.Constant(value=bool()):
            return None
        case _:
            return node if truth or not _is_literal(node) else None
    return next((found for part in parts if (found := _refused_part(part, truth=asked)) is not None), None)


def _is_literal(node: ast.expr) -> bool:
    try:
        found = [ast.literal_eval(node)]
    except (ValueError, TypeError):
        return False
    for value in found:
        if isinstance(value, (tuple, list, set)):
            found.extend(value)
        elif value is not None and not isinstance(value, (int, float, str)):
            return False
    return True


def _truth(node: ast.expr, metadata: Mapping[str, Any]) -> bool:
    match node:
        case ast.BoolOp(op=ast.And(), values=values):
            return all(_truth(value, metadata) for value in values)
        case ast.BoolOp(values=values):
            return any(_truth(value, metadata) for value in values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _truth(operand, metadata)
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            one = _value(left, metadata)
            for op, right in zip(ops, comparators, strict=True):
                other = _value(right, metadata)
                if not _compare(op, one, other):
                    return False
                one = other
            return True
    value = _value(node, metadata)
    # "False" and "no" are true to Python: such a text in the metadata would switch on anything.
    if value is None or isinstance(value, (bool, np.bool_, numbers.Number)):
        return bool(value)
    raise UsageError(
        f"asks whether {ast.unparse(node)} is true, but it is {value!r}, a {type(value).__name__}; compare it with something"
    )


def _value(node: ast.expr, metadata: Mapping[str, Any]) -> Any:
    match node:
        case ast.Name(id=name):
            return metadata[name]
        case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
            return _truth(node, metadata)
    return ast.literal_eval(node)


def _compare(op: ast.cmpop, one: Any, other: Any) -> bool:
    sign, compare = _COMPARE[type(op)]
    meaningless = UsageError(
        f"compares {one!r} ({type(one).__name__}) {sign} {other!r} ({type(other).__name__}), which has no meaning; "
        "make both of one type"
    )
    try:
        if _sensible(sign, one, other):
            return bool(compare(one, other))
    except (TypeError, ValueError) as error:
        raise meaningless from error
    raise meaningless


def _family(value: Any) -> str | None:
    """Return what a value may be equal to; None: unknown, or equal to anything."""
    if isinstance(value, (bool, np.bool_, numbers.Number)):
        return "number"
    if isinstance(value, str):
        return "text"
    if isinstance(value, (tuple, list, AbstractSet, Mapping)):
        return "collection"
    return None


def _sensible(sign: str, one: Any, other: Any) -> bool:
    """Say whether a comparison could come out either way; ``in`` needs one likely element."""
    if sign in ("==", "!="):
        families = {_family(one), _family(other)}
        return None in families or len(families) == 1
    if sign in ("in", "not in") and _family(other) == "collection":
        families = {_family(element) for element in other}
        return not other or _family(one) is None or bool(families & {None, _family(one)})
    return True
