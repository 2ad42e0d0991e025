"""Command lines as tasks, with real programs: what they are given, what they give, and what is said when they fail."""

from __future__ import annotations

import gzip
import pickle
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

import windrow as wr
from windrow.core.events import Finished
from windrow.errors import CommandError, CommandMemoryError, TaskError, TaskFileError, UsageError
from windrow.tasks.commands.command import Command, CommandTask
from windrow.tasks.driver import Driver

if TYPE_CHECKING:
    from collections.abc import Iterator

ENGINES = ("inline", "threads", "processes")


class Way(NamedTuple):
    """How tasks are called: without a session, or in one."""

    name: str
    session: wr.Session | None


PLAIN = Way("plain", None)


@pytest.fixture(scope="module", params=("plain", *ENGINES))
def way(request: pytest.FixtureRequest) -> Iterator[Way]:
    if request.param == "plain":
        yield PLAIN
        return
    session = wr.Session(engine=request.param, workers=1)
    yield Way(request.param, session)
    session.close()


def call(way: Way, task: Any, *arguments: Any, **keywords: Any) -> Any:
    if way.session is None:
        return task(*arguments, **keywords)
    return way.session.submit(task, *arguments, **keywords).result()


def failure(way: Way, task: Any, *arguments: Any, **keywords: Any) -> CommandError:
    with pytest.raises(CommandError) as caught:
        call(way, task, *arguments, **keywords)
    return caught.value


@wr.command
def lines_of(path: Any) -> str:
    return "awk 'END {print NR}' {path}"


@wr.command(cores=1)
def words(*things: Any, cores_too: bool = False) -> str:
    return "printf '%s|' {things}" + (" {cores} {gpus}" if cores_too else "")


@wr.command
def sorted_and_packed(numbers: wr.InFile, packed: wr.OutFile, counts: wr.OutFile) -> str:
    return """
        sort -n {numbers} | uniq | gzip > {packed}
        sort -n {numbers} | uniq -c | awk '{print $1, $2}' > {counts}
        echo "it is done"
    """


@wr.command
def split(text: wr.InFile, parts: wr.OutFiles("part-*.txt")) -> str:  # type: ignore[valid-type]
    return "split -l 2 --additional-suffix=.txt {text} {parts}/part-"


@wr.command
def packed_copy(text: wr.InFile, copy: wr.OutFile) -> str:
    return "gzip -c {text} > {copy}"


@wr.command
def words_of(file: wr.InFile) -> list[str]:
    return ["wc", "-w", "{file}"]


@wr.command
def unzipped(copy: wr.InFile) -> str:
    return "gzip -dc {copy}"


# -- what they give


def test_what_is_printed_is_the_value(way: Way, tmp_path: Path) -> None:
    path = tmp_path / 'it\'s "a" $file.txt'
    path.write_text("a\nb\nc\n")
    assert call(way, lines_of, path) == "3\n"
    assert call(way, words, "ä ö", path.name, 3, cores_too=True) == f"ä ö|{path.name}|3|1|0|"


def test_files_that_are_written_are_the_value(way: Way, tmp_path: Path) -> None:
    numbers = [random.Random(5).randrange(50) for _ in range(500)]
    (tmp_path / "in put.txt").write_text("".join(f"{one}\n" for one in numbers))
    packed, counts = tmp_path / "o'ut.gz", tmp_path / "counts.txt"
    value = call(way, sorted_and_packed, tmp_path / "in put.txt", packed, counts=str(counts))
    assert value == (packed, counts)
    assert gzip.decompress(packed.read_bytes()).decode().split() == [str(one) for one in sorted(set(numbers))]
    assert counts.read_text().splitlines() == [f"{numbers.count(one)} {one}" for one in sorted(set(numbers))]


def test_files_whose_names_are_not_known_before_are_a_list(way: Way, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("1\n2\n3\n4\n5\n")
    (tmp_path / "parts").mkdir()
    found = call(way, split, tmp_path / "text", tmp_path / "parts")
    assert found == [tmp_path / "parts" / f"part-a{one}.txt" for one in "abc"]
    assert [one.read_text() for one in found] == ["1\n2\n", "3\n4\n", "5\n"]


@pytest.mark.parametrize("engine", ENGINES)
def test_commands_read_what_others_write(engine: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one two three\n")
    with wr.Session(engine=engine, workers=2):
        copy = packed_copy(tmp_path / "a.txt", tmp_path / "a.gz")
        by_path = unzipped(tmp_path / "a.gz")
        by_future = unzipped(copy)
        count = words_of(tmp_path / "a.txt")
        assert by_path.result() == by_future.result() == "one two three\n"
        assert count.result().split()[0] == "3"


def test_relative_paths_are_the_callers(way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.txt").write_text("hi\n")
    monkeypatch.chdir(tmp_path)
    assert call(way, packed_copy, "x.txt", "y.gz") == tmp_path / "y.gz"
    assert call(way, wr.command(lambda: "pwd")) == f"{tmp_path}\n"


def test_a_failed_command_leaves_no_file(way: Way, tmp_path: Path) -> None:
    @wr.command
    def half(out: wr.OutFile) -> str:
        return "echo half > {out}; false"

    failure(way, half, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


# -- how they run


def test_words_that_are_no_parameters(way: Way) -> None:
    how = wr.command(cores=1, memory="500 MB", env={"GREETING": "it's", "N": 3})
    task = how(lambda: 'echo {cores} {memory} {gpus} "$GREETING" $N; test -d {tmp}; echo {tmp}')
    first, directory = call(way, task).splitlines()
    assert first == "1 500000000 0 it's 3"
    assert not Path(directory).exists()


def test_memory_that_was_not_declared_cannot_be_written() -> None:
    with pytest.raises(UsageError, match='memory="4 GB"'):
        wr.command(lambda: "sort -S {memory}")()


def test_they_read_nothing(way: Way) -> None:
    assert call(way, wr.command(lambda: "cat; echo end")) == "end\n"


@pytest.mark.parametrize(
    "script", ["false; echo on", "false | cat", "echo $not_set_anywhere", "cat /no/such/file | sort"]
)
def test_what_fails_in_the_middle_is_a_failure(script: str) -> None:
    with pytest.raises(CommandError):
        wr.command(lambda: script)()


def test_another_shell() -> None:
    # Only bash has pipefail everywhere.
    assert wr.command(shell="sh")(lambda: "false | echo $0")() == "sh\n"
    assert wr.command(shell="/bin/bash")(lambda: "echo ${BASH_VERSINFO[0]}")() > "3"
    with pytest.raises(CommandError, match="there is no program 'nosuchshell'"):
        wr.command(shell="nosuchshell")(lambda: "true")()


def test_options_of_tasks_hold_and_can_be_changed() -> None:
    def how(task: CommandTask) -> Command:
        assert task.declared.command is not None
        return task.declared.command

    changed = lines_of.options(name="count", memory="1 GB", env={"A": "1"})
    assert changed.declared.name == "count"
    assert how(changed).memory == 10**9
    assert how(changed.options(cores=3)) == Command(env=(("A", "1"),), cores=3, memory=10**9)
    assert how(lines_of) == Command()
    with pytest.raises(UsageError, match="no option 'coers'; did you mean 'cores'"):
        wr.command(coers=3)(lambda: "true")  # type: ignore[call-overload]
    with pytest.raises(UsageError, match=r"wr\.InOutFile"):
        wr.command(inout="x")(lambda x: "true")


@pytest.mark.parametrize("said", [None, "", "  ", [], 3, b"ls"])
def test_a_function_that_says_nothing_to_run(said: Any) -> None:
    with pytest.raises(UsageError, match="returns what to run"):
        wr.command(lambda: said)()


def test_a_generator_is_refused() -> None:
    def body() -> Any:
        yield "ls"

    with pytest.raises(UsageError, match="use return"):
        wr.command(body)


@pytest.mark.slow
def test_long_command_lines_run() -> None:
    many = [f"file-{number}" for number in range(30_000)]  # more than one argument may have
    count = wr.command(lambda names: "set -- {names}; echo $#; false | true || true; echo $0")
    assert count(many).split()[0] == "30000"


# -- failures


def test_a_failure_says_what_ran_how_it_ended_and_its_last_words(way: Way) -> None:
    @wr.command
    def broken(path: Any) -> str:
        return "seq 3 >&2; echo 'no such thing: {path}' >&2; (exit 3) | sort | cat"

    error = failure(way, broken, "a b")
    text = str(error)
    assert "'test_a_failure_says_what_ran_how_it_ended_and_its_last_words.<locals>.broken'" in text
    assert "exit status 3" in text
    assert "(exit 3) | sort | cat" in text
    assert "  3\n  no such thing: a b" in text
    assert error.facts["status"] == 3
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.facts) == (text, error.facts)
    assert type(again) is CommandError
    assert isinstance(error, TaskError)


def test_a_missing_program_is_named(way: Way) -> None:
    text = str(failure(way, wr.command(lambda: "echo | nosuchprogram --help")))
    assert "exit status 127; a program was not found" in text
    assert "nosuchprogram: command not found" in text
    text = str(failure(way, wr.command(lambda: ["nosuchprogram", "a"])))
    assert "there is no program 'nosuchprogram' on this machine's PATH; install it" in text


def test_signals_are_named() -> None:
    assert "ended by SIGKILL; nobody here sent that" in str(failure(PLAIN, wr.command(lambda: "sh -c 'kill -9 $$'")))
    assert "ended by SIGKILL (exit status 137)" in str(failure(PLAIN, wr.command(lambda: "sh -c 'kill -9 $$'; true")))
    assert "ended by SIGTERM" in str(failure(PLAIN, wr.command(lambda: ["sh", "-c", "kill -TERM $$"])))
    assert "stopped reading" in str(failure(PLAIN, wr.command(lambda: "yes | head -1")))
    assert wr.command(lambda: "(yes || true) | head -1")() == "y\n"


def test_a_directory_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @wr.command
    def leave() -> str:
        (tmp_path / "gone").rmdir()
        return "true"

    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    assert "the directory it was called in is gone" in str(failure(PLAIN, leave))


def test_only_the_end_of_many_errors_is_kept() -> None:
    error = failure(PLAIN, wr.command(lambda: "seq 200000 >&2; echo last >&2; exit 1"))
    said = error.facts["stderr"]
    assert 60_000 < len(said) <= 1 << 16
    assert said.endswith("200000\nlast\n")
    assert "(the last 20 lines)" in str(error)
    assert "199981" not in str(error)


def test_what_is_printed_beside_files_is_shown_too(tmp_path: Path) -> None:
    @wr.command
    def tells(out: wr.OutFile) -> str:
        return "echo 'usage: on stdout'; exit 2"

    assert "usage: on stdout" in str(failure(PLAIN, tells, tmp_path / "x"))


def test_what_a_program_says_that_writes_nothing_is_shown(way: Way, tmp_path: Path) -> None:
    @wr.command
    def quiet(out: wr.OutFile) -> str:
        return "echo 'no licence' >&2"

    with pytest.raises(TaskFileError, match=r"(?s)was not written.*what it printed:\n  no licence"):
        call(way, quiet, tmp_path / "x")


def test_very_long_lines_are_cut() -> None:
    text = str(failure(PLAIN, wr.command(lambda: "printf '%09999d' 7 >&2; exit 1")))
    assert text.endswith("0007")
    assert 2000 < len(text) < 3000


def test_the_log_has_all_of_it(way: Way, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    @wr.command(log="logs/{name}/{reads}.log", name="chatty")
    def chatty(reads: Any, status: int) -> str:
        return "seq 100000 >&2; echo value; exit {status}"

    monkeypatch.chdir(tmp_path)
    assert call(way, chatty, "dir/sample 1.fq", 0) == "value\n"
    assert "all of it is in" in str(failure(way, chatty, "dir/sample 1.fq", 4))
    lines = (tmp_path / "logs/chatty/sample 1.fq.log").read_text().splitlines()
    numbers = [str(one) for one in range(1, 100_001)]
    assert lines[0] == "$ seq 100000 >&2; echo value; exit 0"
    assert lines[1:100_001] == numbers
    assert lines[100_001].startswith("# exit status 0; ")
    assert lines[100_003:200_003] == numbers
    assert lines[-1].startswith("# exit status 4; ")


def test_a_log_that_names_nothing_known() -> None:
    with pytest.raises(UsageError, match=r"it may use \{name\}, \{x\}"):
        wr.command(log="{sample}.log")(lambda x: "true")(1)


@pytest.mark.parametrize("engine", ENGINES)
def test_rules_for_failures_hold_for_commands(engine: str, tmp_path: Path) -> None:
    @wr.command(on_failure="retry", retries=2)
    def third_time(count: Any) -> str:
        return 'echo x >> {count}; test "$(wc -l < {count})" = 3; echo well'

    with wr.Session(engine=engine, workers=1) as session:
        assert third_time(tmp_path / "count").result() == "well\n"
        with session.group(on_failure="ignore"):
            assert wr.command(lambda: "exit 5")().result() is None


@pytest.mark.parametrize("engine", ENGINES)
def test_a_command_that_gathers_goes_on_without_what_was_ignored(engine: str, tmp_path: Path) -> None:
    @wr.command(on_failure="ignore")
    def align(x: str, out: wr.OutFile) -> str:
        return "test {x} != b; echo {x} > {out}"

    @wr.command
    def merge(parts: wr.InFile, out: wr.OutFile) -> str:
        return "cat {parts} > {out}"

    with wr.Session(engine=engine, workers=1):
        merge([align(x, tmp_path / x) for x in "abc"], tmp_path / "merged")
    assert (tmp_path / "merged").read_text() == "a\nc\n"


# -- what they use


def holding(mb: int, then: str = "") -> str:
    """A command that has so much memory, in two processes, half of it in each."""
    half = f"import time; x = b'x' * {mb * 500_000}; time.sleep(1)"
    return f'{sys.executable} -S -c "{half}" & {sys.executable} -S -c "{half}"; wait; {then}'


def test_memory_and_time_of_all_processes_are_measured() -> None:
    used = failure(PLAIN, wr.command(lambda: holding(200, "exit 1"))).facts
    assert 200e6 < used["peak_bytes"] < 300e6
    assert used["cpu_s"] > 0
    assert used["wall_s"] >= 1


@pytest.mark.parametrize("shorts", [0, 3])
@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_measured_counts_for_the_task(engine: str, shorts: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after short tasks, after which a worker does not look itself what the next one uses."""
    found: list[Any] = []
    observe = Driver._observe

    def spy(self: Driver, events: Any, commands: Any, now: float) -> None:
        found.extend(one.measurement for one in events if isinstance(one, Finished))
        observe(self, events, commands, now)

    monkeypatch.setattr(Driver, "_observe", spy)
    work = f"sum(i for i in range({10**6})); time.sleep(0.3)"
    task = wr.command(lambda: f"{sys.executable} -S -c \"import time; x = b'x' * 80_000_000; {work}\"")
    with wr.Session(engine=engine, workers=1) as session:
        for number in range(shorts):
            assert session.submit(abs, -number).result() == number
        task().result()
    assert len(found) == shorts + 1
    used = found[-1]
    assert used.wall > 0.3
    assert used.cpu > 0.03
    assert used.peak_memory > 80e6


def test_all_processes_together_are_limited(way: Way) -> None:
    # Twice as much is allowed the second time, where it is tried again.
    task = wr.command(memory="100 MB")(lambda: holding(600))
    with pytest.raises(TaskError) as caught:
        call(way, task)
    if way.name == "processes":
        assert "of memory or more; the limit is" in str(caught.value)
    else:
        assert isinstance(caught.value, CommandMemoryError)
        assert isinstance(caught.value, MemoryError)
        limit = 100e6 if way.name == "plain" else 200e6
        assert caught.value.facts["limit_bytes"] == limit < caught.value.facts["peak_bytes"]
        assert f"the limit is {limit / 1e6:.0f} MB" in str(caught.value)


def test_twice_the_memory_is_tried_where_there_is_as_much() -> None:
    task = wr.command(memory="150 MB")(lambda: holding(200, "echo well"))
    with wr.Session(engine="threads", workers=1):
        assert task().result() == "well\n"
