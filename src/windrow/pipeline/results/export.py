"""``result.save("out.root")``: outputs in the formats of the field, each file written whole or not at all.

What a format cannot hold is left out, said in a warning, returned and listed in the file; nothing is dropped in silence.
"""

from __future__ import annotations

import contextlib
import pickle
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from windrow.errors import LeftOutWarning, MissingFileError, UsageError, nearest

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    from windrow.pipeline.results.result import Result


#: What the place of the region is called for outputs over all rows, before any cut.
INCLUSIVE = "inclusive"


def save(result: Result, path: str | os.PathLike[str]) -> list[str]:
    """Write the outputs to a file of the kind its name says; returns what the format could not hold.

    ``.root``
        Histograms as TH1, TH2, TH3 (1-D profiles as TProfile) called ``region/output/dataset`` and
        ``region/output/dataset_variationUp`` or ``Down``, as datacards want them; other outputs as JSON in
        ``windrow/outputs``.
    ``.coffea``
        ``{dataset: {output: {region: {variation: value}}}}``, which ``coffea.util.load`` reads.
    ``.json``
        The same nesting under ``"outputs"``, histograms in the UHI schema; NaN and infinity become null.
    ``.npz``
        ``dataset/output/region/variation`` for numbers and arrays; for histograms with ``/values``, ``/variances``,
        ``/edges_0`` ... after it, and ``/values_with_flow`` where there are flow bins.

    Outputs over all rows have the region "inclusive".
    """
    place = Path(path)
    check_suffix(place)
    if not place.parent.is_dir():
        raise MissingFileError(f"no directory {place.parent} to save {place.name} in")
    part = place.with_name(place.name + ".part")
    try:
        left_out = _WRITERS[place.suffix](result, part)
        part.replace(place)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise
    if left_out:
        warnings.warn(
            f"{place.name}: {place.suffix} cannot hold {', '.join(left_out)}; left out", LeftOutWarning, stacklevel=3
        )
    return left_out


def check_suffix(place: Path) -> None:
    """Refuse a file whose name does not say which of the formats it is."""
    if place.suffix not in _WRITERS:
        known = ", ".join(_WRITERS)
        raise UsageError(
            f"results are saved as {known}, by the end of the name: {place.name!r} has "
            f"{place.suffix or 'none'!r}{nearest(place.suffix, _WRITERS)}"
        )


def entries(result: Result) -> Iterator[tuple[str, str, str, str, Any]]:
    """Return every output value with its dataset, output, region and variation."""
    for dataset, values in result.outputs.items():
        for (output, region, variation), value in values.items():
            yield dataset, output, INCLUSIVE if region is None else region, variation, value


def safe_name(text: str) -> str:
    """Return a name that can be part of a path in a file; other characters become "_"."""
    return re.sub(r"[^A-Za-z0-9_.+=-]", "_", text) or "_"


def variation_suffix(variation: str) -> str:
    """Spell a variation as Combine and its kin do: ``pileup_up`` is ``_pileupUp``, the nominal is nothing."""
    if variation == "nominal":
        return ""
    for side, word in (("_up", "Up"), ("_down", "Down")):
        if variation.endswith(side):
            return f"_{variation.removesuffix(side)}{word}"
    return f"_{variation}"


def _write_root(result: Result, path: Path) -> list[str]:
    from windrow.pipeline.results.export_root import write_root

    return write_root(result, path)


def _write_json(result: Result, path: Path) -> list[str]:
    from windrow.pipeline.results.export_plain import write_json

    return write_json(result, path)


def _write_npz(result: Result, path: Path) -> list[str]:
    from windrow.pipeline.results.export_plain import write_npz

    return write_npz(result, path)


def _write_coffea(result: Result, path: Path) -> list[str]:
    """Write what ``coffea.util.load`` reads: a pickle in an LZ4 frame."""
    import cramjam

    content: dict[str, Any] = {}
    left_out: list[str] = []
    for dataset, output, region, variation, value in entries(result):
        try:
            pickle.dumps(value)
        except Exception:  # noqa: BLE001 - whatever a user's object raises
            left_out.append(f"{dataset}/{output}/{region}/{variation}")
            continue
        by_region = content.setdefault(dataset, {}).setdefault(output, {})
        by_region.setdefault(region, {})[variation] = value
    path.write_bytes(bytes(cramjam.lz4.compress(pickle.dumps(content, protocol=4))))
    return left_out


_WRITERS: dict[str, Callable[[Result, Path], list[str]]] = {
    ".root": _write_root,
    ".coffea": _write_coffea,
    ".json": _write_json,
    ".npz": _write_npz,
}
