"""Models as files: those that come with the package, and what is said about files that are wrong."""

from __future__ import annotations

import math
import re
import statistics
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from windrow.core.policies import Options, Policies
from windrow.core.records import Needs, Rows
from windrow.core.rows import RowOptions
from windrow.engines.simulated.model import AffineCosts, Fleet, SimulatedInput, SimulatedNode
from windrow.engines.simulated.model_files import MODELS, load_devices, load_model
from windrow.errors import CorruptFileError, MissingFileError, SpecError
from windrow.run.simulate import simulate
from windrow.shape.fixed import Fixed

if TYPE_CHECKING:
    from pathlib import Path

NAMES = sorted(path.stem for path in MODELS.glob("*.toml") if path.stem != "devices")

#: As in the paper on events.
K = 1024

SMALL = """
cores = 4
[device.tape]
streams = [1, 2]
rates = ["10 MB/s", "12 MB/s"]
latency = "3 s"
[[workload]]
category = "a"
inputs = 3
rows = 100
unit = 30
per_row = "2 ms"
read_per_row = "1 kB"
device = "tape"
memory_fixed = "1 GB"
[[workload]]
category = "b"
inputs = 2
rows = 50
rows_sigma = 0.5
unit = 10
fixed = "1 min"
[fleet]
joins = ["0 s", "5 s"]
losses = [["20 s", 1]]
life = "1 h"
[driver]
event = "20 us"
"""


def written(place: Path, text: str) -> Path:
    file = place / "model.toml"
    file.write_text(text)
    return file


def test_what_comes_with_the_package_is_there_and_says_where_numbers_are_from() -> None:
    assert NAMES == ["events", "files", "hepframe_24core", "tiles"]
    assert set(load_devices()) == {"local-disk", "node-ssd", "object-store", "shared-disk"}
    for path in MODELS.glob("*.toml"):
        comments = re.findall(r"#.*", path.read_text())
        assert len(comments) > 5
        assert any("assumed" in comment for comment in comments)


def test_the_events_are_those_of_the_paper() -> None:
    rows = [one.rows for seed in range(10) for one in load_model("events", seed=seed).inputs]
    assert len(rows) == 10 * 219
    assert sum(rows) == pytest.approx(10 * 51e6, rel=0.02)
    assert max(rows) <= K << 9
    assert max(rows) > 4 * min(rows)


def signal() -> AffineCosts:
    costs = load_model("events").costs["signal"]
    assert isinstance(costs, AffineCosts)
    return costs


@pytest.mark.parametrize(("cores", "fixed", "per_row"), [(1, 21.2, 2.53e-3), (4, 19.2, 1.68e-3)])
@pytest.mark.parametrize("chunk", [1, 128, 512])
def test_tasks_of_events_take_what_figure_6_says(cores: int, fixed: float, per_row: float, chunk: int) -> None:
    """On nodes of four cores tasks take, on average, what the two lines say for their rows, within 3 %."""
    model = load_model("events")
    inputs = []
    for one in model.inputs[: 6 if chunk == 1 else None]:  # each in equal parts, as few as there can be
        parts = math.ceil(one.rows / (chunk * K))
        inputs.append(SimulatedInput.even(one.category, one.rows, math.ceil(one.rows / parts)))
    costs = {"signal": replace(signal(), cold_s=0.0)}
    model = replace(model, inputs=tuple(inputs), costs=costs, fleet=Fleet(), nodes=(SimulatedNode(cores=4),))
    shape, each = Policies(shape=Fixed(1)), RowOptions(needs=Needs.of({"cores": cores}))
    done = simulate(model, 40, policies=shape, rows=each, options=Options(restart=True))
    tasks = sum(len(one.borders) - 1 for one in inputs)
    rows = sum(one.rows for one in inputs)
    assert done.tally.tasks == tasks
    assert done.tally.compute_s / tasks == pytest.approx(fixed + per_row * rows / tasks, rel=0.03)


def test_memory_of_events_is_that_of_the_paper() -> None:
    """At most 2.1 GB for 128 K events, 8 GB for 512 K; a usual file takes 1.5 GB, 21 of them some 4 GB at most."""
    costs = signal()
    assert costs.memory_fixed + costs.memory_per_row * 128 * K == pytest.approx(2.1e9, rel=0.01)
    most = [costs.demand(Rows(number, 0, 512 * K), 0, 1).memory for number in range(219)]
    assert max(most) < 8e9
    tops, usual = [], []
    for seed in range(40):
        files = load_model("events", seed=seed).inputs[:21]
        memory = [costs.demand(Rows(number, 0, one.rows), 0, seed).memory for number, one in enumerate(files)]
        tops.append(max(memory))
        usual += memory
        assert min(memory) > 128e6
    assert statistics.median(usual) == pytest.approx(1.5e9, rel=0.15)
    assert statistics.median(tops) == pytest.approx(4e9, rel=0.15)


@pytest.mark.parametrize("name", NAMES)
def test_models_run_and_are_the_same_for_everybody(name: str) -> None:
    model = load_model(name)
    assert model == load_model(name)
    assert model.inputs != load_model(name, seed=1).inputs
    done = simulate(model, 64, chunk=128 * K if name == "events" else None)  # else 50,000 tasks
    assert done.outcome.status == "complete"
    assert 0 < done.utilisation <= 1


def test_another_device_can_be_put_in(tmp_path: Path) -> None:
    file = written(tmp_path, SMALL)
    model = load_model(file, device="node-ssd")
    assert {costs.device for costs in model.costs.values()} == {"node-ssd"}


def test_a_file_is_read_as_it_is_written(tmp_path: Path) -> None:
    model = load_model(written(tmp_path, SMALL))
    assert [one.borders for one in model.inputs[:3]] == [(0, 30, 60, 90, 100)] * 3
    assert model.costs["a"] == AffineCosts(per_row_s=0.002, read_per_row=1000, device="tape", memory_fixed=10**9)
    assert model.costs["b"] == AffineCosts(fixed_s=60.0)
    assert model.devices["tape"].rates == (10e6, 12e6)
    assert model.devices["tape"].latency_s == 3.0
    assert (model.cores, model.name) == (4, "model")
    assert model.fleet.losses == ((20.0, 1),)
    assert model.fleet.joins == (0.0, 5.0)
    assert model.fleet.life_s == 3600.0
    assert model.driver.event_s == 20e-6


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("per_row =", "per_rwo =", "did you mean 'per_row'"),
        ('"2 ms"', '"2 parsecs"', "workload 1, per_row: a time is written"),
        ("rows = 100", 'rows = "many"', "rows: a whole number"),
        ("rows = 100\n", "", "rows is missing"),
        ("rows_sigma = 0.5", "rows_sigma = 0.5\nrows_most = 1", "workload 2: inputs of rows=50 are hardly ever under"),
        ("rows_sigma = 0.5", 'memory_sigma = "1 GB"', "memory_sigma: a number is expected"),
        ('category = "b"', 'category = "a"', "'a' is there twice"),
        ('device = "tape"', 'device = "disc"', "no device of the model"),
        ("streams = [1, 2]", "streams = [2, 1]", "device tape: streams of a device grow"),
        ("streams = [1, 2]", "streams = 2", "a list is expected"),
        ("streams = [1, 2]\n", "", "device tape"),
        ('[["20 s", 1]]', '["20 s"]', "a time and a worker"),
        ("cores = 4", "cores = 0", "at least one core"),
        ("cores = 4", "sockets = 4", "nobody knows 'sockets'"),
        ('life = "1 h"', 'life = "0 s"', "mean life"),
        ("[fleet]", "[[fleet]]", "a table is expected"),
    ],
)
def test_what_is_wrong_is_named(old: str, new: str, words: str, tmp_path: Path) -> None:
    assert old in SMALL
    with pytest.raises(SpecError, match=re.escape(words)):
        load_model(written(tmp_path, SMALL.replace(old, new, 1)))


def test_files_that_are_not_there_or_not_toml(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="did you mean 'events'"):
        load_model("event")
    with pytest.raises(MissingFileError, match="no model file"):
        load_model(tmp_path / "none.toml")
    with pytest.raises(CorruptFileError, match="not TOML"):
        load_model(written(tmp_path, "rows = = 3"))
    with pytest.raises(SpecError, match="nothing to simulate"):
        load_model(written(tmp_path, "cores = 3"))
    wrong: Any = written(tmp_path, 'device = "x"\n[[workload]]\n')
    with pytest.raises(SpecError, match="devices are written"):
        load_model(wrong)
