"""Which columns to fetch together over a slow link: the decision, and what it learns from.

A chunk needs columns at several moments: when a step runs, and when the outputs of a region do. Each
request costs a round trip; fetching early costs the bytes of rows that are cut before the moment
comes. The wave that starts now reaches as far ahead as makes the expected sum of both least. No
clock, no files, no rows here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["MOST_WAVES", "AccessLog", "Link", "Moment", "companions", "wave_length"]

#: Requests a chunk is planned to make at most. The second is most of the gain; a third is planned
#: only where the bytes it saves take longer than its round trip.
MOST_WAVES = 3

#: Chunks after which what was learned is half forgotten: files of one dataset may differ.
MEMORY = 20


class Link(Protocol):
    """What fetching costs."""

    @property
    def round_trip_s(self) -> float:
        """Seconds until a request's first byte."""
        ...

    @property
    def bytes_per_s(self) -> float:
        """Bytes per second from then on."""
        ...


@dataclass(frozen=True, slots=True)
class Moment:
    """A time in a chunk at which columns are needed that are not here yet."""

    size: float  #: bytes, for the rows that are wanted now
    reached: float  #: the probability that the moment comes
    share: float  #: of the bytes that is still wanted then, on average; 0 where it does not come
    lanes: frozenset[int]  #: whose rows are wanted then


def wave_length(moments: Sequence[Moment], round_trip_s: float, bytes_per_s: float, most: int = MOST_WAVES) -> int:
    """Return how many of the coming moments a request that is sent now should serve.

    The first moment is now. Waves serve moments that follow each other: had a later one been served
    by an earlier wave, it would have brought more rows at no gain. Which rows are wanted when a
    wave starts is bounded by the moments until then that want the rows of at least the same lanes.
    """
    count = len(moments)
    if count < 2:
        return count
    cost = _costs(moments, round_trip_s, bytes_per_s)
    rest = np.full(count + 1, np.inf)
    rest[count] = 0.0
    for _ in range(most - 1):
        rest[:count] = np.min(cost + rest[1:], axis=1)
    first = cost[0] + rest[1:]
    # Of equal plans the one with fewer requests: the last.
    return count - int(np.argmin(first[::-1]))


def _costs(moments: Sequence[Moment], round_trip_s: float, bytes_per_s: float) -> np.ndarray:
    """Return [i, j]: the seconds a wave is expected to cost that starts at i and serves i to j."""
    count = len(moments)
    size = np.array([one.size for one in moments]) / bytes_per_s
    share = np.array([one.share for one in moments])
    reached = np.array([one.reached for one in moments])
    kinds = {lanes: n for n, lanes in enumerate(dict.fromkeys(one.lanes for one in moments))}
    kind = np.array([kinds[one.lanes] for one in moments])
    covers = np.array([[a >= b for b in kinds] for a in kinds])[np.ix_(kind, kind)]
    left = np.minimum.accumulate(np.where(covers, share[:, None], 1.0), axis=0)
    left = np.maximum(left, share)
    # The wave of now brings what is wanted now, and comes for certain.
    left[0] = 1.0
    later = np.triu(np.ones((count, count), dtype=bool))
    transfer = np.cumsum(np.where(later, left * size, 0.0), axis=1)
    chance = np.maximum.accumulate(np.where(later, reached, 0.0), axis=1)
    chance[0] = 1.0
    return np.where(later, chance * round_trip_s + transfer, np.inf)


def companions(column: str, sizes: Mapping[str, float], budget: float) -> list[str]:
    """Return ``column`` and the smallest others that fit into ``budget`` bytes.

    For a step whose fields nobody knows yet: with a budget of what a round trip could carry, a
    wrong guess at most doubles what the request costs, and a right one saves a request.
    """
    chosen = [column]
    for name in sorted(sizes, key=lambda name: (sizes[name], name)):
        if name == column:
            continue
        budget -= sizes[name]
        if budget < 0:
            break
        chosen.append(name)
    return chosen


class AccessLog:
    """How often the moments of a dataset come, and for which share of a chunk's rows.

    Shared by all workers and kept between runs. A lost update costs a request, not an answer, so
    there is no lock.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], tuple[float, float, float]] = {}

    def note(self, dataset: str, shares: Mapping[str, float]) -> None:
        """Learn from one chunk: the share of its rows that each moment was for; 0 if it never came."""
        fade = 0.5 ** (1 / MEMORY)
        for moment, share in shares.items():
            chunks, came, rows = self._seen.get((dataset, moment), (0.0, 0.0, 0.0))
            self._seen[dataset, moment] = (fade * chunks + 1, fade * came + (share > 0), fade * rows + share)

    def knows(self, dataset: str, moment: str) -> bool:
        """Say whether any chunk was seen."""
        return (dataset, moment) in self._seen

    def expected(self, dataset: str, moment: str) -> tuple[float, float]:
        """Return the probability of the moment and the expected share of the rows; 1 if unknown."""
        chunks, came, rows = self._seen.get((dataset, moment), (0.0, 0.0, 0.0))
        if not chunks:
            return 1.0, 1.0
        # Half a chunk of doubt: what one chunk did not need, the next may.
        reached = (came + 0.5) / (chunks + 1) if came < chunks else 1.0
        return reached, min((rows + 0.5) / (chunks + 1) if rows < chunks else 1.0, reached)
