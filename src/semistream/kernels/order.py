"""Puts output rows into the order of their tuples."""

import numpy as np

from semistream.kernels.compile import compiled


@compiled
def by_number(numbers, count):
    """The rows in ascending order of ``numbers``, which are from 0 to ``count - 1``; rows with the
    same number stay in their order.

    A counting sort: numbers are dense, so it is linear, and needs 4 bytes a row and a number.
    """
    ends = np.zeros(count + 1, np.int32)
    for i in range(len(numbers)):
        ends[numbers[i] + 1] += 1
    for n in range(count):
        ends[n + 1] += ends[n]
    order = np.empty(len(numbers), np.int32)
    for i in range(len(numbers)):
        number = numbers[i]
        order[ends[number]] = i
        ends[number] += 1
    return order
