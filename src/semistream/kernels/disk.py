"""Many small reads of one file in one call."""

from numba import types

from semistream.kernels.compile import compiled

read_from = types.ExternalFunction(
    "pread", types.intp(types.int32, types.uintp, types.uintp, types.int64)
)


@compiled
def read_ranges(descriptor, address, places, offsets, sizes):
    """Read ``sizes[i]`` bytes from ``offsets[i]`` to ``address + places[i]``, for every i.

    Returns the number of complete reads, before the first one that failed or was short.
    """
    for i in range(len(offsets)):
        done = read_from(descriptor, address + places[i], sizes[i], offsets[i])
        if done != sizes[i]:
            return i
    return len(offsets)
