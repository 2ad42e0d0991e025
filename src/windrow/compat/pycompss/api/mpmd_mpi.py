"""``@mpmd_mpi``: not yet."""

from __future__ import annotations

from windrow.compat.pycompss.not_yet import mpmd_mpi

__all__ = ["MPMDMPI", "mpmd_mpi"]

MPMDMPI = mpmd_mpi
