"""Gathers the items of lists from many Arrow pages: ranges of consecutive items, not single rows.

The arrays are those of ``kernels.pages``. Range i has ``lengths[i]`` items from ``starts[i]`` on,
of the page at ``places[i]``.
"""

from semistream.kernels.arrow_buffers import (
    is_large,
    load_bit,
    load_offset,
    store_bit,
    store_offset,
)
from semistream.kernels.column_forms import (
    BITS,
    CONTENT,
    CORRUPT,
    DONE,
    EMPTY,
    LIST,
    NO_BITMAP,
    OUT_BITMAP,
    OUT_CONTENT,
    OUT_END,
    OUT_NULLS,
    OUT_ROOM,
    OUT_VALUES,
    SIZE,
    VALIDITY,
    VALUES,
)
from semistream.kernels.compile import compiled
from semistream.kernels.intrinsics import copy_raw
from semistream.kernels.pages import has_nulls


@compiled
def items(pages, forms, n, places, starts, lengths, at, out, first, counts):
    """The items of the lists in these ranges of node ``n``, which were appended from ``at`` on.

    Writes each range's first item and number of items. Their number is that of the appended
    offsets, so that it fits into the buffers even if the page has changed since. Returns DONE or
    CORRUPT.
    """
    large, target = is_large(forms[n]), out[OUT_VALUES, n]
    for i in range(len(places)):
        count = load_offset(target, at + lengths[i], large) - load_offset(target, at, large)
        begin = 0
        if lengths[i] > 0:
            begin = load_offset(pages[VALUES, n, places[i]], starts[i], large)
            if begin < 0 or begin > pages[SIZE, n, places[i]] - count:
                return CORRUPT
        first[i], counts[i] = begin, count
        at += lengths[i]
    return DONE


@compiled
def append(pages, forms, first, stop, places, starts, lengths, at, out):
    """Append ranges to nodes ``first`` to ``stop - 1``; returns the same as ``pages.append``."""
    for n in range(first, stop):
        form, sources, target = forms[n], pages[VALUES, n], out[OUT_VALUES, n]
        if has_nulls(pages[VALIDITY, n], places):
            if out[OUT_BITMAP, n] == 0:
                out[OUT_END, n] = NO_BITMAP
                return n
            validity = pages[VALIDITY, n]
            if _append_validity(validity, places, starts, lengths, at, out[OUT_BITMAP, n]):
                out[OUT_NULLS, n] = 1
        if form > 0:
            row = at
            for i in range(len(places)):
                source = sources[places[i]] + starts[i] * form
                copy_raw(target + row * form, source, lengths[i] * form)
                row += lengths[i]
        elif form == BITS:
            row = at
            for i in range(len(places)):
                for k in range(starts[i], starts[i] + lengths[i]):
                    store_bit(target, row, load_bit(sources[places[i]] + k))
                    row += 1
        elif form != EMPTY:
            large, room = is_large(form), out[OUT_ROOM, n]
            row, end = at, load_offset(target, at, large)
            for i in range(len(places)):
                if lengths[i] == 0:
                    continue
                place = places[i]
                begin = load_offset(sources[place], starts[i], large)
                shift, last = end - begin, begin
                for k in range(starts[i] + 1, starts[i] + lengths[i] + 1):
                    offset = load_offset(sources[place], k, large)
                    if offset < last:
                        return CORRUPT
                    last = offset
                    row += 1
                    store_offset(target, row, large, offset + shift)
                if begin < 0 or last > pages[SIZE, n, place]:
                    return CORRUPT
                if form > LIST and last + shift <= room:
                    source = pages[CONTENT, n, place] + begin
                    copy_raw(out[OUT_CONTENT, n] + end, source, last - begin)
                end = last + shift
            out[OUT_END, n] = end
            if end > room:
                return n
    return DONE


@compiled
def _append_validity(validity, places, starts, lengths, at, bitmap):
    """Write the validity bits of these ranges; returns whether one is null."""
    found = False
    for i in range(len(places)):
        position = validity[places[i]]
        for k in range(starts[i], starts[i] + lengths[i]):
            bit = 1
            if position != 0:
                bit = load_bit(position + k)
            if bit == 0:
                found = True
            store_bit(bitmap, at, bit)
            at += 1
    return found
