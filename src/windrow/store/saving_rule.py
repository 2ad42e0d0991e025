"""When it is worth writing a merged partial down: as long as all writing together stays next to nothing."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SHARE", "WriteCost", "when_worth_writing", "worth_writing"]

#: Writing takes at most this share of the time a run has taken so far.
SHARE = 0.01

#: How much a write that was faster than predicted changes the prediction. One that was slower counts at once: a disk
#: that others use is slow now and then, and a rule that hopes would spend more than its share.
_TRUST = 0.25


def worth_writing(elapsed_s: float, spent_s: float, predicted_cost_s: float) -> bool:
    """Whether a write that is predicted to take so long keeps all writing under its share of the elapsed time."""
    return spent_s + predicted_cost_s <= SHARE * elapsed_s


def when_worth_writing(spent_s: float, predicted_cost_s: float) -> float:
    """Give the elapsed time from which on such a write is worth it."""
    return (spent_s + predicted_cost_s) / SHARE


@dataclass(frozen=True, slots=True)
class WriteCost:
    """What a write costs: so much each, and so much per byte. The first guess is a disk that is not fast."""

    fixed_s: float = 0.010
    s_per_byte: float = 1 / 200e6

    def predict(self, size_bytes: int) -> float:
        """Give the seconds a write of so many bytes will take."""
        return self.fixed_s + self.s_per_byte * size_bytes

    def after(self, size_bytes: int, seconds: float) -> WriteCost:
        """Learn from a write.

        Each part takes the blame by its share of the prediction, so that small writes teach what any write costs, and
        large ones what a byte costs. The new prediction is between the old one and what was seen.
        """
        predicted = self.predict(size_bytes)
        if predicted <= 0:
            return WriteCost(seconds, self.s_per_byte)
        wrong = seconds / predicted - 1
        rate = 1.0 if wrong > 0 else _TRUST
        fixed = self.fixed_s / predicted
        return WriteCost(self.fixed_s * (1 + rate * wrong * fixed), self.s_per_byte * (1 + rate * wrong * (1 - fixed)))
