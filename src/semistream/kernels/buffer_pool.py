"""A buffer pool of pages with least-recently-used replacement."""

import numpy as np

from semistream.kernels.compile import compiled


@compiled
def plan(pages, wave, frame_of, page_in, older, newer, stamp, frames, missing):
    """Process page requests in order, with the same evictions as single look-ups.

    Fills ``frames`` with the frame that serves each request and ``missing`` with the requests
    that need a read (and now own their frame). Stops before a request that would evict a page
    needed in this ``wave``. Returns (requests planned, reads needed).
    """
    sentinel = len(page_in)
    reads = 0
    for i in range(len(pages)):
        page = pages[i]
        frame = frame_of[page]
        if frame < 0:
            frame = newer[sentinel]  # the least recently used
            if stamp[frame] == wave:
                return i, reads
            if page_in[frame] >= 0:
                frame_of[page_in[frame]] = -1
            page_in[frame] = page
            frame_of[page] = frame
            missing[reads] = i
            reads += 1
        stamp[frame] = wave
        newer[older[frame]] = newer[frame]
        older[newer[frame]] = older[frame]
        last = older[sentinel]
        older[frame], newer[frame] = last, sentinel
        newer[last] = frame
        older[sentinel] = frame
        frames[i] = frame
    return len(pages), reads


@compiled
def plan_codes(
    codes, tuples, firsts, wave, frame_of, page_in, older, newer, stamp, pages, frames, missing
):
    """The same for the page of each code ``codes[tuples[i]]``, in a table whose keys have one page
    each: the last one whose first code, in ``firsts``, is not greater."""
    for i in range(len(tuples)):
        page = np.searchsorted(firsts, codes[tuples[i]], "right") - 1
        pages[i] = max(page, 0)
    return plan(pages, wave, frame_of, page_in, older, newer, stamp, frames, missing)
