"""The analysis FILL_name, begun by "windrow new" and yours to change.

Run it, from the directory above this one, with

- python FILL_name/FILL_name.py: writes report.html and, with matplotlib, spectrum.png beside this file
- windrow run FILL_name/FILL_name.py: takes options (windrow run --help) and other files
- pytest FILL_name: tests each step, and the whole on a few rows
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import awkward as ak
import windrow as wr
from hist import Hist

HERE = Path(__file__).resolve().parent

#: What to run on, by dataset. Steps can ask for the metadata; files that are named on a command line have none.
fileset = FILL_fileset

analysis = wr.Pipeline(FILL_pipeline)


@analysis.weight
def generator(FILL_weight=1.0):
    # Rows without it, such as those of data, count once; the result's notes tell.
    return FILL_weight


@analysis.cut
def trigger(FILL_flags):
    return FILL_fired


@analysis.column
def FILL_objects(FILL_records):
    momenta = FILL_momenta
    good = momenta[FILL_good]
    return good[ak.argsort(good.pt, axis=1, ascending=False)]


@analysis.cut
def two_FILL_objects(FILL_objects, *, at_least=2):
    return ak.num(FILL_objects) >= at_least


@analysis.cut
def opposite_charge(FILL_objects):
    return FILL_objects[:, 0].FILL_charge != FILL_objects[:, 1].FILL_charge


@analysis.column
def pair_mass(FILL_objects):
    return (FILL_objects[:, 0] + FILL_objects[:, 1]).mass


@analysis.cut
def FILL_number_cut(FILL_number, *, low=FILL_low):
    return FILL_number > low


#: The rows that pass all of these; "!cut" inverts one. Add a region for every selection.
REGION = "FILL_region"
analysis.region(FILL_region_and_cuts)

# To keep the selected rows as a file, say which columns:
# analysis.save("FILL_name-{dataset}.parquet", columns=["*"], region=REGION)


@analysis.output(regions="*")
def selected_rows(weight):
    return len(weight)


FILL_spectra


SPECTRA = FILL_spectrum_names


def draw(result, path):
    """Draw every spectrum of the region, one line for each dataset: their shapes, as they are of different sizes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5 * len(SPECTRA), 4), layout="tight")
    for name, panel in zip(SPECTRA, figure.subplots(1, len(SPECTRA), squeeze=False)[0], strict=True):
        for dataset in fileset:
            spectrum = result[name, REGION, dataset]
            heights, edges = spectrum.to_numpy()
            panel.stairs(heights / (heights.sum() or 1), edges, label=dataset, linewidth=1.5)
        panel.set(xlabel=spectrum.axes[0].label, ylabel="part of the rows")
        panel.legend()
    figure.savefig(path, dpi=120)
    print(f"drawn: {path}")


def main():
    result = analysis.run(fileset)
    print(result.cutflow)
    print(f"report: {result.report(HERE / 'report.html')}")
    if SPECTRA and find_spec("matplotlib"):
        draw(result, HERE / "spectrum.png")
    return result.exit_code


if __name__ == "__main__":
    raise SystemExit(main())
