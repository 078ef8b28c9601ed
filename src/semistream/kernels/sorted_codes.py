"""Search in sorted codes, by interpolation: keys are often dense, or evenly spread."""

from semistream.kernels.compile import compiled

_GUESSES = 3  # where keys are random, each is off by the root of the one before


@compiled(inline=True)
def line(sorted_codes):
    """(first code, slope) of the line through the first and last code, to interpolate rows."""
    if len(sorted_codes) == 0:
        return 0.0, 0.0
    base = float(sorted_codes[0])
    width = float(sorted_codes[len(sorted_codes) - 1]) - base
    return base, (len(sorted_codes) - 1) / width if width > 0 else 0.0


@compiled(inline=True)
def first_row(page_codes, code, low, guess):
    """The first row from ``low`` on whose code is not below ``code``, by a search around a guess.

    Keys are often dense; then the guess is exact, and one cache line is touched.
    """
    end = len(page_codes)
    step = 1
    if page_codes[guess] < code:
        begin, stop = guess + 1, guess + 1
        while stop < end and page_codes[stop] < code:
            begin = stop + 1
            stop += step
            step <<= 1
        stop = min(stop, end)
    else:
        begin, stop = guess - 1, guess
        while begin >= low and page_codes[begin] >= code:
            stop = begin
            begin -= step
            step <<= 1
        begin = max(begin + 1, low)
    while begin < stop:
        middle = (begin + stop) >> 1
        if page_codes[middle] < code:
            begin = middle + 1
        else:
            stop = middle
    return begin


@compiled(inline=True)
def position_of(code, codes):
    """The position of a code among sorted ones; -1 if it is not one of them."""
    base, slope = line(codes)
    last = len(codes) - 1
    guess = min(max(int((float(code) - base) * slope), 0), last)
    for _ in range(_GUESSES):
        guess = min(max(guess + int((float(code) - float(codes[guess])) * slope), 0), last)
    at = first_row(codes, code, 0, guess)
    return at if at <= last and codes[at] == code else -1
