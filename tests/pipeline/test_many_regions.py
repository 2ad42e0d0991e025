"""Many regions: what their selections hold is bounded, and the answer is that of a few."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import small_analysis
import windrow as wr
from comparing import bits
from searching import examples
from windrow.blocks import chunk as chunks


def run(**options: Any) -> wr.Result:
    source = wr.data.open(small_analysis.arrays(), metadata=small_analysis.METADATA)
    return small_analysis.analysis().run(source, progress=False, **options)


@settings(max_examples=examples(10))
@given(
    st.sampled_from([{}, {"chunk": 90}, {"nminus1": True}, {"on_error": "skip"}]),
    st.sampled_from(["inline", "threads"]),
)
def test_packed_selections_give_the_same_bits(options: dict[str, Any], engine: str) -> None:
    expected = run(engine="inline", **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "MOST_POSITIONS", 0)
        found = run(engine=engine, workers=2, **options)
    assert bits(found.outputs) == bits(expected.outputs)
    for region in expected.cutflow:
        for dataset in expected.cutflow.datasets:
            assert found.cutflow[region, dataset].written == expected.cutflow[region, dataset].written


def many(regions: int) -> wr.Pipeline:
    analysis = wr.Pipeline("many")
    analysis.weight(lambda w: w, name="gen")
    names = [f"c{number}" for number in range(20)]
    for name in names:
        analysis.cut(lambda x: x < 0.8, name=name, reads={"x": f"x_{name}"})
    rng = np.random.default_rng(3)
    for number in range(regions):
        sides = ["!" if rng.random() < 0.3 else "" for _ in range(3)]
        cuts = rng.choice(names, 3, replace=False)
        analysis.region(f"r{number}", *[side + cut for side, cut in zip(sides, cuts, strict=True)])
    analysis.output(lambda w, weight: float(np.sum(w * weight)), name="total")
    return analysis


def rows(count: int) -> dict[str, Any]:
    rng = np.random.default_rng(4)
    return {"w": rng.normal(1, 0.1, count), **{f"x_c{number}": rng.random(count) for number in range(20)}}


def held_bytes(run: chunks.ChunkRun) -> int:
    selections = {id(one): one for one in run.selections}.values()
    return sum(part.nbytes for one in selections for part in (one._index, one._bits) if part is not None)


def test_selections_hold_a_bit_for_each_row_and_region(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[int] = []
    finish = chunks.ChunkRun.finish

    def noted(run: chunks.ChunkRun) -> Any:
        held.append(held_bytes(run))
        found = finish(run)
        held.append(held_bytes(run))
        return found

    monkeypatch.setattr(chunks.ChunkRun, "finish", noted)
    monkeypatch.setattr(chunks, "MOST_POSITIONS", 100 * 4000 - 1)
    many(100).run(rows(4000), engine="inline", progress=False)
    assert len(held) == 2
    assert max(held) <= 100 * 4000 / 8
    held.clear()
    monkeypatch.setattr(chunks, "MOST_POSITIONS", 100 * 4000)
    many(100).run(rows(4000), engine="inline", progress=False)
    assert max(held) > 4 * 100 * 4000 / 8  # with room for them, positions stay


PROGRAM = """
import sys
sys.path.insert(0, {tests!r})
from test_many_regions import many, rows
result = many(2000).run(rows(300_000), engine="inline", progress=False)
assert result.complete
# Not ru_maxrss, in which a process that was just begun has what the one before it had.
print(next(int(line.split()[1]) // 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the peak so")
def test_two_thousand_regions_stay_under_a_gigabyte() -> None:
    paths = [path for path in sys.path if path.endswith("tests")]
    program = f"import sys; sys.path[:0] = {paths!r}\n" + PROGRAM.format(tests=__file__.rpartition("/")[0])
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=False)
    assert found.returncode == 0, found.stderr
    assert int(found.stdout) < 700
