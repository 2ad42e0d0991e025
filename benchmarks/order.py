"""Orders of steps: what each policy's order costs, counted, against the best and the worst there are.

    python benchmarks/order.py [--quick] [--counted] [--whole] [--json FILE]

With ``--counted`` no whole runs are timed, which takes most of the time; with ``--whole`` nothing else is done. What a whole
run takes, from the first row to the last, over the same run in the best order is claimed too: see ``order_whole.py``.

Counted cost is evaluations times what one costs: each step's rows and calls, and the columns that are read, with unit
costs that are measured once per case and are the same for every policy. Evaluations follow from the verdicts of all
cuts on all rows, bytes from the units that columns are read of; both are compared with what real runs report. Published
policies are given the verdicts of all rows and the measured costs, and their order stands for the whole run; ``adaptive``
is a real run that starts knowing nothing, and is counted chunk by chunk with the order it had there. What it takes to look
at rows and to decide is counted for it; only the claim about the order that it came to leaves both out, and the same with
both stands beside it. How much of the processor time a run really spent on looking is a claim of its own. The oracle and
the worst legal order come from a dynamic programme over sets of cuts of its own. Times of runs of the counted cases are told
too, of less data; nothing is claimed about them.
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
import order_whole
from order_counting import WORKERS, Counter, all_windows, extreme_order, situation_of, truth_of, unit_costs

from windrow.core.accounts import MOSTLY_WAITS
from windrow.watch.readlog import read_log

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray
    from order_cases import Case
    from order_counting import Truth

    Order = tuple[str, ...]

#: Policies whose order is fixed before the run; each is a module of ``windrow.order.published``.
PUBLISHED = ("hepframe", "path", "rank", "agreedy", "heft")
#: Competitors of the timed runs; the best of them is chosen on some runs and judged by others.
TIMED = ("written", "hepframe", "rank", "adaptive")

#: Targets of the project.
OF_ORACLE, OF_WRITTEN, PLANNING, LOOKING = 1.05, 1.03, 0.01, 0.02
#: How close to the best order the written one is where it counts as best.
IS_BEST = 1.01

#: Processor time that a case takes in the written order: what is counted in full runs, what is timed in them, and both in
#: quick ones. Below 2 s adaptive stays out.
FULL_S, TIMED_S, QUICK_S = 8.0, 4.0, 2.8
#: Rounds of timed runs: the best of the others is chosen on three and judged by two.
ROUNDS = 5


# -- runs ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RealRun:
    """What a real run executed, unit by unit."""

    result: Any
    orders: tuple[Order, ...]  #: by unit: the one it ran in
    settled: NDArray[np.bool_]  #: by unit: whether a policy had decided before it was given out
    cpu_s: float
    looked: Mapping[str, Any]  #: windows, and rows in them, of which all cuts were asked; seconds of it
    planning_s: float


def run(case: Case, data: Any, order: Any) -> Any:
    """Run a fresh pipeline; a chunk is a unit, as a case has few rows and should have many chunks."""
    return case.build().run(data, order=order, chunk=case.unit, workers=WORKERS, engine="threads", progress=False)


def real_run(case: Case, truth: Truth, order: Any) -> RealRun:
    """Run a case and find out from the log which rows ran in which order."""
    begin = time.process_time()
    result = run(case, case.data, order)
    cpu = time.process_time() - begin
    assert result.complete
    log = read_log(result.log.splitlines())
    told: Mapping[str, Any] = next(iter(result.ordering.values()), {})
    orders = {0: result.order[0][1]}
    for line in log.rare:
        if line["event"] == "Planned":  # with the order where it is another one
            last = orders[max(orders)]
            orders[line["plan"]] = tuple(line.get("order", last))
    decided = _first_decision(result.log, told.get("checkpoints", ()))
    by_unit: list[Order] = [orders[0]] * truth.units
    settled = np.zeros(truth.units, np.bool_)
    tasks = log.attempts
    first = truth.starts[tasks.input]
    for start, stop, plan, gone in zip(first + tasks.start, first + tasks.stop, tasks.plan, ~tasks.done, strict=True):
        if not gone:
            for unit in range(*np.searchsorted(truth.borders, (start, stop)).tolist()):
                by_unit[unit] = orders[int(plan)]
                settled[unit] = plan >= decided
    return RealRun(
        result,
        tuple(by_unit),
        settled,
        cpu,
        told.get("looked", {"windows": 0, "rows": 0, "seconds": 0.0}),
        float(told.get("planning_s", 0.0)),
    )


def _first_decision(log: str, checkpoints: Sequence[Mapping[str, Any]]) -> float:
    """The number of the first plan that was made from evidence; infinite if none was.

    Checkpoints know how many seconds of work had been done. Before the first one, plans only say how much to look.
    """
    spent = 0.0
    for line in map(json.loads, log.splitlines()):
        if line["event"] == "attempt" and line["how"] == "done":
            wall, cpu = line["wall"] / 1e6, line["cpu"] / 1e6
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


def check_bytes(counter: Counter, run: RealRun) -> None:
    """Bytes that were counted must be those that were read; a look at a unit may have read all the rest of it."""
    (order,) = set(run.orders)
    counted, read = float(counter.bytes(order).sum()), run.result.bytes_read
    unit = float(counter.truth.unit_rows.mean()) * sum(counter.costs.column_bytes.values())
    most = counted + run.looked["windows"] * unit
    # Columns are counted by their mean size per row, units have sizes of their own.
    if not 0.98 * counted <= read <= 1.02 * most:
        raise AssertionError(f"counted {counted:,.0f} bytes, but {read:,} were read")


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
        for order, mine in self.by_order():
            result[mine] = self.counter.seconds(order)[mine]
        return result

    def total(self, policy: str) -> float:
        """What a policy costs in all: for adaptive with what it takes to look and to decide."""
        steps = float(self.seconds(policy).sum())
        return steps + self.looking_s + self.run.planning_s if policy == "adaptive" else steps

    @property
    def looking_s(self) -> float:
        """What it costs to show the rows of all windows to all steps, counted like everything else.

        Columns are read for a whole unit; those that the order in force reads of it anyway cost nothing more.
        """
        costs, looked = self.counter.costs, self.run.looked
        parts = len(costs.row_s)
        fixed = sum(sum(part.values()) for part in costs.fixed_s) / parts
        per_row = sum(sum(part.values()) for part in costs.row_s) / parts
        columns = sum(self.unread[name] * seconds for name, seconds in costs.column_s.items())
        unit_rows = float(self.counter.truth.unit_rows.mean())
        return float(looked["windows"] * (fixed + columns * unit_rows) + looked["rows"] * per_row)

    @property
    def looking_bytes(self) -> float:
        """What was read only to look at it."""
        stored = self.counter.costs.column_bytes
        per_row = sum(self.unread[name] * size for name, size in stored.items())
        return float(self.run.looked["windows"] * self.counter.truth.unit_rows.mean() * per_row)

    @property
    def unread(self) -> dict[str, float]:
        """By column: the share of units of which the steps of the adaptive run did not read it."""
        read = dict.fromkeys(self.counter.costs.column_s, 0)
        for order, mine in self.by_order():
            for column, units in self.counter.was_read(order).items():
                read[column] += int(units[mine].sum())
        return {column: 1 - count / self.counter.truth.units for column, count in read.items()}

    def by_order(self) -> Iterator[tuple[Order, NDArray[np.bool_]]]:
        """The orders of the adaptive run, each with the units that ran in it."""
        for order in set(self.run.orders):
            yield order, np.array([one == order for one in self.run.orders])

    def evaluations(self, policy: str) -> int:
        """Rows that steps were called with in all: for adaptive with those that were only looked at."""
        if policy != "adaptive":
            return int(self.counter.rows(self.orders[policy]).sum())
        ran = sum(self.run.result.steps[name].rows_in for name in self.counter.truth.written)
        return int(ran + self.run.looked["rows"] * len(self.counter.truth.written))

    def bytes(self, policy: str) -> float:
        """What is read, as it is stored: for adaptive with what was only looked at."""
        if policy != "adaptive":
            return float(self.counter.bytes(self.orders[policy]).sum())
        ran = sum(self.counter.bytes(order)[mine].sum() for order, mine in self.by_order())
        return float(ran) + self.looking_bytes

    @property
    def settled(self) -> NDArray[np.bool_]:
        """Units that were given out after the first checkpoint."""
        return self.run.settled if self.run.settled.any() else ~self.run.settled

    @property
    def of_oracle(self) -> float:
        """Adaptive over oracle, after the first checkpoint: the order itself."""
        mine = self.settled
        return float(self.seconds("adaptive")[mine].sum() / self.seconds("oracle")[mine].sum())

    @property
    def of_oracle_with_all(self) -> float:
        """The same with looking and deciding, of which these units have their share."""
        mine = self.settled
        more = (self.looking_s + self.run.planning_s) * float(mine.mean())
        steps = float(self.seconds("adaptive")[mine].sum())
        return (steps + more) / float(self.seconds("oracle")[mine].sum())

    @property
    def looking_share(self) -> float:
        """Looking, of the processor time of the run, as it was measured there."""
        return float(self.run.looked["seconds"]) / self.run.cpu_s

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
        orders[name] = importlib.import_module(f"windrow.order.published.{name}").order(given)
    for name in ("written", "hepframe"):
        fixed = real_run(case, truth, list(orders[name]))
        check_counts(counter, fixed)
        if case.from_files:
            check_bytes(counter, fixed)
    run = real_run(case, truth, "adaptive")
    check_counts(counter, run)
    # The programme spreads survivors evenly over units; should another order be cheaper, that one is the oracle.
    candidates = [extreme_order(truth, costs), *orders.values(), *set(run.orders)]
    orders["oracle"] = min(candidates, key=counter.total)
    return Score(case, counter, orders, run)


def show(report: harness.Report, score: Score) -> None:
    """A table of one case."""
    oracle = score.total("oracle")
    names = ("oracle", "adaptive", "written", *PUBLISHED, "worst legal")
    report.table(
        (score.case.name, "evaluations", "MB read", "counted s", "of the oracle", "of written"),
        [
            (
                name,
                f"{score.evaluations(name):,}",
                f"{score.bytes(name) / 1e6:.1f}",
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
        f"{when} at {score.of_oracle:.3f} of the oracle, {score.of_oracle_with_all:.3f} with looking and deciding. Looking at "
        f"{run.looked['rows']:,} rows in {run.looked['windows']:,} places is counted as {score.looking_s:.3f} s; it took "
        f"{run.looked['seconds']:.3f} s ({score.looking_share:.2%} of the processor time), deciding {run.planning_s:.3f} s "
        f"({run.planning_s / run.cpu_s:.2%}). {ratio:.3f} of {best}, the best fixed order on the other half of the units."
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


def timed(case: Case) -> harness.Rounds:
    """Whole runs, in turn, each with a fresh pipeline."""
    data = case.data

    def competitor(order: str) -> Any:
        def work() -> float:
            return float(run(case, data, order).seconds)

        return harness.calling(work)

    return harness.interleave({name: competitor(name) for name in TIMED}, ROUNDS, extra=0)


def timed_row(name: str, found: harness.Rounds) -> tuple[str, ...]:
    """Ratios of times."""
    best, against, _ = found.best_of([one for one in TIMED if one != "adaptive"], "adaptive")
    cells = [name, *(f"{found.median(one):.2f}" for one in TIMED)]
    for base in ("written", "hepframe"):
        ratio, (low, high) = found.ratio("adaptive", base)
        cells.append(f"{ratio:.2f} [{low:.2f}, {high:.2f}]")
    return (*cells, f"{against:.2f} ({best})", found.quality)


# -- all of it -------------------------------------------------------------------------------------


def cases(*, quick: bool) -> Iterator[tuple[Case, Callable[[], Case]]]:
    """All cases but the stream, each with what makes the smaller one to be timed; a quick run has one of them.

    The NanoAOD analysis with four regions is counted on 2 M events.
    """
    entries = order_cases.seeds()
    makers: list[Callable[[int], Case]] = [partial(order_cases.seeded, entry) for entry in entries]
    makers = makers[2:3] if quick else makers
    for variant in () if quick else ("as", "sci", "scinp"):
        makers.append(partial(order_cases.tth, variant))
    counted_s, timed_s = (QUICK_S, QUICK_S) if quick else (FULL_S, TIMED_S)
    for make in makers:
        yield order_cases.sized(make, counted_s), partial(order_cases.sized, make, timed_s)
    few, many = order_cases.NANOAOD_ROWS, order_cases.NANOAOD_MOST
    for regions, rows in () if quick else ((1, few), (4, many)):
        smaller = partial(order_cases.nanoaod, regions, harness.DATA)
        yield order_cases.nanoaod(regions, harness.DATA, rows), smaller


def in_best_order(scores: list[Score], *, quick: bool) -> Iterator[Case]:
    """Random pipelines again, written as the oracle has them: what is to be gained there is nothing."""
    seconds = QUICK_S if quick else FULL_S
    for entry, score in list(zip(order_cases.seeds()[2 * quick :], scores, strict=False))[::4]:
        make = partial(order_cases.seeded, entry, order=score.orders["oracle"])
        yield order_cases.sized(make, seconds)


def main() -> None:
    counted, whole = ("--counted" in sys.argv, "--whole" in sys.argv)
    sys.argv = [argument for argument in sys.argv if argument not in ("--counted", "--whole")]
    options = harness.options("Orders of steps, by what they cost.")
    report = harness.Report("Order", harness.machine())
    quick = options.quick
    if not whole:
        count(report, counted=counted, quick=quick)
    if not counted:
        order_whole.claim_whole_runs(report, quick=quick)
    report.finish(options.json)


def count(report: harness.Report, *, counted: bool, quick: bool) -> None:
    """Everything but whole runs."""
    scores, rows = [], []
    for case, to_be_timed in cases(quick=quick):
        score = scored(case, 3)
        show(report, score)
        scores.append(score)
        if not counted:
            smaller = to_be_timed()
            rows.append(timed_row(smaller.name, timed(smaller)))
    for case in in_best_order(scores, quick=quick):
        score = scored(case, 3)
        show(report, score)
        scores.append(score)
    stream = scored(order_cases.sized(order_cases.swapping, QUICK_S if quick else FULL_S), 3)
    show(report, stream)
    swapped = show_swapping(report, stream)
    show_all(report, [*scores, stream])
    if not counted:
        show_times(report, rows)
    claims(report, scores, stream, swapped)


def show_all(report: harness.Report, scores: list[Score]) -> None:
    """The orders that adaptive came to, and what it took to come to them."""
    report.table(
        (
            "after the first checkpoint",
            "adaptive / oracle",
            "with looking and deciding",
            "looking, of processor time",
            "deciding",
        ),
        [
            (
                score.case.name,
                f"{score.of_oracle:.3f}",
                f"{score.of_oracle_with_all:.3f}",
                f"{score.looking_share:.2%}",
                f"{score.run.planning_s / score.run.cpu_s:.2%}",
            )
            for score in scores
        ],
    )


def show_times(report: harness.Report, rows: list[tuple[str, ...]]) -> None:
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
        f"Medians of {ROUNDS} rounds, ratios of them with paired 95 % intervals. The best of the others is chosen on every "
        "second round and compared on the others. All policies decide within the run here, from what they see of it."
    )


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
    report.claim("swapping stream: adaptive over the best of all fixed orders", swapped, 1.0, better="lower")
    shares = [score.run.planning_s / score.run.cpu_s for score in (*scores, stream)]
    report.claim("planning, share of processor time", max(shares), PLANNING, better="lower")
    shares = [score.looking_share for score in (*scores, stream)]
    report.claim("looking, share of processor time", max(shares), LOOKING, better="lower")


if __name__ == "__main__":
    main()
