"""Compares keys byte by byte: rows of stored tuples with rows of columns, of a page or a batch."""

from semistream.kernels.column_forms import BITS, CONTENT, LARGE_TEXT, SIZE, TEXT, VALUES
from semistream.kernels.compile import compiled
from semistream.kernels.intrinsics import load_int32, load_int64, load_uint8, prefetch_at

_UNIT = 8  # of the heap
_AHEAD, _FAR = 8, 16  # pairs to prefetch ahead: their values, where these are


@compiled(inline=True)
def _same_bytes(one, other, count):
    while count >= 8:
        if load_int64(one) != load_int64(other):
            return False
        one, other, count = one + 8, other + 8, count - 8
    while count > 0:
        if load_uint8(one) != load_uint8(other):
            return False
        one, other, count = one + 1, other + 1, count - 1
    return True


@compiled(inline=True)
def _text(form, values, row):
    """Begin and end of a text in its content."""
    if form == TEXT:
        return int(load_int32(values + 4 * row)), int(load_int32(values + 4 * row + 4))
    return load_int64(values + 8 * row), load_int64(values + 8 * row + 8)


@compiled(inline=True)
def _bit(address):
    return (load_uint8(address >> 3) >> (address & 7)) & 1


@compiled
def same_keys(
    slots, places, rows, columns, forms, records, size, offsets, texts, heap, headers, positions,
    same,
):  # fmt: skip
    """Whether the key of slot ``slots[i]`` equals that of row ``rows[i]`` of page ``places[i]``.

    Key column ``c`` is at ``offsets[c]`` of the records (``size`` bytes each, from address
    ``records`` on), or in text column ``texts[c]`` of the heap. Returns how many are equal.
    """
    count, columns_of_text = 0, positions.shape[1]
    for i in range(len(slots)):
        if i + _FAR < len(slots) and columns_of_text:
            prefetch_at(positions.ctypes.data + 4 * columns_of_text * slots[i + _FAR])
        if i + _AHEAD < len(slots):
            following = slots[i + _AHEAD]
            prefetch_at(records + following * size)
            for t in range(len(texts)):
                if texts[t] >= 0:
                    prefetch_at(heap + positions[following, texts[t]] * _UNIT)
        slot, place, row = slots[i], places[i], rows[i]
        equal = True
        for c in range(len(forms)):
            form, values = forms[c], columns[VALUES, c, place]
            if form in (TEXT, LARGE_TEXT):
                begin, end = _text(form, values, row)
                position = positions[slot, texts[c]]
                equal = (
                    position >= 0
                    and begin >= 0
                    and end <= columns[SIZE, c, place]
                    and end - begin == headers[2 * position + 1]
                    and _same_bytes(
                        heap + (position + 1) * _UNIT, columns[CONTENT, c, place] + begin,
                        end - begin,
                    )
                )  # fmt: skip
            elif form == BITS:
                equal = load_uint8(records + slot * size + offsets[c]) == _bit(values + row)
            else:
                equal = _same_bytes(records + slot * size + offsets[c], values + row * form, form)
            if not equal:
                break
        same[i] = equal
        count += equal
    return count


@compiled
def same_rows(batch, batch_forms, tuples, columns, forms, places, rows, same):
    """Whether row ``tuples[i]`` of a batch equals row ``rows[i]`` of page ``places[i]``.

    Returns how many are equal.
    """
    count = 0
    for i in range(len(tuples)):
        place, row = places[i], rows[i]
        equal = True
        for c in range(len(forms)):
            form, values, ours = forms[c], columns[VALUES, c, place], batch[VALUES, c, 0]
            if form in (TEXT, LARGE_TEXT):
                begin, end = _text(form, values, row)
                first, last = _text(batch_forms[c], ours, tuples[i])
                equal = (
                    begin >= 0
                    and first >= 0
                    and end <= columns[SIZE, c, place]
                    and last <= batch[SIZE, c, 0]
                    and end - begin == last - first
                    and _same_bytes(
                        batch[CONTENT, c, 0] + first, columns[CONTENT, c, place] + begin,
                        end - begin,
                    )
                )  # fmt: skip
            elif form == BITS:
                equal = _bit(ours + tuples[i]) == _bit(values + row)
            else:
                equal = _same_bytes(ours + tuples[i] * form, values + row * form, form)
            if not equal:
                break
        same[i] = equal
        count += equal
    return count
