"""CPython's own tests of executors, where they apply, with ours in place of its own.

They belong to the standard library's ``test`` package, which many installations leave out; ``make test`` gets Debian's
where it can. Where there are none, this file has nothing to run, and ``test_executor.py`` says the same in our words.
"""

from __future__ import annotations

import functools
import importlib
import sys
import unittest
import warnings
from concurrent.futures import BrokenExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import windrow as wr

if TYPE_CHECKING:
    from types import ModuleType

pytestmark = pytest.mark.slow

#: Tests that do not apply, and why.
EXCLUDED = {
    # They look at what only the standard library's executors have inside.
    "test_killed_child": "ends a process found in _processes; here it is replaced, see test_executor.py",
    "test_saturation": "counts _threads and _processes",
    "test_idle_thread_reuse": "counts _threads; a session has its workers from the beginning",
    "test_idle_process_reuse_one": "counts _processes",
    "test_idle_process_reuse_multiple": "counts _processes",
    "test_threads_terminate": "counts _threads",
    "test_processes_terminate": "counts _processes",
    "test_shutdown_deadlock": "waits for _executor_manager_thread",
    "test_shutdown_deadlock_pickle": "waits for _executor_manager_thread",
    "test_crash_big_data": "looks at _executor_manager_thread",
    "test_gh105829_should_not_deadlock_if_wakeup_pipe_full": "replaces _executor_manager_thread_wakeup",
    "test_python_finalization_error": "breaks the start of the standard library's own threads",
    "test_hang_global_shutdown_lock": "about the standard library's own lock, with its own executors",
    # They are about options or defaults that ours does not have.
    "test_default_workers": "ours are as many as there are cores",
    "test_max_workers_too_large": "a limit of Windows",
    "test_max_tasks_per_child": "there is no such option",
    "test_max_tasks_per_child_defaults_to_spawn_context": "there is no such option",
    "test_max_tasks_early_shutdown": "there is no such option",
    "test_ressources_gced_in_workers": "needs a multiprocessing context",
    # They start a program that makes an executor of the standard library by name.
    "test_interpreter_shutdown": "the same program with ours is in test_executor.py",
    "test_submit_after_interpreter_shutdown": "the same program with ours is in test_executor.py",
    "test_hang_gh83386": "the same program with ours is in test_executor.py",
    "test_cancel_futures_wait_false": "the same program with ours is in test_executor.py",
    # Ours does it otherwise, as test_executor.py shows.
    "test_traceback": "wants a cause of a private class; here the worker's traceback is in a note",
    "test_free_reference": "where memory is shared, the run lets a result go a moment after its future",
    "test_cancel_futures": "wants something to have begun; here all may be cancelled before it did",
    "test_error_at_task_unpickle": "the call alone fails, with that error",
    "test_exit_at_task_unpickle": "the call alone fails, with that error",
    "test_error_during_result_unpickle_in_result_handler": "the call alone fails, with that error",
    "test_exit_during_result_unpickle_in_result_handler": "the call alone fails, with that error",
    "test_exit_during_result_pickle_on_worker": "the call alone fails, with an error that names the result",
    "test_error_during_result_pickle_on_worker": "the call alone fails, with an error that names the result",
}  # fmt: skip


NAME = "test.test_concurrent_futures"
#: Where ``make test`` puts the package if Python came without it.
BESIDE = Path(sys.prefix) / "cpython-tests"


def _found() -> ModuleType | None:
    try:
        return importlib.import_module(NAME)
    except ImportError:
        if not (BESIDE / "test").is_dir():
            return None
    # On the path, as processes import it too; many installations have some of the package.
    sys.path.insert(0, str(BESIDE))
    for one in [one for one in sys.modules if one.partition(".")[0] == "test"]:
        del sys.modules[one]
    return importlib.import_module(NAME)


def _package() -> dict[str, ModuleType]:
    """Load the modules of CPython's tests, by their names; nothing if they are not there."""
    names = (
        "util", "executor", "test_wait", "test_as_completed", "test_shutdown", "test_init", "test_process_pool",
        "test_thread_pool", "test_deadlock",
    )  # fmt: skip
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of modules that will be gone in other versions
        found = _found()
        if found is None:
            return {}
        if not hasattr(found, "__path__"):  # in earlier versions it is one module
            return dict.fromkeys(names, found)
        return {one: importlib.import_module(f"{NAME}.{one}") for one in names}


MODULES = _package()

#: Where tests are, and with which engines they make sense.
BOTH = ("threads", "processes")
SETS = (
    ("executor", "ExecutorTest", ("inline", *BOTH)),
    ("test_thread_pool", "ThreadPoolExecutorTest", ("threads",)),
    ("test_process_pool", "ProcessPoolExecutorTest", ("processes",)),
    ("test_wait", "WaitTests", BOTH),
    ("test_as_completed", "AsCompletedTests", BOTH),
    ("test_shutdown", "ExecutorShutdownTest", BOTH),
    ("test_init", "InitializerMixin", BOTH),
    # A process that begins badly says so in its own log.
    ("test_init", "FailingInitializerMixin", ("threads",)),
    ("test_deadlock", "ExecutorDeadlockTest", ("processes",)),
)


class _OnEngine(wr.Executor):
    """Takes what tests give the standard library's executors."""

    def __init__(self, max_workers: int | None = None, *, mp_context: Any = None, **more: Any):
        super().__init__(max_workers, **more)


def _case(module: str, name: str, engine: str) -> type[unittest.TestCase]:
    found = getattr(MODULES[module], name)
    bases: tuple[type, ...] = (MODULES["util"].ExecutorMixin, unittest.TestCase)
    body: dict[str, Any] = {}
    if issubclass(found, MODULES["executor"].ExecutorTest) and module != "executor":
        # Its own tests alone: the others are run anyway, and its cleanup reaps all children there are.
        body = {one: thing for one, thing in vars(found).items() if "test" in one}
    else:
        bases = (found, *bases)
    for test, why in EXCLUDED.items():
        if hasattr(found, test):
            body[test] = unittest.skip(why)(getattr(found, test))
    kind = functools.partial(_OnEngine, engine=engine)
    body |= {"executor_type": staticmethod(kind), "get_context": lambda _: None}
    return type(f"{engine}_{name}", bases, body)


if not MODULES:

    def test_the_tests_of_cpython_are_there() -> None:
        pytest.skip("this Python has no package test.test_concurrent_futures")

else:
    MODULES["test_deadlock"].BrokenProcessPool = BrokenExecutor  # type: ignore[attr-defined]
    for where, what, engines in SETS:
        for engine in engines:
            case = _case(where, what, engine)
            globals()[case.__name__] = case
    del case
