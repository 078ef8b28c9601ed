"""CINLJ as 003 describes it (section 3.3), one tuple at a time.

    1   for ever:
    2     read one tuple t of S
    3     if H_R holds its key: output t with its row
    4     else
    5       note the key of t in the temporary buffer, which is emptied after a span of tuples
    6       find the rows of t as INLJ does, and output t with them
    7       if the temporary buffer has the key ``threshold`` times:
    8         the rows enter H_R as in algorithm 1, lines 20 and 21

With all switches off the loop is the paper's; ``AS_BUILT`` turns on what our join does
differently. Our join serves tuples in waves; a wave of one tuple is this loop.
"""

from __future__ import annotations

from collections import Counter

from reference import inlj
from reference.front_stage import FrontStage
from reference.trace import Relation, Row, Tuple

AS_BUILT = {
    **inlj.AS_BUILT,
    "rows_of_a_buffer_enter_together": True,
    "threshold_moves": True,
    "only_short_look_ups": True,
    "rows_enter_after_the_wave": True,
}


class CachedIndexNestedLoopJoin(inlj.IndexNestedLoopJoin):
    """
    Parameters
    ----------
    front_rows, threshold, span
        Rows that H_R holds, the threshold of line 7, tuples between two emptyings of line 5.
    rows_of_a_buffer_enter_together, threshold_moves
        See :class:`~reference.front_stage.FrontStage`.
    only_short_look_ups
        "A key with rows in several pages, or with more rows than an output batch holds, is
        neither noted in the temporary buffer nor cached."
    output_batch
        Rows of an output batch of our join, for ``only_short_look_ups``.
    rows_enter_after_the_wave
        "Rows enter the front stage when the wave that fetched them is over."
    """

    def __init__(
        self,
        relation: Relation,
        *,
        front_rows: int,
        threshold: int,
        span: int,
        rows_of_a_buffer_enter_together: bool = False,
        threshold_moves: bool = False,
        only_short_look_ups: bool = False,
        output_batch: int = 1 << 20,
        rows_enter_after_the_wave: bool = False,
        pool_pages: int,
        index_has_first_keys_only: bool = False,
    ) -> None:
        super().__init__(
            relation, pool_pages=pool_pages, index_has_first_keys_only=index_has_first_keys_only
        )
        self.front = FrontStage(
            front_rows,
            threshold,
            rows_of_a_buffer_enter_together=rows_of_a_buffer_enter_together,
            threshold_moves=threshold_moves,
        )
        self.only_short_look_ups = only_short_look_ups
        self.output_batch = output_batch
        self.rows_enter_after_the_wave = rows_enter_after_the_wave
        self.fetched: list[tuple[list[Row], int]] = []  # what lines 7 and 8 will admit
        self.span = span
        self.noted: Counter[int] = Counter()  # the temporary buffer

    def iterate(self) -> None:
        cached = self.front.rows_of(self.stream_buffer[0].key)
        self.front.probes += 1
        self.front.adapt()
        if not cached:
            super().iterate()
            self.admit_fetched()
            return
        tuple_ = self.stream_buffer.popleft()
        for row in cached:  # line 3
            self.output(tuple_, row)
        self.call.hits += 1

    def serve(self, tuple_: Tuple) -> None:
        super().serve(tuple_)  # line 6
        if not len(self.relation):
            return
        low, high = self.relation.pages_of(tuple_.key)
        pages = self.relation.pages[low : high + 1]
        rows = [row for page in pages for row in page if row.key == tuple_.key]
        if self.only_short_look_ups and (low != high or len(rows) > self.output_batch):
            return
        self.note(tuple_.key)  # line 5
        if rows and self.noted[tuple_.key] >= self.front.threshold:  # lines 7 and 8
            self.fetched.append((rows, self.noted[tuple_.key]))
            if not self.rows_enter_after_the_wave:
                self.admit_fetched()

    def admit_fetched(self) -> None:
        fetched, self.fetched = self.fetched, []
        self.front.admit(fetched, self.call)

    def note(self, key: int) -> None:
        if self.noted.total() >= self.span:
            self.noted.clear()
        self.noted[key] += 1
        self.front.rounds += 1 / self.span
