"""``@wr.command``: a command line as a task. The function says what to run; nothing is run in Python.

Its value is the path of what it writes (``wr.OutFile`` and the like, several as a tuple in the order of parameters), or
what it prints if it writes no files. The body that travels to a worker is an object here: it knows the function and how
commands are run. What a call adds (where the caller was, which files it asked for) goes along as an ``Around``.
"""

from __future__ import annotations

import errno
import functools
import glob
import inspect
import os
import re
import shutil
import signal
import tempfile
import time
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn, Unpack, overload

from windrow.errors import CommandError, CommandMemoryError, TaskFileError, UsageError
from windrow.globs import matching
from windrow.tasks.call import Call
from windrow.tasks.commands.processes import places_of
from windrow.tasks.commands.run import CommandOutcome, Invocation, run
from windrow.tasks.commands.template import Template
from windrow.tasks.declare import Declared, Task, TaskOptions, task
from windrow.tasks.files.table import FileTable
from windrow.tasks.worker import RunningCall
from windrow.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from windrow.tasks.files.annotations import FileKind


#: What templates may name beside the function's own parameters.
WORDS = ("cores", "memory", "gpus", "tmp")
#: Options of tasks that mean nothing for a command line.
NOT_FOR_COMMANDS = ("inout",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """How a command line is run; part of what a result depends on."""

    shell: str = "bash"
    env: tuple[tuple[str, str], ...] = ()  #: set beside what the worker has
    log: str | None = None
    cores: int = 1
    memory: int | None = None  #: bytes
    gpus: int = 0

    def in_session(self, calling: Call) -> Circumstances:
        deadline = calling.declared.deadline
        until = None if deadline is None else time.monotonic() + deadline
        session = calling.session
        return Circumstances(_here(), until, self.memory or 0, session.files.scratch(), session.unwanted)


def _here() -> str:
    return os.getcwd()  # noqa: PTH109 - text, as all paths of a command line


class Circumstances:
    """What a call adds to what is declared; travels with it."""

    def __init__(
        self, directory: str, until: float | None, memory: float, scratch: str, unwanted: Callable[[], bool]
    ) -> None:
        self.directory = directory
        self.until = until
        self.memory = memory
        self.scratch = scratch  #: the directory of ``{tmp}``
        self.unwanted = unwanted  #: stays at home: where others run the command, they are killed
        self.destinations: Mapping[str, Any] = {}  #: what the caller gave; the body may get private places instead
        self.ran: tuple[Invocation, CommandOutcome] | None = None  #: what was run, and how it went

    def __reduce__(self) -> Any:
        return Circumstances, (self.directory, self.until, self.memory, self.scratch, bool)

    @contextmanager
    def around(self, going: RunningCall) -> Iterator[None]:
        """Let the body know; it is given now what the caller gave."""
        here = Circumstances(
            self.directory, self.until, self.memory, self.scratch, lambda: going.cancelled() or self.unwanted()
        )
        if isinstance(going.function, CommandBody):
            here.destinations = going.function.bound(going.arguments, going.keywords)
        token = _circumstances.set(here)
        try:
            yield
        except MemoryError:
            # The scheduler tries once more with twice as much, where there is as much; see core/retry.
            self.memory *= 2
            raise
        except TaskFileError as error:
            if here.ran is None:
                raise
            # Programs that write nothing, and call that success, often say why.
            raise TaskFileError(f"{error}{story(*here.ran)}", **error.facts) from None
        finally:
            _circumstances.reset(token)
            if here.ran is not None and going.side is not None:
                going.side.used = (here.ran[1].cpu_s, here.ran[1].peak)  # where no meter sees it

    def run(self, name: str, said: Invocation) -> CommandOutcome:
        """Run something; raises if it cannot be started, or was ended before its end."""
        try:
            ran = run(said)
        except OSError as error:
            raise could_not_start(name, said, error) from error
        self.ran = (said, ran)
        if ran.why:
            raise_failure(name, said, ran)
        return ran


_circumstances: ContextVar[Circumstances | None] = ContextVar("windrow_command", default=None)


def circumstances() -> Circumstances:
    return _circumstances.get() or Circumstances(_here(), None, 0, tempfile.gettempdir(), bool)


class CommandTask(Task):
    """A command line that may run elsewhere; made by ``wr.command``."""

    def plainly(self, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> Any:
        """Run it here and now; what it writes is in place when it is complete, as in a session."""
        declared, files = self.declared, FileTable()
        assert declared.command is not None
        session: Any = SimpleNamespace(open={}, unwanted=bool, files=files)  # nothing else runs, and nobody cancels
        calling = Call(session, 1, declared).begin(arguments, keywords)
        try:
            if declared.files:
                files.enter(calling)
            going = RunningCall(
                1, declared.name, declared.function, list(calling.arguments), calling.keywords, 1, None, bool
            )  # fmt: skip
            with ExitStack() as stack:
                for one in (declared.command.in_session(calling), *calling.around):
                    stack.enter_context(one.around(going))
                made = going.function(*going.arguments, **going.keywords)
        finally:
            files.close()
        return made

    def options(self, **changes: Any) -> CommandTask:
        declared, how = self.declared, self.declared.command
        assert isinstance(declared.function, CommandBody)
        assert how is not None
        asked = {**declared.asked, "shell": how.shell, "env": dict(how.env), "log": how.log}
        for one in NOT_FOR_COMMANDS:
            asked.pop(one, None)
        return command(declared.function.function, **{**asked, **changes})

    def __repr__(self) -> str:
        return f"<command {self.declared.name!r}>"


class CommandOptions(TaskOptions, total=False):
    """What may be said of a command; ``command`` says what it means."""

    shell: str
    env: Mapping[str, Any] | None
    log: str | os.PathLike[str] | None


@overload
def command(function: Callable[..., Any], /, **options: Unpack[CommandOptions]) -> CommandTask: ...
@overload
def command(**options: Unpack[CommandOptions]) -> Callable[[Callable[..., Any]], CommandTask]: ...
def command(function: Callable[..., Any] | None = None, /, **options: Unpack[CommandOptions]) -> Any:
    """Declare a command line as a task: the function returns what to run.

    It returns a template for the shell, or a list of words that run without one. ``{parameter}`` becomes the argument,
    quoted (a list: several words); so do ``{cores}``, ``{memory}`` (bytes), ``{gpus}`` and ``{tmp}``, a directory that is
    removed afterwards, at the latest with the session. Other braces are left to the shell, but a name in braces outside of quotes
    that is no parameter is an error; ``{{name}}`` is a literal ``{name}``. What the function
    itself writes into the text, as f-strings do, is not quoted.

    The shell is bash with ``-e -u -o pipefail``: a command that fails, a variable that is not set, a program that fails in
    the middle of a pipe end it, and the task has failed. A program that stops because the next one reads no more (``| head``)
    fails too; write ``(program || true) | head`` where that is meant. It reads from /dev/null, in the caller's directory.
    When the shell has ended, whatever it left running is ended; if that had an output open for writing, the task has failed.

    Options
    -------
    shell
        Another one than bash: a name or path. Other shells are run with ``-e -u``; a failure inside a pipe is theirs to notice.
    env
        Variables of the environment to set.
    log
        A file to which all that is printed as errors is appended, such as "logs/{name}-{reads}.log": of paths the last part
        is taken. Without it the end of that is kept, and shown if the command fails.
    options
        As of ``wr.task``: cores, memory, gpus, resources, priority, deadline, on_failure and so on. More than ``memory``,
        in all its processes together, ends the command.
    """
    if function is None:
        return lambda body: CommandTask(_declared(body, {**options}))
    return CommandTask(_declared(function, {**options}))


def _declared(function: Callable[..., Any], options: dict[str, Any]) -> Declared:
    for one in NOT_FOR_COMMANDS:
        if one in options:
            raise UsageError(
                f"wr.command has no option {one!r}: a command changes no Python objects; annotate the file that it "
                "changes with wr.InOutFile"
            )
    shell, env, log = (options.pop("shell", "bash"), options.pop("env", None), options.pop("log", None))
    declared = task(function, **options).declared
    if inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function):
        raise UsageError(
            f"command {declared.name!r} returns one command line; a generator or coroutine cannot: use return"
        )
    amounts = dict(declared.needs.amounts)
    memory = amounts.get("memory")
    how = Command(
        shell=os.fspath(shell),
        env=tuple((str(name), str(value)) for name, value in (env or {}).items()),
        log=None if log is None else os.fspath(log),
        cores=max(1, int(amounts.get("cores", 1))),
        memory=None if memory is None else int(memory),
        gpus=int(amounts.get("gpu", 0)),
    )
    body = CommandBody(declared.name, function, how, declared.files)
    return replace(declared, function=body, command=how)


class CommandBody:
    """The body of a command: what it runs, and what its value is."""

    def __init__(self, name: str, function: Callable[..., Any], how: Command, files: Mapping[str, FileKind]) -> None:
        functools.update_wrapper(self, function)
        self.name = name
        self.function = function
        self.how = how
        self.written = {one: kind for one, kind in files.items() if kind.writes}

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        """Run it; the arguments may name private places instead of the destinations."""
        here = circumstances()
        values = self.bound(arguments, keywords)
        here.destinations = here.destinations or values
        with ExitStack() as stack:
            said = self._invocation(self.function(*arguments, **keywords), values, here, stack)
            ran = here.run(self.name, said)
            if ran.status != 0 or ran.torn:
                raise_failure(self.name, said, ran)
        if not self.written:
            return ran.output.decode(errors="replace")
        made = [self._made(one, values, here) for one in self.written]
        return made[0] if len(made) == 1 else tuple(made)

    def bound(self, arguments: Any, keywords: Mapping[str, Any]) -> dict[str, Any]:
        found = inspect.signature(self.function).bind(*arguments, **keywords)
        found.apply_defaults()
        return found.arguments

    def _invocation(self, said: Any, values: dict[str, Any], here: Circumstances, stack: ExitStack) -> Invocation:
        @functools.cache  # all {tmp} of a line are one directory
        def value(name: str) -> Any:
            return values[name] if name in values else self._word(name, here, stack)

        template = Template(self.name, value, list(dict.fromkeys((*values, *WORDS))))
        script, words = "", tuple[str, ...]()
        if isinstance(said, str) and said.strip():
            script = template.fill_line(said)
        elif isinstance(said, (list, tuple)) and said:
            words = tuple(template.fill_words(said, list(values.values())))
        else:
            raise UsageError(
                f"command {self.name!r}: the function returns what to run, a text for the shell or a list of words; it "
                f"returned {said!r}"
            )
        return Invocation(
            script=script,
            words=words,
            shell=self.how.shell,
            directory=here.directory,
            environment=dict(self.how.env),
            places=places_of(here.directory, map(values.get, self.written)),
            keeps_output=not self.written,
            log=self._log(here),
            memory=here.memory,
            until=here.until,
            unwanted=here.unwanted,
        )

    def _word(self, name: str, here: Circumstances, stack: ExitStack) -> Any:
        if name == "tmp":
            os.makedirs(here.scratch, exist_ok=True)  # noqa: PTH103
            made = tempfile.mkdtemp(prefix="windrow-", dir=here.scratch)
            stack.callback(shutil.rmtree, made, ignore_errors=True)
            return made
        found = getattr(self.how, name)
        if found is None:
            raise UsageError(
                f"command {self.name!r}: its template has {{memory}}, but it does not say how much it needs; write "
                f'@wr.command(memory="4 GB")'
            )
        return found

    def _log(self, here: Circumstances) -> Path | None:
        """Say where the log goes; a path among the arguments gives its last part."""
        if self.how.log is None:
            return None
        words = {"name": self.name, **here.destinations}

        def text(match: re.Match[str]) -> str:
            if match[1] not in words:
                raise UsageError(
                    f"command {self.name!r}: log={self.how.log!r} has {{{match[1]}}}; it may use "
                    + ", ".join(f"{{{one}}}" for one in words)
                )
            return Path(str(words[match[1]])).name

        return Path(here.directory, re.sub(r"\{(\w+)\}", text, self.how.log))

    def _made(self, parameter: str, values: dict[str, Any], here: Circumstances) -> Any:
        """Give what a parameter for output stands for now: where it will be when it is complete."""
        given = here.destinations[parameter]
        if isinstance(given, (list, tuple)):
            return [Path(here.directory, one) for one in given]
        final = Path(here.directory, given)
        pattern = self.written[parameter].pattern
        if not pattern:
            return final
        # Words in the pattern stand for arguments; with the parameter itself it says how names begin, else what is in it.
        private = str(Path(here.directory, values[parameter]))
        names = {**values, parameter: private}
        text = re.sub(r"\{(\w+)\}", lambda word: glob.escape(str(names[word[1]])), pattern)
        if f"{{{parameter}}}" not in pattern:
            text = str(Path(glob.escape(private), text))
        found = sorted(one for one in matching(text) if Path(one).is_file())
        return [Path(str(final) + one.removeprefix(private)) for one in found]


# -- what is said of a command line that failed

#: Of what a command printed, this much is shown; ``facts["stderr"]`` has more.
LINES = 20
LONG = 2000
#: Added to the signal that ended a program, as shells tell it.
SIGNALLED = 128
_ABOUT_STATUS = {
    126: "; a program was found that cannot be executed",
    127: "; a program was not found (its name is below): install it, or check the PATH of the workers",
}
_ABOUT_SIGNALS: dict[int, str] = {
    signal.SIGKILL: "; nobody here sent that: it is often the kernel, for lack of memory",
    signal.SIGPIPE: "; the next program of the pipe stopped reading, which counts as a failure: write (program || true) | next "
    "if it may",
}


def could_not_start(name: str, said: Invocation, error: OSError) -> CommandError:
    program = said.words[0] if said.words else said.shell
    if said.log is not None and error.filename == str(said.log):
        return CommandError(
            f"command {name!r} was ended, since its log cannot be written: {error.strerror}: {said.log}",
            command=said.script or said.words,
        )
    if not Path(said.directory).is_dir():
        why = f"the directory it was called in is gone: {said.directory}"
    elif error.errno == errno.ENOENT and shutil.which(program) is None:
        why = f"there is no program {program!r} on this machine's PATH; install it, or give its full path"
    else:
        why = f"{error.strerror or error}: {error.filename or program}"
    return CommandError(f"command {name!r} could not be started: {why}", command=said.script or said.words)


def raise_failure(name: str, said: Invocation, ran: CommandOutcome) -> NoReturn:
    facts = {
        "command": ran.command,
        "status": ran.status,
        "stderr": ran.errors.decode(errors="replace"),
        "wall_s": ran.wall_s,
        "cpu_s": ran.cpu_s,
        "peak_bytes": ran.peak,
    }
    words = story(said, ran)
    if ran.why == "memory":
        raise CommandMemoryError(
            f"command {name!r} was ended: its processes used {format_bytes(ran.peak)} of memory together; the limit is "
            f"{format_bytes(said.memory)}. Give it more with memory=, or let it do less at a time{words}",
            limit_bytes=said.memory,
            **facts,
        )
    if ran.why == "deadline":
        raise CommandError(
            f"command {name!r} was not done by its deadline; it was ended after {format_seconds(ran.wall_s)}{words}",
            **facts,
        )
    if ran.why == "unwanted":
        raise CommandError(f"command {name!r} was ended, since nobody wants it any more{words}", **facts)
    if ran.status == 0:
        raise CommandError(
            f"command {name!r} failed: its shell ended well, but left programs in the background that were ended with it, and "
            f"{ran.torn}: that is not complete; write `wait` at the end of the command line{words}",
            **facts,
        )
    raise CommandError(f"command {name!r} failed: {_ending(ran)}{words}", **facts)


def _ending(ran: CommandOutcome) -> str:
    status = ran.status
    number = -status if status < 0 else status - SIGNALLED
    if number > 0 and number in list(signal.Signals):
        told = f" (exit status {status})" if status > 0 else ""
        return f"ended by {signal.Signals(number).name}{told}{_ABOUT_SIGNALS.get(number, '')}"
    return f"exit status {status}{_ABOUT_STATUS.get(status, '')}"


def story(said: Invocation, ran: CommandOutcome) -> str:
    text = ran.command if len(ran.command) <= LONG else ran.command[:LONG] + " ..."
    lines = [f"  {line}" for line in text.strip().splitlines()]
    words = "\nwhat ran:\n" + "\n".join(lines)
    printed = ran.errors.decode(errors="replace").rstrip().splitlines()
    if printed:
        more = f" (the last {LINES} lines)" if len(printed) > LINES else ""
        words += f"\nwhat it printed{more}:\n" + "\n".join(f"  {line[-LONG:]}" for line in printed[-LINES:])
    else:
        words += "\nit printed no errors"
    return words + (f"\nall of it is in {said.log}" if said.log is not None else "")
