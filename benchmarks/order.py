"""Orders of steps: what each policy's order costs, counted, against the best and the worst there are.

    python benchmarks/order.py [--quick] [--counted] [--json FILE]

With ``--counted`` no whole runs are timed, which takes most of the time and decides no claim.

Counted cost is evaluations times what one costs: each step's rows and calls, and the columns that are read, with unit
costs that are measured once per case and are the same for every policy. Evaluations follow from the verdicts of all
cuts on all rows, and are compared with what real runs report. Published policies are given the verdicts of all rows and
the measured costs, and their order stands for the whole run; ``adaptive`` is a real run that starts knowing nothing,
and is counted chunk by chunk with the order it had there. The oracle and the worst legal order come from a dynamic
programme over sets of cuts of its own. Times of whole runs are told too; nothing is claimed about them, because they
hold all else a run does.
"""

from __future__ import annotations

import importlib
import itertools
import json
import sys
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import harness
import numpy as np
import order_cases
from order_counting import (
    WORKERS,
    Counter,
    all_windows,
    extreme_order,
    situation_of,
    truth_of,
    unit_costs,
)

from windrow.core.state import MOSTLY_WAITS
from windrow.watch.readlog import read_log

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from order_cases import Case
    from order_counting import Truth

    Order = tuple[str, ...]

#: Policies whose order is fixed before the run; each is a module of ``windrow.order``.
PUBLISHED = ("hepframe", "path", "rank", "agreedy", "heft")
#: Competitors of the timed runs; the best of them is chosen on some runs and judged by others.
TIMED = ("written", "hepframe", "rank", "adaptive")

#: Targets of the project.
OF_ORACLE, OF_WRITTEN, PLANNING = 1.05, 1.03, 0.01
#: How close to the best order the written one is where it counts as best.
IS_BEST = 1.01

#: Processor time that a case takes in the written order, in full and quick runs. Below 2 s adaptive stays out.
FULL_S, QUICK_S = 6.0, 2.8


# -- runs ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RealRun:
    """What a real run executed, unit by unit."""

    result: Any
    orders: tuple[Order, ...]  #: by unit: the one it ran in
    settled: NDArray[np.bool_]  #: by unit: whether a policy had decided before it was given out
    cpu_s: float
    looked: dict[str, int]  #: windows, and rows in them, of which all cuts were asked
    planning_s: float


def run(case: Case, data: Any, order: Any) -> Any:
    """Run a fresh pipeline; a chunk is a unit, as a case has few rows and should have many chunks."""
    return case.build().run(
        data, order=order, chunk=case.unit, workers=WORKERS, engine="threads", progress=False
    )


def real_run(case: Case, truth: Truth, order: Any) -> RealRun:
    """Run a case and find out from the log which rows ran in which order."""
    begin = time.process_time()
    result = run(case, case.data, order)
    cpu = time.process_time() - begin
    assert result.complete
    log = read_log(result.log.splitlines())
    told = next(iter(result.ordering.values()), {})
    orders = {0: result.order[0][1]}
    for line in log.rare:
        if line["event"] == "Planned":  # with the order where it is another one
            last = orders[max(orders)]
            orders[line["plan"]] = tuple(line.get("order", last))
    decided = _first_decision(result.log, told.get("checkpoints", ()))
    by_unit: list[Order] = [orders[0]] * truth.units
    settled = np.zeros(truth.units, np.bool_)
    tasks = log.tasks
    first = truth.starts[tasks.input]
    for start, stop, plan, gone in zip(
        first + tasks.start, first + tasks.stop, tasks.plan, tasks.discarded, strict=True
    ):
        if not gone:
            for unit in range(*np.searchsorted(truth.borders, (start, stop)).tolist()):
                by_unit[unit] = orders[int(plan)]
                settled[unit] = plan >= decided
    return RealRun(
        result,
        tuple(by_unit),
        settled,
        cpu,
        told.get("looked", {"windows": 0, "rows": 0}),
        float(told.get("planning_s", 0.0)),
    )


def _first_decision(log: str, checkpoints: Sequence[Mapping[str, Any]]) -> float:
    """The number of the first plan that was made from evidence; infinite if none was.

    Checkpoints know how many seconds of work had been done. Before the first one, plans only say how much to look.
    """
    spent = 0.0
    for line in map(json.loads, log.splitlines()):
        if line["event"] == "finished":
            wall, cpu = line["wall"], line["cpu"]
            spent += cpu if cpu > MOSTLY_WAITS * wall else wall  # as accounts of work do it
        elif line["event"] == "Planned" and checkpoints:
            late = checkpoints[0]["spent_s"] - spent
            if late < 1e-3:  # numbers of the log are rounded
                return float(line["plan"])
    return np.inf


def check_counts(counter: Counter, run: RealRun) -> None:
    """Evaluations that were counted must be those that ran."""
    expected = dict.fromkeys(counter.truth.written, 0)
    for order in set(run.orders):
        mine = np.array([one == order for one in run.orders])
        rows = counter.rows(order)[:, mine].sum(axis=1)
        names = [name for name in order if name in counter.truth.kinds]
        for name, count in zip(names, rows.tolist(), strict=True):
            expected[name] += count
    ran = {name: run.result.steps[name].rows_in for name in expected}
    if ran != expected:
        wrong = {name: (expected[name], ran[name]) for name in ran if ran[name] != expected[name]}
        raise AssertionError(f"counted and executed evaluations differ: {wrong}")


# -- one case --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Score:
    """What was found out about one case."""

    case: Case
    counter: Counter
    orders: dict[str, Order]  #: by policy
    run: RealRun  #: the adaptive one

    def seconds(self, policy: str) -> NDArray[np.float64]:
        """What the steps of each unit cost under a policy."""
        if policy != "adaptive":
            return self.counter.seconds(self.orders[policy])
        result = np.zeros(self.counter.truth.units)
        for order in set(self.run.orders):
            mine = np.array([one == order for one in self.run.orders])
            result[mine] = self.counter.seconds(order)[mine]
        return result

    def total(self, policy: str) -> float:
        """What a policy costs in all: for adaptive with what it takes to look and to decide."""
        steps = float(self.seconds(policy).sum())
        return steps + self.looking_s + self.run.planning_s if policy == "adaptive" else steps

    @property
    def looking_s(self) -> float:
        """What it costs to ask all cuts about the rows of all windows, counted like everything else."""
        costs, looked = self.counter.costs, self.run.looked
        parts = len(costs.row_s)
        fixed = sum(sum(part.values()) for part in costs.fixed_s) / parts
        per_row = sum(sum(part.values()) for part in costs.row_s) / parts
        return looked["windows"] * fixed + looked["rows"] * per_row

    @property
    def settled(self) -> NDArray[np.bool_]:
        """Units that were given out after the first checkpoint."""
        return self.run.settled if self.run.settled.any() else ~self.run.settled

    @property
    def of_oracle(self) -> float:
        """Adaptive over oracle, after the first checkpoint."""
        mine = self.settled
        return float(self.seconds("adaptive")[mine].sum() / self.seconds("oracle")[mine].sum())

    @property
    def of_best_static(self) -> tuple[str, float]:
        """Adaptive over the best of the other policies, which is chosen on one half of the units and judged on the other."""
        even = np.arange(self.counter.truth.units) % 2 == 0
        names = ("written", *PUBLISHED)
        best = min(names, key=lambda name: self.seconds(name)[even].sum())
        ratio = self.seconds("adaptive")[~even].sum() / self.seconds(best)[~even].sum()
        return best, float(ratio)


def scored(case: Case, rounds: int) -> Score:
    """Find the orders of all policies for a case, and run it."""
    truth = truth_of(case)
    costs = unit_costs(case, truth, rounds)
    counter = Counter(truth, costs)
    orders = {"written": truth.written, "worst legal": extreme_order(truth, costs, worst=True)}
    given = situation_of(truth, costs, all_windows(truth))
    for name in PUBLISHED:
        orders[name] = importlib.import_module(f"windrow.order.{name}").order(given)
    for name in ("written", "hepframe"):
        check_counts(counter, real_run(case, truth, list(orders[name])))
    run = real_run(case, truth, "adaptive")
    check_counts(counter, run)
    # The programme spreads survivors evenly over units; should another order be cheaper, that one is the oracle.
    candidates = [extreme_order(truth, costs), *orders.values(), *set(run.orders)]
    orders["oracle"] = min(candidates, key=counter.total)
    return Score(case, counter, orders, run)


def show(report: harness.Report, score: Score) -> None:
    """A table of one case."""
    oracle = score.total("oracle")
    evaluations = {
        name: int(score.counter.rows(order).sum()) for name, order in score.orders.items()
    }
    evaluations["adaptive"] = sum(
        score.run.result.steps[name].rows_in for name in score.counter.truth.written
    )
    names = ("oracle", "adaptive", "written", *PUBLISHED, "worst legal")
    report.table(
        (score.case.name, "evaluations", "counted s", "of the oracle", "of written"),
        [
            (
                name,
                f"{evaluations[name]:,}",
                f"{score.total(name):.3f}",
                f"{score.total(name) / oracle:.3f}",
                f"{score.total(name) / score.total('written'):.3f}",
            )
            for name in names
        ],
    )
    best, ratio = score.of_best_static
    run = score.run
    when = f"{run.settled.sum()} units after the first checkpoint"
    if not run.settled.any():
        when = "nothing was decided in time, so all units count,"
    report.note(
        f"{score.counter.truth.rows:,} rows, {score.counter.truth.units} units. adaptive: {len(set(run.orders))} orders, "
        f"{when} at {score.of_oracle:.3f} of the oracle; looking cost {score.looking_s:.3f} s, deciding "
        f"{run.planning_s:.3f} s ({run.planning_s / run.cpu_s:.2%} of the processor time); {ratio:.3f} of {best}, the best "
        "fixed order on the other half of the units."
    )


# -- the stream that changes -----------------------------------------------------------------------


def show_swapping(report: harness.Report, score: Score) -> float:
    """Adaptive over the best of all orders that stay the same."""
    truth, counter = score.counter.truth, score.counter
    every = [order for order in itertools.permutations(truth.written) if _legal(truth, order)]
    best = min(every, key=counter.total)
    halves = sum(
        min(counter.seconds(order)[truth.part == half].sum() for order in every)
        for half in range(len(score.case.parts))
    )
    ratio = score.total("adaptive") / counter.total(best)
    report.note(
        f"{score.case.name}: the best of all {len(every)} fixed orders costs {counter.total(best):.3f} s, the best order of "
        f"each half {halves:.3f} s, adaptive {score.total('adaptive'):.3f} s ({ratio:.3f} of the best fixed order)."
    )
    return ratio


def _legal(truth: Truth, order: Order) -> bool:
    place = {name: number for number, name in enumerate(order)}
    return all(place[need] < place[name] for name in order for need in truth.needs[name])


# -- times -----------------------------------------------------------------------------------------


def timed(case: Case, rounds: int) -> harness.Rounds:
    """Whole runs, in turn, each with a fresh pipeline."""
    data = case.data

    def competitor(order: str) -> Any:
        def work() -> float:
            return float(run(case, data, order).seconds)

        return harness.calling(work)

    return harness.interleave({name: competitor(name) for name in TIMED}, rounds, extra=0)


def timed_row(name: str, found: harness.Rounds) -> tuple[str, ...]:
    """Ratios of times; the best of all others is chosen on every other round and judged by the rest."""
    others = [one for one in TIMED if one != "adaptive"]
    best = min(others, key=lambda one: np.median(found.walls(one)[::2]))
    against = float(np.median(found.walls("adaptive")[1::2]) / np.median(found.walls(best)[1::2]))
    cells = [name, *(f"{found.median(one):.2f}" for one in TIMED)]
    for base in ("written", "hepframe"):
        ratio, (low, high) = found.ratio("adaptive", base)
        cells.append(f"{ratio:.2f} [{low:.2f}, {high:.2f}]")
    return (*cells, f"{against:.2f} ({best})", found.quality)


# -- all of it -------------------------------------------------------------------------------------


def cases(*, quick: bool) -> Iterator[Case]:
    """All cases but the stream; a quick run has one of them, and smaller."""
    seconds = QUICK_S if quick else FULL_S
    entries = order_cases.seeds()
    for entry in entries[2:3] if quick else entries:
        yield order_cases.sized(partial(order_cases.seeded, entry), seconds)
    for variant in () if quick else ("as", "sci", "scinp"):
        yield order_cases.sized(partial(order_cases.tth, variant), seconds)
    for regions in () if quick else (1, 4):
        yield order_cases.nanoaod(regions, harness.DATA)


def in_best_order(scores: list[Score], *, quick: bool) -> Iterator[Case]:
    """Random pipelines again, written as the oracle has them: what is to be gained there is nothing."""
    seconds = QUICK_S if quick else FULL_S
    for entry, score in list(zip(order_cases.seeds()[2 * quick :], scores, strict=False))[::4]:
        make = partial(order_cases.seeded, entry, order=score.orders["oracle"])
        yield order_cases.sized(make, seconds)


def main() -> None:
    counted = "--counted" in sys.argv
    sys.argv = [argument for argument in sys.argv if argument != "--counted"]
    options = harness.options("Orders of steps, by what they cost.")
    report = harness.Report("Order", harness.machine())
    quick = options.quick
    scores, rows = [], []
    for case in cases(quick=quick):
        score = scored(case, 3)
        show(report, score)
        scores.append(score)
        if not counted:
            rows.append(timed_row(case.name, timed(case, 3)))
    for case in in_best_order(scores, quick=quick):
        score = scored(case, 3)
        show(report, score)
        scores.append(score)
    stream = scored(order_cases.sized(order_cases.swapping, QUICK_S if quick else FULL_S), 3)
    show(report, stream)
    swapped = show_swapping(report, stream)
    report.table(
        (
            "seconds of whole runs",
            *TIMED,
            "adaptive / written",
            "adaptive / hepframe",
            "adaptive / best of the others",
            "rounds",
        ),
        rows,
    )
    report.note(
        "Medians, ratios of them with paired 95 % intervals. The best of the others is chosen on the runs of even rounds "
        "and compared on those of odd ones. All policies decide within the run here, from what they see of it."
    )
    claims(report, scores, stream, swapped)
    report.finish(options.json)


def claims(report: harness.Report, scores: list[Score], stream: Score, swapped: float) -> None:
    for score in scores:
        report.claim(
            f"{score.case.name}: adaptive over oracle after the first checkpoint",
            score.of_oracle,
            OF_ORACLE,
            better="lower",
        )
    best = {
        score.case.name: score.total("adaptive") / score.total("written")
        for score in scores
        if score.total("written") <= IS_BEST * score.total("oracle")
    }
    report.claim(
        "adaptive over written where written is best",
        max(best.values(), default=None),
        OF_WRITTEN,
        better="lower",
        reason=None if best else "the written order is best in no case",
    )
    report.claim(
        "swapping stream: adaptive over the best of all fixed orders", swapped, 1.0, better="lower"
    )
    shares = [score.run.planning_s / score.run.cpu_s for score in (*scores, stream)]
    report.claim("planning, share of processor time", max(shares), PLANNING, better="lower")


if __name__ == "__main__":
    main()
