"""How large the values of each column are, from a few pages: so many rows fit into a cache."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from semistream.errors import SemistreamError
from semistream.master.logical_pages import LogicalPages
from semistream.master.reader import PlainReader

_PAGES = 8
_MOST_BYTES = 8 << 20  # of any page: a buffer for a larger one is not worth the memory


def sampled_bytes(pages: LogicalPages) -> Mapping[str, float] | None:
    """Bytes of an average value of each column; None if pages cannot be read, or one is large.

    Pages are spread over the base, whose values are usually those of the deltas, too.
    """
    end = pages.bounds[1] or pages.bounds[-1]
    if not end or pages.pages.lengths.max() > _MOST_BYTES:
        return None
    numbers = np.unique(np.linspace(0, end - 1, _PAGES, dtype=np.int64))
    checked = pages.segment.checked
    before = checked[numbers]
    reader = PlainReader(pages.segment, 1, direct=False)
    sizes: dict[str, int] = {}
    rows = 0
    try:
        for number in numbers:
            (page,) = reader.read(int(number))
            rows += page.num_rows
            for name, column in zip(page.schema.names, page.columns, strict=True):
                sizes[name] = sizes.get(name, 0) + column.nbytes
    except (SemistreamError, OSError):  # the join that needs this page says what is wrong with it
        return None
    finally:
        reader.close()
        checked[numbers] = before  # a join checks a page when it reads it first, not before
    return {name: total / rows for name, total in sizes.items()} if rows else None
