"""HEP-Frame's rule for sharing out threads between setting data up and processing it, to be compared with the exact one.

Pereira and Proenca 2021, section 3.2, its side conditions swapped so that the slower side gains: it moves some threads at a time,
where the ``Balance`` of real runs goes at once where both sides keep pace with each other.
"""

from __future__ import annotations

from windrow.place.read_ahead_split import Balance, Pool


def even_pool(threads: int) -> Pool:
    """As many threads on either side, with which the paper begins."""
    return Pool(threads // 2, threads - threads // 2)


def paper_step(setup_s: float, process_s: float, setting_up: int, processing: int) -> float:
    """Say how many threads go from setup to processing; below zero: the other way.

    ``setup_s`` and ``process_s`` are what the same rows take on either side with all its threads.
    """
    middle = (setup_s + process_s) / 2
    if process_s > setup_s:
        return (process_s - middle) / (process_s / processing)
    if setup_s > process_s:
        return -(setup_s - middle) / (setup_s / setting_up)
    return 0.0


class PaperBalance(Balance):
    """A split that is tuned by the paper's rule."""

    def tuned(self, setup_s: float, process_s: float, computing: float) -> Pool:  # noqa: ARG002 - setting up computes all the time there
        s, p = self.pool
        setting_up = s - round(paper_step(setup_s / s, process_s / p, s, p))
        setting_up = min(max(setting_up, 1), self.cores - 1)
        return Pool(setting_up, self.cores - setting_up)
