"""Orders: output rows by their tuples, and waiting tuples by a value."""

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


@compiled
def merge_arrived(slots, values, first, capacity, kept, new_slots, new_values):
    """The slots of a ring in the order of their values, after some of the oldest have left and
    others have arrived; both lists are sorted.

    ``first`` is the slot of the oldest tuple, and ``kept`` how many from it on were sorted before.
    """
    out_slots = np.empty(kept + len(new_slots), slots.dtype)
    out_values = np.empty(len(out_slots), values.dtype)
    found, n = 0, 0
    for i in range(len(slots)):
        age = slots[i] - first
        if age < 0:
            age += capacity
        if age >= kept:
            continue
        while n < len(new_slots) and new_values[n] < values[i]:
            out_slots[found], out_values[found] = new_slots[n], new_values[n]
            found += 1
            n += 1
        out_slots[found], out_values[found] = slots[i], values[i]
        found += 1
    while n < len(new_slots):
        out_slots[found], out_values[found] = new_slots[n], new_values[n]
        found += 1
        n += 1
    return out_slots[:found], out_values[:found]


@compiled
def places_of(values, sought, after):
    """Where each sought value belongs in sorted ``values``: before equal ones, or ``after`` them.

    Like a binary search, but from the place of the one before: rows of a page are often sorted, and
    then the next place is near.
    """
    places = np.empty(len(sought), np.int64)
    end, place = len(values), 0
    for i in range(len(sought)):
        wanted = sought[i]
        if i and wanted < sought[i - 1]:
            low, high = 0, place
        else:
            low, high, step = place, place, 1
            while high < end and (values[high] < wanted or (after and values[high] == wanted)):
                low = high + 1
                high += step
                step <<= 1
            high = min(high, end)
        while low < high:
            middle = (low + high) >> 1
            if values[middle] < wanted or (after and values[middle] == wanted):
                low = middle + 1
            else:
                high = middle
        place = low
        places[i] = place
    return places


@compiled
def expand(begins, ends, slots, cursor, rows_out, slots_out):
    """Pairs of row ``i`` with each of ``slots[begins[i]:ends[i]]``, until the output is full.

    ``cursor`` has the row to go on with and how many of its slots were returned, and is moved;
    after the last row it is (rows, -1). Returns the number of pairs.
    """
    row, taken, found = cursor[0], max(0, cursor[1]), 0
    while row < len(begins):
        for place in range(begins[row] + taken, ends[row]):
            if found == len(rows_out):
                cursor[0], cursor[1] = row, place - begins[row]
                return found
            rows_out[found], slots_out[found] = row, slots[place]
            found += 1
        row += 1
        taken = 0
    cursor[0], cursor[1] = row, -1
    return found
