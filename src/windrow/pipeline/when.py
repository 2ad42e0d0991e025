"""Conditions over fileset metadata: ``when="is_mc and year in (2016, 2017)"``.

A condition is parsed once, when a step is defined, and asked per dataset. The syntax tree is
walked, never evaluated as code. A typo must never silently switch off a weight: every name must be
in the metadata of every dataset, even where ``and`` would not look at it, and comparisons that can
only be false (a year with a text) are errors.
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

__all__ = ["When"]

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
        """Parse a condition; anything but the small language is a DefinitionError."""
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
        parser = _Checker(step, expression)
        parser.truth(tree)
        names = tuple(dict.fromkeys(parser.names))
        return cls(text=expression, step=step, names=names, _tree=tree)

    def holds(self, metadata: Mapping[str, Any], dataset: str) -> bool:
        """Say whether the condition is true for a dataset with this metadata."""
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
        where = f"step {self.step!r}, dataset {dataset!r}: when={self.text!r}"
        return _Walk(metadata, where).truth(self._tree)


def _is_literal(node: ast.expr) -> bool:
    match node:
        case ast.Constant(value=value):
            return value is None or isinstance(value, (bool, int, float, str))
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=ast.Constant(value=value)):
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
            return all(_is_literal(element) for element in elements)
    return False


class _Checker:
    """Refuses everything outside the language and collects the names."""

    def __init__(self, step: str, expression: str) -> None:
        self._step = step
        self._expression = expression
        self.names: list[str] = []

    def truth(self, node: ast.expr) -> None:
        """Check a part that is asked for true or false."""
        match node:
            case ast.BoolOp(values=values):
                for value in values:
                    self.truth(value)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                self.truth(operand)
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                for op in ops:
                    if type(op) not in _COMPARE:
                        raise self._refused(node)
                for operand in [left, *comparators]:
                    self._operand(operand)
            case ast.Name(id=name):
                self.names.append(name)
            case ast.Constant(value=bool()):
                pass
            case _:
                raise self._refused(node)

    def _operand(self, node: ast.expr) -> None:
        match node:
            case ast.Name(id=name):
                self.names.append(name)
            case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
                self.truth(node)
            case _ if _is_literal(node):
                try:
                    ast.literal_eval(node)
                except (TypeError, ValueError) as error:  # a set of lists
                    raise self._refused(node) from error
            case _:
                raise self._refused(node)

    def _refused(self, node: ast.expr) -> DefinitionError:
        part = ast.unparse(node)
        return DefinitionError(
            f"step {self._step!r}: when={self._expression!r} has {part!r}, which is not allowed "
            f"there; allowed are {_ALLOWED}"
        )


class _Walk:
    """The value of a checked condition for one dataset."""

    def __init__(self, metadata: Mapping[str, Any], where: str) -> None:
        self._metadata = metadata
        self._where = where

    def truth(self, node: ast.expr) -> bool:
        match node:
            case ast.BoolOp(op=ast.And(), values=values):
                return all(self.truth(value) for value in values)
            case ast.BoolOp(values=values):
                return any(self.truth(value) for value in values)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return not self.truth(operand)
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                return self._compare(left, ops, comparators)
        value = self._value(node)
        # "False" and "no" are true to Python: such a text in the metadata would switch on anything.
        if value is None or isinstance(value, (bool, np.bool_, numbers.Number)):
            return bool(value)
        raise UsageError(
            f"{self._where} asks whether {ast.unparse(node)} is true, but it is {value!r}, a "
            f"{type(value).__name__}; compare it with something"
        )

    def _value(self, node: ast.expr) -> Any:
        match node:
            case ast.Name(id=name):
                return self._metadata[name]
            case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
                return self.truth(node)
        return ast.literal_eval(node)

    def _compare(self, left: ast.expr, ops: list[ast.cmpop], comparators: list[ast.expr]) -> bool:
        one = self._value(left)
        for op, right in zip(ops, comparators, strict=True):
            other = self._value(right)
            sign, compare = _COMPARE[type(op)]
            try:
                sensible = _sensible(sign, one, other)
                result = bool(compare(one, other)) if sensible else False
            except (TypeError, ValueError) as error:
                raise self._incompatible(sign, one, other) from error
            if not sensible:
                raise self._incompatible(sign, one, other)
            if not result:
                return False
            one = other
        return True

    def _incompatible(self, sign: str, one: Any, other: Any) -> UsageError:
        return UsageError(
            f"{self._where} compares {one!r} ({type(one).__name__}) {sign} {other!r} "
            f"({type(other).__name__}), which has no meaning; make both of one type"
        )


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
