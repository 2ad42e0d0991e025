"""Running a command line: what it says, what it uses, and its end; nothing that it started is left running.

One loop does it all: it reads what the programs say, looks at their memory and asks whether they are still wanted. In a
worker's process the memory limit is the supervisor's business; elsewhere it is kept here.
"""

from __future__ import annotations

import contextlib
import fcntl
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

from windrow.engines.supervisor.process_tree import ProcessTree, descendants, look
from windrow.tasks.command_guard import COMMAND, end_members, in_worker, members, new_mark, take_in
from windrow.tasks.command_rest import at_work, writers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
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

#: From which numbers on that descriptor is sought: command lines take low ones, and 200 for locks; some systems have few.
HIGH = (800, 230, 100, 10)
#: Tells on a descriptor of its own how each program of the last pipe ended.
_TELL = "trap 'echo \"${{PIPESTATUS[@]}}\" >&{0}' EXIT; "


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
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


class Ran(NamedTuple):
    """How it went."""

    command: str
    status: int  #: as the shell tells it; negative: the signal that ended it
    pipe: tuple[int, ...]  #: of each program in the last pipe, where the shell tells
    output: bytes
    errors: bytes  #: the end of what was printed as errors
    why: Literal["", "memory", "deadline", "unwanted"]  #: it was ended before its end
    wall_s: float
    cpu_s: float
    peak: int  #: bytes of all processes together, as far as they were seen
    torn: str = ""  #: who was ended after the shell, with an output open for writing

    @property
    def used(self) -> str:
        """What it used, in words."""
        return f"{self.wall_s:.3g} s, {self.cpu_s:.3g} s of CPU, {self.peak / 1e6:.0f} MB at most"


def run(order: Order) -> Ran:
    """Run a command line and wait for its end; raises OSError if it cannot be started."""
    with contextlib.ExitStack() as stack:
        running = _Running(order, stack)
        try:
            running.watch()
        except BaseException:
            running.end()
            raise
        return running.result()


def _out_of_reach(descriptor: int, script: str) -> int:
    """Give a descriptor a number that the script does not know: what it opens under that would be written to."""
    for lowest in HIGH:
        taken: list[int] = []
        try:
            while not taken or str(taken[-1]) in script:
                taken.append(fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, lowest))
        except OSError:  # there are not as many
            taken.append(-1)
        number = taken.pop()
        for one in taken:
            os.close(one)
        if number >= 0:
            os.close(descriptor)
            return number
    return descriptor


class _Running:
    """A command on its way."""

    def __init__(self, order: Order, stack: contextlib.ExitStack) -> None:
        self._order = order
        self._stack = stack
        self._mark = new_mark()
        self._why: Literal["", "memory", "deadline", "unwanted"] = ""
        self._peak = 0
        self._output, self._errors, self._pipe = bytearray(), bytearray(), bytearray()
        self._command = order.script or shlex.join(order.words)
        self._log = self._open_log()
        self._begin = time.monotonic()
        self._discovered = self._memory_due = 0.0
        self._limit = 0.0 if in_worker() else order.memory
        self._sinks: dict[int, Callable[[bytes], None]] = {}
        self._process = self._start()
        self._leader = look(self._process.pid) if LINUX else None
        self._trees: dict[int, ProcessTree] = {}  #: by the process at their root
        stack.callback(self._measure, ())
        self._measure([self._process.pid] if LINUX else [])
        self._rest: set[int] | None = None  #: those who are left when the shell has ended well
        self._left: set[int] = set()  #: all who were among them
        self._rest_due = 0.0
        self._settled = 0.0  #: when those who were just started have opened what they write
        self._torn: dict[int, str] = {}
        self._usage = 0.0

    # -- the beginning

    def _start(self) -> subprocess.Popen[bytes]:
        order = self._order
        tell = _out_of_reach(self._channel(self._pipe.extend), order.script)
        errors = self._channel(self._print)
        output = self._channel(self._output.extend) if order.keeps_output else errors
        try:
            words, kept = self._words(tell)
            return subprocess.Popen(  # noqa: S603 - what the user asks for
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                cwd=order.directory,
                env={**os.environ, **order.environment, COMMAND: self._mark},
                start_new_session=True,
                pass_fds=(tell, *kept),
            )
        finally:
            for writer in {tell, errors, output}:
                os.close(writer)

    def _channel(self, sink: Callable[[bytes], None]) -> int:
        """Make a pipe of which we read one end; return the other."""
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        self._sinks[reader] = sink
        self._stack.callback(os.close, reader)
        return writer

    def _words(self, tell: int) -> tuple[list[str], list[int]]:
        """Give the words to execute, and descriptors that they need."""
        order = self._order
        if order.words:
            return list(order.words), []
        bash = Path(order.shell).name == "bash"
        options = ["-e", "-u", *(["-o", "pipefail"] if bash else [])]
        script = (_TELL.format(tell) if bash else "") + order.script
        raw = os.fsencode(script)
        if len(raw) < SCRIPT_BYTES:
            return [order.shell, *options, "-c", script], []
        file = self._stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        file.write(raw)
        file.seek(0)
        return [order.shell, *options, f"/dev/fd/{file.fileno()}"], [file.fileno()]

    def _open_log(self) -> IO[bytes] | None:
        path = self._order.log
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
            error.filename = str(self._order.log)  # by which it is known what failed
            raise

    # -- while it runs

    def watch(self) -> None:
        """Wait for its end, or bring it about, and for those it has left at work on what it is to give."""
        if self._until(self._has_ended_well) and self._leader is not None:
            self._until(self._rest_is_done)

    def _until(self, done: Callable[[], bool | None]) -> bool:
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
        """Whether the shell has ended well; None if it has failed, and nobody needs what it left."""
        ended = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return False
        return True if (ended.si_code, ended.si_status) == (os.CLD_EXITED, 0) else None

    def _rest_is_done(self) -> bool:
        """Whether nobody is left at work; the others are ended."""
        assert self._leader is not None
        begin = time.monotonic()
        if begin < self._rest_due:
            return False
        self._settled = self._settled or begin + LOOK_S
        self._rest = members(self._leader, self._mark)
        self._left |= self._rest
        working = at_work(self._rest, self._order.places)
        if not self._rest or (not working and begin >= self._settled):
            return True
        self._measure(self._rest)
        now = time.monotonic()
        self._rest_due = now + 4 * (now - begin)  # it looks at all processes of the machine
        return False

    def _measure(self, roots: Iterable[int]) -> None:
        """Measure the memory of these and of what they start."""
        wanted = set(roots)
        for gone in self._trees.keys() - wanted:
            self._trees.pop(gone).close()
        inside = {one for pid in wanted for one in descendants(pid)}
        for gone in self._trees.keys() & inside:
            self._trees.pop(gone).close()
        for new in wanted - inside - self._trees.keys():
            self._trees[new] = ProcessTree(new)

    def _reason_to_end(self) -> Literal["", "memory", "deadline", "unwanted"]:
        order = self._order
        if order.unwanted():
            return "unwanted"
        if order.until is not None and time.monotonic() >= order.until:
            return "deadline"
        memory = self._memory()
        return "memory" if 0 < self._limit < memory else ""

    def _memory(self) -> int:
        """Look at the memory if it is time for that; often in the beginning, as many commands are short."""
        now = time.monotonic()
        if not self._trees or now < self._memory_due:
            return 0
        soon = (now - self._begin) / 4
        self._memory_due = now + min(soon, LIMITED_S if self._limit else MEASURED_S)
        trees = self._trees.values()
        if now - self._discovered >= min(soon, LOOK_S):
            self._discovered = now
            for tree in trees:
                tree.discover()
        memory = sum(tree.memory() for tree in trees)
        if 0 < self._limit < memory and sum(map(len, trees)) > 1:
            # The cheap answer errs on the side of more.
            memory = sum(tree.memory(exactly=True) for tree in trees)
        self._peak = max(self._peak, memory)
        return memory

    def _read(self, wait: float) -> bool:
        """Take in what was printed; say whether there was anything."""
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
        """End all that it started, and take in its end."""
        process = self._process
        if process.returncode is not None:
            return
        if self._leader is not None and self._rest == set():
            take_in(self._leader, self._left)
        elif self._leader is not None:
            end_members(self._leader, self._mark, self._look_on)
        else:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self._usage = usage.ru_utime + usage.ru_stime

    def _look_on(self, found: Iterable[int]) -> None:
        """Note who is ended in the middle of an output; before the end of the shell all may be."""
        if self._rest is not None:
            self._torn.update(writers(found, self._order.places))

    def result(self) -> Ran:
        """Say how it went."""
        wall = time.monotonic() - self._begin
        self.end()
        while self._sinks and self._read(0):
            pass
        ran = Ran(
            self._command,
            self._process.returncode,
            tuple(map(int, self._pipe.split())),
            bytes(self._output),
            bytes(self._errors[-TAIL_BYTES:]),
            self._why,
            wall,
            self._usage,
            self._peak,
            ", ".join(self._torn.values()),
        )
        if self._log is not None:
            ended = f"ended for its {self._why}" if self._why else f"exit status {ran.status}"
            self._write(self._log, f"# {ended}; {ran.used}\n".encode())
        return ran
