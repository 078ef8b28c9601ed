"""A set-associative cache of keys that the master table does not have.

Each set has eight slots; a full set overwrites one. ``used`` marks the occupied slots.
"""

import numpy as np

from semistream.kernels.compile import compiled
from semistream.kernels.window import bucket_of


@compiled
def insert(codes, table, used):
    """Add absent keys; a full set overwrites one."""
    sets = len(table) >> 3
    for code in codes:
        base = bucket_of(code, sets) << 3
        place = base + (np.uint64(code) & np.uint64(7))
        for i in range(8):
            if not used[base + i] or table[base + i] == code:
                place = base + i
                break
        table[place], used[place] = code, True


@compiled
def contains(codes, rows, table, used):
    """Which of the tuples ``codes[rows]`` have a key that is known to be absent."""
    known = np.zeros(len(rows), np.bool_)
    sets = len(table) >> 3
    for i in range(len(rows)):
        code = codes[rows[i]]
        base = bucket_of(code, sets) << 3
        for j in range(8):
            if used[base + j] and table[base + j] == code:
                known[i] = True
                break
    return known
