"""The order of steps as a report shows it: over time, step by step, what it saved and what finding it cost."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from windrow.units import format_bytes, format_count, format_seconds
from windrow.watch.order_chart import Stretch, order_chart
from windrow.watch.report_pieces import hint, listed, table, tile, unknown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["order"]

#: More steps than this are drawn without the columns and weights, which go where the cuts go that need them.
MOST_STEPS = 25
#: Changes that are drawn; the last ones, if there are more.
MOST_CHANGES = 24
#: Lines of the table of checkpoints.
MOST_LINES = 100


def order(data: Mapping[str, Any]) -> str:
    """Write the section: one part for each dataset whose order was decided about."""
    decided = [told for told in data["ordering"] if told["steps"]]
    parts = []
    if not decided:
        parts.append(hint(unknown(data) or _undecided(data)))
    elif len(data["ordering"]) > 1:
        parts += [
            f'<details class="dataset"{" open" if told is decided[0] else ""}><summary><strong>'
            f"{escape(told['dataset'])}</strong> {escape(told['words'])}</summary>{_dataset(told, data)}</details>"
            for told in decided
        ]
    else:
        parts.append(f"<p>{escape(_sentence(decided[0]['words']))}</p>{_dataset(decided[0], data)}")
    kept = [told for told in data["ordering"] if told["fixed"]]
    if kept:
        parts.append("<h3>Where the order had to stay</h3>")
        parts.append(listed(f"{told['dataset']}: {told['fixed']}" for told in kept))
    reading = [words for words in data["decisions"] if words.startswith("reading: ")]
    if reading:
        parts.append("<h3>Setting up against processing</h3>")
        parts.append(listed(words.removeprefix("reading: ") for words in reading))
    return "\n".join(parts)


def _undecided(data: Mapping[str, Any]) -> str:
    reasons = list(dict.fromkeys(why for _, _, why in data["order"] if why))
    return f"Nothing was decided about the order in this run: {escape('; '.join(reasons) or 'no step ran')}."


def _dataset(told: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    return "\n".join((_tiles(told, data), _chart(told), _steps(told), _history(told["checkpoints"])))


# -- what it brought -------------------------------------------------------------------------------


def _tiles(told: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """Write what was saved, which is estimated, and what was paid, which is measured."""
    saved, looked = told["saved"], told["looked"]
    tiles = []
    if told["moved"]:
        if told["share"] is not None:
            estimate = "at the end, by the model"
            tiles.append(tile(f"{100 * told['share']:.0f} %", "of the written order's cost", estimate))
        for name, words, what in (
            ("evaluations", format_count, "evaluations"),
            ("seconds", format_seconds, "processor time"),
            ("bytes", lambda size: format_bytes(int(size)), "reading"),
        ):
            if size := saved[name] or 0.0:
                label = f"{what} saved" if size > 0 else f"more {what}"
                tiles.append(tile(words(abs(size)), label, "against the written order, by the model"))
    at = f"{looked['rows']:,} rows in {looked['windows']:,} places"
    tiles.append(
        tile(_of_run(looked["seconds"], data), "of the run for looking", f"{format_seconds(looked['seconds'])}: {at}")
    )
    every = ", all datasets together" if len(data["ordering"]) > 1 else ""
    tiles.append(
        tile(
            _of_run(told["planning_s"], data), "of the run for planning", f"{format_seconds(told['planning_s'])}{every}"
        )
    )
    return f'<div class="tiles small">{"".join(tiles)}</div>'


def _of_run(seconds: float, data: Mapping[str, Any]) -> str:
    """Write a time as a share of what all workers had."""
    whole = (data["seconds"] or 0.0) * max(data["workers"], 1)
    if not whole:
        return format_seconds(seconds)
    share = 100 * seconds / whole
    return f"{share:.1f} %" if share >= 0.05 else "< 0.1 %"


# -- over time -------------------------------------------------------------------------------------


def _chart(told: Mapping[str, Any]) -> str:
    """Draw how the order came about; nothing where it never was another than the written one."""
    cuts = frozenset(step["name"] for step in told["steps"] if step["kind"] == "cut")
    shown = frozenset(step["name"] for step in told["steps"])
    words = []
    if len(shown) > MOST_STEPS and len(cuts) > 1:
        shown = cuts
        words.append("Columns and weights, which are made just before the first cut that needs them, are not drawn.")
    stretches = _stretches(told, shown)
    if len(stretches) < 2:
        return ""
    if len(stretches) > MOST_CHANGES + 1:
        words.append(f"The last {MOST_CHANGES} of {len(stretches) - 1:,} changes are drawn.")
        stretches = [stretches[0], *stretches[-MOST_CHANGES:]]
    times = [one["spent_s"] for one in told["checkpoints"]]
    last = told["checkpoints"][-1] if told["checkpoints"] else {"spent_s": 0.0, "left_s": 0.0}
    words.append("Ticks are checkpoints; stretches of time have at least the room that crossings need.")
    picture = order_chart(
        stretches,
        until_s=last["spent_s"] + (last["left_s"] or 0.0),
        checkpoints=times,
        cuts=cuts,
        tips={step["name"]: _tip(step, len(told["steps"])) for step in told["steps"]},
        label=_spoken(told, stretches),
    )
    note = f'<p class="hint">{" ".join(words)}</p>'
    return f'<div class="scroll" tabindex="0">{picture}</div>{note}'


def _stretches(told: Mapping[str, Any], shown: frozenset[str]) -> list[Stretch]:
    """List the orders that were in force, from the written one on, as far as they differ."""
    written = [step["name"] for step in sorted(told["steps"], key=lambda s: s["written_place"])]
    began = told["began"] or written
    found = [] if _only(began, shown) == _only(written, shown) else [Stretch(_only(written, shown), None, "written")]
    found.append(Stretch(_only(began, shown), 0.0))
    for one in told["checkpoints"]:
        here = _only(one["order"], shown)
        if here != found[-1].order:
            found.append(Stretch(here, one["spent_s"]))
    end = _only(told["ended"] or found[-1].order, shown)
    if end != found[-1].order:
        # A guard that was learned, or the written order again: what made it so has no time of its own.
        found.append(Stretch(end, None, "later"))
    return [one for one in found if set(one.order) == set(found[0].order)]


def _only(names: Sequence[str], shown: frozenset[str]) -> list[str]:
    return [name for name in names if name in shown]


def _tip(step: Mapping[str, Any], steps: int) -> str:
    """Write what is said of a line that is pointed at: a name, and facts one below the other."""
    lines = [
        step["name"],
        f"place: {step['place'] + 1} of {steps}, written {step['written_place'] + 1}",
        f"reached by: {_percent(step['alive'])} of the rows",
    ]
    if step["kind"] == "cut":
        lines.append(f"passes: {_percent(step['passes'])}")
    lines.append(f"cost: {_cost(step['fixed_s'])} a call, {_cost(step['row_s'])} a row")
    return "\n".join(lines)


def _spoken(told: Mapping[str, Any], stretches: Sequence[Stretch]) -> str:
    """Say the picture for those who do not see it."""
    end = ", ".join(stretches[-1].order)
    return f"The order of the steps of {told['dataset']} over time, {len(stretches) - 1} changes. In the end: {end}."


# -- step by step ----------------------------------------------------------------------------------


def _steps(told: Mapping[str, Any]) -> str:
    steps = told["steps"]
    explained = any(step["why"] for step in steps)
    counted = any(step["rows_in"] is not None for step in steps)
    heads = ["place", "written", "step", "reached by", "passes", "per call", "per row"]
    heads += ["evaluations", "read"] if counted else []
    rows = []
    for step in steps:
        moved = " class=moved" if step["place"] != step["written_place"] else ""
        cut = step["kind"] == "cut"
        kind = "" if cut else f' <span class="kind">{escape(step["kind"])}</span>'
        cells = [
            f"<td>{step['place'] + 1}</td><td{moved}>{step['written_place'] + 1}</td>",
            f'<th scope="row">{escape(step["name"])}{kind}</th><td class="barcell">',
            f'<span class="bar" style="width:{100 * (step["alive"] or 0.0):.1f}%"></span>',
            f"<span>{_percent(step['alive'])}</span></td>",
            f"<td>{_percent(step['passes']) if cut else '-'}</td>",
            f"<td>{_cost(step['fixed_s'])}</td><td>{_cost(step['row_s'])}</td>",
        ]
        if counted:
            cells.append(f"<td>{_counted(step['rows_in'], '{:,}'.format)}</td>")
            cells.append(f"<td>{_counted(step['bytes_read'], format_bytes)}</td>")
        if explained:
            cells.append(f'<td class="left words">{escape(step["why"])}</td>')
        rows.append(f"<tr>{''.join(cells)}</tr>")
    left = (2, len(heads))
    known = "Evaluations and bytes were counted, in all orders of the run together. " if counted else ""
    note = hint(
        f"{known}Which share of the rows reaches a step in this order, and which passes it, is estimated from the rows "
        "that were shown to all cuts."
    )
    return f"{table([*heads, 'why'] if explained else heads, rows, left=left, name='order')}{note}"


def _counted(count: int | None, words: Callable[[int], str]) -> str:
    return "-" if count is None else escape(words(count))


def _history(checkpoints: Sequence[Mapping[str, Any]]) -> str:
    """Write what was known and chosen at every checkpoint."""
    if not checkpoints:
        return ""
    rows = [
        f"<tr><td>{_cost(one['spent_s'])}</td><td>{one['windows']:,}</td><td>{_cost(one['cost_s'])}</td>"
        f'<td>{_cost(one["written_s"])}</td><td class="left words">{escape(one["why"])}</td></tr>'
        for one in checkpoints[-MOST_LINES:]
    ]
    heads = ("work done", "places looked at", "cost of a chunk", "in the written order", "decision")
    count = f"{len(checkpoints):,} {'checkpoint' if len(checkpoints) == 1 else 'checkpoints'}"
    more = hint(f"the last {MOST_LINES}") if len(checkpoints) > MOST_LINES else ""
    return f"<details><summary>{count}</summary>{table(heads, rows, left=(4,))}{more}</details>"


def _percent(share: float | None) -> str:
    if share is None:
        return "-"
    return f"{100 * share:.1f} %" if 0 < share < 0.0995 else f"{100 * share:.0f} %"


def _cost(seconds: float | None) -> str:
    return "-" if seconds is None else escape(format_seconds(seconds))


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}."
