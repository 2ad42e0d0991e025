"""What a run gives: outputs by name, region, variation and dataset, the cutflow, the ledger, and what was decided."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from windrow import __version__
from windrow.blocks.program import NOMINAL
from windrow.errors import IncompleteError, alternatives
from windrow.pipeline.cutflow.nminus1 import Count, NMinusOneTables
from windrow.pipeline.cutflow.regions import UnknownKey, add_by_key
from windrow.pipeline.ordering.summary import order_lines
from windrow.pipeline.results.grid import Grid
from windrow.units import format_bytes, format_count, format_seconds
from windrow.watch.report.plain_data import strict

if TYPE_CHECKING:
    from windrow.pipeline.cutflow.table import Cutflow
    from windrow.pipeline.results.ledger import Ledger


#: What a summary says as it is.
_SUMMED_UP = (
    "engine", "workers", "seed", "exit_code", "complete", "interrupted", "seconds", "tail_s", "rows_per_second", "bytes_read",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class StepSummary:
    """What one step cost in a whole run."""

    name: str
    kind: str
    calls: int
    rows_in: int
    rows_out: int
    seconds: float
    fixed_s: float  #: per call
    per_row_s: float
    bytes_read: int  #: first read for this step
    same_as: str = ""  #: the step whose answer it took over

    def __add__(self, other: StepSummary) -> StepSummary:
        calls, rows = self.calls + other.calls, self.rows_in + other.rows_in
        return replace(
            self,
            calls=calls,
            rows_in=rows,
            rows_out=self.rows_out + other.rows_out,
            seconds=self.seconds + other.seconds,
            fixed_s=(self.fixed_s * self.calls + other.fixed_s * other.calls) / max(calls, 1),
            per_row_s=(self.per_row_s * self.rows_in + other.per_row_s * other.rows_in) / max(rows, 1),
            bytes_read=self.bytes_read + other.bytes_read,
        )


@dataclass(slots=True, kw_only=True, repr=False)
class Result(Mapping[str, Any]):
    """The outputs of a run, and everything that is known about how it went.

    ``result["spectrum", "SR", "pileup_up", "ttbar"]``: keys run name, region, variation (nominal if left out), dataset.
    A region or dataset may be left out where there is one only; otherwise a mapping by region or dataset comes back.
    """

    name: str
    outputs: dict[str, dict[tuple[str, str | None, str], Any]]  #: dataset -> (name, region, variation)
    output_names: tuple[str, ...]
    cutflow: Cutflow
    ledger: Ledger
    steps: dict[str, StepSummary]
    order: tuple[tuple[str, tuple[str, ...], str], ...]  #: (dataset, order, why), as plans were issued
    decisions: tuple[str, ...]
    notes: tuple[str, ...]
    guards: tuple[tuple[str, str], ...]
    reads: list[tuple[str, str, int, int]] = field(repr=False)  #: (file, column, start, stop)
    bytes_read: int
    seconds: float
    engine: str
    workers: int
    seed: int
    interrupted: bool = False
    reasons_absent: dict[str, str] = field(default_factory=dict)
    datasets: dict[str, dict[str, Any]] = field(default_factory=dict)  #: metadata of the fileset
    identity: tuple[str, ...] = ()  #: columns that identify a row; empty: file and number
    regions: dict[str, dict[str, bool]] = field(default_factory=dict)  #: region -> cut -> inverted
    source: Any = field(default=None, repr=False)  #: what was read; None where it cannot be kept
    environment: dict[str, Any] = field(default_factory=dict, repr=False)
    log: str | None = field(default=None, repr=False)  #: lines of the event log
    rundir: str | None = None
    #: dataset -> how its order was decided: checkpoints, steps, what looking cost and what was saved
    ordering: dict[str, Any] = field(default_factory=dict, repr=False)
    account: dict[str, float] = field(default_factory=dict, repr=False)  #: seconds of all workers by what they went to
    tail_s: float = 0.0  #: at the end, in which some workers had nothing left to do
    #: dataset -> of chunks of which was predicted what they take: how many, seconds predicted, used, and by which they differ
    predicted: dict[str, dict[str, float]] = field(default_factory=dict, repr=False)
    #: dataset -> memory of its chunks: what was learned, what running out cost, what to ask for; where it was measured
    memory: dict[str, dict[str, Any]] = field(default_factory=dict, repr=False)
    kept: Any = field(default=None, repr=False)  #: which rows each region has; None where not kept
    saved: tuple[dict[str, Any], ...] = ()  #: files written by ``analysis.save``
    #: output -> how to add two of its values, where the user said so
    merges: dict[str, Any] = field(default_factory=dict, repr=False)
    #: dataset -> all rows, and what they weigh before any cut; where rows are saved or N-1 is asked for
    initial: dict[str, Count] = field(default_factory=dict, repr=False)
    nminus1: NMinusOneTables = field(default_factory=lambda: NMinusOneTables({}))
    #: outputs that there were, and that could not be kept on disk or read back: as ``outputs``, but why
    not_kept: dict[str, dict[tuple[str, str | None, str], str]] = field(default_factory=dict)
    #: dataset or group -> dataset -> what it was scaled by; without an entry it is as it was counted
    scaled: dict[str, dict[str, float]] = field(default_factory=dict)
    #: step -> digest of what it is, and its parameters in words: only results of the same steps add up
    fingerprints: dict[str, str] = field(default_factory=dict)
    parameters: dict[str, dict[str, str]] = field(default_factory=dict)

    def __repr__(self) -> str:
        state = "complete" if self.complete else "incomplete"
        return f"<Result of {self.name!r}: {state}, {self.ledger.summary()}, outputs {', '.join(self.output_names)}>"

    @property
    def complete(self) -> bool:
        """Whether every row was processed."""
        return self.ledger.complete and not self.interrupted

    @property
    def exit_code(self) -> int:
        """0 if complete, 2 if rows failed or are missing."""
        return 0 if self.complete else 2

    @property
    def rows_per_second(self) -> float:
        """How fast it went."""
        return self.ledger.done / self.seconds if self.seconds > 0 else 0.0

    def require_complete(self) -> Result:
        """Return the result, or raise if rows are missing from it."""
        if not self.complete:
            raise IncompleteError(f"the result of {self.name!r} is incomplete: {self.ledger.summary()}")
        return self

    # -- mapping -----------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Any:
        keys = key if isinstance(key, tuple) else (key,)
        name, rest = keys[0], list(keys[1:])
        if name not in self.output_names:
            raise UnknownKey(f"no output {name!r}{alternatives('outputs', name, self.output_names)}")
        found = {
            (region, variation, dataset): (dataset, (output, region, variation))
            for outputs in (self.outputs, self.not_kept)
            for dataset, values in outputs.items()
            for output, region, variation in values
            if output == name
        }
        if not found:
            why = self.reasons_absent.get(name, "no rows were processed for it")
            raise UnknownKey(f"output {name!r} has no value: {why}")
        return self._values(self._by_region(name, found, rest))

    def _values(self, chosen: Any, others: str = "") -> Any:
        """Look up what was chosen; raises if a value was lost, also one of several: the rest would look like all there is."""
        if isinstance(chosen, dict):
            others = "; ask for the others by region and dataset"
            return {key: self._values(inner, others) for key, inner in chosen.items()}
        dataset, key = chosen
        lost = self.not_kept.get(dataset, {})
        if key in lost:
            raise UnknownKey(f"output {key[0]!r} has no value here: {lost[key]}{others}")
        return self.outputs[dataset][key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.output_names)

    def __len__(self) -> int:
        return len(self.output_names)

    def _by_region(self, name: str, found: dict[Any, Any], rest: list[Any]) -> Any:
        regions = list(dict.fromkeys(region for region, _, _ in found))
        if rest and rest[0] in regions:
            return self._by_variation(name, found, rest[0], rest[1:])
        if len(regions) == 1:
            return self._by_variation(name, found, regions[0], rest)
        if rest:
            there = alternatives("regions", rest[0], [str(region) for region in regions])
            raise UnknownKey(f"output {name!r} has no region {rest[0]!r}{there}")
        return {region: self._by_variation(name, found, region, []) for region in regions}

    def _by_variation(self, name: str, found: dict[Any, Any], region: Any, rest: list[Any]) -> Any:
        here = {(v, d): value for (r, v, d), value in found.items() if r == region}
        variations = list(dict.fromkeys(variation for variation, _ in here))
        variation = NOMINAL
        if rest and rest[0] in variations:
            variation, rest = rest[0], rest[1:]
        # Where a weight does not apply it is 1, so its variations are the nominal.
        by_dataset = {d: value for (v, d), value in here.items() if v == NOMINAL}
        by_dataset.update({d: value for (v, d), value in here.items() if v == variation})
        if not rest:
            if len(self.outputs) == 1 and len(by_dataset) == 1:
                return next(iter(by_dataset.values()))
            return by_dataset
        if len(rest) == 1 and rest[0] in by_dataset:
            return by_dataset[rest[0]]
        raise UnknownKey(
            f"output {name!r} in region {region!r} has neither a variation nor a dataset {rest[-1]!r} "
            f"(variations: {', '.join(variations)}; datasets: {', '.join(by_dataset)})"
        )

    # -- keeping it --------------------------------------------------------------------------

    def group(self, groups: Mapping[str, Any]) -> Result:
        """Add up datasets: ``result.group({"top": ["tt*", "single_top"]})``.

        Keys are the new names, values names or patterns of datasets. Datasets in no group stay as they are; one in two
        groups is an error. Outputs, cutflows and N-1 tables are added up; this result is not changed.
        """
        from windrow.pipeline.results.regroup import group

        return group(self, groups)

    def scale(self, factor: Any) -> Result:
        """Scale histograms and weighted sums, by dataset.

        ``factor`` is a number, a mapping from datasets to numbers, or a function of a dataset's metadata and outputs:
        ``result.scale(lambda meta, out: meta["xsec"] * LUMI / out["sumw"]["sumw"])``. Variances scale with the square.
        Counts of rows and outputs that are no histograms stay as they are; a note names those.
        """
        from windrow.pipeline.results.regroup import scale

        return scale(self, factor)

    def save(self, path: Any) -> list[str]:
        """Write the outputs to a file of the kind its name says; return what the format could not hold.

        ``.root``: histograms as TH1, TH2, TH3 (1-D profiles as TProfile) called ``region/output/dataset`` and
        ``region/output/dataset_variationUp`` or ``Down``, as datacards want them, everything else as JSON in
        ``windrow/outputs``. ``.coffea``: ``{dataset: {output: {region: {variation: value}}}}``, which ``coffea.util.load``
        reads. ``.json``: the same nesting under ``"outputs"``, histograms in the UHI schema; NaN and infinity become null.
        ``.npz``: ``dataset/output/region/variation`` for numbers and arrays; for histograms with ``/values``,
        ``/variances``, ``/edges_0`` ... after it, and ``/values_with_flow`` where there are flow bins. Outputs over all rows
        have the region "inclusive".
        """
        from windrow.pipeline.results.export import save

        return save(self, path)

    def compare(self, other: Result, *, rows: int = 20) -> Any:
        """Say what differs from another run: outputs, cutflows, and which rows changed side."""
        from windrow.pipeline.results.compare import compare

        return compare(self, other, rows=rows)

    @property
    def lumis(self) -> dict[str, list[list[int]]]:
        """The run and luminosity section ranges that were processed, as certification files have them."""
        from windrow.pipeline.results.region_rows import lumis

        return lumis(self)

    def freeze(self, path: Any) -> str:
        """Write down the order each dataset ended with; ``run(order=path)`` repeats it."""
        from windrow.pipeline.ordering.order_file import freeze

        return freeze(self, path)

    def report(self, path: Any = None) -> Any:
        """Write one HTML page about the run, by default ``report.html`` in the run directory; returns its path."""
        from windrow.pipeline.results.report_data import write_report

        return write_report(self, path)

    def _repr_html_(self) -> str:
        from windrow.pipeline.results.html import result_html

        return result_html(self)

    # -- words -------------------------------------------------------------------------------

    def explain(self) -> str:
        """Say what was decided and why, what the steps cost and what was left out."""
        lines = [f"{self.name}: {self.ledger.summary()}"]
        lines.append(
            f"{format_count(self.ledger.done)} rows in {format_seconds(self.seconds)} "
            f"({format_count(self.rows_per_second)} rows/s), {format_bytes(self.bytes_read)} read"
        )
        if whole := sum(self.account.values()):
            shown = {name: self.account[name] for name in ("steps", "outputs", "reading", "trials, checks and counts")}
            shown["all else"] = whole - sum(shown.values())  # the report has each
            lines.append("time: " + ", ".join(f"{name} {format_seconds(spent)}" for name, spent in shown.items()))
        if self.workers > 1 and self.tail_s and self.seconds:
            tail = f"{format_seconds(self.tail_s)} ({100 * self.tail_s / self.seconds:.0f} %)"
            lines.append(f"tail: some workers had nothing to do for the last {tail}")
        one = add_by_key(self.predicted.values())
        if one.get("predicted", 0) > 1:  # a single chunk tells nothing of how near predictions are
            words = f"chunks were to take {format_seconds(one['predicted_s'])} and took {format_seconds(one['used_s'])}"
            off = f"off by {100 * one['off_s'] / (one['used_s'] or 1.0):.0f} % on average"
            lines.append(f"predictions: {words} ({one['predicted']:,} of them), {off}")
        lines += [f"- {decision}" for decision in self.decisions]
        lines += order_lines(self.ordering, self.order)
        lines += [f"guard: {step!r} runs after {cut!r}, learned" for step, cut in self.guards]
        lines += [f"note: {note}" for note in self.notes]
        rows = [
            [
                step.name, f"{step.rows_in:,}", f"{step.rows_out:,}", format_seconds(step.fixed_s),
                format_seconds(step.per_row_s), format_bytes(step.bytes_read),
                f"(same as {step.same_as})" if step.same_as and not step.calls else "",
            ]
            for step in self.steps.values()
        ]  # fmt: skip
        heads = ["step", "rows in", "rows out", "per call", "per row", "bytes", ""]
        return Grid("\n".join(lines), heads, rows, numbers=range(1, 5)).text()

    def summary(self) -> dict[str, Any]:
        """Return what a program wants to know about the run, as plain data."""
        return {
            "windrow": __version__,
            "pipeline": self.name,
            **{name: getattr(self, name) for name in _SUMMED_UP},
            "rows": self.ledger.as_dict(),
            "outputs": list(self.output_names),
            "cutflow": self.cutflow.as_dict(),
            "nminus1": self.nminus1.as_dict(),
            "predicted": self.predicted,
            "memory": self.memory,
            "saved": [dict(file) for file in self.saved],
            "decisions": list(self.decisions),
            "notes": list(self.notes),
            "guards": [list(guard) for guard in self.guards],
        }

    def to_json(self) -> str:
        """Return the summary as JSON; NaN and infinity, which JSON does not have, become null."""
        return json.dumps(strict(self.summary()), indent=2, allow_nan=False) + "\n"
