"""What is said of a command line that failed: what ran, how it ended, its last words and what to do."""

from __future__ import annotations

import errno
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from windrow.errors import CommandError, CommandMemoryError
from windrow.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from windrow.tasks.commands.run import CommandOutcome, Invocation


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
