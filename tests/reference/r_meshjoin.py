"""R-MESHJOIN as our join reads it: its own paper is not at hand (002 and 003 use it as a peer).

    1   for ever:
    2     read w tuples of S; the next group of g pages of R begins
    3     if Q holds k chunks, remove the oldest from Q and H   k = N_R / g
    4     put the w tuples into H and append them to Q as one chunk
    5     for each page of the group:
    6       read it into the disk buffer, which has room for this page only
    7       for each row r of it: output r with every tuple of H that it matches

It is MESHJOIN with a group in the place of the b pages, and a page is probed as soon as it is
read. The switches are those of MESHJOIN ("Differences from the paper: see above; and those of
MESHJOIN").
"""

from __future__ import annotations

from collections.abc import Iterator

from reference import meshjoin
from reference.trace import Entered, Relation, Row

AS_BUILT = meshjoin.AS_BUILT


class ReducedMeshJoin(meshjoin.MeshJoin):
    """MESHJOIN with g in the place of b."""

    def __init__(
        self,
        relation: Relation,
        *,
        group: int,
        chunk: int,
        window: int | None = None,
        **switches: bool,
    ) -> None:
        super().__init__(relation, pages_at_once=group, chunk=chunk, window=window, **switches)

    def iterate(self) -> None:
        if not self.leave_after_the_last_iteration:
            self.expire()  # line 3
        for tuple_ in self.coming:  # line 4
            self.hash_table.setdefault(tuple_.key, []).append(tuple_)
        self.call.events.append(Entered(tuple(self.coming)))
        self.queue.append(self.coming)
        self.coming = []
        for page in self.group():  # lines 5 to 7
            self.probe(page)
        if self.leave_after_the_last_iteration:
            self.expire()
        self.end_iteration()

    def group(self) -> Iterator[list[Row]]:
        first = self.next_page
        after = min(first + self.pages_at_once, len(self.relation))
        self.next_page = 0 if after == len(self.relation) else after
        for page in range(first, after):
            yield self.read(page)
