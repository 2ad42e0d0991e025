"""The text of the test that comes with a new analysis: steps on small arrays, the whole on a few rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow.cli.skeleton_layout import import_lines, quoted

if TYPE_CHECKING:
    from windrow.cli.skeleton import Design
    from windrow.cli.skeleton_objects import Objects


#: Rows of each dataset that the test runs on: a moment, whatever the files.
ROWS = 200


def checks_text(design: Design) -> str:
    """Write the test."""
    tests = [*_weight(design), *_trigger(design), *_objects(design), *_flat(design), _run(design)]
    body = "\n\n\n".join(test.strip("\n") for test in tests)
    return f"{_head(design, body)}\n\n\n{body}\n"


def _head(design: Design, body: str) -> str:
    third = [
        *(["import numpy as np"] if "np." in body else []),
        *(["import pytest"] if "pytest." in body else []),
        *(["import vector"] if "vector." in body else []),
    ]
    if "ak." in body:
        third.insert(0, "import awkward as ak")
    line = import_lines(design.name, ["analysis", "fileset", "REGION", *_steps_in(design)])
    imports = "".join(f"{one}\n" for one in third) + ("\n" if third else "")
    return f'''"""Tests of {design.name}: each step on small arrays, the whole on a few rows."""

from __future__ import annotations

{imports}{line}'''


def _steps_in(design: Design) -> list[str]:
    names = []
    steps = design.steps
    if design.weight is not None:
        names.append(steps["generator"])
    if design.trigger:
        names.append(steps["trigger"])
    if design.objects is not None:
        names += [steps["objects"], steps["number"]]
        names += [steps["opposite_charge"]] if design.objects.charge is not None else []
        names += [steps["mass"]] if design.objects.mass is not None else []
    if design.flat_cut is not None:
        names.append(design.flat_cut.name)
    return names


def _weight(design: Design) -> list[str]:
    if design.weight is None:
        return []
    name = design.steps["generator"]
    return [
        f"""
def test_simulation_is_weighted():
    weights = np.array([0.5, -1.0])
    assert {name}(weights).tolist() == [0.5, -1.0]
"""
    ]


def _trigger(design: Design) -> list[str]:
    if not design.trigger:
        return []
    name = design.steps["trigger"]
    if len(design.trigger) == 1:
        arguments, expected = "np.array([True, False])", "[True, False]"
    else:
        arguments = "np.array([True, False, False]), np.array([False, True, False])"
        expected = "[True, True, False]"
    return [
        f"""
def test_any_trigger_is_enough():
    fired = {name}({arguments})
    assert fired.tolist() == {expected}
"""
    ]


def _objects(design: Design) -> list[str]:
    objects = design.objects
    if objects is None:
        return []
    steps = design.steps
    made = steps["objects"]
    tests = [
        _two(objects),
        f"""
def test_soft_and_forward_{objects.plural}_are_left_out():
    hard, soft = {2 * objects.pt_above:g}, {objects.pt_above / 2:g}
    forward = {objects.eta_below + 1:g}
    one_good = two([hard, soft], [0.1, 0.1])
    none_good = two([hard, soft], [forward, 0.1])
    assert ak.num({made}(one_good)).tolist() == [1]
    assert ak.num({made}(none_good)).tolist() == [0]
""",
        f"""
def test_there_have_to_be_two():
    hard = {2 * objects.pt_above:g}
    pair = {made}(two([hard, hard], [0.1, -0.1]))
    assert {steps["number"]}(pair).tolist() == [True]
    assert {steps["number"]}(pair[:, :1]).tolist() == [False]
""",
    ]
    if objects.charge is not None:
        tests.append(
            f"""
def test_charges_are_opposite():
    hard = {2 * objects.pt_above:g}
    opposite = {made}(two([hard, hard], [0.1, -0.1], charges=[1, -1]))
    alike = {made}(two([hard, hard], [0.1, -0.1], charges=[1, 1]))
    assert {steps["opposite_charge"]}(opposite).tolist() == [True]
    assert {steps["opposite_charge"]}(alike).tolist() == [False]
"""
        )
    if objects.mass is not None:
        tests.append(
            f"""
def test_mass_of_two_that_fly_apart():
    pt = {2 * objects.pt_above:g}
    pair = {made}(two([pt, pt], [0.0, 0.0]))
    assert {steps["mass"]}(pair).tolist() == pytest.approx([2 * pt])
"""
        )
    return tests


def _two(objects: Objects) -> str:
    """Write the helper that makes a row with two massless objects back to back."""
    fields: dict[str, str] = {}
    values = {
        "pt": "momenta.pt", "eta": "momenta.eta", "phi": "momenta.phi", "mass": "0 * momenta.pt",
        "E": "momenta.E", "px": "momenta.px", "py": "momenta.py", "pz": "momenta.pz",
    }  # fmt: skip
    for name, field in objects.momentum.items():
        fields[field] = values[name]
    extra = ""
    if objects.charge is not None:
        fields[objects.charge] = "ak.Array([charges])"
        extra = ", *, charges=(1, -1)"
    if objects.isolation is not None:
        fields[objects.isolation] = "0 * momenta.pt"
    maker = "vector.zip" if objects.as_they_are else "ak.zip"
    rows = "\n".join(f"            {quoted(field)}: {value}," for field, value in fields.items())
    return f'''
def two(pts, etas{extra}):
    """One row with two {objects.plural} that have no mass and fly in opposite directions."""
    phis = [[0.0, np.pi]]
    parts = {{"pt": [pts], "eta": [etas], "phi": phis, "mass": [[0.0, 0.0]]}}
    momenta = vector.zip({{name: ak.Array(values) for name, values in parts.items()}})
    return {maker}(
        {{
{rows}
        }}
    )
'''


def _flat(design: Design) -> list[str]:
    cut = design.flat_cut
    if cut is None:
        return []
    return [
        f"""
def test_{cut.name}():
    values = np.array([0.0, 2.0, 1.0])
    passed = {cut.name}(values, low=1.0)
    assert passed.tolist() == [False, True, False]
"""
    ]


def _run(design: Design) -> str:
    if not design.spectra:
        return f"""
def test_the_first_rows_are_counted():
    result = analysis.run(fileset, max_rows={ROWS}, progress=False)
    assert result.complete
    for dataset in fileset:
        passed = result.cutflow[REGION, dataset].passed
        assert result["selected_rows", REGION, dataset] == passed
"""
    name = quoted(design.spectra[0].name)
    return f"""
def test_the_spectrum_of_the_first_rows_holds_what_passes():
    result = analysis.run(fileset, max_rows={ROWS}, progress=False)
    assert result.complete
    for dataset in fileset:
        passing = result.cutflow[REGION, dataset].executed[-1]
        name = {name}
        inside = result[name, REGION, dataset].sum(flow=True).value
        assert inside == pytest.approx(passing.sumw, rel=1e-5, abs=1e-9)
"""
