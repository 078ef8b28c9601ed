"""Optimised X-HYBRIDJOIN as 001 writes it down (algorithm 1), one tuple at a time.

    0   H_R holds the rows of the first l pages of R, which are the most popular ones
    1   hSavailable = h_S
    2   for ever:
          stream-probing phase
    3     while a stream tuple is there and hSavailable > 0:
    4       read a tuple t
    5-6     if H_R holds its key: output t with its row
    8       else put t into H_S and its key into Q
    9         hSavailable = hSavailable - 1
          disk-probing phase
   12     take the oldest key of Q
   13     load its partition into the disk buffer
   14     for each row r of it:
   15-18    output r with the tuples of H_S that match it, and delete these
   19       add their number to hSavailable

Line 3 reads while tuples are there, so unlike HYBRIDJOIN the paper refills with what there is.

With all switches off the loop is the paper's; ``AS_BUILT`` turns on what our join does
differently.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reference import hybridjoin
from reference.front_stage import MOST_ROWS_PER_KEY, FrontPhase, FrontStage
from reference.trace import Entered, Relation, Tuple
from reference.x_hybridjoin import HotPages

AS_BUILT = {
    "absent_head_leaves": True,
    "remember_probed_pages": True,
    "keys_may_repeat": True,
    "hits_pass_a_full_window": True,
    "pin_what_the_stream_asks_for": True,
}


class OptimisedXHybridJoin(hybridjoin.HybridJoin):
    """
    Parameters
    ----------
    front_rows
        Rows that H_R holds.
    pin_what_the_stream_asks_for
        "Popular pages come from ``hot_keys`` or from the first tuples of the stream, as in our
        X-HYBRIDJOIN", and "a key with more than 16 rows, or with rows in two pages, is left to
        the disk-probing phase."
    hot_keys, observe
        As for our join.
    hits_pass_a_full_window
        See :class:`~reference.front_stage.FrontPhase`.

    The other switches are those of HYBRIDJOIN.
    """

    def __init__(
        self,
        relation: Relation,
        *,
        front_rows: int,
        pin_what_the_stream_asks_for: bool = False,
        hot_keys: Sequence[int] | None = None,
        observe: int = 0,
        hits_pass_a_full_window: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(relation, refill_with_what_is_there=True, **options)
        self.front = FrontStage(front_rows, threshold=1)
        self.phase = FrontPhase(self.front, self, hits_pass_a_full_window=hits_pass_a_full_window)
        self.pin_what_the_stream_asks_for = pin_what_the_stream_asks_for
        self.hot = HotPages(relation, hot_keys, observe)
        if not pin_what_the_stream_asks_for:
            self.fill(range(len(relation)))  # line 0

    def arrived(self, tuples: Sequence[Tuple]) -> None:
        if not tuples:
            return
        self.hot.observe(tuples)
        if self.pin_what_the_stream_asks_for and self.hot.due:
            self.fill(self.hot.take())

    def fill(self, pages: Sequence[int]) -> None:
        """Whole pages, as long as all rows of the next one fit."""
        if not self.front.capacity:
            return
        for page in pages:
            keys: dict[int, list[Any]] = {}
            for row in self.read(page):
                keys.setdefault(row.key, []).append(row)
            few = [rows for rows in keys.values() if len(rows) <= MOST_ROWS_PER_KEY]
            if self.front.held() + sum(map(len, few)) > self.front.capacity:
                return
            for rows in few:
                self.front.enter(rows, 1)

    def take_in(self) -> None:  # lines 3 to 10
        entered: list[Tuple] = []

        def miss(tuple_: Tuple) -> None:
            self.enter(tuple_)
            entered.append(tuple_)

        self.phase.take_in(lambda: self.vacant, miss)
        self.call.events.append(Entered(tuple(entered)))
