"""What a result says of memory: learned under a limit, a plain bound without one, and nothing where nothing was measured."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

import windrow as wr
from windrow.pipeline.results.memory import became, learned_memory, lost_share, memory_lines, merge_memory
from windrow.shape.allocation.policy import Allocation, NodeSize
from windrow.watch.readlog import DONE, FAILED, read_log

if TYPE_CHECKING:
    from pathlib import Path

#: More than a worker may use, which is 250 MB.
BIG = np.dtype(np.float64).itemsize * 40_000_000


def analysis() -> wr.Pipeline:
    """Make one that takes 20 KB a row, and with a marked row among many far more than there is."""
    made = wr.Pipeline("memory")

    @made.column
    def heavy(x: Any) -> Any:
        if len(x) > 10 and (x == -1).any():
            np.ones(BIG // 8)
        return np.ones((len(x), 2_500)).sum(axis=1)

    @made.output
    def total(heavy: Any) -> float:
        return float(heavy.sum())

    return made


def limited(x: Any, **options: Any) -> wr.Result:
    return analysis().run({"x": x}, memory="500 MB", workers=2, progress=False, **options)


def test_a_limited_run_says_what_it_learned(tmp_path: Path) -> None:
    result = limited(np.zeros(20_000), rundir=tmp_path / "run")
    facts = result.memory["data"]
    assert facts["limited"]
    assert facts["allowed"] == 250e6
    assert 0 < facts["most"] <= 500e6
    assert 0 < facts["wasted_byte_s"] < facts["granted_byte_s"]
    assert became(facts) == ""
    log = read_log((tmp_path / "run" / "events.jsonl").read_text().splitlines())
    ran = log.attempts.done & (log.attempts.rows > 0)
    assert log.attempts.rows[ran].sum() == 20_000
    assert facts["tasks"] == ran.sum()
    assert facts["rows"] == log.attempts.rows[ran].max()
    assert facts["most"] >= log.attempts.peak[log.attempts.how == DONE].max()
    assert log.attempts.limit[ran].min() > 0
    told = json.loads(result.to_json())["memory"]["data"]
    assert told["suggested_mem_mb"] * 1e6 >= facts["fixed"]
    (line,) = [one for one in result.decisions if one.startswith("memory: data: ")]
    assert f"({facts['tasks']} chunks, the largest of {facts['rows']:,} rows)" in line
    assert line in result.explain()
    assert wr.load(tmp_path / "run").memory == result.memory
    page = (result.report()).read_text()
    assert '<section id="memory">' in page
    assert 'id="chart-chunk-memory"' in page


def test_settings_to_pin_are_settings_of_a_run() -> None:
    x = np.zeros(5_000)
    pin = limited(x).memory["data"]["pin"]
    again = limited(x, **pin)
    assert again.memory["data"]["rows"] <= pin["chunk"]
    assert again["total"] == 5_000 * 2_500


def test_chunks_that_used_too_much_are_counted_and_logged(tmp_path: Path) -> None:
    x = np.zeros(500)
    x[300] = -1
    result = limited(x, rundir=tmp_path / "run")
    facts = result.memory["data"]
    log = read_log((tmp_path / "run" / "events.jsonl").read_text().splitlines())
    failed = log.attempts.how == FAILED
    assert failed.any()
    assert sum(facts[act] for act in ("blocks", "split", "larger", "fresh", "written")) == failed.sum()
    assert (log.attempts.peak[failed] > log.attempts.limit[failed]).all()
    assert (log.attempts.tried[failed] > 10).all()
    assert facts["rows"] <= 500
    assert any("used more than they might" in one for one in result.decisions)
    assert any("attempts that came to nothing" in one for one in result.decisions)
    assert 0 < lost_share(result) < 1
    assert "lost to attempts that came to nothing" in result.report().read_text()


def test_without_a_limit_there_is_a_bound_and_no_words(tmp_path: Path) -> None:
    result = analysis().run({"x": np.zeros(2_000)}, engine="processes", workers=1, progress=False)
    facts = result.memory["data"]
    assert not facts["limited"]
    assert 10e6 < facts["most"] <= facts["suggested_mem_mb"] * 1e6
    assert not [one for one in result.decisions if one.startswith("memory: data")]
    assert '<section id="memory">' not in result.report(tmp_path / "run.html").read_text()


def test_where_nothing_is_measured_nothing_is_said() -> None:
    result = analysis().run({"x": np.zeros(100)}, engine="threads", workers=2, progress=False)
    assert result.memory == {}
    assert json.loads(result.to_json())["memory"] == {}


def test_a_policy_without_tasks_has_nothing_to_say() -> None:
    assert learned_memory(Allocation(nodes=[NodeSize(1e9, 2)]), {}) == {}


def facts_of(tasks: int, rows: int, split: int = 0, block_rows: int = 0) -> dict[str, Any]:
    return {
        "limited": True, "tasks": tasks, "rows": rows, "most": 1e6 * rows, "suggested_mem_mb": rows, "fixed": 62e6,
        "per_row": 20_300.0, "split": split, "blocks": split, "block_rows": block_rows, "larger": 0, "fresh": 0,
        "written": 0, "fail": 0, "pin": {"chunk": rows, "task_memory": 300 * 10**6},
    }  # fmt: skip


def test_words() -> None:
    first, second = memory_lines({"data": facts_of(34, 10_000, 2, 9_300), "free": {"limited": False}}, 0.004)
    assert first == (
        "memory: data: a chunk takes 62 MB and 20.3 kB a row (34 chunks, the largest of 10,000 rows); of those that used more "
        "than they might 2 run in blocks of 9,300 rows, 2 cut smaller; to begin with what was learned: chunk=10000, "
        'task_memory="300 MB"'
    )
    assert second == "memory: 0.4 % of the workers' time was lost to attempts that came to nothing"
    assert len(list(memory_lines({"data": facts_of(34, 10_000)}, 0.004))) == 1


def test_merged_facts_add_up() -> None:
    one, two = facts_of(10, 100, split=1), facts_of(20, 50, split=2)
    merged = merge_memory([{"a": one}, {"a": two, "b": one}])
    assert (merged["a"]["tasks"], merged["a"]["split"], merged["a"]["rows"]) == (30, 3, 100)
    assert merged["a"]["suggested_mem_mb"] == 100
    assert merged["a"]["pin"] == two["pin"]
    assert merged["b"] == one
    assert one["tasks"] == 10
    same = merge_memory([{"a": one}, {"a": one}])
    assert same["a"]["tasks"] == 20
