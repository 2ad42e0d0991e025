"""Room for results: who goes first, who stays, and what killed processes leave."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from windrow.store.results import Kept, Results, Room, Usage, _listed, evict, plan_eviction

if TYPE_CHECKING:
    from pathlib import Path


def filled(directory: Path, ages: list[float], size: int = 10_000) -> Results:
    """Make a store with one result for each age, in seconds."""
    results = Results(directory)
    for number, age in enumerate(ages):
        results.write(key(number), {"0": [bytes(size)]}, {})
        os.utime(results.path(key(number)), times=(time.time() - age,) * 2)
    return results


def key(number: int) -> str:
    return f"{number * 7919 % 65536:04x}" * 10


def there(results: Results, count: int) -> list[int]:
    return [number for number in range(count) if results.find(key(number)) is not None]


files = st.lists(st.builds(Kept, st.text(max_size=3), st.integers(0, 1000), st.floats(0, 100)), max_size=20)


@given(kept=files, budget=st.integers(0, 10_000), since=st.floats(0, 110))
def test_what_goes(kept: list[Kept], budget: int, since: float) -> None:
    going = plan_eviction(kept, budget, since)
    left = sum(one.size for one in kept) - sum(one.size for one in going)
    assert all(one.used < since for one in going)
    assert [one.used for one in going] == sorted(one.used for one in going)
    rest = list(kept)
    for one in going:
        rest.remove(one)
    # Nothing that was used earlier than what goes stays, and no more goes than has to.
    assert all(one.used >= going[-1].used for one in rest) if going else True
    assert not going or left + going[-1].size > budget
    assert left <= budget or all(one.used >= since for one in rest)


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    results = filled(tmp_path, [500, 100, 400, 200, 300])
    assert results.touch(key(0))
    os.utime(results.path(key(0)), times=(time.time() - 50,) * 2)
    done = evict(tmp_path, 25_000)
    assert there(results, 5) == [0, 1]
    assert done == sum(one.size for one in _listed(tmp_path)[0]) <= 25_000


def test_below_the_budget_nothing_goes(tmp_path: Path) -> None:
    results = filled(tmp_path, [500, 100])
    evict(tmp_path, 25_000)
    assert there(results, 2) == [0, 1]


def test_what_an_open_session_may_need_stays(tmp_path: Path) -> None:
    results = filled(tmp_path, [500, 400, 300])
    usage = Usage(tmp_path)
    assert results.touch(key(1))
    evict(tmp_path, 0)
    assert there(results, 3) == [1]
    usage.end()
    os.utime(results.path(key(1)), times=(time.time() - 100,) * 2)
    evict(tmp_path, 0)
    assert there(results, 3) == []


def test_a_killed_session_claims_nothing(tmp_path: Path) -> None:
    results = filled(tmp_path, [50])
    program = (
        "import os, signal, sys, pathlib\n"
        "from windrow.store.results import Usage\n"
        "usage = Usage(pathlib.Path(sys.argv[1]))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    (own,) = (tmp_path / "sessions").iterdir()
    # As if it had begun long ago: then it would claim what was used since.
    own.rename(own.with_name(f"{int(time.time()) - 1000}-killed"))
    evict(tmp_path, 0)
    assert there(results, 1) == []
    assert list((tmp_path / "sessions").iterdir()) == []


def test_an_open_session_of_another_process_claims_what_it_used(tmp_path: Path) -> None:
    results = filled(tmp_path, [50])
    program = (
        "import sys, pathlib\n"
        "from windrow.store.results import Usage\n"
        "usage = Usage(pathlib.Path(sys.argv[1]))\n"
        "print('open', flush=True)\n"
        "sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "open\n"
        (own,) = (tmp_path / "sessions").iterdir()
        own.rename(own.with_name(f"{int(time.time()) - 1000}-open"))
        evict(tmp_path, 0)
        assert there(results, 1) == [0]
        other.stdin.close()
    evict(tmp_path, 0)
    assert there(results, 1) == []


def test_what_a_killed_writer_left_goes(tmp_path: Path) -> None:
    results = filled(tmp_path, [500])
    part = results.path(key(0)).with_name("half.part")
    part.write_bytes(bytes(100))
    evict(tmp_path, 1e9)
    assert part.exists()  # it may be written just now
    os.utime(part, times=(time.time() - 100,) * 2)
    evict(tmp_path, 1e9)
    assert not part.exists()
    assert there(results, 1) == [0]


def test_two_evictions_at_once(tmp_path: Path) -> None:
    """Both leave the budget kept, and neither minds that files vanish."""
    filled(tmp_path, [1000 - n for n in range(200)], size=1000)
    program = "import sys, pathlib\nfrom windrow.store.results import evict\nevict(pathlib.Path(sys.argv[1]), 50_000)\n"
    both = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path)]) for _ in range(2)]
    assert [one.wait() for one in both] == [0, 0]
    assert sum(one.size for one in _listed(tmp_path)[0]) <= 50_000


def test_short_results_count_as_what_they_take(tmp_path: Path) -> None:
    """On most disks a file takes whole blocks, however short it is."""
    results = filled(tmp_path, [1000 - n for n in range(50)], size=10)
    taken = sum(512 * results.path(key(number)).stat().st_blocks for number in range(50))
    evict(tmp_path, taken / 2)
    assert len(there(results, 50)) <= 25


def test_room_is_made_before_it_is_needed(tmp_path: Path) -> None:
    results = filled(tmp_path, [500, 400, 300])
    used = sum(one.size for one in _listed(tmp_path)[0])
    room = Room(tmp_path, used)
    assert not room.take(used + 1)  # never, so nothing goes for it
    assert there(results, 3) == [0, 1, 2]
    assert room.take(10_000)
    assert there(results, 3) == [1, 2]


def test_there_is_no_room_while_all_is_in_use(tmp_path: Path) -> None:
    results = filled(tmp_path, [0, 0, 0])
    usage = Usage(tmp_path)
    room = Room(tmp_path, sum(one.size for one in _listed(tmp_path)[0]))
    assert not room.take(10_000)
    assert there(results, 3) == [0, 1, 2]
    usage.end()
