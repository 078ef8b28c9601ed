"""Merges the pages of changed codes of two versions of a table."""

from semistream.kernels.compile import compiled


@compiled
def merge(
    newer, newer_low, newer_high, older, older_low, older_high, codes, low, high
):  # fmt: skip
    """The union of two sorted lists of codes with their pages; of a code that is in both, the newer
    pages. Returns the number of codes."""
    i, j, count = 0, 0, 0
    while i < len(newer) and j < len(older):
        if older[j] < newer[i]:
            codes[count], low[count], high[count] = older[j], older_low[j], older_high[j]
            j += 1
        else:
            codes[count], low[count], high[count] = newer[i], newer_low[i], newer_high[i]
            if older[j] == newer[i]:
                j += 1
            i += 1
        count += 1
    while i < len(newer):
        codes[count], low[count], high[count] = newer[i], newer_low[i], newer_high[i]
        i += 1
        count += 1
    while j < len(older):
        codes[count], low[count], high[count] = older[j], older_low[j], older_high[j]
        j += 1
        count += 1
    return count
