"""Objects through sockets and memory files, and what is done about those that cannot be pickled."""

from __future__ import annotations

import contextlib
import errno
import gc
import os
import pickle
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from windrow import errors
from windrow.engines.processes.serialize import culprit, dumps, portable
from windrow.engines.processes.transport import IN_SOCKET, Arrival, Link, pack
from windrow.errors import EngineError, StepError, WindrowError

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def ends() -> Iterator[tuple[Link, Link]]:
    gc.collect()  # of tests before this one
    before, mapped = open_files(), memory_files()
    left, right = (Link(one) for one in socket.socketpair())
    yield left, right
    left.close()
    right.close()
    assert open_files() <= before, "files were left open"
    assert memory_files() <= mapped, "memory was left mapped"


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def memory_files() -> int:
    return Path("/proc/self/maps").read_text().count("memfd:windrow ")


def next_arrival(link: Link) -> Arrival:
    while not (found := link.receive()):
        assert not link.ended
    (arrival,) = found
    return arrival


def sent(thing: Any, ends: tuple[Link, Link]) -> Any:
    ends[0].send(pack(thing))
    return next_arrival(ends[1]).open()


# -- what comes is what was sent


@st.composite
def any_array(draw: st.DrawFn) -> np.ndarray[Any, Any]:
    dtype = draw(st.sampled_from(["f8", "i4", "u1", "?", "S3", "M8[s]", "c16"]))
    shape = draw(arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=24))
    size = int(np.prod(shape, dtype=int)) * np.dtype(dtype).itemsize
    made = np.frombuffer(draw(st.randoms(use_true_random=False)).randbytes(size), np.uint8) & 1
    array = made.view(dtype).reshape(shape) if size else np.zeros(shape, dtype)
    array = array.copy(order=draw(st.sampled_from("CF")))
    if array.ndim and draw(st.booleans()):
        array = array[:: draw(st.sampled_from([-1, 2]))]
    array.flags.writeable = draw(st.booleans())
    return array


things = st.recursive(
    any_array() | st.integers() | st.text(max_size=5) | st.binary(max_size=9000).map(bytearray),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


def assert_equal(found: Any, expected: Any) -> None:
    assert type(found) is type(expected)
    if isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype
        # NumPy copies what is not contiguous, and dates; a copy may be written to.
        flags = expected.flags
        copied = not (flags.c_contiguous or flags.f_contiguous) or expected.dtype.kind == "M"
        assert found.flags.writeable == (flags.writeable or copied)
        np.testing.assert_array_equal(found, expected)
    elif isinstance(expected, dict):
        assert list(found) == list(expected)
        for key, value in expected.items():
            assert_equal(found[key], value)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_equal(one, other)
    else:
        assert found == expected


@given(st.lists(things, min_size=1, max_size=3), st.lists(st.integers(1, 5000), min_size=1))
def test_anything_arrives_however_the_bytes_are_cut(sending: list[Any], cuts: list[int]) -> None:
    """Small bodies: every byte goes through a socket that a third party cuts where it likes."""
    written = b"".join(parcel.data for parcel in map(pack, sending) if parcel.file < 0)
    expected = [thing for thing in sending if pack(thing).file < 0]
    one, other = socket.socketpair()
    with one, other:
        link = Link(other)
        found: list[Any] = []
        number = 0
        while written:
            cut = cuts[number % len(cuts)]
            number += 1
            one.sendall(written[:cut])
            written = written[cut:]
            found += [arrival.open() for arrival in link.receive() or ()]
        assert_equal(found, expected)


@given(things, st.integers(0, 255), st.integers(0, 2**64 - 1))
def test_large_and_small_arrive_with_their_labels(thing: Any, kind: int, tag: int) -> None:
    one, other = socket.socketpair()
    with one, other:
        for value in (thing, [thing, np.arange(20_000.0)]):
            parcel = pack(value, kind, tag)
            assert (parcel.file >= 0) == (parcel.bytes > IN_SOCKET)
            Link(one).send(parcel)
            arrival = next_arrival(Link(other))
            assert (arrival.kind, arrival.tag, arrival.bytes) == (kind, tag, parcel.bytes)
            assert arrival.seconds > 0
            assert_equal(arrival.open(), value)


def test_thousands_of_buffers_and_a_long_pickle(ends: tuple[Link, Link]) -> None:
    several = [np.full(5000, number % 251, np.uint8) for number in range(3000)]
    text = ["x" * 100_000 + str(number) for number in range(20)]
    found = sent([several, text], ends)
    assert found[1] == text
    for number, array in enumerate(found[0]):
        assert array.tobytes() == bytes([number % 251]) * 5000
        assert array.ctypes.data % 64 == 0
    del found, array


def test_writes_that_stop_early_are_continued(ends: tuple[Link, Link], monkeypatch: pytest.MonkeyPatch) -> None:
    """The system writes at most 2 GB at a time; here it writes 1000 bytes."""
    real = os.pwrite
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda file, data, at: real(file, data[:1000], at))
        parcel = pack(np.arange(30_000))
    ends[0].send(parcel)
    np.testing.assert_array_equal(next_arrival(ends[1]).open(), np.arange(30_000))
    del parcel


# -- memory


def test_what_is_sent_to_two_is_private_to_each(ends: tuple[Link, Link]) -> None:
    others = tuple(Link(one) for one in socket.socketpair())
    parcel = pack({"x": np.arange(100_000.0)})
    ends[0].send(parcel)
    others[0].send(parcel)
    first = next_arrival(ends[1]).open()["x"]
    second = next_arrival(others[1]).open()["x"]
    first += 1.0
    np.testing.assert_array_equal(second, np.arange(100_000.0))
    np.testing.assert_array_equal(first, np.arange(1, 100_001.0))
    with pytest.raises(OSError, match="not permitted"):  # sealed: nobody can pull it away
        os.ftruncate(parcel.file, 10)
    with pytest.raises(OSError, match="not permitted"):
        os.pwrite(parcel.file, b"x", 0)
    for link in others:
        link.close()


def test_memory_lives_as_long_as_its_arrays(ends: tuple[Link, Link]) -> None:
    files, before = open_files(), memory_files()
    found = [sent(np.full(100_000, number), ends) for number in range(50)]
    assert open_files() == files, "arrays that are kept keep files open"
    assert memory_files() == before + 50
    part = found[7][5:8]
    del found
    assert memory_files() == before + 1
    assert part.tolist() == [7, 7, 7]


def test_what_is_lent_is_mapped_and_stays_as_it_is_for_the_lender() -> None:
    arrival = pack(np.arange(100_000)).arrive()
    lent = arrival.lend()
    assert lent is not None
    borrowed = pickle.loads(pickle.dumps(lent)).arrive()
    array = borrowed.open()
    array[0] = 7
    assert (arrival.open(own=True)[0], array.sum()) == (0, 7 + 99_999 * 50_000)
    for wrong in (lent._replace(identity=(0, 0, 0)), lent._replace(file=1 << 20), lent._replace(process=1 << 30)):
        with pytest.raises(OSError, match=r"lent|No such file"):
            wrong.arrive()
    assert pack(b"small").arrive().lend() is None


def test_parcels_that_are_never_sent_leave_nothing() -> None:
    before = open_files()
    one, other = socket.socketpair()
    other.setblocking(False)
    link = Link(other)
    for _ in range(500):  # more than the socket takes
        link.send(pack(np.zeros(50_000)))
    assert not link.flush()
    link.close()
    one.close()
    assert open_files() == before


def test_without_a_memory_file_the_socket_must_do(ends: tuple[Link, Link], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(os, "memfd_create", refuse)
    thing = [np.arange(2_000_000), "y" * 100_000]
    parcel = pack(thing)
    assert parcel.file < 0
    sender = threading.Thread(target=ends[0].send, args=(parcel,))
    sender.start()
    assert_equal(next_arrival(ends[1]).open(), thing)
    sender.join()


def test_parcels_that_wait_have_few_files(ends: tuple[Link, Link], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windrow.engines.processes.transport.MOST_FILES", 3)
    before = open_files()
    waiting = [pack(np.full(20_000, number)) for number in range(6)]
    assert open_files() == before + 3
    for number, parcel in enumerate(waiting):
        sending = threading.Thread(target=ends[0].send, args=(parcel,))
        sending.start()
        assert next_arrival(ends[1]).open().sum() == 20_000 * number
        sending.join()
    del waiting[:2], parcel, sending
    assert pack(np.zeros(20_000)).file >= 0


def test_a_receiver_without_free_files_says_so(ends: tuple[Link, Link]) -> None:
    ends[0].send(pack(np.zeros(100_000)))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(file.name) for file in Path("/proc/self/fd").iterdir())
    filler = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
        with contextlib.suppress(OSError):
            while True:
                filler.append(os.dup(0))
        with pytest.raises(EngineError, match="too many open files"):
            ends[1].receive()
    finally:
        for file in filler:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# -- the other side


def test_both_sides_may_write_at_once(ends: tuple[Link, Link]) -> None:
    """Far more than the sockets take, on both sides, before anybody reads."""
    for link in ends:
        link.socket.setblocking(False)
        for number in range(100):
            link.send(pack((number, b"x" * 60_000)))
    counts = [0, 0]
    while counts != [100, 100]:
        for side, link in enumerate(ends):
            link.flush()
            for arrival in link.receive() or ():
                assert arrival.open()[0] == counts[side]
                counts[side] += 1


@pytest.mark.parametrize("size", [100, 100_000])
@pytest.mark.parametrize("part", [1, 30, 47])
def test_a_sender_killed_in_the_middle_is_just_gone(ends: tuple[Link, Link], size: int, part: int) -> None:
    left, right = ends
    ready, told = os.pipe()
    pid = os.fork()
    if pid == 0:  # the sender: one whole parcel, then a piece of one, then the end
        left.send(pack("whole"))
        parcel = pack(np.zeros(size))
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", parcel.file))]
        left.socket.sendmsg([parcel.data[:part]], rights if parcel.file >= 0 else [])
        os.write(told, b"!")
        signal.pause()
    os.read(ready, 1)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    left.close()
    found = []
    while not right.ended:
        found += right.receive() or []
    assert [arrival.open() for arrival in found] == ["whole"]
    os.close(ready)
    os.close(told)


def test_what_was_sent_before_the_end_is_read_after_it(ends: tuple[Link, Link]) -> None:
    left, right = ends
    left.send(pack("last words"))
    left.close()
    right.send(pack("too late"))
    assert right.deaf
    assert next_arrival(right).open() == "last words"
    assert right.receive() == []
    assert right.ended


def test_what_is_no_parcel_is_refused(ends: tuple[Link, Link]) -> None:
    head = struct.Struct("<BB2xIQQQd")
    table = struct.pack("<Q", 5000)
    for bad in (
        b"G" * head.size,
        head.pack(1, 0, 0, 0, 11, 10, 0.0),  # a pickle longer than the body
        head.pack(1, 0, 1 << 30, 0, 1, 10, 0.0),
        head.pack(1, 0, 1, 0, 10, 20, 0.0) + table + bytes(20),  # sizes that do not add up
        head.pack(1, 1, 0, 0, 9, 9, 0.0),  # memory that was not sent
    ):
        one, other = socket.socketpair()
        with one, other:
            link = Link(other)
            one.sendall(pack("good").data + bad)
            assert [arrival.open() for arrival in link.receive() or ()] == ["good"]
            assert link.garbled
            assert link.ended


# -- what pickle alone cannot do


def test_code_that_cannot_be_imported_travels_by_value() -> None:
    """A file executed by hand, a lambda and a class of a test: made again in a process that has none of them."""
    module = ModuleType("executed_by_hand")
    sys.modules[module.__name__] = module
    try:
        exec("FACTOR = 3\ndef helper(x):\n    return x * FACTOR\nclass Thing:\n    pass\n", vars(module))
        helper = module.helper
        content, _ = dumps([helper, lambda x: helper(x) + 1, module.Thing()], by_value=True)
    finally:
        del sys.modules[module.__name__]
    code = "import pickle, sys; a, b, c = pickle.loads(sys.stdin.buffer.read());print(a(2), b(2), type(c).__name__)"
    done = subprocess.run([sys.executable, "-c", code], input=content, capture_output=True, check=True)
    assert done.stdout.split() == [b"6", b"7", b"Thing"]


def test_plain_records_need_no_cloudpickle(monkeypatch: pytest.MonkeyPatch) -> None:
    content, buffers = dumps({"x": np.arange(10_000)}, apart=4096)
    assert content == pickle.dumps({"x": np.arange(10_000)}, 5, buffer_callback=lambda _: None)
    assert [buffer.nbytes for buffer in buffers] == [80_000]


class Refusing:
    """Does not want to be sent, whatever it is made of."""

    def __init__(self, content: Any) -> None:
        self.content = content

    def __reduce__(self) -> Any:
        raise TypeError("not me")


class Holder:
    def __init__(self, **parts: Any) -> None:
        vars(self).update(parts)


def test_the_part_at_fault_is_named() -> None:
    lock = threading.Lock()

    def step(x: Any) -> Any:
        return (x, lock)

    assert culprit({"a": [1, Holder(b=lock)]}, "it") == "it['a'][1].b (_thread.lock)"
    found = culprit([Holder(b=Refusing(lock))], "it")
    assert found == f"it[0].b ({__name__}.Refusing)"  # as it says itself
    found = culprit(Holder(steps={"pt": step}), "it")
    assert found == "it.steps['pt'] -> its variable 'lock' (_thread.lock)"


# -- exceptions


class Stubborn(Exception):
    """Is pickled without complaint and cannot be made again by calling it."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


class Silent(Stubborn):
    def __str__(self) -> str:
        raise ValueError("no words")


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    """The exception as one that was raised, sent and received."""
    try:
        raise error from cause
    except BaseException as caught:  # noqa: BLE001 - whatever it is
        found = pickle.loads(dumps(portable(caught, 3))[0])
    assert isinstance(found, BaseException)
    return found


def test_an_exception_arrives_with_the_story_of_where_it_was_raised() -> None:
    cause = KeyError("column")
    cause.add_note("of the cause")
    error = ValueError("bad", 7)
    error.add_note("mine")
    found = raised(error, cause)
    assert type(found) is ValueError
    assert found.args == ("bad", 7)
    assert found.__notes__[0] == "mine"
    assert "In the process of worker 3" in found.__notes__[1]
    assert "raise error from cause" in found.__notes__[1]
    assert isinstance(found.__cause__, KeyError)
    assert found.__cause__.args == ("column",)


class Wordy(Exception):
    def __init__(self, what: str, *, file: str) -> None:
        super().__init__(what)
        self.file = file

    def __str__(self) -> str:
        return f"{self.args[0]} in {self.file}"


@pytest.mark.parametrize(
    "error", [Stubborn(1, 2), Wordy("bad", file="a.txt"), UnicodeDecodeError("utf-8", b"x", 0, 1, "no")]
)
def test_an_exception_with_arguments_of_its_own_is_made_again(error: BaseException) -> None:
    """Its ``__init__`` may want several arguments, or some by name, and keeps others in ``args``."""
    found = raised(error)
    assert type(found) is type(error)
    assert str(found) == str(error)
    assert {**vars(found), "__notes__": None} == {**vars(error), "__notes__": None}


@pytest.mark.parametrize("error", [KeyError(lambda: threading.Lock(), threading.Lock()), OSError(threading.Lock())])
def test_an_exception_that_cannot_travel_has_a_stand_in(error: BaseException) -> None:
    found = raised(error)
    assert isinstance(found, EngineError)
    assert type(error).__name__ in str(found)
    assert "Traceback" in found.__notes__[-1]
    assert str(error) in str(found)


def test_an_exception_that_cannot_even_say_what_it_is() -> None:
    found = raised(Silent(1, 2))
    assert type(found) is Silent
    assert found.args == ("1 and 2",)
    assert "In the process of worker 3" in found.__notes__[-1]


@pytest.mark.parametrize("name", errors.__all__)
def test_errors_of_the_house_keep_their_facts(name: str) -> None:
    kind = getattr(errors, name)
    if not (isinstance(kind, type) and issubclass(kind, WindrowError)):
        return
    error = kind("it is so", step="pt", start=3, file="a.root")
    for found in (pickle.loads(pickle.dumps(error)), raised(error)):
        assert type(found) is kind
        assert str(found) == "it is so"
        assert found.facts == {"step": "pt", "start": 3, "file": "a.root"}


def test_a_fact_that_cannot_be_pickled_costs_the_type_and_not_the_words() -> None:
    found = raised(StepError("step pt failed", step="pt", lock=threading.Lock()))
    assert "StepError: step pt failed" in str(found)
