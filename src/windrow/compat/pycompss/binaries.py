"""``@binary``: a task that runs a program, with its parameters as arguments."""

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

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from windrow.compat.pycompss.parameters import Parameter

_PARAMETER = re.compile(r"\{\{\s*(\w+)\s*\}\}")
#: The prefix of what is no argument of the program.
_HIDDEN = "#"
#: How much of what a program wrote is told when it fails.
_TOLD = 2000


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
        """Run the program."""
        bound = self._signature.bind(*args, **keywords)
        bound.apply_defaults()
        values = bound.arguments
        line = [self._filled(self._program, values), *self._words(values)]
        with contextlib.ExitStack() as stack:
            streams: dict[str, Any] = {
                stream.lower(): stack.enter_context(Path(values[name]).open(mode))
                for name, stream, mode in self._streams()
                if values.get(name) is not None
            }
            done = subprocess.run(  # noqa: S603 - what the user wrote
                line,
                cwd=self._filled(self._directory, values) or None,
                check=False,
                stdin=streams.get("stdin"),
                stdout=streams.get("stdout"),
                stderr=streams.get("stderr", subprocess.PIPE if self._fails else None),
            )
        if done.returncode and self._fails:
            told = (done.stderr or b"").decode(errors="replace")[-_TOLD:]
            raise TaskError(f"task {self._name!r}: {shlex.join(line)} ended with {done.returncode}: {told}")
        return done.returncode

    def _streams(self) -> list[tuple[str, str, str]]:
        modes = {"IN": "rb", "OUT": "wb"}
        return [
            (name, one.stream, modes.get(one.direction, "ab")) for name, one in self._parameters.items() if one.stream
        ]

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
