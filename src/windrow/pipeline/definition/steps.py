"""A step as it was written: what its signature says about columns, parameters and reserved names.

Positional without default: a required column. Positional with default: an optional one. Keyword-only: a parameter, or
one of the reserved names. Nothing here knows any file.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from windrow.blocks.histogram import HistogramSpec
from windrow.errors import DefinitionError
from windrow.files import File

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from windrow.pipeline.definition.conditions import When


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
