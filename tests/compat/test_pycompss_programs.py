"""Programs from beginning to end: sessions that their first task opens, how they end, and the layout of imports."""

from __future__ import annotations

import importlib
import textwrap
from pathlib import Path

import pytest

import windrow.compat.pycompss as p
from compss_programs import run_program

HEAD = """
import sys, time
from pathlib import Path
from windrow.compat.pycompss.api.task import task
from windrow.compat.pycompss.api.parameter import *
from windrow.compat.pycompss.api.api import *
place = Path(sys.argv[1])

@task()
def write(name, text):
    (place / name).write_text(text)

@task()
def broken():
    raise ValueError("broken in a task")

"""


def program(directory: Path, text: str) -> Path:
    path = directory / "program.py"
    path.write_text(HEAD + textwrap.dedent(text), encoding="utf-8")
    return path


@pytest.mark.parametrize("engine", ["processes", "threads"])
def test_a_program_waits_for_its_tasks_when_it_ends(tmp_path: Path, engine: str) -> None:
    text = """
        if __name__ == "__main__":
            for number in range(4):
                write(str(number), "done")
            print("the program has ended")
            sys.exit(3)
    """
    done = run_program(program(tmp_path, text), str(tmp_path), WINDROW_ENGINE=engine)
    assert (done.returncode, done.stdout, done.stderr) == (3, "the program has ended\n", "")
    assert [(tmp_path / str(number)).read_text() for number in range(4)] == ["done"] * 4


def test_a_failure_that_nobody_saw_fails_the_program(tmp_path: Path) -> None:
    text = """
        import atexit
        atexit.register(print, "others clean up")
        broken()
        write("a", "done")
        print("the program has ended")
    """
    done = run_program(program(tmp_path, text), str(tmp_path), WINDROW_WORKERS="1")
    assert done.returncode == 1
    assert done.stdout == "the program has ended\nothers clean up\n"
    assert "ValueError: broken in a task" in done.stderr
    assert "windrow: a task failed, and the program has not asked for its result" in done.stderr
    assert (tmp_path / "a").read_text() == "done"


def test_a_program_that_fails_does_not_go_on(tmp_path: Path) -> None:
    text = """
        @task(returns=1)
        def wait():
            time.sleep(0.3)

        @task()
        def after(_):
            (place / "after").touch()

        after(wait())
        raise RuntimeError("the program is wrong")
    """
    done = run_program(program(tmp_path, text), str(tmp_path))
    assert done.returncode == 1
    assert "RuntimeError: the program is wrong" in done.stderr
    assert not (tmp_path / "after").exists()


def test_a_program_may_begin_and_stop_itself(tmp_path: Path) -> None:
    text = """
        compss_start()
        write("a", "1")
        compss_stop()
        print((place / "a").read_text())
        write("b", "2")  # opens another one
        compss_barrier()
        print((place / "b").read_text())
        broken()
        try:
            compss_stop()
        except ValueError as error:
            print(error)
        compss_stop()
    """
    done = run_program(program(tmp_path, text), str(tmp_path), WINDROW_ENGINE="threads")
    assert (done.returncode, done.stdout) == (0, "1\n2\nbroken in a task\n")


def test_a_session_around_it_takes_precedence(tmp_path: Path) -> None:
    text = """
        import os
        import windrow as wr

        @task(returns=1)
        def where():
            return os.getpid()

        with wr.Session(engine="threads", workers=1):
            print(compss_wait_on(where()) == os.getpid())
        print(compss_wait_on(where()) == os.getpid())
    """
    done = run_program(program(tmp_path, text), str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "True\nFalse\n")


def test_a_wrong_number_of_workers(tmp_path: Path) -> None:
    done = run_program(program(tmp_path, "write('a', '')"), str(tmp_path), WINDROW_WORKERS="two")
    assert done.returncode == 1
    assert "WINDROW_WORKERS is a number of workers, got 'two'" in done.stderr


def test_every_name_is_where_pycompss_has_it() -> None:
    homes = {
        "task": "task", "constraint": "constraint", "IO": "IO", "binary": "binary", "mpi": "mpi",
        "on_failure": "on_failure", "reduction": "reduction", "COMPSsException": "exceptions",
        "local": "local", "TaskGroup": "api", "compss_wait_on": "api", "compss_barrier": "api",
        "compss_barrier_group": "api", "compss_cancel_group": "api", "compss_open": "api",
        "compss_wait_on_file": "api", "compss_wait_on_directory": "api", "compss_delete_file": "api",
        "compss_delete_object": "api", "compss_file_exists": "api", "compss_snapshot": "api",
        "compss_get_number_of_resources": "api", "compss_request_resources": "api",
        "compss_free_resources": "api", "compss_set_wall_clock": "api", "compss_start": "api",
        "compss_stop": "api", "compss_ready_value": "api",
    }  # fmt: skip
    kinds = ["", "FILE_", "DIRECTORY_", "COLLECTION_", "COLLECTION_FILE_", "DICTIONARY_"]
    homes |= {f"{kind}{way}": "parameter" for kind in kinds for way in ("IN", "OUT", "INOUT")}
    homes |= dict.fromkeys(
        ["CONCURRENT", "COMMUTATIVE", "IN_DELETE", "FILE", "COLLECTION", "DICTIONARY", "FILE_STDIN",
         "FILE_STDOUT", "FILE_STDERR", "FILE_IN_STDIN", "FILE_OUT_STDOUT", "COLLECTION_IN_DELETE",
         "STREAM_IN", "STREAM_OUT", "STDIN", "STDOUT", "STDERR", "Type", "Direction", "Depth",
         "StdIOStream", "Prefix", "Weight", "Keep_rename", "Cache"],
        "parameter",
    )  # fmt: skip
    for name, home in homes.items():
        module = importlib.import_module(f"windrow.compat.pycompss.api.{home}")
        assert name in module.__all__
        assert getattr(module, name) is getattr(p, name)
        assert name in p.__all__
    assert all(hasattr(p, name) for name in p.__all__)


@pytest.mark.parametrize("by_name", [False, True])
def test_modules_are_found_by_every_way_of_importing(by_name: bool, tmp_path: Path) -> None:
    text = """
        import importlib.util, pickle
        import cloudpickle
        import windrow.compat.pycompss.api.IO
        import windrow.compat.pycompss.api.parameter as parameters
        from windrow.compat.pycompss.api import constraint, exceptions
        from windrow.compat.pycompss.api.mpi import MPI, Mpi, mpi

        @task(returns=1)
        def used(number):
            @windrow.compat.pycompss.api.IO.io()
            @constraint.constraint(computing_units=1)
            @task(returns=1)
            def inner():
                return number
            assert parameters.INOUT == INOUT
            return inner(), exceptions.COMPSsException("by reference")

        if __name__ == "__main__":
            assert MPI is Mpi is mpi
            assert pickle.loads(pickle.dumps(mpi)) is mpi
            assert cloudpickle.loads(cloudpickle.dumps(parameters)) is parameters
            assert importlib.util.find_spec("windrow.compat.pycompss.api.task") is not None
            assert importlib.util.find_spec("windrow.compat.pycompss.api.tsak") is None
            number, error = compss_wait_on(used(7))
            assert type(error) is exceptions.COMPSsException
            print(number)
    """
    path = program(tmp_path, text)
    words = (Path("-m"), "program") if by_name else (path,)
    done = run_program(*words, str(tmp_path), WINDROW_WORKERS="1", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (0, "7\n", "")


def test_the_page_says_of_every_name_what_it_does() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "howto" / "coming-from-pycompss.md"
    text = page.read_text(encoding="utf-8")
    kinds = ("FILE", "DIRECTORY", "COLLECTION", "DICTIONARY", "STREAM", "STD", "IN", "OUT", "INOUT")
    plain = [one for one in p.__all__ if one.islower() or one in ("IO", "TaskGroup", "COMPSsException")]
    missing = [one for one in plain if not one.startswith(kinds) and f"`{one}" not in text and f"`@{one}" not in text]
    assert missing == []
