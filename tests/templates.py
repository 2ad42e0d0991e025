"""What the steps of random analyses may say."""

from __future__ import annotations

from typing import Any

# --- steps that are compiled: few and fixed, because compiling takes long -------------------------


def each_flat(f: Any, i: Any) -> Any:
    return f > 0.25 and i % 2 == 0


def each_jagged(Jet_pt: Any) -> Any:
    total = 0.0
    for pt in Jet_pt:
        total += pt
    return total > 4.0


def each_sum(g: Any, Jet_pt: Any) -> Any:
    total = g
    for pt in Jet_pt:
        total += pt * 0.1
    return total


def each_count(Jet_q: Any, b: Any) -> Any:
    count = 0
    for q in Jet_q:
        if q > 0 and b:
            count += 1
    return count


EACH = {"cut": ((each_flat, "B"), (each_jagged, "B")), "column": ((each_sum, "F"), (each_count, "I"))}

# --- templates: what a step may say ---------------------------------------------------------------
# Types: F float, I integer, B boolean, J lists of floats, Q lists of integers, O float or None,
# R records of jets. $F is any column of that type; $late, $flag and $maybe may be absent.

CUTS = (
    "$B",
    "$F > 0.1",
    "($F > low) & ($F < high)",
    "$F != $F",
    "np.asarray($I) % 3 != 0",
    "$B | ($I > 2)",
    "$B | $flag",
    "ak.num($J) >= 1",
    "ak.any($J > 2.0, axis=1)",
    "ak.firsts($J) > 1.0",
    "(ak.firsts($J) < 2.0) | $B",
    "$O < 3.0",
    "ak.num($R) == 1",
    "ak.sum($R.pt * $R.q, axis=1) > 0",
    "$I + 2018 > dataset['year']",
    "rng('keep').uniform() < 0.7",
    "ak.any(rng('smear').normal(like=$J) > 0.5, axis=1)",
    "$F > $late",
    "($F > 0) if $maybe is None else ($maybe > 0)",
)
COLUMNS = (
    # The very array that was given: whoever works in place on it changes the column too.
    ("F", "$F"),
    ("J", "$J"),
    ("R", "$R"),
    ("F", "$F * 2.0 + $I"),
    ("F", "np.sqrt(np.abs($F)) + $F"),
    ("F", "ak.to_numpy(ak.sum($J, axis=1)) * 0.1"),
    ("F", "$F + 0.3 * rng('shift').normal()"),
    ("F", "$F * $late"),
    ("I", "np.asarray(ak.num($J) + $I)"),
    ("B", "$F > $F"),
    ("J", "$J * 1.5 + $F"),
    ("J", "$J[$J > 1.5]"),
    ("J", "$J * (1.0 + 0.1 * rng('smear').normal(like=$J))"),
    ("Q", "$Q * 2"),
    ("O", "ak.firsts($J)"),
    ("O", "ak.max($J, axis=1)"),
    ("R", "$R[$R.pt > 1.5]"),
    ("R", "Jet[Jet.q > 0]"),
)
#: (what keeps the step from raising, what raises without it)
GUARDS = (
    ("ak.num(Jet_pt) >= 2", ("F", "np.asarray(Jet_pt[:, 1]) * 0.5"), "Jet_pt[:, 1] > 1.0"),
    (
        "i != 0",
        ("I", "np.array([7 // v for v in i.tolist()], np.int64)"),
        "np.array([7 // v for v in i.tolist()], np.int64) != 1",
    ),
)
WEIGHTS = (
    "np.where($B, 1.1, 0.7)",
    "1.0 / (1.0 + np.abs(np.asarray($I)))",
    "wr.updown(np.where($B, 1.1, 0.7), np.where($B, 1.3, 0.9), np.full(len($I), 0.6))",
    "wr.updown(np.full(len($I), 0.9), 1.0 + 0.01 * $I, 1.0 - 0.01 * $I)",
    "0.5 + rng('w').uniform()",
    "genw",
)
OUTPUTS = (
    "float(np.sum(weight))",
    "[int(e) for e in event]",
    "float(np.sum(np.asarray($F, np.float64) * weight))",
    "float(np.sum(np.asarray($F, np.float64)))",
    "Hist.new.Reg(8, -4, 4).Weight().fill(np.asarray($F), weight=weight)",
    "Hist.new.Reg(6, 0, 6).Double().fill(ak.to_numpy(ak.flatten($J)))",
    "dict(n=len($I), seen={int(v): 1 for v in $I}, total=dict(w=float(np.sum(weight))))",
    "set(np.asarray($I).tolist())",
    "np.bincount(np.asarray($I) & 7, minlength=8)",
    "ak.to_list($J)",
    "ak.to_list($O)",
    "float(ak.sum($R.pt, axis=None))",
    "{(region, variation, dataset['year']): len($I)}",
    "[len($I), float(np.sum($late))]",
    "float(np.sum(np.asarray($flag) * weight))",
)
WHEN = (None, None, None, "is_mc", "not is_mc", "year == 2018", "year in (2016, 2017)")
