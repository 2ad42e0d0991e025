"""The order of steps as a report shows it: over time, step by step, what it saved and what finding it cost."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from windrow.units import format_bytes, format_count, format_seconds
from windrow.watch.report.page import chart
from windrow.watch.report.tables import Column, Html, details, heading, hint, listed, plural, table, tiles

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: More steps than this are drawn without the columns and weights, which go where the cuts go that need them.
MOST_STEPS = 25
#: Changes that are drawn; the last ones, if there are more.
MOST_CHANGES = 24


def order_section(data: Mapping[str, Any]) -> str:
    """Write the section: one part for each dataset whose order was decided about."""
    decided = [told for told in data["ordering"] if told["steps"]]
    parts = []
    if not decided:
        parts.append(hint(_undecided(data)))
    elif len(data["ordering"]) > 1:
        parts += [
            details(
                f"<strong>{escape(told['dataset'])}</strong> {escape(told['words'])}",
                _dataset(number, told, data),
                opened=number == 0,
                name="dataset",
            )
            for number, told in enumerate(decided)
        ]
    else:
        words = decided[0]["words"]
        parts.append(f"<p>{escape(words[:1].upper() + words[1:])}.</p>{_dataset(0, decided[0], data)}")
    kept = [told for told in data["ordering"] if told["fixed"]]
    if kept:
        parts.append(heading("Where the order had to stay"))
        parts.append(listed([f"{told['dataset']}: {told['fixed']}" for told in kept]))
    return "\n".join(parts)


def _undecided(data: Mapping[str, Any]) -> str:
    if data["state"] == "unfinished":
        return "Not known, as the run left no result."
    reasons = list(dict.fromkeys(why for _, _, why in data["order"] if why))
    return f"Nothing was decided about the order in this run: {'; '.join(reasons) or 'no step ran'}."


def _dataset(number: int, told: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    drawn = _chart_data(told)
    picture = "" if drawn is None else chart(f"order-{number}", drawn["label"]) + hint(" ".join(drawn["words"]))
    return "\n".join((_tiles(told, data), picture, _steps(told)))


def _tiles(told: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """Write what was saved, which is estimated, and what was paid, which is measured."""
    saved, looked = told["saved"], told["looked"]
    numbers: list[tuple[str, ...]] = []
    if told["moved"]:
        if told["share"] is not None:
            numbers.append((f"{100 * told['share']:.0f} %", "of the written order's cost", "at the end, by the model"))
        for name, words, what in (
            ("evaluations", format_count, "evaluations"),
            ("seconds", format_seconds, "processor time"),
            ("bytes", lambda size: format_bytes(int(size)), "reading"),
        ):
            if size := saved[name] or 0.0:
                label = f"{what} saved" if size > 0 else f"more {what}"
                numbers.append((words(abs(size)), label, "against the written order, by the model"))
    at = f"{format_seconds(looked['seconds'])}: {looked['rows']:,} rows in {looked['windows']:,} places"
    numbers.append((_share_of_run(looked["seconds"], data), "of the run for looking", at))
    every = ", all datasets together" if len(data["ordering"]) > 1 else ""
    planned = f"{format_seconds(told['planning_s'])}{every}"
    numbers.append((_share_of_run(told["planning_s"], data), "of the run for planning", planned))
    return tiles(numbers, "tiles small")


def _share_of_run(seconds: float, data: Mapping[str, Any]) -> str:
    whole = (data["seconds"] or 0.0) * max(data["workers"], 1)
    if not whole:
        return format_seconds(seconds)
    share = 100 * seconds / whole
    return f"{share:.1f} %" if share >= 0.05 else "< 0.1 %"


# -- over time -------------------------------------------------------------------------------------


def order_chart_data(data: Mapping[str, Any]) -> list[dict[str, Any] | None]:
    """Give for each dataset what its drawing shows: the orders one after the other; None where there was only one."""
    return [_chart_data(told) for told in data["ordering"] if told["steps"]]


def _chart_data(told: Mapping[str, Any]) -> dict[str, Any] | None:
    steps = told["steps"]
    cuts = [step["name"] for step in steps if step["kind"] == "cut"]
    shown, words = [step["name"] for step in steps], []
    if len(shown) > MOST_STEPS and len(cuts) > 1:
        shown = cuts
        words.append("Columns and weights, which are made just before the first cut that needs them, are not drawn.")
    orders, times = _orders(told, frozenset(shown))
    if len(orders) < 2:
        return None
    if len(orders) > MOST_CHANGES + 1:
        words.append(f"The last {MOST_CHANGES} of {len(orders) - 1:,} changes are drawn.")
        orders = [orders[0], *orders[-MOST_CHANGES:]]
        times = [times[0], *times[-MOST_CHANGES:]]
    words.append("Times are the work of all workers at which the order changed.")
    return {
        "orders": orders,
        "times": times,
        "cuts": cuts,
        "words": words,
        "label": f"The order of the steps of {told['dataset']} over time, {plural(len(orders) - 1, 'change')}. "
        f"In the end: {', '.join(orders[-1])}.",
    }


def _orders(told: Mapping[str, Any], shown: frozenset[str]) -> tuple[list[list[str]], list[str]]:
    """List the orders that were in force, from the written one on, as far as they differ, and since when."""

    def only(names: Sequence[str]) -> list[str]:
        return [name for name in names if name in shown]

    written = only([step["name"] for step in sorted(told["steps"], key=lambda step: step["written_place"])])
    found = [(written, "written"), (only(told["began"] or written), "0 s")]
    found += [(only(one["order"]), format_seconds(one["spent_s"])) for one in told["checkpoints"]]
    # A guard that was learned, or the written order again: what made it so has no time of its own.
    found.append((only(told["ended"] or found[-1][0]), "later"))
    orders, times = [written], ["written"]
    for names, time in found:
        if names != orders[-1] and set(names) == set(written):
            orders.append(names)
            times.append(time)
    if only(told["began"] or written) == written:
        times[0] = "0 s"
    return orders, times


# -- step by step ----------------------------------------------------------------------------------


def _steps(told: Mapping[str, Any]) -> str:
    steps = told["steps"]
    explained = any(step["why"] for step in steps)

    def written(step: Mapping[str, Any]) -> Any:
        place = step["written_place"] + 1
        return place if step["place"] == step["written_place"] else Html(f'<span class="moved">{place}</span>')

    def name(step: Mapping[str, Any]) -> Html:
        kind = "" if step["kind"] == "cut" else f' <span class="kind">{escape(step["kind"])}</span>'
        return Html(f"{escape(step['name'])}{kind}")

    columns: list[Column] = [
        ("place", lambda step: step["place"] + 1, "number"),
        ("written", written, "number"),
        ("step", name, "name"),
        ("reached by", "alive", "share"),
        ("passes", lambda step: step["passes"] if step["kind"] == "cut" else None, "percent"),
        ("per call", "fixed_s", "seconds"),
        ("per row", "row_s", "seconds"),
    ]
    columns += [("why", "why", "words")] if explained else []
    return table(steps, columns, name="order") + hint(
        "Which share of the rows reaches a step in this order, and which passes it, is estimated from the rows "
        "that were shown to all cuts."
    )
