"""CHYBRIDJOIN as 003 writes it down (algorithm 1), one tuple at a time.

    1   w_B = h_S
    2   for ever:
    3     (shedding: not part of this reference)
    4     front-stage phase: hits go out, up to w_B misses go into SB_2
    5     load them into H_S and append their keys to Q
    6     w_B = 0
    7     take the oldest key g of Q
    8-10  if the index of R does not have g: delete g from Q, and again from line 7
   12     read the partition of g into the disk buffer
   13     for each row r of it:
   14-17    output r with the f tuples of H_S that match it, and delete these
   18       w_B = w_B + f
   19-22    if f >= threshold: r enters H_R

With all switches off the loop is the paper's; ``AS_BUILT`` turns on what our join does
differently.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reference import front_stage, hybridjoin
from reference.front_stage import FrontPhase, FrontStage, whole_keys
from reference.trace import Entered, Relation, Row, Tuple

AS_BUILT = {
    "absent_head_leaves": True,
    "remember_probed_pages": True,
    "keys_may_repeat": True,
    "index_has_first_keys_only": True,
    **front_stage.AS_BUILT,
}


class CachedHybridJoin(hybridjoin.HybridJoin):
    """
    Parameters
    ----------
    front_rows, threshold
        Rows that H_R holds, and the threshold of line 19.
    index_has_first_keys_only
        "Our index knows first keys of pages, not every key, so a missing key costs the read of
        the page where it would be."
    rows_of_a_buffer_enter_together, threshold_moves, hits_pass_a_full_window
        See :mod:`reference.front_stage`.

    The other switches are those of HYBRIDJOIN. The front-stage phase reads what is there
    (algorithm 3, line 2), so the refill needs none.
    """

    def __init__(
        self,
        relation: Relation,
        *,
        front_rows: int,
        threshold: int,
        index_has_first_keys_only: bool = False,
        rows_of_a_buffer_enter_together: bool = False,
        threshold_moves: bool = False,
        hits_pass_a_full_window: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(relation, refill_with_what_is_there=True, **options)
        self.index_has_first_keys_only = index_has_first_keys_only
        self.front = FrontStage(
            front_rows,
            threshold,
            rows_of_a_buffer_enter_together=rows_of_a_buffer_enter_together,
            threshold_moves=threshold_moves,
        )
        self.phase = FrontPhase(self.front, self, hits_pass_a_full_window=hits_pass_a_full_window)

    def take_in(self) -> None:  # lines 4 to 6
        entered: list[Tuple] = []

        def miss(tuple_: Tuple) -> None:
            self.enter(tuple_)
            entered.append(tuple_)

        self.phase.take_in(lambda: self.vacant, miss)
        self.call.events.append(Entered(tuple(entered)))

    def serve_oldest(self) -> None:
        if not self.index_has_first_keys_only:
            while self.queue and not self.relation.holds(next(iter(self.queue)).key):
                self.delete_oldest()  # lines 8 to 10
        if self.queue:
            super().serve_oldest()

    def delete_oldest(self) -> None:
        oldest = next(iter(self.queue))
        self.hash_table[oldest.key].remove(oldest)
        if not self.hash_table[oldest.key]:
            del self.hash_table[oldest.key]
        self.leave_unmatched([oldest])
        self.forget([oldest])

    def probe(self, rows: list[Row], buffer: Sequence[int]) -> list[int]:
        frequencies = [len(self.hash_table.get(row.key, [])) for row in rows]  # line 16
        matched = super().probe(rows, buffer)  # lines 13 to 18
        cut = self.relation.cut_after(buffer[0] - 1), self.relation.cut_after(buffer[-1])
        hot = whole_keys(rows, frequencies, self.front.threshold, cut)
        self.front.admit(hot, self.call)  # lines 19 to 22
        self.front.rounds += len(buffer) / len(self.relation.pages)
        return matched
