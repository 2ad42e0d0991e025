"""What a result says of memory: learned under a limit, a plain bound without one, and nothing where nothing was measured."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import windrow as wr
from attempt_records import rows_task
from windrow.core.accounts import Account
from windrow.core.policies import NO_TRIES
from windrow.core.records import Measurement, Plan, Rows
from windrow.pipeline.results.memory import learned_memory, memory_lines
from windrow.shape.allocation.policy import Allocation, NodeSize
from windrow.units import format_bytes
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
    assert (facts["became"], facts["too_much"]) == ("", 0)
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


def test_a_run_directory_remembers_what_tasks_took(tmp_path: Path) -> None:
    options: Any = {"memory": "500 MB", "workers": 2, "progress": False, "rundir": tmp_path / "run"}
    first, again = analysis(), analysis()
    first.run({"x": np.zeros(20_000)}, **options)
    result = again.run({"x": np.zeros(1_000)}, **options)
    before, after = (sum(used["count"] for used in made.memory_used) for made in (first, again))
    assert after >= before + result.memory["data"]["tasks"] > before
    manifest = tmp_path / "run" / "manifest.json"
    points = [[100, "much", 0, 1.0, 1.0, 0.0, False]]
    wrong = {"category": "data", "kind": "rows", "moved": False, "points": points, "count": 1}
    for bad in ({"memory": [{"points": 3}]}, {"costs": {"data": ["x"]}}, {"memory": 1}, {"memory": [wrong]}):
        content = json.loads(manifest.read_text())
        content["learned"] |= bad
        manifest.write_text(json.dumps(content))
        assert analysis().run({"x": np.zeros(1_000)}, **options).complete


def test_a_run_that_failed_is_remembered_too(tmp_path: Path) -> None:
    def made() -> wr.Pipeline:
        found = wr.Pipeline("failing")

        @found.output
        def total(x: Any) -> float:
            if (x == 2).any():
                raise ValueError("no more")
            return float(x.sum())

        return found

    first, again = made(), made()
    options: Any = {"memory": "500 MB", "workers": 1, "progress": False, "rundir": tmp_path / "run"}
    with pytest.raises(wr.errors.StepError):
        first.run({"a": {"x": np.zeros(1_000)}, "b": {"x": np.full(1_000, 2.0)}}, **options)
    again.run({"a": {"x": np.zeros(1_000)}}, **options)
    before, after = (sum(used["count"] for used in one.memory_used) for one in (first, again))
    assert after > before > 0


def test_one_file_of_fifty_times_the_others_is_cut_as_memory_asks(tmp_path: Path) -> None:
    sizes = [400] * 10 + [20_000]
    files = []
    for number, size in enumerate(sizes):
        files.append(tmp_path / f"{number:02}.parquet")
        pq.write_table(pa.table({"x": np.zeros(size)}), files[-1])
    result = analysis().run({"data": list(map(str, files))}, memory="500 MB", workers=2, progress=False)
    assert result.complete
    assert result["total"] == sum(sizes) * 2_500
    assert result.memory["data"]["most"] < 20_000 * 20_000  # what all rows of the large one take at once


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
    assert "500 MB for 2 workers, so the share of each is 250 MB" in " ".join(result.decisions)
    log = read_log((tmp_path / "run" / "events.jsonl").read_text().splitlines())
    failed = log.attempts.how == FAILED
    assert failed.any()
    assert facts["too_much"] == failed.sum()
    assert (log.attempts.peak[failed] > log.attempts.limit[failed]).all()
    assert (log.attempts.tried[failed] > 10).all()
    assert facts["rows"] <= 500
    assert any("used more than they might" in one for one in result.decisions)
    assert any("attempts that came to nothing" in one for one in result.decisions)
    assert "lost to attempts that came to nothing" in result.report().read_text()


def test_chunks_that_were_granted_more_than_a_share_are_told_of(tmp_path: Path) -> None:
    made = wr.Pipeline("large")

    @made.column
    def ones(x: Any) -> Any:
        return np.ones(BIG // 8)[: len(x)]

    @made.output
    def total(ones: Any) -> float:
        return float(ones.sum())

    result = made.run({"x": np.zeros(3)}, memory="1 GB", workers=4, progress=False)
    facts = result.memory["data"]
    assert facts["allowed"] == 250e6 < BIG < facts["most_granted"]
    (said,) = [line for line in result.decisions if line.startswith("memory: data")]
    assert f"{format_bytes(facts['most_granted'])} were granted to a chunk, more than its share" in said
    assert "granted at most" in result.report(tmp_path / "run.html").read_text()


@pytest.mark.parametrize("bad", [(300,), (0, 499)])
def test_a_row_that_no_worker_can_hold_is_left_out_alone(bad: tuple[int, ...]) -> None:
    """The rest of its unit has the bits that it has where the row raises by itself."""

    def made(*, raises: bool) -> wr.Pipeline:
        analysis = wr.Pipeline("rows")

        @analysis.column
        def root(x: Any) -> Any:
            if (x == -1).any():
                if raises:
                    raise ValueError("a bad row")
                np.ones(BIG // 4)  # 640 MB
            return np.sqrt(x + 1)

        @analysis.weight
        def shrinking(x: Any) -> Any:
            return 1 / (2 + x)

        @analysis.cut
        def small(root: Any) -> Any:
            return root < 20

        analysis.region("small", "small")

        @analysis.output
        def total(root: Any, weight: Any) -> float:
            return float((root * weight).sum())

        return analysis

    x = np.arange(500.0)
    x[list(bad)] = -1
    wanted = made(raises=True).run({"x": x}, engine="inline", on_error="skip", progress=False)
    result = made(raises=False).run({"x": x}, memory="500 MB", workers=2, on_error="skip", progress=False)
    failed = [(one.start, one.stop) for one in result.ledger.entries if one.state == "failed"]
    assert failed == [(row, row + 1) for row in bad]
    assert result.outputs == wanted.outputs
    assert result.cutflow["small", "data"].written == wanted.cutflow["small", "data"].written
    assert all(
        "of memory or more; the limit is 500 MB" in one.reason for one in result.ledger.entries if one.state == "failed"
    )


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


def facts_of(tasks: int, rows: int, became: str = "") -> dict[str, Any]:
    return {
        "limited": True, "tasks": tasks, "rows": rows, "most": rows * 20_300 + 62e6, "allowed": 450e6, "fixed": 62e6, "per_row": 20_300.0,
        "became": became, "pin": {"chunk": rows, "task_memory": 300 * 10**6},
    }  # fmt: skip


def said(**memory: Any) -> list[str]:
    account = {"steps": 99.6, "attempts that came to nothing": 0.4}
    return list(memory_lines(SimpleNamespace(memory=memory, account=account)))  # type: ignore[arg-type]


def test_words() -> None:
    first, second = said(
        data=facts_of(34, 10_000, "2 run in blocks of 9,300 rows, 2 cut smaller"), free={"limited": False}
    )
    assert first == (
        "memory: data: a chunk takes 62 MB and 20.3 kB a row (34 chunks, the largest of 10,000 rows); of those that used more "
        "than they might 2 run in blocks of 9,300 rows, 2 cut smaller; to begin with what was learned: chunk=10000, "
        'task_memory="300 MB"'
    )
    assert second == "memory: 0.4 % of the workers' time was lost to attempts that came to nothing"
    assert len(said(data=facts_of(34, 10_000))) == 1
    (more,) = said(data=facts_of(34, 10_000) | {"most_granted": 600e6})
    assert "; up to 600 MB were granted to a chunk, more than its share; " in more
    assert "granted" not in said(data=facts_of(34, 10_000) | {"most_granted": 450e6})[0]
    assert said(free={"limited": False}) == []


def test_merged_results_say_what_the_run_says_that_needed_most() -> None:
    one, other = (analysis().run({name: {"x": np.zeros(50)}}, engine="inline", progress=False) for name in "ab")
    one.memory, other.memory = {"a": facts_of(10, 100)}, {"a": facts_of(20, 50), "b": facts_of(1, 1)}
    for merged in (wr.merge(one, other), wr.merge(other, one)):
        assert merged.memory == {"a": facts_of(10, 100), "b": facts_of(1, 1)}


def test_what_was_learned_is_put_together() -> None:
    policy = Allocation(nodes=[NodeSize(1e9, 2)])
    for number in range(40):
        task = rows_task(number, Rows(0, 0, 100 * number + 100))._replace(twin=True)
        policy.grant(task, NO_TRIES)
        used = int(50e6 + 1000 * task.size)
        policy.seen(task, Measurement(wall=1.0, peak_memory=used, baseline=int(50e6)))
    account = Account(Plan(id=0, category="data"))
    facts = learned_memory(policy, {"data": account})["data"]
    assert (facts["tasks"], facts["rows"], facts["too_much"], facts["became"]) == (40, 4_000, 0, "")
    assert facts["fixed"] == pytest.approx(50e6, rel=0.01)
    assert facts["per_row"] == pytest.approx(1000, rel=0.05)
    assert facts["most"] == 54e6
    assert facts["suggested_mem_mb"] == 54
    assert facts["granted_byte_s"] == 40 * 500e6
    assert facts["most_granted"] == facts["allowed"] == 500e6
    assert facts["pin"] == {"chunk": 4_000, "task_memory": 54 * 10**6}
    json.dumps(facts)
