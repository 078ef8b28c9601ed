"""One seed, many independent random streams.

A user gives one seed. Keys, quantities, gaps and so on each draw from a separate stream, named by
its purpose, so that adding a column never changes the others.
"""

from __future__ import annotations

import hashlib

import numpy as np

from semistream.errors import ConfigError


def stream_key(seed: int, purpose: str) -> np.uint64:
    """A 64-bit key for one purpose of one seed, the same on every machine.

    >>> bool(stream_key(7, "keys") == stream_key(7, "keys"))
    True
    """
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**64:
        raise ConfigError(f"seed={seed!r} is not a seed; give an integer from 0 to 2**64 - 1")
    digest = hashlib.blake2b(f"{seed}/{purpose}".encode(), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little"))
