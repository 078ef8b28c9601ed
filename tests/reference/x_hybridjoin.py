"""X-HYBRIDJOIN as 002 writes it down (algorithm 1), one tuple at a time.

    1   load the first partition p_1 of R into the non-swappable part of the disk buffer
    2   w = h_S
    3   for ever:
    4-7   as lines 3 to 6 of HYBRIDJOIN: if w tuples are there, read them; w = 0
    8     for each row r of p_1:
    9-13    output r with the tuples of H that match it, delete these, add their number to w
   15     take the oldest key of Q
   16     load its partition p_i, i >= 2, into the swappable part
   17     for each row r of p_i:
   18-22   as lines 9 to 13

The paper's R is sorted by popularity, so p_1 is the most popular partition.

With all switches off the loop is the paper's; ``AS_BUILT`` turns on what our join does
differently.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from reference import hybridjoin
from reference.trace import Relation, Row, Tuple

AS_BUILT = {**hybridjoin.AS_BUILT, "pin_what_the_stream_asks_for": True}


class HotPages:
    """The pages of R by falling popularity, from given keys or from the head of the stream.

    "The pages to pin are those that ``hot_keys`` (a sample or a ranking) falls on most, or else
    those that the first ``observe`` tuples of the stream do", and "a page that cuts a key in two
    is not pinned".
    """

    def __init__(self, relation: Relation, hot_keys: Sequence[int] | None, observe: int) -> None:
        self.relation = relation
        self.asked: Counter[int] = Counter()
        self.to_observe = observe if hot_keys is None and len(relation) else 0
        self.due = bool(hot_keys is not None and len(relation))  # decided, and not yet loaded
        if self.due:
            self.count(hot_keys or [])

    def observe(self, tuples: Sequence[Tuple]) -> None:
        if self.to_observe > 0:
            self.count([t.key for t in tuples[: self.to_observe] if t.key is not None])
            self.to_observe -= len(tuples)
            self.due = self.to_observe <= 0

    def count(self, keys: Sequence[int]) -> None:
        self.asked.update(self.relation.pages_of(key)[0] for key in keys)

    def take(self) -> list[int]:
        """The ranking, once."""
        self.due = False
        cut = self.relation.cut_after
        whole = [page for page in self.asked if not cut(page) and not cut(page - 1)]
        return sorted(whole, key=lambda page: (-self.asked[page], page))


class XHybridJoin(hybridjoin.HybridJoin):
    """
    Parameters
    ----------
    pin_what_the_stream_asks_for
        "The paper takes the first pages of a master sorted by popularity. Ours is sorted by key",
        see :class:`HotPages`. "Until then it runs as HYBRIDJOIN." It also turns on "When the
        oldest tuple's page is pinned, its key is absent: no page is read to find that out."
    hot_keys, observe
        As for our join.
    pinned_rows
        Rows that the non-swappable part has room for.

    The other switches are those of HYBRIDJOIN.
    """

    def __init__(
        self,
        relation: Relation,
        *,
        pin_what_the_stream_asks_for: bool = False,
        hot_keys: Sequence[int] | None = None,
        observe: int = 0,
        pinned_rows: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(relation, **options)
        self.pin_what_the_stream_asks_for = pin_what_the_stream_asks_for
        self.pinned_rows = pinned_rows
        self.pinned: dict[int, list[Row]] = {}  # the non-swappable part
        self.hot = HotPages(relation, hot_keys, observe)
        if not pin_what_the_stream_asks_for:
            self.pinned = {page: self.read(page) for page in self.partition(0, 0)}  # line 1

    def arrived(self, tuples: Sequence[Tuple]) -> None:
        self.hot.observe(tuples)

    def iterate(self) -> None:
        if self.pin_what_the_stream_asks_for and self.hot.due:
            self.pin()
        for page, rows in self.pinned.items():  # lines 8 to 14
            for key in self.probe(rows, [page]):
                self.delete(key)
        if self.queue:
            self.serve_oldest()  # lines 15 to 23
        self.end_iteration()

    def pin(self) -> None:
        room = self.pinned_rows
        for page in self.hot.take():
            rows = self.read(page)
            if len(rows) > room:
                return
            room -= len(rows)
            self.pinned[page] = rows

    def serve_oldest(self) -> None:
        oldest = next(iter(self.queue))
        if self.absent_head_leaves and self.relation.pages_of(oldest.key)[0] in self.pinned:
            self.absent_leave(oldest.key)
        else:
            super().serve_oldest()
