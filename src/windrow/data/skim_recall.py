"""Skims among the files that are opened: they get their datasets, metadata and sums back.

The sums of several skims are added, so skims whose rows may overlap, or that are mixed with other
files, are refused: they would be normalised wrongly and nobody would notice.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from windrow.data.paths import is_remote
from windrow.data.skim_record import read_record, users_own
from windrow.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from windrow.data.base import Input
    from windrow.data.spec import Parsed


#: Files that are all looked at, which takes some 20 microseconds each and rarely as much as half a
#: millisecond. Of more, one for each directory and dataset, and the others if that one is a skim.
LOOKED_AT = 4000

#: What is added up over the files of a dataset.
_SUMS = ("rows", "selected", "failed", "sumw", "sumw2")

_NOTHING = object()


def find_skims(parsed: Parsed) -> dict[str, list[dict[str, Any]]]:
    """Put the skims among the inputs into their datasets; return the records of each dataset.

    Datasets that the user named keep their names.
    """
    records = _records(parsed.inputs)
    if not records:
        return {}
    datasets: dict[str, list[Input]] = {}
    for one in parsed.inputs:
        record = records.get(one.index)
        name = one.dataset if parsed.named or record is None else str(record["dataset"])
        datasets.setdefault(name, []).append(one)
    said = parsed.datasets
    parsed.inputs, parsed.datasets = [], {}
    found: dict[str, list[dict[str, Any]]] = {}
    for name, inputs in datasets.items():
        own = said[inputs[0].dataset]
        parsed.datasets[name] = dict(own) if parsed.named else {**own, "dataset": name}
        known = [(one, records[one.index]) for one in inputs if one.index in records]
        if known:
            _refuse_mixture(name, known[0][0], (one for one in inputs if one.index not in records))
            _refuse_overlap(name, known)
            found[name] = [record for _, record in known]
        for one in inputs:
            parsed.inputs.append(replace(one, index=len(parsed.inputs), dataset=name))
    return found


def merge_records(said: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what the skims of a dataset agree on, under what the user says, and their sums.

    What is added is all under ``skim``, but for ``sumw`` where the user has none; ``skim["keys"]``
    names such keys, so that ``users_own`` can take them away again.
    """
    first: Mapping[str, Any] = records[0].get("metadata") or {}
    agreed = {
        key: value
        for key, value in first.items()
        if all((r.get("metadata") or {}).get(key, _NOTHING) == value for r in records[1:])
    }
    skim: dict[str, Any] = {key: records[0].get(key) for key in ("region", "cut")}
    for key in _SUMS:
        values = [record.get(key) for record in records]
        skim[key] = None if None in values else sum(values)
    sections = [record.get("lumis") for record in records]
    if None not in sections:
        skim["lumis"] = _union(sections)
    # Metadata may be that of another source of skims, whose sums are not those of these files.
    merged = {**agreed, **users_own(said)}
    skim["keys"] = []
    if skim["sumw"] is not None and "sumw" not in merged:
        skim["keys"] = ["sumw"]
        merged["sumw"] = skim["sumw"]
    return {**merged, "skim": skim}


def _union(sections: Iterable[Any]) -> dict[str, list[list[int]]]:
    """Return the luminosity sections of all files, as ranges by run."""
    ranges: dict[str, list[list[int]]] = {}
    for one in sections:
        for run, pairs in one.items():
            ranges.setdefault(run, []).extend(pairs)
    union: dict[str, list[list[int]]] = {}
    for run in sorted(ranges, key=int):
        joined = union.setdefault(run, [])
        for first, last in sorted(ranges[run]):
            if joined and first <= joined[-1][1] + 1:
                joined[-1][1] = max(joined[-1][1], last)
            else:
                joined.append([first, last])
    return union


# -- which files are skims? -----------------------------------------------------------------------


def _records(inputs: Sequence[Input]) -> dict[int, dict[str, Any]]:
    local = [one for one in inputs if one.format != "arrays" and not is_remote(one.location)]
    groups: dict[Any, list[Input]] = {}
    for one in local:
        directory = os.path.dirname(one.location)  # noqa: PTH120 - thousands of texts
        group = one.index if len(local) <= LOOKED_AT else (directory, one.dataset)
        groups.setdefault(group, []).append(one)
    found: dict[int, dict[str, Any]] = {}
    for files in groups.values():
        for one in files:
            record = read_record(one.location, one.format)
            if record is not None:
                found[one.index] = record
            elif one is files[0]:
                break
    return found


# -- which do not add up? -------------------------------------------------------------------------


def _refuse_mixture(name: str, skim: Input, others: Iterable[Input]) -> None:
    for other in others:
        remote = is_remote(other.location)
        raise SpecError(
            f"dataset {name!r} has skims and other files, so sums of weights cannot be known: "
            f"{skim.label} is a skim, {other.label} is "
            + ("remote, where nobody looks for one" if remote else "not (or cannot be read)")
            + f"; {_apart(name, 'skim', 'other')}"
        )


def _refuse_overlap(name: str, known: Sequence[tuple[Input, Mapping[str, Any]]]) -> None:
    """Raise if skims of one dataset may have the same rows."""
    first_file, first = known[0]
    seen: dict[Any, Input] = {}
    for one, record in known:
        for what in ("region", "cut"):
            mine, other = first.get(what), record.get(what)
            if mine != other:
                raise SpecError(
                    f"dataset {name!r} has skims of the {what}s {mine!r} and {other!r}, "
                    f"{first_file.label} and {one.label}: rows in both would count twice; " + _apart(name, "a", "b")
                )
        for sign in _signs(one, record):
            twin = seen.setdefault(sign, one)
            if twin is not one:
                raise SpecError(
                    f"dataset {name!r} has the same rows twice: {twin.label} and {one.label} were "
                    "saved from the same rows of one dataset; open one of them, or " + _apart(name, "a", "b")
                )


def _signs(one: Input, record: Mapping[str, Any]) -> list[Any]:
    """Return what two files have in common only if they hold the same rows.

    A run writes the rows of a dataset once for each save. Another run may write them again in
    another format, beside the first file and under its name.
    """
    dataset = record.get("dataset")
    name, _ = os.path.splitext(os.path.realpath(one.location))  # noqa: PTH122 - as above
    signs: list[Any] = [("name", name, dataset, record.get("rows"), record.get("selected"))]
    if record.get("run") is not None:
        signs.append(("run", record["run"], dataset))
    return signs


def _apart(name: str, one: str, other: str) -> str:
    return f"open them under names of their own, as in {{'{name}_{one}': FILES, '{name}_{other}': FILES}}"
