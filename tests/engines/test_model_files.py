"""Models as files: those that come with the package, and what is said about files that are wrong."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from windrow.engines.simulated.model import AffineCosts
from windrow.engines.simulated.model_files import MODELS, load_devices, load_model
from windrow.errors import CorruptFileError, MissingFileError, SpecError
from windrow.run.simulate import simulate

if TYPE_CHECKING:
    from pathlib import Path

NAMES = sorted(path.stem for path in MODELS.glob("*.toml") if path.stem != "devices")

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
    model = load_model("events")
    assert len(model.inputs) == 219
    costs = model.costs["signal"]
    assert isinstance(costs, AffineCosts)
    assert 219 * 232_877 * costs.per_row_s / 3600 == pytest.approx(30, rel=0.01)  # hours
    assert 219 * 232_877 * costs.read_per_row == pytest.approx(203e9, rel=0.01)
    rows = [one.rows for one in model.inputs]
    assert sum(rows) == pytest.approx(51e6, rel=0.15)
    assert max(rows) > 4 * min(rows)


@pytest.mark.parametrize("name", NAMES)
def test_models_run_and_are_the_same_for_everybody(name: str) -> None:
    model = load_model(name)
    assert model == load_model(name)
    assert model.inputs != load_model(name, seed=1).inputs
    done = simulate(model, 64)
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
