"""Functions take globals and closures as they are at the call, wherever they run."""

from __future__ import annotations

import gc
import threading
import warnings
import weakref
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import windrow as wr
from windrow.engines.write_watch import WriteWatch, write_watch
from windrow.errors import GlobalsWarning
from windrow.tasks.captured import Captured
from windrow.tasks.shared_arrays import SharedArrays

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROGRAM = """
import windrow as wr

K = 7
TABLE = {"a": 1}


def helper(x):
    return x * K


@wr.task
def cell(x):
    return helper(x)


@wr.task
def look(name):
    return TABLE.get(name)


def run():
    global K, helper
    made = [cell(2)]
    K = 8
    made += [cell(2), look("b")]
    TABLE["b"] = 5
    made += [look("b"), cell(3)]

    def helper(x):
        return -x

    globals()["helper"] = helper
    made.append(cell(2))
    return made
"""


def program() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "program_of_a_user"}
    exec(PROGRAM, names)
    return names


def test_changes_between_calls_count_as_in_the_plain_program() -> None:
    plain = program()["run"]()
    assert plain == [14, 16, None, 5, 24, -2]
    with wr.Session(engine="processes", workers=2) as session:
        assert session.gather(program()["run"]()) == plain


# -- changes in place


class Holder:
    limit = 1

    def __init__(self) -> None:
        self.value = 0
        self.parts = [np.zeros(3), {"deep": [1, 2]}]


MANY = """
import numpy as np

small = np.zeros(3)
middle = np.zeros(10_000)
large = np.zeros(300_000)
strided = np.zeros((400, 400))[:, ::2]
words = [str(one) for one in range(200)]
table = {one: [one] for one in range(100)}
nested = [np.zeros(4), {"a": (1, [2])}]
thing, other = Holder(), {"same": table}
number = 5
default = [1]

def closed():
    inner = np.zeros(2000)

    def see():
        return inner.sum()

    return inner, see

inner, see = closed()

def helper():
    return float(large[0] + large[-1]) + float(middle.sum())

def look(extra=default):
    return (
        float(small.sum()), helper(), float(strided.sum()), len(words), words[7], sum(map(sum, table.values())), float(nested[0].sum()),
        nested[1]["a"][1][0], thing.value, float(thing.parts[0].sum()), thing.parts[1]["deep"][1], Holder.limit, see(), number,
        list(extra), other["same"] is table,
    )
"""

CHANGES = (
    "small[1] += 1", "middle[5_000] += 1", "large[-1] += 1", "large[:] = 2", "strided[3, 3] += 1", "words[7] += '!'",
    "words.append('x')", "table[50][0] += 1", "nested[0][2] += 1", "nested[1]['a'][1][0] += 1", "thing.value += 1",
    "thing.parts[0][0] += 1", "thing.parts[1]['deep'][1] += 1", "Holder.limit += 1", "inner[3] += 1", "default.append(2)",
    "other['same'] = dict(table)", "number = number + 1", "large = large + 1", "large.sort()", "pass",
)  # fmt: skip


def program_of_many() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "program_of_a_user"}
    kind = type("Holder", (), {key: vars(Holder)[key] for key in ("limit", "__init__")})
    kind.__module__ = "program_of_a_user"
    names["Holder"] = kind
    exec(MANY, names)
    return names


@given(st.lists(st.sampled_from(CHANGES), max_size=12))
@settings(max_examples=25, deadline=None)
def test_a_task_sees_what_the_plain_program_sees(changes: list[str]) -> None:
    plain = program_of_many()
    wanted = [plain["look"]()]
    for change in changes:
        exec(change, plain)
        wanted.append(plain["look"]())
    names = program_of_many()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = [OPENED[0].submit(names["look"])]
        for change in changes:
            exec(change, names)
            made.append(OPENED[0].submit(names["look"]))
        assert OPENED[0].gather(made) == wanted


OPENED: list[wr.Session] = []


@pytest.fixture(scope="module", autouse=True)
def _opened() -> Iterator[None]:
    OPENED.append(wr.Session(engine="processes", workers=2))
    yield
    OPENED.pop().close()


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("watches", [True, False])
def test_each_change_is_seen_by_itself(change: str, watches: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not watches:  # as on other systems
        monkeypatch.setattr(WriteWatch, "protect", lambda *_: None)
    names = program_of_many()
    captured = Captured(names["look"], SharedArrays(count()))
    assert captured.is_the_same()
    assert not captured.stores
    before = names["look"]()
    exec(change, names)
    assert captured.is_the_same() == (names["look"]() == before)


def test_attributes_of_modules_are_as_at_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cuts_of_mine.py").write_text(
        "import threading\nlock = threading.Lock()\nCUT = 1\nTABLE = [0] * 300\n"
        "class Options:\n    width = 1\n\n"
        "class Event:\n    pass\n\n"
        "def passes(event=None):\n    with lock:\n        return CUT, TABLE[-1], Options.width, type(event) is Event\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import cuts_of_mine  # type: ignore[import-not-found]

    def mine() -> Any:
        return cuts_of_mine.CUT, cuts_of_mine.passes()

    with wr.Session(engine="processes", workers=1) as session:
        cuts_of_mine.CUT = 2  # before the first call too
        made = [session.submit(mine), session.submit(cuts_of_mine.passes, cuts_of_mine.Event())]
        cuts_of_mine.TABLE[-1] = 5
        made += [session.submit(mine), session.submit(cuts_of_mine.passes)]
        cuts_of_mine.CUT, cuts_of_mine.Options.width = 3, 9
        made += [session.submit(mine)]
        cuts_of_mine.CUT = 2
        made += [session.submit(cuts_of_mine.passes)]
        assert session.gather(made) == [
            (2, (2, 0, 1, False)), (2, 0, 1, True), (2, (2, 5, 1, False)), (2, 5, 1, False), (3, (3, 5, 9, False)), (2, 5, 9, False),
        ]  # fmt: skip


class Locked:
    def __init__(self, lock: Any) -> None:
        self.lock, self.values = lock, [1] * 100


def test_what_cannot_be_pickled_is_looked_into_as_far_as_it_is_the_user_s() -> None:
    thing, library = Locked(threading.Lock()), threading.Thread()
    table = {"lock": thing.lock, "thing": thing, "library": library}

    def look() -> Any:
        return thing.values, library, table

    captured = Captured(look, SharedArrays(count()))
    library.name = "another"
    assert captured.is_the_same()
    thing.values[50] = 2
    assert not captured.is_the_same()
    captured = Captured(look, SharedArrays(count()))
    table["new"] = 1
    assert not captured.is_the_same()


# -- bodies that change what is not theirs

COUNTING = """
counter, table, rows = 0, {}, []

def rebinds():
    global counter
    counter += 1
    return counter

def puts(key):
    table[key] = 1
    return len(table)

def appends(one):
    rows.append(one)
    return len(rows)

def default(one, kept=[]):
    kept.append(one)
    return len(kept)

def keyword(one, *, kept={}):
    kept[one, len(kept)] = 1
    return len(kept)

def extends(one, other=0, kept=[]):
    kept += [one]
    return len(kept)

def own(one, more=[1], less={}):
    mine = []
    mine.append(one)
    one["x"] = 1
    more = more + less.get("x", [])
    return len(mine)
"""


@pytest.mark.parametrize(
    ("body", "given", "said"),
    [
        ("rebinds", (), "'counter'"), ("puts", (1,), r"'table\[...\]'"), ("appends", (1,), r"'rows.append\(\)'"),
        ("default", (1,), r"'kept.append\(\)'"), ("keyword", (1,), r"'kept\[...\]'"), ("extends", (1,), "'kept'"),
    ],
)  # fmt: skip
def test_a_body_that_changes_what_is_not_its_own_is_told_so(body: str, given: tuple[Any, ...], said: str) -> None:
    names: dict[str, Any] = {"__name__": "program_of_a_user"}
    exec(COUNTING, names)
    with wr.Session(engine="processes", workers=2) as session:
        with pytest.warns(GlobalsWarning, match=f"task '{body}' changes {said}") as told:
            made = [session.submit(names[body], *given) for _ in range(6)]
        assert len(told) == 1
        assert told[0].filename == __file__
        # Each call begins with what there is at home, whichever worker runs it.
        assert session.gather(made) == [1] * 6


def test_what_is_a_body_s_own_may_be_changed() -> None:
    names: dict[str, Any] = {"__name__": "program_of_a_user"}
    exec(COUNTING, names)
    with warnings.catch_warnings(), wr.Session(engine="processes", workers=1) as session:
        warnings.simplefilter("error")
        assert session.submit(names["own"], {}).result() == 1


# -- large arrays


def total_and_change(array: Any, number: int) -> float:
    total = float(array.sum())
    array[:] = number  # each call has its own
    return total


def test_a_large_array_is_sent_once_and_each_call_has_its_own() -> None:
    array = np.ones(400_000)
    with wr.Session(engine="processes", workers=2) as session:
        packer = session._driver._packer
        assert packer is not None
        made = [session.submit(total_and_change, array, number) for number in range(6)]
        assert len(packer.arrays._known) == 1
        array[0] = 11
        made += [session.submit(total_and_change, array, number) for number in range(6)]
        closures = [session.submit(lambda one=one: float(array.sum()) + one) for one in range(4)]
        assert session.gather(made) == [400_000.0] * 6 + [400_010.0] * 6
        assert session.gather(closures) == [400_010.0 + one for one in range(4)]
        assert len(packer.arrays._known) == 1


def test_an_array_that_is_gone_is_forgotten() -> None:
    with wr.Session(engine="processes", workers=1) as session:
        packer = session._driver._packer
        assert packer is not None
        assert session.submit(total_and_change, np.ones(400_000), 1).result() == 400_000
        gc.collect()
        assert not packer.arrays._known


def test_writes_are_known_without_reading() -> None:
    watch, array = write_watch(), np.ones(300_000)
    where = array.ctypes.data, array.nbytes
    known = watch.protect(*where)
    if known is None:
        pytest.skip("this system does not tell of writes")
    assert watch.is_untouched(known)
    assert array.sum() == 300_000
    assert watch.is_untouched(known)
    array[200_000:][0] = 2
    assert not watch.is_untouched(known)
    again = watch.protect(*where)
    assert again is not None
    assert watch.is_untouched(again)
    assert not watch.is_untouched(known)  # whoever has this one was not told of the write
    assert array[200_000] == 2
    part = watch.protect(where[0] + 8, where[1] // 2)
    assert part is not None
    assert watch.is_untouched(again)  # nothing was written, so nothing is forgotten
    array.view(np.uint8)[5] = 1
    assert not watch.is_untouched(again)
    assert not watch.is_untouched(part)


ROUNDABOUT = """
@contextmanager
def opened(x):
    yield x * SCALE

class Scaled:
    def method(self, x):
        return x * SCALE

    @staticmethod
    def static(x):
        return x * SCALE

def times(x, y):
    return x * y * SCALE

@wr.task
def other(x):
    return x * SCALE

thing, part, table = Scaled(), partial(times, 1), {"by name": lambda x: x * SCALE}

def by_context(x):
    with opened(x) as y:
        return y

def by_class(x):
    return Scaled().method(x)

def by_static(x):
    return Scaled.static(x)

def by_object(x):
    return thing.method(x)

def by_part(x):
    return part(x)

def by_task(x):
    return other(x)

def by_table(x):
    return table["by name"](x)
"""


def test_globals_are_found_through_whatever_leads_to_them() -> None:
    names: dict[str, Any] = {"__name__": "program", "SCALE": 2}
    names |= {"wr": wr, "contextmanager": contextmanager, "partial": partial}
    exec(ROUNDABOUT, names)
    functions = [names[one] for one in names if one.startswith("by_")]
    functions += [names["thing"].method, names["part"]]
    with wr.Session(engine="processes", workers=1) as session:
        assert session.gather([session.submit(one, 1) for one in functions]) == [2] * 9
        names["SCALE"] = 3
        assert session.gather([session.submit(one, 1) for one in functions]) == [3] * 9
        names["table"]["by name"] = lambda x: -x
        assert session.submit(names["by_table"], 1).result() == -1


def of_an_argument(session: wr.Session, array: Any) -> Any:
    return session.submit(total_and_change, array, 0)


def of_a_closure(session: wr.Session, array: Any) -> Any:
    return session.submit(lambda: float(array.sum()))


def of_a_list_in_a_closure(session: wr.Session, array: Any) -> Any:
    arrays = [array]
    return session.submit(lambda: float(arrays[0].sum()))


def of_a_default(session: wr.Session, array: Any) -> Any:
    return session.submit(lambda one=array: float(one.sum()))


@pytest.mark.parametrize("call", [of_an_argument, of_a_closure, of_a_list_in_a_closure, of_a_default])
def test_what_waits_in_memory_is_bounded(call: Any) -> None:
    session = wr.Session(engine="processes", workers=2)
    packer = session._driver._packer
    assert packer is not None
    packer._most = 20e6
    made, most = [], 0
    for number in range(40):  # 8 MB each, which nobody else keeps
        made.append(call(session, np.full(1_000_000, number)))
        assert not packer.arrays._known  # the array is gone: nothing keeps it but what was sent
        most = max(most, packer.arrays.bytes_left())
    assert session.gather(made) == [1e6 * number for number in range(40)]
    assert most <= 20e6 + 8e6
    session.close()


def test_functions_made_for_one_call_are_let_go() -> None:
    session = wr.Session(engine="processes", workers=1)

    def once(number: int) -> tuple[Any, Any]:
        array = np.full(10, number)
        function = lambda: float(array[0])  # noqa: E731
        return weakref.ref(array), session.submit(function)

    refs = []
    for number in range(5):
        gone, future = once(number)
        assert future.result() == number
        refs.append(gone)
        del future
    gc.collect()
    assert [one() for one in refs] == [None] * 5
    session.close()
