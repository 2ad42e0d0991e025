"""A new worker's first moments: from a copy of the supervisor's process to a process of its own."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import importlib
import os
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import NoReturn

from windrow.engines.supervisor.status_page import StatusPage

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
#: The exit code after an exception that no code caught (EX_SOFTWARE of sysexits.h).
BROKEN = 70


def process_control(option: int, value: int) -> None:
    """Call prctl(2)."""
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def become_worker(server: int, sock: int, page: int, bell: int, entry: str, path: list[str]) -> NoReturn:
    """Run ``entry`` ("module:function") with the socket and the page, and exit."""
    code = BROKEN
    try:
        os.setsid()
        process_control(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != server:
            os._exit(BROKEN)  # it died before the line above: the signal will not come
        process_control(PR_SET_CHILD_SUBREAPER, 1)
        _reset_signals()
        _close_all_but({0, 1, 2, sock, page, bell})
        _reset_libraries()
        sys.path[:] = path
        module, _, name = entry.partition(":")
        function = getattr(importlib.import_module(module), name)
        own = StatusPage(page, bell)
        own.close_fd()
        with socket.socket(fileno=sock) as link:
            function(link, own)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - printed: this is the end of the process
        traceback.print_exc()
    finally:
        _flush()
        os._exit(code & 0xFF)


def _reset_signals() -> None:
    # Ctrl-C is the driver's; the other two as Python has them.
    ignored = {signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ}
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _close_all_but(keep: set[int]) -> None:
    # Whoever held a sibling's socket would keep it open after the sibling's death.
    for path in Path("/proc/self/fd").iterdir():
        if int(path.name) not in keep:
            with contextlib.suppress(OSError):  # the one that listed them
                os.close(int(path.name))


def _reset_libraries() -> None:
    faulthandler.disable()
    # Steps may have processes of their own; those of the server are none of theirs.
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None:
        processes._children.clear()
    utilities = sys.modules.get("multiprocessing.util")
    if utilities is not None:
        utilities._finalizer_registry.clear()
        utilities._run_after_forkers()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):  # closed, or none
            continue
