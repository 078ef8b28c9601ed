"""Where pages are in their file, and which of them were checked."""

from semistream.kernels.compile import compiled


@compiled
def locate(pages, offsets, lengths, starts, sizes):
    """Write where each of these pages starts, and its bytes; returns the bytes of all."""
    total = 0
    for i in range(len(pages)):
        page = pages[i]
        starts[i], sizes[i] = offsets[page], lengths[page]
        total += sizes[i]
    return total


@compiled
def unchecked(pages, checked):
    """How many of these pages were not checked before."""
    count = 0
    for i in range(len(pages)):
        count += not checked[pages[i]]
    return count
