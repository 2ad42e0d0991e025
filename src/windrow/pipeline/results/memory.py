"""Memory of a run's chunks by dataset: what was learned of it, what came of what they were granted, what to ask for next time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import ceil
from typing import TYPE_CHECKING, Any

from windrow.shape.allocation.policy import Allocation
from windrow.shape.chunks import BLOCKS, ROWS
from windrow.units import format_bytes

if TYPE_CHECKING:
    from windrow.core.accounts import Account
    from windrow.core.policies import LaunchPolicy
    from windrow.pipeline.results.result import Result

#: Where no line was learned, the most that was seen and a tenth: chunks of one size differ by that.
MARGIN = 1.1
#: What became of chunks that used too much, as the policy names it, in words.
BECAME = {
    "blocks": "run in blocks of {:,} rows", "split": "cut smaller", "larger": "given more",
    "fresh": "run on a fresh worker", "written": "run in the written order", "fail": "given up",
}  # fmt: skip
#: Shares of the workers' time that are said.
LEAST_LOST = 0.0005


def learned_memory(policy: LaunchPolicy, accounts: Mapping[str, Account]) -> dict[str, dict[str, Any]]:
    """Say by dataset what its chunks used: with a limit what was learned, without one the most, where it was measured."""
    found: dict[str, dict[str, Any]] = {}
    told = policy.describe() if isinstance(policy, Allocation) else []
    for name, account in accounts.items():
        every = [one for one in told if one["category"] == name]
        chunks = [one for one in every if one["kind"] in (ROWS, BLOCKS)]
        if chunks:
            found[name] = _learned(every, chunks)
        elif account.most_memory:
            found[name] = {"limited": False, "rows": account.most_rows, "most": account.most_memory}
            found[name]["suggested_mem_mb"] = ceil(MARGIN * account.most_memory / 1e6)
    return found


def _learned(every: list[dict[str, Any]], chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """Put the kinds of tasks of a dataset together: all count for what to ask for, the line is that of most chunks."""
    of = max(chunks, key=lambda one: ("fixed" in one, one.get("tasks", 0)))
    tasks = int(sum(one.get("tasks", 0) for one in chunks))
    counts = {name: int(sum(one.get(name, 0) for one in every)) for name in BECAME}
    block = max(one.get("block_rows", 0) for one in chunks)
    rows = int(min(of.get("rows", 0), of.get("fitting", 0)))
    return {
        "limited": True,
        "allowed": of["allowed"],
        "rows": int(max(one.get("rows", 0) for one in chunks)),
        "most": max(one.get("most", 0) for one in every),
        "most_granted": max(one.get("most_granted", 0) for one in every),
        **{
            name: sum(one.get(name, 0) for one in chunks) for name in ("granted_byte_s", "wasted_byte_s", "used", "off")
        },
        **{name: of.get(name) for name in ("fixed", "per_row")},
        "tasks": tasks,
        **counts,
        "too_much": sum(counts[act] for act in BECAME),
        "became": ", ".join(f"{counts[act]:,} {words.format(block)}" for act, words in BECAME.items() if counts[act]),
        "suggested_mem_mb": ceil(max(one.get("suggested", 0) for one in every) / 1e6),
        #: options of a run, to begin with as many rows as fit
        "pin": {"chunk": rows, "task_memory": ceil(of["suggested"] / 1e6) * 10**6} if rows else {},
    }


def memory_lines(result: Result) -> Iterator[str]:
    """Say it in words, of datasets whose memory was limited."""
    told = {name: facts for name, facts in result.memory.items() if facts["limited"]}
    for name, one in told.items():
        parts = []
        if one["fixed"] is not None and one["tasks"]:
            line = f"a chunk takes {format_bytes(one['fixed'])} and {format_bytes(one['per_row'])} a row"
            parts.append(f"{line} ({one['tasks']:,} chunks, the largest of {one['rows']:,} rows)")
        if one.get("most_granted", 0) > one["allowed"]:
            parts.append(f"up to {format_bytes(one['most_granted'])} were granted to a chunk, more than its share")
        if one["became"]:
            parts.append(f"of those that used more than they might {one['became']}")
        if pin := one["pin"]:
            settings = f'chunk={pin["chunk"]}, task_memory="{pin["task_memory"] // 10**6} MB"'
            parts.append(f"to begin with what was learned: {settings}")
        yield f"memory: {name}: {'; '.join(parts)}"
    lost = result.account["attempts that came to nothing"] / (sum(result.account.values()) or 1.0)
    if lost >= LEAST_LOST and any(one["became"] for one in told.values()):
        yield f"memory: {100 * lost:.1f} % of the workers' time was lost to attempts that came to nothing"
