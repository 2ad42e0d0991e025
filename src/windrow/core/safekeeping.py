"""What is known when the safety decision is asked: what bringing work to safety costs, and how
long workers live. Sums only, so that asking costs the same however many workers there were.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from windrow.core.state import RECENT, Bundle, WorkerState

if TYPE_CHECKING:
    from windrow.core.policies import SafetyPolicy

__all__ = ["Safekeeping"]


class Safekeeping:
    """Asks the safety decision about bundles."""

    def __init__(self, policy: SafetyPolicy) -> None:
        self.now = 0.0
        self._policy = policy
        self._fetch_s: dict[str, float] = {}  #: by category: of recent fetches
        self._workers = 0  #: alive
        self._joined = 0.0  #: the sum of the times when they joined
        self._past_s = 0.0  #: the sum of the lifetimes of those that are gone
        self._losses = 0

    def joined(self, worker: WorkerState) -> None:
        """A worker lives from now on."""
        worker.joined = self.now
        self._workers += 1
        self._joined += self.now

    def left(self, worker: WorkerState, *, lost: bool) -> None:
        """A worker is gone: lost, or because it was told to."""
        self._workers -= 1
        self._joined -= worker.joined
        self._past_s += self.now - worker.joined
        self._losses += lost

    def fetched(self, category: str, seconds: float) -> None:
        """Learn what bringing a partial to safety took."""
        recent = self._fetch_s.get(category, seconds)
        self._fetch_s[category] = recent + RECENT * (seconds - recent)

    def life_s(self) -> float | None:
        """Say how long a worker lives on average; None if none was lost."""
        if not self._losses:
            return None
        return (self._past_s + self._workers * self.now - self._joined) / self._losses

    def due(self, bundle: Bundle) -> bool:
        """Ask whether the work in a bundle is to be brought to safety now."""
        cost_s = self._fetch_s.get(bundle.feed.spec.category)
        return self._policy.due(bundle.unsafe_s, cost_s, self.life_s())
