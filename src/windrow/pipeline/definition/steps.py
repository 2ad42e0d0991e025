"""A step as it was written: what its signature says about columns, parameters and reserved names.

Positional without default: a required column. Positional with default: an optional one. Keyword-only: a parameter, or
one of the reserved names. Nothing here knows any file.

A condition on a dataset's metadata, ``when="is_mc and year in (2016, 2017)"``, is parsed once and asked per dataset. The
syntax tree is walked, never evaluated as code. A typo must never silently switch off a weight: every name must be in the
metadata of every dataset, even where ``and`` would not look at it, and comparisons that can only be false are errors.
"""

from __future__ import annotations

import ast
import inspect
import numbers
import operator
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from windrow.blocks.histogram import HistogramSpec
from windrow.errors import DefinitionError, UnknownNameError, UsageError, nearest
from windrow.files import File

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


# -- steps


Kind = Literal["cut", "column", "weight", "output"]

#: Names that a step gets from Windrow, never from a file.
RESERVED = ("dataset", "region", "variation", "rng", "weight")

_FREE_HINT = "reads={'argument': 'column or pattern*'} gives a function columns by other names"


@dataclass(frozen=True, slots=True)
class Read:
    """One positional argument: the column it names, and what to use where a file has none."""

    argument: str
    column: str
    optional: bool = False
    default: Any = None

    @property
    def is_pattern(self) -> bool:
        return any(letter in self.column for letter in "*?[")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepDefinition:
    """A cut, column, weight or output as the user wrote it."""

    name: str
    kind: Kind
    function: Callable[..., Any]
    reads: tuple[Read, ...]
    parameters: Mapping[str, Any]
    reserved: tuple[str, ...]  #: which of dataset, region, variation, rng it takes
    module: str
    each: bool = False
    when: When | None = None
    after: tuple[str, ...] = ()
    takes_weight: bool = False
    regions: tuple[str, ...] | None = ("*",)  #: outputs: names and globs; None: all rows before any cut
    weights: tuple[str, ...] | None = ("*",)  #: outputs: factors of ``weight``; None: unweighted
    merge: Callable[[Any, Any], Any] | None = None
    version: str | None = None  #: stands for what in the function cannot be looked into
    barrier: bool = False  #: what is written above it runs before it, and what is below after it


def define(
    kind: Kind,
    function: Callable[..., Any],
    *,
    name: str | None = None,
    reads: Mapping[str, str] | Sequence[str] | None = None,
    **options: Any,
) -> StepDefinition:
    if not callable(function):
        raise DefinitionError(f"a {kind} is made of a function, got {type(function).__name__} {function!r}")
    if isinstance(function, HistogramSpec):
        if kind != "output" or reads is not None:
            raise DefinitionError(f"wr.hist(...) is an output and says itself what it reads, got {kind} with {reads=}")
        reads = function.reads
    step = name or _name_of(kind, function)
    positional, keywords = _arguments(kind, step, function)
    reserved = tuple(p.name for p in keywords if p.name in RESERVED)
    _refuse_reserved(kind, step, [p.name for p in positional], reserved)
    return StepDefinition(
        name=step,
        kind=kind,
        function=function,
        reads=_reads(kind, step, positional, reads),
        parameters=MappingProxyType({p.name: p.default for p in keywords if p.name not in RESERVED}),
        reserved=reserved,
        module=getattr(function, "__module__", None) or type(function).__module__,
        takes_weight=any(p.name == "weight" for p in positional),
        **options,
    )


def _name_of(kind: str, function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", "")
    if not name.isidentifier():
        raise DefinitionError(f"{kind} {function!r} has no name of its own: give it one with name='...'")
    return name


def _arguments(
    kind: str, step: str, function: Callable[..., Any]
) -> tuple[list[inspect.Parameter], list[inspect.Parameter]]:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError) as error:
        raise DefinitionError(
            f"{kind} {step!r}: cannot read the signature of {function!r}; wrap it in a function of your own"
        ) from error
    positional, keywords = [], []
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
            raise DefinitionError(
                f"{kind} {step!r} takes {stars}{parameter.name}: arguments name the columns a step reads, so they must "
                f"be written out; {_FREE_HINT}"
            )
        if parameter.kind is parameter.KEYWORD_ONLY:
            if parameter.default is parameter.empty and parameter.name not in RESERVED:
                raise DefinitionError(
                    f"{kind} {step!r}: keyword-only argument {parameter.name!r} is a parameter and needs a default "
                    f"(a column is a positional argument; reserved are {', '.join(RESERVED[:-1])})"
                )
            keywords.append(parameter)
        else:
            positional.append(parameter)
    return positional, keywords


def _refuse_reserved(kind: str, step: str, positional: Sequence[str], keywords: Sequence[str]) -> None:
    """Refuse reserved names where they mean nothing; ``weight`` comes to outputs only, as a positional argument."""
    here = f"{kind} {step!r}"
    if kind != "output" and step in RESERVED:
        raise DefinitionError(
            f"{here}: {step!r} is a reserved name ({', '.join(RESERVED)}); call the step something else"
        )
    if "weight" in keywords or ("weight" in positional and kind != "output"):
        raise DefinitionError(
            f"{here} reads 'weight', which is reserved: the product of the weights exists in outputs only, as a positional "
            "argument; for a file column of that name write reads={'w': 'weight'}"
        )
    for name in RESERVED:
        if name != "weight" and name in positional:
            raise DefinitionError(
                f"{here}: {name!r} is a reserved name and comes as a keyword: write (..., *, {name}); for a file "
                f"column of that name write reads={{'x': {name!r}}}"
            )
        if name in ("region", "variation") and name in keywords and kind != "output":
            raise DefinitionError(
                f"{here} takes {name!r}, but it runs once for all regions and variations; only outputs know theirs"
            )


def _reads(
    kind: str, step: str, positional: list[inspect.Parameter], reads: Mapping[str, str] | Sequence[str] | None
) -> tuple[Read, ...]:
    names = [parameter.name for parameter in positional]
    for parameter in positional:
        if isinstance(parameter.default, File):
            raise DefinitionError(
                f"{kind} {step!r}: {parameter.name!r} is a positional argument, which names a column; a file is a "
                f"parameter: write (..., *, {parameter.name}=wr.file(...))"
            )
        if isinstance(parameter.default, (list, tuple, dict, set)):
            raise DefinitionError(
                f"{kind} {step!r}: the default of {parameter.name!r} is used for every row of a file without that column, "
                f"so it must be one number, text, truth value or None, got {parameter.default!r}"
            )
    if reads is None:
        aliases: dict[str, str] = {}
    elif isinstance(reads, str):
        raise DefinitionError(f"{kind} {step!r}: reads= takes a mapping or a list of columns, got {reads!r}")
    elif hasattr(reads, "items"):
        aliases = dict(reads.items())
        for argument in aliases:
            if argument not in names:
                raise DefinitionError(
                    f"{kind} {step!r}: reads= names {argument!r}, which is not an argument; it has {names}"
                )
    else:
        if len(reads) > len(names):
            raise DefinitionError(
                f"{kind} {step!r}: reads= lists {len(reads)} columns for {len(names)} arguments {names}"
            )
        aliases = dict(zip(names, reads, strict=False))
    return tuple(
        Read(
            parameter.name,
            aliases.get(parameter.name, parameter.name),
            parameter.default is not parameter.empty,
            None if parameter.default is parameter.empty else parameter.default,
        )
        for parameter in positional
    )
