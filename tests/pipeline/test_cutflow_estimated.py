"""Written-order cutflows estimated from sampled rows: intervals cover the truth, lines say what they are."""

from __future__ import annotations

import math
import pickle
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import windrow as wr
from searching import examples, few_by_day
from windrow.core.records import FAILED, NOT_ASKED, PASSED, UNDEFINED, Window
from windrow.pipeline.cutflow.estimate import Estimate, Stratified, estimate, patterns, student
from windrow.pipeline.cutflow.written import WrittenRegion

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

NAMES = "abcdefgh"


@dataclass(frozen=True)
class World:
    """Rows in units, with cuts that are correlated with each other and alike in neighbouring rows."""

    pass_rates: tuple[float, ...] = (0.7, 0.3, 0.5, 0.2)
    order: tuple[int, ...] = (3, 2, 1, 0)  #: as the cuts run
    units: int = 40
    unit_rows: int = 300
    windows: int = 8
    window_rows: int = 60
    alike: float = 0.0  #: share of the variance that neighbours have in common
    together: float = 0.5  #: share of the variance that cuts have in common
    drift: float = 0.0  #: by how much what cuts look at rises from the first row to the last
    shares: tuple[float, float] | None = None  #: of units looked at, in the first quarter and later

    def looked_at(self, rng: np.random.Generator) -> list[tuple[int, float]]:
        """Choose units, and say what share of units was chosen where each of them is."""
        if not self.shares:
            chosen = rng.choice(self.units, self.windows, replace=False)
            return [(int(unit), 1.0) for unit in chosen]
        early, late = self.shares
        share = [early if 4 * unit < self.units else late for unit in range(self.units)]
        return [(unit, share[unit]) for unit in range(self.units) if rng.random() < share[unit]]

    def rows(self, rng: np.random.Generator) -> NDArray[np.bool_]:
        """One row of answers for each row."""
        count, cuts = self.units * self.unit_rows, len(self.pass_rates)
        own = rng.normal(size=(count, cuts)) * math.sqrt(1 - self.together)
        own += rng.normal(size=(count, 1)) * math.sqrt(self.together)
        stretch = self.unit_rows // 10
        near = np.repeat(rng.normal(size=(count // stretch, cuts)), stretch, axis=0)
        value = math.sqrt(1 - self.alike) * own + math.sqrt(self.alike) * near
        value += self.drift * np.linspace(-0.5, 0.5, count)[:, np.newaxis]
        return value > np.array([NormalDist().inv_cdf(1 - rate) for rate in self.pass_rates])


def first_failing(passes: NDArray[np.bool_]) -> NDArray[np.int64]:
    found = np.full(len(passes), passes.shape[1])
    for cut in reversed(range(passes.shape[1])):
        found[~passes[:, cut]] = cut
    return found


def window(passes: NDArray[np.bool_], weights: NDArray[np.float64], order: tuple[str, ...], start: int = 0) -> Window:
    """Every row is a pattern of its own: nothing is to be summed up wrongly here."""
    rows = np.ones(len(passes), dtype=np.int64)
    ones = np.ones((len(passes), 2))
    sums = np.stack([ones, np.stack([weights, weights**2], axis=1)], axis=1)
    verdicts = np.where(passes, PASSED, FAILED).astype(np.int8)
    cuts = tuple(NAMES[: passes.shape[1]])
    return Window(0, start, start + len(rows), start, len(rows), cuts, verdicts, rows, ("w",), sums, order)


def experiment(world: World, seed: int) -> tuple[list[Estimate], list[int], list[float], NDArray[np.int64]]:
    """Run a world in its order, look at some windows, and estimate the written lines; and the truth."""
    rng = np.random.default_rng(seed)
    passes = world.rows(rng)
    weights = rng.gamma(2.0, 0.5, len(passes))
    ran, cuts = list(world.order), passes.shape[1]
    rejecting, first = first_failing(passes[:, ran]), first_failing(passes)
    order = tuple(NAMES[cut] for cut in ran)
    seen = []
    for unit, share in world.looked_at(rng):
        start = unit * world.unit_rows + rng.integers(world.unit_rows - world.window_rows + 1)
        here = slice(start, start + world.window_rows)
        taken = window(passes[here], weights[here], order, int(start))
        seen.append(replace(taken, unit_rows=world.unit_rows, share=share))
    part = Stratified(
        order=order,
        cuts=tuple(ran),
        rejected=tuple(int((rejecting == place).sum()) for place in range(cuts)),
        passed=int((rejecting == cuts).sum()),
        sums={cuts - 1: (float(weights[first == cuts].sum()), 0.0)},
    )
    looked = patterns(seen, dict.fromkeys(NAMES[:cuts], False), ("w",))
    found = estimate([part], looked, [1] * (cuts + 1))
    assert found is not None
    left = [first > line for line in range(-1, cuts)]
    truth = [int(mask.sum()) for mask in left]
    return found, truth, [float(weights[mask].sum()) for mask in left], first


#: How often of 200 times a 95 % interval covers the truth, with a probability of 99 %.
LEAST, MOST = 181, 198


@pytest.mark.parametrize(
    "world",
    few_by_day(
        [
            World(),
            World(windows=30, alike=0.3, together=0.2),
            World(windows=12, order=(1, 0, 3, 2), alike=0.05),
            World(windows=20, pass_rates=(0.99, 0.98, 0.05, 0.02)),
            World(windows=8, alike=0.2),
            World(units=120, drift=2.0, shares=(0.6, 0.2)),
            World(units=120, drift=-1.0, shares=(1.0, 0.15), alike=0.1),
        ]
    ),
    ids=["few windows", "alike", "pairs", "rare", "few and alike", "drift", "more looks early"],
)
def test_intervals_cover_the_truth_as_often_as_they_say(world: World) -> None:
    covered = np.zeros(len(world.pass_rates) + 1)
    errors: list[list[float]] = []
    off: list[list[float]] = []
    for seed in range(200):
        found, truth, _, _ = experiment(world, seed)
        covered += [line.low <= true <= line.high for line, true in zip(found, truth, strict=True)]
        errors.append([line.error for line in found])
        off.append([line.passed - true for line, true in zip(found, truth, strict=True)])
    unsure = np.mean(errors, axis=0) > 0
    assert unsure.sum() >= 2
    assert (covered[~unsure] == 200).all(), "what is certain is right"
    assert ((covered[unsure] >= LEAST) & (covered[unsure] <= MOST)).all(), covered
    # No bias beyond what 200 experiments can tell, and errors of the right size.
    spread = np.std(off, axis=0)[unsure]
    assert (np.abs(np.mean(off, axis=0)[unsure]) < 4 * spread / math.sqrt(200)).all()
    assert (np.mean(errors, axis=0)[unsure] / spread).tolist() == pytest.approx([1.0] * int(unsure.sum()), abs=0.25)


def test_weighted_lines_have_errors_of_the_right_size() -> None:
    world = World(windows=20, alike=0.1)
    pulls = []
    for seed in range(60):
        found, _, truth, _ = experiment(world, seed)
        pulls.append([
            (line.sumw - true) / line.sumw_error if line.sumw_error else 0.0
            for line, true in zip(found, truth, strict=True)
        ])  # fmt: skip
        assert found[-1].sumw == truth[-1]
        assert found[-1].sumw_error == 0
    spread = np.std(pulls, axis=0)[1:-1]
    assert ((spread > 0.75) & (spread < 1.35)).all(), spread


@settings(max_examples=examples(60))
@given(st.data())
def test_lines_stay_within_what_is_possible(data: st.DataObject) -> None:
    """Whatever was seen: lines fall from all rows to the last one, and intervals hold what is certain."""
    cuts = data.draw(st.integers(1, 4))
    world = World(
        pass_rates=tuple(data.draw(st.sampled_from([0.02, 0.3, 0.9, 0.999])) for _ in range(cuts)),
        order=tuple(data.draw(st.permutations(range(cuts)))),
        units=10,
        unit_rows=100,
        windows=data.draw(st.integers(2, 4)),
        window_rows=data.draw(st.integers(1, 20)),
        alike=data.draw(st.sampled_from([0.0, 0.5])),
    )
    found, truth, _, _ = experiment(world, data.draw(st.integers(0, 1000)))
    values = [line.passed for line in found]
    assert values == sorted(values, reverse=True)
    assert values[0] == 1000
    assert values[-1] == truth[-1]
    for line, true in zip(found, truth, strict=True):
        assert truth[-1] <= line.low <= line.passed + 1e-9
        assert line.passed - 1e-9 <= line.high <= 1000
        if line.error == 0:
            assert line.passed == pytest.approx(true)
    same = sorted(world.order) == list(world.order)
    if same:
        assert all(line.error == 0 for line in found)


def test_looking_at_every_row_leaves_no_error() -> None:
    world = World(units=10, windows=10, window_rows=1000, unit_rows=1000)
    found, truth, sums, _ = experiment(world, 1)
    for line, true, weight in zip(found, truth, sums, strict=True):
        assert line.passed == pytest.approx(true)
        assert (line.error, line.low, line.high) == pytest.approx((0, true, true), abs=1e-6)
        assert line.sumw == pytest.approx(weight)


def part(order: Sequence[int], rejected: Sequence[int], passed: int, **more: Any) -> Stratified:
    names = tuple(NAMES[cut] for cut in order)
    return Stratified(order=names, cuts=tuple(order), rejected=tuple(rejected), passed=passed, sums={}, **more)


def test_without_windows_only_what_is_certain_is_told() -> None:
    # Both cuts ran, in another order: what the second written one rejected may fail the first too.
    assert estimate([part([1, 0], [5, 3], 2)], None, [0, 0, 0]) is None
    # It rejected nothing: every rejected row fails the first one.
    found = estimate([part([1, 0], [0, 3], 2)], None, [0, 0, 0])
    assert found is not None
    assert [line.passed for line in found] == [5, 2, 2]
    assert all(line.exact for line in found)
    # A cut that is not there rejects nothing either.
    absent = estimate([part([1, 0], [5, 0], 2, absent=frozenset([0]))], None, [0, 0, 0])
    assert absent is not None
    assert [(line.passed, line.exact) for line in absent] == [(7, True), (7, True), (2, True)]


def test_a_stratum_that_nobody_saw_is_almost_anything() -> None:
    nothing = window(np.ones((10, 2), dtype=bool), np.ones(10), ("b", "a"))
    looked = patterns([nothing, nothing], {"a": False, "b": False}, ())
    found = estimate([part([1, 0], [100, 0], 50)], looked, [0, 0, 0])
    assert found is not None
    assert [found[1].low, found[1].high] == pytest.approx([50, 150], abs=3)
    assert not found[1].exact


def test_inverted_undefined_and_unasked_answers() -> None:
    """``!b`` keeps rows that b fails; undefined rows are on neither side; an unasked cut tells nothing."""
    verdicts = np.array([
        [PASSED, FAILED], [PASSED, PASSED], [PASSED, UNDEFINED], [FAILED, NOT_ASKED],
    ], dtype=np.int8)  # fmt: skip
    rows = np.array([10, 20, 30, 40])
    seen = Window(0, 0, 100, 0, 100, ("a", "b"), verdicts, rows, order=("b", "a"))
    looked = patterns([seen, seen], {"a": False, "b": True}, ())
    assert looked.first.tolist() == 2 * [2, 1, 1, 0]
    # In the order b, a nobody knows where the last pattern is rejected, so it informs no stratum.
    found = estimate([part([1, 0], [70, 30], 10)], looked, [0, 0, 0])
    assert found is not None
    assert found[1].passed == 80  # all 50 seen rows of the stratum b pass a
    assert found[1].sampled == 100


def test_an_order_without_windows_borrows_those_of_others() -> None:
    rng = np.random.default_rng(3)
    answers = [rng.random((50, 2)) < 0.5 for _ in range(6)]
    seen = [window(mine, np.ones(50), ("a", "b")) for mine in answers]
    looked = patterns(seen, {"a": False, "b": False}, ())
    written = part([0, 1], [5000, 2500], 2500)
    found = estimate([written, part([1, 0], [500, 250], 250)], looked, [0, 0, 0])
    assert found is not None
    rejected = np.concatenate(answers)
    rejected = rejected[~rejected[:, 1]]
    assert found[1].passed == pytest.approx(5000 + 250 + 500 * rejected[:, 0].mean())
    assert found[1].error > 0
    # Where much ran in an order of which nothing was seen, nobody knows whether it was like the rest.
    assert estimate([written, part([1, 0], [900, 250], 250)], looked, [0, 0, 0]) is None
    one = patterns([window(answers[0], np.ones(50), ("b", "a"))], {"a": False, "b": False}, ())
    assert estimate([part([1, 0], [500, 250], 250)], one, [0, 0, 0]) is None


def test_students_quantiles() -> None:
    # From printed tables of Student's t, two-sided 95 %.
    for freedom, value in ((1, 12.706), (3, 3.182), (9, 2.262), (12, 2.179), (30, 2.042)):
        assert student(freedom) == pytest.approx(value, rel=2e-3)
    assert student(1e9) == pytest.approx(1.95996, abs=1e-4)
    assert student(4.5) == pytest.approx(2.66, abs=0.03)


# --- whole runs -----------------------------------------------------------------------------------


@pytest.fixture
def sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second unit is looked at, whatever the plan says."""

    from windrow.blocks import probe

    chosen = probe.places

    def places(chunk: Any, units: Any, seed: int, identity: str, _share: float, _rows: int) -> list[Any]:
        return chosen(chunk, units, seed, identity, 0.5, 60)

    monkeypatch.setattr(probe, "places", places)


def arrays(seed: int, rows: int = 30_000) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    common = rng.random(rows)
    columns = {name: 0.5 * rng.random(rows) + 0.5 * common for name in "xyz"}
    return {**columns, "w": rng.gamma(2.0, 0.5, rows), "v": rng.gamma(2.0, 0.5, rows)}


def analysis() -> wr.Pipeline:
    made = wr.Pipeline("moved")
    made.weight(lambda w: w, name="gen")
    made.cut(lambda x: x > 0.4, name="a")
    made.weight(lambda v: v, name="sf")
    made.cut(lambda y: y > 0.5, name="b")
    made.cut(lambda z: z > 0.6, name="c")
    made.region("SR", "a", "b", "c")
    made.region("CR", "a", "!b")
    made.output(lambda x: len(x), name="n")
    return made


MOVED = ["gen", "c", "b", "a", "sf"]


def run(data: Any, order: Any = MOVED, **options: Any) -> wr.Result:
    source = wr.data.open(data, grid=500)
    return analysis().run(source, order=order, engine="inline", progress=False, **options)


@pytest.mark.usefixtures("sampled")
@pytest.mark.parametrize("seed", range(4))
def test_a_run_in_another_order_estimates_the_written_one(seed: int) -> None:
    data = arrays(seed)
    found = run(data, seed=seed).cutflow
    passes = [data["x"] > 0.4, data["y"] > 0.5, data["z"] > 0.6]
    for region, masks in (("SR", passes), ("CR", [passes[0], ~passes[1]])):
        table = found[region]
        lines = table.written
        assert lines is not None
        left, above = np.ones(len(data["x"]), dtype=bool), data["w"]
        assert lines[0].passed == len(left)
        assert lines[0].sumw == pytest.approx(above.sum(), rel=1e-12)
        for line, mask in zip(lines[1:], masks, strict=True):
            left &= mask
            # Four standard errors: this is no test of the error, but of which rows are counted.
            assert abs(line.passed - left.sum()) <= 4 * line.passed_error + 1e-9
            assert abs(line.sumw - above[left].sum()) <= 4 * line.sumw_sampling + 1e-6
            above = data["w"] * data["v"]
        assert [line.kind for line in lines] == ["exact", *["estimated"] * (len(masks) - 1), "exact"]
        assert lines[-1].passed == table.passed == left.sum()
        assert table.selected.sumw == lines[-1].sumw == pytest.approx(above[left].sum(), rel=1e-12)


@pytest.mark.usefixtures("sampled")
def test_windows_count_once_whatever_the_chunks(tmp_path: Path) -> None:
    data = arrays(1)
    tables = [run(data, chunk=chunk).cutflow["SR"] for chunk in (500, 1500, 30_000)]
    resumed = run(data, rundir=tmp_path / "r", chunk=1500).cutflow["SR"]
    again = run(data, rundir=tmp_path / "r", resume=True).cutflow["SR"]
    loaded = wr.load(tmp_path / "r").cutflow["SR"]
    for table in (*tables[1:], resumed, again, loaded):
        assert len(table.members[0].windows) == len(tables[0].members[0].windows) > 10
        assert table.written == tables[0].written


@pytest.mark.usefixtures("sampled")
def test_datasets_add_up_with_errors_in_quadrature(tmp_path: Path) -> None:
    result = run({"one": arrays(1), "two": arrays(2)}, cutflow={"two": "exact"}, rundir=tmp_path)
    one, two = (result.cutflow["SR", name].written for name in ("one", "two"))
    both = result.cutflow["SR"].written
    assert one is not None
    assert two is not None
    assert both is not None
    assert all(line.kind == "exact" for line in two)
    for left, right, line in zip(one, two, both, strict=True):
        assert line.passed == left.passed + right.passed
        assert line.passed_error == pytest.approx(left.passed_error)
        assert line.kind == left.kind
    double = result.cutflow["SR", "one"] + run({"three": arrays(3)}).cutflow["SR", "three"]
    assert double.written is not None
    other = run({"three": arrays(3)}).cutflow["SR"].written
    assert other is not None
    for left, right, line in zip(one, other, double.written, strict=True):
        assert line.passed_error == pytest.approx(math.hypot(left.passed_error, right.passed_error))
    grouped = result.group({"all": ["one", "two"]}).cutflow["SR", "all"].written
    assert grouped == both
    scaled = result.scale(3.0).cutflow["SR", "one"].written
    assert scaled is not None
    for line, was in zip(scaled, one, strict=True):
        assert line.passed_error == was.passed_error
        assert line.sumw == pytest.approx(3 * was.sumw)
        assert line.sumw_sampling == pytest.approx(3 * was.sumw_sampling)
    assert wr.load(tmp_path).cutflow["SR"].written == both


@pytest.mark.usefixtures("sampled")
def test_every_line_says_what_it_is() -> None:
    table = run(arrays(5)).cutflow["SR"]
    assert table.kind == "estimated, written order"
    assert table.why == ""
    text = str(table).splitlines()
    assert text[0] == "SR (data): estimated, written order"
    assert text[2].endswith("exact")
    assert "~" in text[3]
    assert "+-" in text[3]
    assert "estimated from" in text[3]
    assert text[5].endswith("exact")
    assert text[6] == "  the order that ran, exact:"
    rows = table.to_csv().splitlines()
    assert [row.split(",")[2:4] for row in rows[1:]] == [
        ["written", "exact"], *[["written", "estimated"]] * 2, ["written", "exact"],
        *[["executed", "exact"]] * 4,
    ]  # fmt: skip
    assert table.to_latex().count(r"\sim") == 2
    html = table._repr_html_()
    assert "estimated from" in html
    assert "the order that ran" in html
    plain = table.as_dict()
    assert [line["kind"] for line in plain["written"]] == [
        "exact", "estimated", "estimated", "exact",
    ]  # fmt: skip
    low, high = plain["written"][1]["interval"]
    assert low < plain["written"][1]["passed"] < high
    # Counts for others' programs stay those that are exact.
    assert table.nevcutflow == [line.passed for line in table.executed]


def test_without_windows_a_moved_table_says_what_to_do() -> None:
    table = run(arrays(5)).cutflow["SR"]
    assert table.written is None
    assert "no rows were shown to all cuts" in table.why
    assert table.kind == "exact, executed order"
    # The last line is exact all the same, with the weights that the written one has.
    exact = run(arrays(5), order="written").cutflow["SR"]
    assert exact.written is not None
    assert table.selected.sumw == exact.written[-1].sumw
    assert table.selected.sumw2 == exact.written[-1].sumw2
    assert table.executed[0] == exact.executed[0]


@pytest.mark.usefixtures("sampled")
def test_a_table_is_estimated_once_whoever_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    cutflow = run(arrays(6)).cutflow
    table, same = cutflow["SR", "data"], cutflow["SR", "data"]
    estimates = WrittenRegion.estimates
    found: list[Any] = []

    def counted(self: Any, members: Any) -> Any:
        found.append(members)
        return estimates(self, members)

    monkeypatch.setattr(WrittenRegion, "estimates", counted)
    words = str(table)
    assert (table.kind, table.why, table.is_exact) == ("estimated, written order", "", False)
    assert table.lines is table.written
    assert len(found) == 1
    assert str(same) == words
    # What is made of it is another table, with lines of its own.
    scaled, added = table.scale(2.0), table + table
    assert scaled.lines[1].sumw == 2.0 * table.lines[1].sumw
    assert added.lines[0].passed == 2 * table.lines[0].passed
    assert pickle.loads(pickle.dumps(table)).written == table.written
    assert table == replace(table)
