"""Running a command line: what it says, what it uses, and its end; nothing that it started is left running.

One loop does it all: it reads what the programs say, looks at their memory and asks whether they are still wanted. In a
worker's process the memory limit is the supervisor's business; elsewhere it is kept here.
"""

from __future__ import annotations

import contextlib
import os
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from windrow.engines.supervisor.process_tree import ProcessTree, look
from windrow.tasks.commands.processes import COMMAND, CommandProcesses, in_worker, new_mark

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import IO

#: What is kept of the errors that programs print, in memory.
TAIL_BYTES = 1 << 16
READ_BYTES = 1 << 16
#: Where there is a limit, memory is looked at as often as the supervisor does; else only to know it afterwards.
LIMITED_S, MEASURED_S = 0.01, 0.1
#: Longest time between two looks at all.
LOOK_S = 0.05
#: The shortest; it doubles from there, so that short commands are not waited for.
SHORTEST_S = 0.001
#: The kernel takes no single argument of 128 KiB: longer scripts are read from a file.
SCRIPT_BYTES = 100_000
LINUX = sys.platform == "linux"

Reason = Literal["", "memory", "deadline", "unwanted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """What to run, and within which limits."""

    script: str = ""  #: for the shell
    words: tuple[str, ...] = ()  #: without a shell
    shell: str = "bash"
    directory: str = "."
    environment: Mapping[str, str]
    places: tuple[str, ...] = ()  #: how the paths of its outputs begin
    keeps_output: bool = True  #: what is printed is the value; else it goes where errors go
    log: Path | None = None
    memory: float = 0.0  #: bytes of all processes together; 0: no limit
    until: float | None = None  #: as time.monotonic() tells
    unwanted: Callable[[], bool] = bool  #: whether nobody wants it any more
    stdin: int = subprocess.DEVNULL
    stdout: int | None = None  #: a descriptor instead of keeping what is printed
    stderr: int | None = None


class CommandOutcome(NamedTuple):
    """How it went."""

    command: str
    status: int  #: as the shell tells it; negative: the signal that ended it
    output: bytes
    errors: bytes  #: the end of what was printed as errors
    why: Reason  #: it was ended before its end
    wall_s: float
    cpu_s: float
    peak: int  #: bytes of all processes together, as far as they were seen
    torn: str = ""  #: who was ended after the shell, with an output open for writing

    @property
    def used(self) -> str:
        return f"{self.wall_s:.3g} s, {self.cpu_s:.3g} s of CPU, {self.peak / 1e6:.0f} MB at most"


def run(invocation: Invocation) -> CommandOutcome:
    """Run a command line and wait for its end; raises OSError if it cannot be started."""
    with contextlib.ExitStack() as stack:
        running = _RunningCommand(invocation, stack)
        try:
            running.watch()
        finally:
            running.end()
        return running.outcome()


class _RunningCommand:
    def __init__(self, invocation: Invocation, stack: contextlib.ExitStack) -> None:
        self._invocation = invocation
        self._stack = stack
        self._why: Reason = ""
        self._peak = 0
        self._output, self._errors = bytearray(), bytearray()
        self._command = invocation.script or shlex.join(invocation.words)
        self._log = self._open_log()
        self._begin = time.monotonic()
        self._discovered = self._memory_due = 0.0
        self._limit = 0.0 if in_worker() else invocation.memory
        self._sinks: dict[int, Callable[[bytes], None]] = {}
        mark = new_mark()
        self._process = self._start(mark)
        leader = look(self._process.pid) if LINUX else None
        self._members = None if leader is None else CommandProcesses(leader, mark, invocation.places)
        self._tree = None if leader is None else ProcessTree(leader.pid)
        if self._tree is not None:
            stack.callback(self._tree.close)
        self._rest: set[int] | None = None  #: those who are left when the shell has ended well
        self._settled = 0.0  #: when those who were just started have opened what they write
        self._torn: dict[int, str] = {}
        self._wall_s = self._cpu_s = 0.0

    # -- the beginning

    def _start(self, mark: str) -> subprocess.Popen[bytes]:
        said = self._invocation
        opened: list[int] = []

        def channel(given: int | None, sink: Callable[[bytes], None]) -> int:
            if given is not None:
                return given
            reader, writer = os.pipe()
            os.set_blocking(reader, False)
            self._sinks[reader] = sink
            self._stack.callback(os.close, reader)
            opened.append(writer)
            return writer

        try:
            errors = channel(said.stderr, self._print)
            output = channel(said.stdout, self._output.extend) if said.keeps_output else errors
            words, script = self._words()
            return subprocess.Popen(  # noqa: S603 - what the user asks for
                words,
                stdin=said.stdin,
                stdout=output,
                stderr=errors,
                cwd=said.directory,
                env={**os.environ, **said.environment, COMMAND: mark},
                start_new_session=True,
                pass_fds=script,
            )
        finally:
            for writer in opened:
                os.close(writer)

    def _words(self) -> tuple[list[str], list[int]]:
        said = self._invocation
        if said.words:
            return list(said.words), []
        bash = Path(said.shell).name == "bash"
        options = ["-e", "-u", *(["-o", "pipefail"] if bash else [])]
        raw = os.fsencode(said.script)
        if len(raw) < SCRIPT_BYTES:
            return [said.shell, *options, "-c", said.script], []
        file = self._stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        file.write(raw)
        file.seek(0)
        return [said.shell, *options, f"/dev/fd/{file.fileno()}"], [file.fileno()]

    def _open_log(self) -> IO[bytes] | None:
        path = self._invocation.log
        if path is None:
            return None
        path.parent.mkdir(parents=True, exist_ok=True)
        log = self._stack.enter_context(path.open("ab", buffering=0))
        self._write(log, f"$ {self._command}\n".encode(errors="surrogateescape"))
        return log

    def _write(self, log: IO[bytes], content: bytes) -> None:
        try:
            log.write(content)
        except OSError as error:
            error.filename = str(self._invocation.log)  # by which it is known what failed
            raise

    # -- while it runs

    def watch(self) -> None:
        """Wait for its end, or bring it about; those it has left get a moment to open what they write, or to end."""
        if self._wait_until(self._has_ended_well) and self._members is not None:
            self._wait_until(self._rest_is_done)
        self._wall_s = time.monotonic() - self._begin

    def _wait_until(self, done: Callable[[], bool | None]) -> bool:
        """Wait until something is so; False if it is known never to be, or there is a reason to end it before."""
        wait = SHORTEST_S
        while not (so := done()):
            self._why = "" if so is None else self._reason_to_end()
            if so is None or self._why:
                return False
            said = self._read(wait)
            wait = SHORTEST_S if said else min(2 * wait, LIMITED_S if self._limit else LOOK_S)
        return True

    def _has_ended_well(self) -> bool | None:
        """Whether the shell has ended well; None if it has failed, and what it left is not needed."""
        ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return False
        return True if (ended.si_code, ended.si_status) == (os.CLD_EXITED, 0) else None

    def _rest_is_done(self) -> bool:
        assert self._members is not None
        now = time.monotonic()
        self._settled = self._settled or now + LOOK_S
        self._rest = self._members.find()
        return not self._rest or now >= self._settled

    def _reason_to_end(self) -> Reason:
        said = self._invocation
        if said.unwanted():
            return "unwanted"
        if said.until is not None and time.monotonic() >= said.until:
            return "deadline"
        memory = self._memory()
        return "memory" if 0 < self._limit < memory else ""

    def _memory(self) -> int:
        """Look at the memory if it is time for that; often in the beginning, as many commands are short."""
        now, tree = time.monotonic(), self._tree
        if tree is None or now < self._memory_due:
            return 0
        soon = (now - self._begin) / 4
        self._memory_due = now + min(soon, LIMITED_S if self._limit else MEASURED_S)
        if now - self._discovered >= min(soon, LOOK_S):
            self._discovered = now
            tree.discover(self._rest)
        memory = tree.memory()
        if 0 < self._limit < memory and len(tree) > 1:
            memory = tree.memory(exactly=True)  # the cheap answer errs on the side of more
        self._peak = max(self._peak, memory)
        return memory

    def _read(self, wait: float) -> bool:
        poll = select.poll()
        for reader in self._sinks:
            poll.register(reader, select.POLLIN)
        ready = poll.poll(wait * 1000)
        for reader, _ in ready:
            with contextlib.suppress(BlockingIOError):
                content = os.read(reader, READ_BYTES)
                self._sinks[reader](content)
                if not content:
                    del self._sinks[reader]
        return bool(ready)

    def _print(self, content: bytes) -> None:
        if self._log is not None:
            self._write(self._log, content)
        self._errors += content
        if len(self._errors) > 2 * TAIL_BYTES:
            del self._errors[:-TAIL_BYTES]

    # -- the end

    def end(self) -> None:
        process, members = self._process, self._members
        if members is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        elif self._rest == set():
            members.take_in()
        else:
            torn = members.end()
            # Before the end of the shell all may be in the middle of an output.
            self._torn = torn if self._rest is not None else {}
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self._cpu_s = usage.ru_utime + usage.ru_stime

    def outcome(self) -> CommandOutcome:
        while self._sinks and self._read(0):
            pass
        outcome = CommandOutcome(
            self._command,
            self._process.returncode,
            bytes(self._output),
            bytes(self._errors[-TAIL_BYTES:]),
            self._why,
            self._wall_s,
            self._cpu_s,
            self._peak,
            ", ".join(self._torn.values()),
        )
        if self._log is not None:
            ended = f"ended for its {self._why}" if self._why else f"exit status {outcome.status}"
            self._write(self._log, f"# {ended}; {outcome.used}\n".encode())
        return outcome
