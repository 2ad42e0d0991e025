"""Memory of a run's chunks by dataset: what was learned of it, what came of what they were granted, what to ask for next time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import ceil
from typing import TYPE_CHECKING, Any

from windrow.shape.allocation.policy import Allocation
from windrow.shape.allocation.row_bounds import BLOCKS, ROWS
from windrow.units import format_bytes
from windrow.watch.report.memory import pin_words

if TYPE_CHECKING:
    from windrow.core.accounts import Account
    from windrow.core.policies import LaunchPolicy
    from windrow.pipeline.results.result import Result

#: Where no line was learned, the most that was seen and a tenth: chunks of one size differ by that.
MARGIN = 1.1
#: What became of chunks that used too much, as the policy names it, in words.
BECAME = {
    "blocks": "run in blocks of # rows", "split": "cut smaller", "larger": "given more",
    "fresh": "run on a fresh worker", "written": "run in the written order", "fail": "given up",
}  # fmt: skip
#: Shares of the workers' time that are said.
LEAST_LOST = 0.0005
#: What adds up over kinds of tasks and over runs.
_COUNTS = ("tasks", "predictions", *BECAME)
_SUMS = (*_COUNTS, "granted_byte_s", "wasted_byte_s", "predicted", "used", "off")


def learned_memory(policy: LaunchPolicy, accounts: Mapping[str, Account]) -> dict[str, dict[str, Any]]:
    """Say by dataset what its chunks used: with a limit what was learned, without one the most, where it was measured."""
    if not isinstance(policy, Allocation):
        return {
            name: {
                "limited": False, "rows": account.most_rows, "most": account.most_memory,
                "suggested_mem_mb": _megabytes(MARGIN * account.most_memory),
            }
            for name, account in accounts.items() if account.most_memory
        }  # fmt: skip
    told = [one for one in policy.describe() if one.get("most") or any(one.get(act) for act in BECAME)]
    found = {}
    for name in accounts:
        every = [one for one in told if one["category"] == name]
        chunks = [one for one in every if one["kind"] in (ROWS, BLOCKS)]
        if chunks:
            of = max(chunks, key=lambda one: ("fixed" in one, one.get("tasks", 0)))  # of most a line is said
            found[name] = _dataset(every, chunks, of)
    return found


def _dataset(every: list[dict[str, Any]], chunks: list[dict[str, Any]], of: Mapping[str, Any]) -> dict[str, Any]:
    """Put the kinds of tasks of a dataset together; all count for what to ask for."""
    facts: dict[str, Any] = {name: sum(one.get(name, 0) for one in chunks) for name in _SUMS}
    facts |= {name: int(facts[name]) for name in _COUNTS}
    facts |= {"limited": True, "allowed": of["allowed"]}
    facts["rows"] = int(max(one.get("rows", 0) for one in chunks))
    facts["most"] = max(one.get("most", 0) for one in every)
    facts["block_rows"] = max(one.get("block_rows", 0) for one in chunks)
    facts |= {name: of[name] for name in ("fixed", "per_row") if name in of}
    facts["suggested_mem_mb"] = _megabytes(max(one.get("suggested", 0.0) for one in every))
    rows = int(min(of.get("rows", 0), of.get("fitting", 0)))
    #: Settings as a run takes them, to begin with as many rows as fit.
    facts["pin"] = {"chunk": rows, "task_memory": _megabytes(of["suggested"]) * 10**6} if rows else {}
    return facts


def merge_memory(parts: Iterable[Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Add up what several runs say: sums and the most; a line is that of the run with most chunks."""
    together: dict[str, dict[str, Any]] = {}
    for name, facts in ((name, facts) for part in parts for name, facts in part.items()):
        if name not in together:
            together[name] = dict(facts)
            continue
        first, second = sorted((together[name], facts), key=lambda told: -told.get("tasks", 0))
        added = {key: first.get(key, 0) + second.get(key, 0) for key in _SUMS if key in first or key in second}
        most = {key: max(first[key], second[key]) for key in ("rows", "most", "suggested_mem_mb")}
        together[name] = {**second, **first, **added, **most}
    return together


def lost_share(result: Result) -> float:
    """Give the share of the workers' time that went into attempts that came to nothing."""
    whole = sum(result.account.values())
    return result.account.get("attempts that came to nothing", 0.0) / whole if whole else 0.0


def memory_lines(memory: Mapping[str, Mapping[str, Any]], lost: float) -> Iterator[str]:
    """Say it in words, of datasets whose memory was limited."""
    told = {name: facts for name, facts in memory.items() if facts["limited"]}
    for name, facts in told.items():
        parts = []
        if "fixed" in facts:
            line = f"a chunk takes {format_bytes(facts['fixed'])} and {format_bytes(facts['per_row'])} a row"
            parts.append(f"{line} ({facts['tasks']:,} chunks, the largest of {facts['rows']:,} rows)")
        if bad := became(facts):
            parts.append(f"of those that used more than they might {bad}")
        if facts["pin"]:
            parts.append(f"to begin with what was learned: {pin_words(facts['pin'])}")
        yield f"memory: {name}: {'; '.join(parts)}"
    if lost >= LEAST_LOST and any(map(became, told.values())):
        yield f"memory: {100 * lost:.1f} % of the workers' time was lost to attempts that came to nothing"


def became(facts: Mapping[str, Any]) -> str:
    """Say what became of the chunks of a dataset that used too much."""
    words = ", ".join(f"{facts[act]:,} {words}" for act, words in BECAME.items() if facts.get(act))
    return words.replace("#", f"{facts.get('block_rows', 0):,}")


def memory_data(result: Result) -> dict[str, dict[str, Any]]:
    """Give what a report says of it."""
    return {
        name: {**facts, "became": became(facts), "too_much": sum(facts.get(act, 0) for act in BECAME)}
        for name, facts in result.memory.items()
    }


def _megabytes(size: float) -> int:
    return ceil(size / 1e6)
