"""``@mpi``: not yet."""

from __future__ import annotations

from windrow.compat.pycompss.not_yet import mpi

__all__ = ["MPI", "Mpi", "mpi"]

Mpi = mpi
MPI = mpi
