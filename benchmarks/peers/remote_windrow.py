"""The analysis of the remote benchmark as a Windrow pipeline, with several ways to fetch."""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

import numpy as np
from protocol import serve
from remote_common import (
    counted,
    dijet_mass,
    good_lepton,
    large_met,
    on_trigger,
    shape,
    transverse_mass,
    two_tags,
    with_tau,
)

import windrow as wr


def pipeline() -> Any:
    """A new one for every run: it has learned nothing yet."""
    analysis = wr.Pipeline("remote")

    @analysis.cut
    def in_good_run(good_run):
        return good_run > 0

    analysis.cut(on_trigger)
    analysis.cut(good_lepton)
    analysis.column(transverse_mass)
    analysis.cut(large_met)
    analysis.column(dijet_mass)
    analysis.cut(two_tags)
    analysis.cut(with_tau)

    @analysis.weight
    def generator(gen_weight):
        return gen_weight + 0.5

    for name in ("pu", "sf", "bsf"):
        analysis.weight(varied, name=f"{name}_weight", reads=[name, f"{name}_up", f"{name}_down"])

    base = ("in_good_run", "on_trigger", "good_lepton", "large_met")
    analysis.region("signal", *base, "two_tags")
    analysis.region("control", *base, "with_tau")

    @analysis.output(regions="*")
    def masses(transverse_mass, dijet_mass):
        return counted(transverse_mass) + 1000 * counted(dijet_mass)

    @analysis.output(regions="*")
    def shapes(ht, n_jets, aplanarity, sphericity):
        return counted(shape(ht, n_jets, aplanarity, sphericity))

    @analysis.output(regions="*")
    def total(weight):
        return float(np.sum(weight))

    return analysis


def varied(nominal, up, down):
    return wr.updown(nominal + 0.5, up + 0.5, down + 0.5)


class Counted:
    """A reader that knows how many requests each chunk made."""

    def __init__(self, reader: Any, counts: dict[int, int]) -> None:
        self._reader, self._counts = reader, counts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def read(self, columns: Any, start: int, stop: int) -> Any:
        return self._count(start, lambda: self._reader.read(columns, start, stop))

    def prefetch(self, wanted: Any) -> None:
        self._count(wanted[0][1], lambda: self._reader.prefetch(wanted))

    def _count(self, row: int, work: Any) -> Any:
        before = self._reader.requests
        result = work()
        chunk = bisect_right(self._reader.info.borders, row)
        self._counts[chunk] = self._counts.get(chunk, 0) + self._reader.requests - before
        return result


class OneRequestPerStep(Counted):
    """As for a local file: what a step needs is read when it runs."""

    link = None


class OneRequestPerColumn(OneRequestPerStep):
    """Each column by itself, as where fields are read when they are touched."""

    def read(self, columns: Any, start: int, stop: int) -> Any:
        parts = [super(OneRequestPerColumn, self).read([c], start, stop) for c in columns]
        return {name: values for part in parts for name, values in part.items()}


READERS = {"waves": Counted, "step": OneRequestPerStep, "column": OneRequestPerColumn}


class Source:
    """A source whose readers fetch in one of these ways, and are counted."""

    def __init__(self, spec: str, how: str) -> None:
        self._source, self._how = wr.data.open(spec), how
        self.inputs, self.datasets = self._source.inputs, self._source.datasets
        self.counts: dict[int, int] = {}
        self.opening = 0

    def open(self, index: int) -> Any:
        reader = self._source.open(index)
        self.opening += reader.requests
        return READERS[self._how](reader, self.counts)


def run(spec: str, how: str, workers: int) -> dict[str, Any]:
    """Run a new pipeline once, in the smallest chunks there are: canonical units."""
    source = Source(spec, how)
    result = pipeline().run(source, engine="threads", workers=workers, chunk=1, progress=False)
    found = {}
    for region in ("signal", "control"):
        for output in ("masses", "shapes"):
            found[f"{output} {region}"] = [int(n) for n in result[output, region]]
        for variation in ("nominal", "pu_weight_up", "sf_weight_down", "bsf_weight_up"):
            found[f"total {region} {variation}"] = float(result["total", region, variation])
    return {
        "found": found,
        "bytes": result.bytes_read,
        "opening": source.opening,
        "chunks": len(source.open(0).info.borders) - 1,
        "requests": [source.counts[chunk] for chunk in sorted(source.counts)],
    }


if __name__ == "__main__":
    serve(run, "uproot")
