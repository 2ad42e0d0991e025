"""``@binary``: a task that runs a program, with its parameters as arguments, as a command does."""

from __future__ import annotations

import contextlib
import inspect
import re
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windrow.compat.pycompss.decorators import from_environment
from windrow.compat.pycompss.parameters import IN
from windrow.errors import TaskError, UsageError
from windrow.tasks.commands.command import circumstances
from windrow.tasks.commands.run import Invocation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from windrow.compat.pycompss.parameters import Parameter

_PARAMETER = re.compile(r"\{\{\s*(\w+)\s*\}\}")
#: The prefix of what is no argument of the program.
_HIDDEN = "#"
#: How much of what a program wrote is told when it fails.
_TOLD = 2000
#: Descriptors of this process, for what a program prints.
_STDOUT, _STDERR = 1, 2


class Binary:
    """What runs instead of the function; returns the exit value."""

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        parameters: Mapping[str, Parameter],
        *,
        program: str,
        template: str,
        directory: str,
        fails: bool | str,
    ) -> None:
        self._name = name
        self._signature = inspect.signature(function)
        self._parameters = dict(parameters)
        self._program = from_environment(program)
        self._template = template
        self._directory = from_environment(directory)
        self._fails = str(from_environment(fails)).lower() in ("true", "1")
        unknown = [one for one in _PARAMETER.findall(template) if one not in self._signature.parameters]
        if unknown:
            raise UsageError(f"task {name!r}: args= of @binary names {unknown[0]!r}, which is no parameter")

    def __call__(self, *args: Any, **keywords: Any) -> int:
        bound = self._signature.bind(*args, **keywords)
        bound.apply_defaults()
        values = bound.arguments
        here = circumstances()
        with contextlib.ExitStack() as stack:
            streams = self._open_streams(values, stack)
            said = Invocation(
                words=(self._filled(self._program, values), *self._words(values)),
                directory=self._filled(self._directory, values) or ".",
                environment={},
                memory=here.memory,
                unwanted=here.unwanted,
                stdin=streams.get("stdin", subprocess.DEVNULL),
                stdout=streams.get("stdout", _STDOUT),
                stderr=streams.get("stderr", None if self._fails else _STDERR),
            )
            ran = here.run(self._name, said)
        if ran.status and self._fails:
            told = ran.errors.decode(errors="replace")[-_TOLD:]
            raise TaskError(f"task {self._name!r}: {ran.command} ended with {ran.status}: {told}")
        return ran.status

    def _open_streams(self, values: Mapping[str, Any], stack: contextlib.ExitStack) -> dict[str, int]:
        modes = {"IN": "rb", "OUT": "wb"}
        return {
            one.stream.lower(): stack.enter_context(Path(values[name]).open(modes.get(one.direction, "ab"))).fileno()
            for name, one in self._parameters.items()
            if one.stream and values.get(name) is not None
        }

    def _words(self, values: Mapping[str, Any]) -> list[str]:
        if self._template:
            return [self._filled(word, values) for word in shlex.split(self._template)]
        words = []
        for name, value in values.items():
            one = self._parameters.get(name, IN)
            if one.stream or value is None or name == "self" or one.prefix == _HIDDEN:
                continue
            many = value if isinstance(value, (list, tuple)) else [value]
            words += [f"{one.prefix}{each}" for each in many]
        return words

    def _filled(self, text: str, values: Mapping[str, Any]) -> str:
        return _PARAMETER.sub(lambda found: str(values[found[1]]), text)
