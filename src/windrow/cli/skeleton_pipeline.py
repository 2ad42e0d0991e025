"""The text of a new analysis: a pipeline that runs at once and that its owner will change."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from windrow.cli.skeleton_layout import WIDTH, bracketed, quoted
from windrow.cli.skeleton_objects import ISOLATED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from windrow.cli.skeleton import Argument, Design, Spectrum
    from windrow.cli.skeleton_objects import Objects


def analysis_text(design: Design) -> str:
    """Write the analysis."""
    top = "\n\n".join(part.strip("\n") for part in (_head(design), _fileset(design), _pipeline(design)))
    parts = [
        top,
        *_steps(design),
        _region(design),
        *map(_spectrum, design.spectra),
        _counted(design),
        _drawing(design),
        _main(design),
    ]
    return "\n\n\n".join(part.strip("\n") for part in parts if part) + "\n"


# -- top ------------------------------------------------------------------------------------------


def _head(design: Design) -> str:
    name = design.name
    needs_ak = design.objects is not None
    needs_vector = needs_ak and not _direct(design)
    imports = [
        *(["import awkward as ak"] if needs_ak else []),
        *(["import vector"] if needs_vector else []),
        "import windrow as wr",
        *(["from hist import Hist"] if design.spectra else []),
    ]
    imported = "\n".join(imports)
    commands = {
        f"python {name}/{name}.py": "writes report.html and spectrum.png beside this file",
        f"windrow run {name}/{name}.py": "takes options (windrow run --help) and other files",
        f"pytest {name}": "tests each step, and the whole on a few rows",
    }
    wide = max(map(len, commands))
    listed = "\n".join(f"    {command:<{wide}}   {does}" for command, does in commands.items())
    return f'''
"""The analysis {name}, begun by "windrow new" and yours to change.

Run it, from the directory above this one, with

{listed}
"""

from __future__ import annotations

from pathlib import Path

{imported}

HERE = Path(__file__).resolve().parent
'''


def _direct(design: Design) -> bool:
    return design.objects is not None and design.objects.as_they_are


def _fileset(design: Design) -> str:
    lines = [
        "#: What to run on, by dataset. Steps can ask for the metadata; files that are",
        "#: named on a command line have none.",
        "fileset = {",
    ]
    for dataset in design.datasets:
        lines.append(f"    {quoted(dataset.name)}: {{")
        files = bracketed('"files": [', [quoted(file) for file in dataset.files], "],", indent=8)
        lines.append(textwrap.indent(files, "        "))
        facts = "" if dataset.is_mc is None else f'"is_mc": {dataset.is_mc}'
        lines.append(f'        "metadata": {{{facts}}},')
        lines.append("    },")
    return "\n".join([*lines, "}"])


def _pipeline(design: Design) -> str:
    parts = [quoted(design.name)]
    if design.identity:
        parts.append(f"identity=({', '.join(map(quoted, design.identity))})")
    return bracketed("analysis = wr.Pipeline(", parts, ")")


# -- steps ----------------------------------------------------------------------------------------


def _steps(design: Design) -> list[str]:
    steps = []
    if design.weight is not None:
        name = design.steps["generator"]
        lines = [
            "# Rows without it, such as those of data, count once; the result's notes tell.",
            f"return {design.weight.name}",
        ]
        steps.append(_step("weight", name, [design.weight], lines))
    if design.trigger:
        lines = _any_of([flag.name for flag in design.trigger])
        steps.append(_step("cut", design.steps["trigger"], design.trigger, lines))
    if design.objects is not None:
        steps += _object_steps(design, design.objects)
    if design.flat_cut is not None:
        cut = design.flat_cut
        lines = [f"return {cut.column.name} > low"]
        extra = [f"low={cut.above:g}"]
        steps.append(_step("cut", cut.name, [cut.column], lines, keywords=extra))
    return steps


def _any_of(flags: Sequence[str]) -> list[str]:
    line = f"return {' | '.join(flags)}"
    if len(line) + 4 <= WIDTH:
        return [line]
    first, *others = flags
    return [f"fired = {first}", *(f"fired = fired | {flag}" for flag in others), "return fired"]


def _step(
    kind: str,
    name: str,
    reads: Sequence[Argument],
    lines: Sequence[str],
    options: Sequence[str] = (),
    keywords: Sequence[str] = (),
    *,
    more: Sequence[str] = (),
) -> str:
    """Write a decorated function; ``more`` are arguments that are no columns of a file."""
    aliases = [f"{quoted(one.name)}: {quoted(one.column)}" for one in reads if one.name != one.column]
    given = [*options, *([bracketed("reads={", aliases, "}", indent=5)] if aliases else [])]
    decorator = f"@analysis.{kind}"
    if given:
        decorator = bracketed(f"{decorator}(", given, ")")
    arguments = [f"{one.name}={one.default}" if one.default else one.name for one in reads]
    arguments += [*more, *(["*", *keywords] if keywords else [])]
    signature = bracketed(f"def {name}(", arguments, "):")
    return "\n".join([decorator, signature, *(textwrap.indent(line, "    ") for line in lines)])


def _object_steps(design: Design, objects: Objects) -> list[str]:
    from windrow.cli.skeleton import Argument

    steps = design.steps
    made = Argument(steps["objects"])
    number = [f"return ak.num({made.name}) >= at_least"]
    written = [
        _step("column", made.name, [Argument(objects.collection)], _selection(objects)),
        _step("cut", steps["number"], [made], number, keywords=["at_least=2"]),
    ]
    if objects.charge is not None:
        first, second = (f"{made.name}[:, {i}].{_charge(objects)}" for i in (0, 1))
        lines = [f"return {first} != {second}"]
        written.append(_step("cut", steps["opposite_charge"], [made], lines))
    if objects.mass is not None:
        lines = [f"return ({made.name}[:, 0] + {made.name}[:, 1]).mass"]
        written.append(_step("column", steps["mass"], [made], lines))
    return written


def _charge(objects: Objects) -> str:
    # Objects that are built get the usual name.
    return str(objects.charge) if objects.as_they_are else "charge"


def _selection(objects: Objects) -> list[str]:
    """Write the body of the step that selects objects."""
    from windrow.cli.skeleton import Argument

    raw = Argument(objects.collection).name
    lines = []
    if not objects.as_they_are:
        parts = {name: f"{raw}.{field}" for name, field in objects.momentum.items()}
        if len(parts) == 3:
            parts["mass"] = f"0 * {raw}.{objects.momentum['pt']}"
        if objects.charge is not None:
            parts["charge"] = f"{raw}.{objects.charge}"
        if objects.isolation is not None:
            parts[objects.isolation] = f"{raw}.{objects.isolation}"
        lines = ["vectors = vector.zip(", "    {"]
        lines += [f"        {quoted(name)}: {value}," for name, value in parts.items()]
        lines += ["    }", ")"]
        raw = "vectors"
    conditions = {"hard": f"{raw}.pt > {objects.pt_above:g}", "central": f"abs({raw}.eta) < {objects.eta_below:g}"}
    if objects.isolation is not None:
        conditions["isolated"] = f"{raw}.{objects.isolation} < {ISOLATED:g}"
    lines += [f"{name} = {condition}" for name, condition in conditions.items()]
    good = f"{raw}[{' & '.join(conditions)}]"
    if objects.ordered:
        return [*lines, f"return {good}"]
    order = "ak.argsort(good.pt, axis=1, ascending=False)"
    return [*lines, f"good = {good}", f"return good[{order}]"]


# -- outputs --------------------------------------------------------------------------------------


def _region(design: Design) -> str:
    line = bracketed("analysis.region(", ["REGION", *map(quoted, design.cuts)], ")")
    skim = ", ".join(map(quoted, design.skim))
    return f'''
#: The rows that pass all of these; "!cut" inverts one. Add a region for every selection.
REGION = {quoted(design.region)}
{line}

# To keep the selected rows as a file, say which columns:
# analysis.save("{design.name}-{{dataset}}.parquet", columns=[{skim}], region=REGION)
'''


def _spectrum(spectrum: Spectrum) -> str:
    axis = spectrum.axis
    about = "# No rows to look at: the range is a guess." if axis.guessed else ""
    names = [f"name={quoted(spectrum.quantity)}", f"label={quoted(spectrum.label)}"]
    filled = [spectrum.expression, "weight=weight"]
    lines = [
        *([about] if about else []),
        bracketed("axis = Hist.new.Reg(", [*axis.code.split(", "), *names], ")", indent=4),
        bracketed("return axis.Weight().fill(", filled, ")", indent=4),
    ]
    options = ['regions="*"']
    return _step("output", spectrum.name, [spectrum.reads], lines, options, more=["weight"])


def _counted(design: Design) -> str:
    if design.spectra:
        return ""
    lines = ["return len(weight)"]
    return _step("output", "selected_rows", [], lines, ['regions="*"'], more=["weight"])


def _drawing(design: Design) -> str:
    if not design.spectra:
        return ""
    names = [quoted(spectrum.name) for spectrum in design.spectra]
    spectra = bracketed("SPECTRA = (", names, ",)" if len(names) == 1 else ")")
    shape, what = "", "weighted rows" if design.weight else "rows"
    if len(design.datasets) > 1:
        what = "part of the rows"
        shape = """
            # Datasets are of different sizes: compare their shapes.
            heights = heights / (heights.sum() or 1)"""
    return f'''
{spectra}


def draw(result, path):
    """Draw every spectrum of the region, one line for each dataset."""
    try:
        import matplotlib as mpl
    except ImportError:
        print("no picture without matplotlib: pip install matplotlib")
        return
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    size = (5 * len(SPECTRA), 4)
    figure, axes = plt.subplots(1, len(SPECTRA), figsize=size, squeeze=False)
    for name, panel in zip(SPECTRA, axes[0], strict=True):
        for dataset in fileset:
            spectrum = result[name, REGION, dataset]
            heights, edges = spectrum.to_numpy(){shape}
            panel.stairs(heights, edges, label=dataset, linewidth=1.5)
        panel.set(xlabel=spectrum.axes[0].label, ylabel="{what}")
        panel.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    plt.close(figure)
    print(f"drawn: {{path}}")
'''


def _main(design: Design) -> str:
    picture = '\n    draw(result, HERE / "spectrum.png")' if design.spectra else ""
    return f"""
def main():
    result = analysis.run(fileset)
    print(result.cutflow)
    print(f"report: {{result.report(HERE / 'report.html')}}"){picture}
    return result.exit_code


if __name__ == "__main__":
    raise SystemExit(main())
"""


def readme_text(design: Design) -> str:
    """Write what the directory is and what to do first."""
    name = design.name
    files = "\n".join(f"- `{source}`" for source in design.sources)
    return f"""# {name}

Begun by `windrow new {name}` from

{files}

| command | does |
| --- | --- |
| `python {name}.py` | runs the analysis, prints the cutflow, writes `report.html` and `spectrum.png` |
| `windrow run {name}.py` | the same with options; name other files after it to run on those |
| `pytest` | tests every step, and the whole on a few rows |

The cuts are a first guess from what the files hold. A step is a plain function whose arguments name the columns it reads; `windrow show
FILE` lists them.
"""
