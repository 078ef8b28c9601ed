"""MESHJOIN as 004 writes it down (figure 4), one tuple at a time.

    1   for ever:
    2     read the next b pages of R (after the last page comes the first) and w tuples of S
    3     if Q holds k chunks:                                  k = N_R / b
    4       take the oldest chunk out of Q
    5       remove its tuples from H
    7     put the w tuples into H
    8     append them to Q as one chunk
    9     for each row r of the b pages:
   10       output r with every tuple of H that it matches

With all switches off the loop is the paper's; ``AS_BUILT`` turns on what our join does
differently.
"""

from __future__ import annotations

from collections import deque

from reference.trace import Entered, Loop, Relation, Row, Tuple

AS_BUILT = {
    "leave_after_the_last_iteration": True,
    "last_partition_may_be_short": True,
    "advance_with_what_there_is": True,
    "last_chunk_may_be_short": True,
}


class MeshJoin(Loop):
    """
    Parameters
    ----------
    pages_at_once, chunk
        b and w.
    window
        Tuples that H holds at most; in the paper it is k * w.
    leave_after_the_last_iteration
        "A chunk leaves at the end of its last iteration instead of at the start of the next one."
    last_partition_may_be_short
        "The pages need not divide by b: the last partition of a cycle is shorter."
    advance_with_what_there_is
        "The paper advances only when w tuples have arrived. ``push`` does the same; ``step`` and
        ``flush`` advance with what there is."
    last_chunk_may_be_short
        "The window need not divide by k: when it is full, the chunk that is being filled is
        taken as it is."
    """

    def __init__(
        self,
        relation: Relation,
        *,
        pages_at_once: int,
        chunk: int,
        window: int | None = None,
        leave_after_the_last_iteration: bool = False,
        last_partition_may_be_short: bool = False,
        advance_with_what_there_is: bool = False,
        last_chunk_may_be_short: bool = False,
    ) -> None:
        super().__init__(relation)
        assert last_partition_may_be_short or len(relation) % pages_at_once == 0
        assert last_chunk_may_be_short or window is None
        self.pages_at_once = pages_at_once
        self.chunks_at_most = max(1, -(-len(relation) // pages_at_once))  # k
        self.chunk = chunk
        self.window = window if window is not None else self.chunks_at_most * chunk
        self.leave_after_the_last_iteration = leave_after_the_last_iteration
        self.advance_with_what_there_is = advance_with_what_there_is
        self.next_page = 0
        self.hash_table: dict[int | None, list[Tuple]] = {}  # H
        self.queue: deque[list[Tuple]] = deque()  # Q: chunks, oldest first
        self.coming: list[Tuple] = []  # the chunk that line 2 is reading
        self.met: set[Tuple] = set()  # tuples with at least one match

    def waiting(self) -> int:
        return sum(map(len, self.queue)) + len(self.coming)

    def room(self) -> int:
        """How many more tuples line 2 reads before the next iteration."""
        return min(self.chunk - len(self.coming), self.window - self.in_window())

    def in_window(self) -> int:
        oldest_leaves = len(self.queue) == self.chunks_at_most  # lines 3 to 5, still to come
        return self.waiting() - (len(self.queue[0]) if oldest_leaves else 0)

    def take_in(self) -> None:
        while self.stream_buffer and self.room():
            tuple_ = self.stream_buffer.popleft()
            if tuple_.key is None:
                self.leave_without_key(tuple_)
            else:
                self.coming.append(tuple_)

    def step(self):  # type: ignore[no-untyped-def]
        assert self.advance_with_what_there_is, "the paper waits for w tuples"
        return super().step()

    def flush(self):  # type: ignore[no-untyped-def]
        assert self.advance_with_what_there_is, "the paper has no end of the stream"
        return super().flush()

    def iterate(self) -> None:
        partition = self.read_partition()  # line 2
        if not self.leave_after_the_last_iteration:
            self.expire()  # lines 3 to 6
        for tuple_ in self.coming:  # line 7
            self.hash_table.setdefault(tuple_.key, []).append(tuple_)
        self.call.events.append(Entered(tuple(self.coming)))
        self.queue.append(self.coming)  # line 8
        self.coming = []
        self.probe(partition)  # lines 9 and 10
        if self.leave_after_the_last_iteration:
            self.expire()
        self.end_iteration()

    def read_partition(self) -> list[Row]:
        first = self.next_page
        after = min(first + self.pages_at_once, len(self.relation))
        self.next_page = 0 if after == len(self.relation) else after
        return [row for page in range(first, after) for row in self.read(page)]

    def expire(self) -> None:
        """Lines 3 to 6: the oldest chunk has met all of R."""
        if len(self.queue) < self.chunks_at_most:
            return
        for tuple_ in self.queue.popleft():
            self.hash_table[tuple_.key].remove(tuple_)
            if not self.hash_table[tuple_.key]:
                del self.hash_table[tuple_.key]
            if tuple_ in self.met:
                self.met.remove(tuple_)
                self.leave_matched([tuple_])
            else:
                self.leave_unmatched([tuple_])

    def probe(self, partition: list[Row]) -> None:
        for row in partition:
            for tuple_ in self.hash_table.get(row.key, []):
                self.output(tuple_, row)
                self.met.add(tuple_)
