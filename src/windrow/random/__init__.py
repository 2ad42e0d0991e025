"""Random numbers that depend on nothing but seed, name, row and object.

A number is a function of (seed, stream name, method, row identity, index of the object in its row,
draw number): never of the order of calls, of chunks, of workers or of which other rows are there.
The generator is Philox4x32-10 (Salmon et al. 2011, doi:10.1145/2063384.2063405); its key is a hash
of seed, name and method, its counter is (identity, object, draw).

There is no global state, names - not call order - key the numbers, and values are made of
correctly rounded operations only (``windrow._portable``).
"""

from __future__ import annotations

from windrow.random.rng import Rng, Stream
from windrow.random.row_ids import entry_identities, identity_hash

__all__ = ["Rng", "Stream", "entry_identities", "identity_hash"]
