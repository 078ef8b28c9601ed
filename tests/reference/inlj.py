"""INLJ as 000 (section 3) and 004 (sections 2 and 4) describe it, one tuple at a time.

    1   for ever:
    2     read one tuple t of S
    3     find the page of R with the key of t by the index; if there is none, t matches nothing
    4     if the buffer pool does not hold the page, read it in the place of the page that was
          least recently used
    5     output t with the rows of the page that it matches

000 has no buffer pool: line 4 always reads.

With all switches off the loop is that of 004; ``AS_BUILT`` turns on what our join does
differently.
"""

from __future__ import annotations

from collections import OrderedDict

from reference.trace import Loop, Relation, Row, Tuple

AS_BUILT = {"index_has_first_keys_only": True}


class IndexNestedLoopJoin(Loop):
    """
    Parameters
    ----------
    pool_pages
        Pages of the buffer pool. "004 gives INL a buffer pool as large as MESHJOIN's memory, 000
        none; ours is the budget."
    index_has_first_keys_only
        "Our index knows first keys of pages, so a missing key costs the read of the page where
        it would be."

    "Master keys may repeat, also over several pages" needs no switch: line 5 outputs all rows.
    """

    def __init__(
        self, relation: Relation, *, pool_pages: int, index_has_first_keys_only: bool = False
    ) -> None:
        super().__init__(relation)
        self.pool_pages = pool_pages
        self.index_has_first_keys_only = index_has_first_keys_only
        self.pool: OrderedDict[int, list[Row]] = OrderedDict()  # least recently used first

    def waiting(self) -> int:
        return 0

    def take_in(self) -> None:
        while self.stream_buffer:
            self.iterate()

    def iterate(self) -> None:
        """An iteration is counted if R was asked for something."""
        tuple_ = self.stream_buffer.popleft()  # line 2
        if tuple_.key is None:
            self.leave_without_key(tuple_)
        else:
            self.serve(tuple_)
            self.end_iteration()

    def serve(self, tuple_: Tuple) -> None:
        rows = self.look_up(tuple_.key)
        for row in rows:  # line 5
            self.output(tuple_, row)
        if rows:
            self.leave_matched([tuple_])
        else:
            self.leave_unmatched([tuple_])

    def look_up(self, key: int | None) -> list[Row]:
        """Lines 3 and 4."""
        if not len(self.relation):
            return []
        if not self.index_has_first_keys_only and not self.relation.holds(key):
            return []
        low, high = self.relation.pages_of(key)
        pages = [self.fetch(page) for page in range(low, high + 1)]
        return [row for page in pages for row in page if row.key == key]

    def fetch(self, page: int) -> list[Row]:
        if page not in self.pool:
            if len(self.pool) == self.pool_pages:
                self.pool.popitem(last=False)
            self.pool[page] = self.read(page)
        self.pool.move_to_end(page)
        return self.pool[page]
