"""HYBRIDJOIN as 000 writes it down (figure 5), one tuple at a time.

    1   w = h_S, the slots of H
    2   for ever:
    3     if at least w tuples of S are there:
    4       read w of them, put them into H, append their keys to Q
    5       w = 0
    7     take the oldest key of Q (it stays in Q)
    8     load the partition of R that the index names for this key
    9     for each row r of the partition:
   10       if H has tuples that match r:
   11         output r with each of them
   12         delete them from H and from Q
   13         w = w + their number

Read literally, a key that R does not hold stays at the head of Q for ever: line 8 loads the same
partition again and again. The reference raises ``Stuck`` then.

With all switches off the loop is the paper's; ``AS_BUILT`` turns on what our join does
differently.
"""

from __future__ import annotations

from collections.abc import Sequence

from reference.trace import Entered, Loop, Relation, Row, Stuck, Tuple

AS_BUILT = {
    "refill_with_what_is_there": True,
    "absent_head_leaves": True,
    "remember_probed_pages": True,
    "keys_may_repeat": True,
}


class HybridJoin(Loop):
    """
    Parameters
    ----------
    pages_at_once
        Pages of a partition. Partitions are aligned: page p is in partition p // pages_at_once.
    window
        h_S.
    refill_with_what_is_there
        "Refill takes what has arrived."
    absent_head_leaves
        "A key that the master does not hold is found out when its tuple is the oldest: its page
        has been probed and the tuple is still there. It leaves, and with it all tuples of that
        key."
    remember_probed_pages
        "If the page was probed earlier, while the tuple waited, nothing is read to find that
        out", and "all tuples of which that is true leave in the same iteration, as many as an
        output batch holds".
    output_batch
        Rows of an output batch of our join, for ``remember_probed_pages``.
    keys_may_repeat
        "Equal keys lie together, so the partition is widened until it cuts no key, and tuples
        leave when all rows of their key have been seen."
    """

    def __init__(
        self,
        relation: Relation,
        *,
        pages_at_once: int,
        window: int,
        refill_with_what_is_there: bool = False,
        absent_head_leaves: bool = False,
        remember_probed_pages: bool = False,
        output_batch: int = 1 << 20,
        keys_may_repeat: bool = False,
    ) -> None:
        super().__init__(relation)
        self.pages_at_once = pages_at_once
        self.window = window
        self.refill_with_what_is_there = refill_with_what_is_there
        self.absent_head_leaves = absent_head_leaves
        self.remember_probed_pages = remember_probed_pages
        self.output_batch = output_batch
        self.keys_may_repeat = keys_may_repeat
        self.vacant = window  # w, line 1
        self.hash_table: dict[int | None, list[Tuple]] = {}  # H
        self.queue: dict[Tuple, set[int]] = {}  # Q; with the pages probed while the tuple waits

    def waiting(self) -> int:
        return len(self.queue)

    # -- lines 3 to 6 ------------------------------------------------------------------------

    def may_iterate(self) -> bool:
        return self.refill_with_what_is_there or len(self.stream_buffer) >= self.vacant

    def take_in(self) -> None:
        if not self.refill_with_what_is_there and len(self.stream_buffer) < self.vacant:
            return
        entered = []
        while self.stream_buffer and self.vacant:
            tuple_ = self.stream_buffer.popleft()
            if tuple_.key is None:
                self.leave_without_key(tuple_)
            else:
                self.enter(tuple_)
                entered.append(tuple_)
        self.call.events.append(Entered(tuple(entered)))

    def enter(self, tuple_: Tuple) -> None:
        self.hash_table.setdefault(tuple_.key, []).append(tuple_)
        self.queue[tuple_] = set()
        self.vacant -= 1

    # -- lines 7 to 15 -----------------------------------------------------------------------

    def iterate(self) -> None:
        self.serve_oldest()
        self.end_iteration()

    def serve_oldest(self) -> None:
        oldest = next(iter(self.queue))  # line 7
        if self.is_proven_absent(oldest):
            self.proven_leave(oldest)
            return
        if len(self.relation):
            self.load_and_probe(oldest)  # lines 8 to 15
        if oldest in self.queue:
            if not self.absent_head_leaves:
                raise Stuck(f"R does not hold {oldest.key}, and the loop waits for it")
            self.absent_leave(oldest.key)

    def load_and_probe(self, oldest: Tuple) -> None:
        pages = self.partition(*self.relation.pages_of(oldest.key))
        matched: list[int] = []
        for start in range(0, len(pages), self.pages_at_once):
            buffer = pages[start : start + self.pages_at_once]
            rows = [row for page in buffer for row in self.read(page)]  # line 8
            matched += self.probe(rows, buffer)  # lines 9 to 15
        for key in matched:
            self.delete(key)
        for probed in self.queue.values():
            probed.update(pages)

    def partition(self, low: int, high: int) -> Sequence[int]:
        """The pages that line 8 loads."""
        size = self.pages_at_once
        first, after = low // size * size, high // size * size + size
        after = min(after, len(self.relation))
        if self.keys_may_repeat:
            while self.relation.cut_after(first - 1):
                first -= 1
            while self.relation.cut_after(after - 1):
                after += 1
        return range(first, after)

    def probe(self, rows: list[Row], buffer: Sequence[int]) -> list[int]:
        """Lines 9 to 15. Returns the keys whose tuples leave at the end of the partition."""
        matched = []
        for row in rows:
            if row.key not in self.hash_table:
                continue
            for tuple_ in self.hash_table[row.key]:
                self.output(tuple_, row)
            if self.keys_may_repeat:
                matched.append(row.key)
            else:
                self.delete(row.key)
        return matched

    def delete(self, key: int) -> None:
        """Lines 12 and 13."""
        tuples = self.hash_table.pop(key, [])
        self.leave_matched(tuples)
        self.forget(tuples)

    def forget(self, tuples: Sequence[Tuple]) -> None:
        for tuple_ in tuples:
            del self.queue[tuple_]
        self.vacant += len(tuples)

    # -- keys that R does not hold -------------------------------------------------------------

    def absent_leave(self, key: int | None) -> None:
        tuples = self.hash_table.pop(key)
        self.leave_unmatched(tuples)
        self.forget(tuples)

    def is_proven_absent(self, tuple_: Tuple) -> bool:
        """Whether all pages that can hold its key were probed while it waited: there is one."""
        if not self.remember_probed_pages or not len(self.relation):
            return False
        low, high = self.relation.pages_of(tuple_.key)
        return low == high and low in self.queue[tuple_]

    def proven_leave(self, oldest: Tuple) -> None:
        """Tuples whose page was probed while they waited. A page that cuts a key proves nothing."""
        proven = [t for t in self.queue if self.is_proven_absent(t) and not self.on_cut_page(t)]
        proven = proven[: self.output_batch]
        if not proven:
            self.absent_leave(oldest.key)
            return
        self.leave_unmatched(proven)
        self.forget(proven)
        for tuple_ in proven:
            self.hash_table[tuple_.key].remove(tuple_)
            if not self.hash_table[tuple_.key]:
                del self.hash_table[tuple_.key]

    def on_cut_page(self, tuple_: Tuple) -> bool:
        page = self.relation.pages_of(tuple_.key)[1]
        return self.relation.cut_after(page) or self.relation.cut_after(page - 1)
