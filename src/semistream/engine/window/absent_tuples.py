"""Detects and removes tuples of a queue window whose key is not in the master.

A page that was probed while a tuple waited, and did not match it, proves that its key is absent.
So the window notes the turn in which each tuple came (``born``), and this part the turn in which
each page was last probed: an old tuple whose page was probed since leaves without a read.

A turn is an iteration, and ``tick`` begins it: tuples that come from then on have the same turn as
its probe, so ``born < probed`` is false for them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from semistream.engine.context import Context
from semistream.engine.output import Output
from semistream.engine.window.hash_window import QueueWindow
from semistream.kernels import states
from semistream.master.index import PageIndex

_LAST_TURN = 2**31 - 1
PAGE_BYTES = 4  # the turn of a page's last probe


class AbsentTuples:
    """Emits and removes absent tuples by output batches: call ``leave`` until it is True."""

    def __init__(self, context: Context, output: Output, num_pages: int) -> None:
        self._context = context
        self._output = output
        self._turn = 1  # counts iterations
        self._probed = np.zeros(num_pages, np.int32)
        self._proven: Any = None  # slots of tuples that are proven absent
        self._head = -1  # or a tuple whose key is absent,
        self._next: int | None = None  # and the next slot with its key (-1: the first)

    @property
    def nbytes(self) -> int:
        return self._probed.nbytes

    @property
    def leaving(self) -> bool:
        return self._proven is not None or self._next is not None

    def tick(self, window: QueueWindow) -> None:
        """Start an iteration: tuples admitted from now on arrive after its probe."""
        self._turn += 1
        if self._turn == _LAST_TURN:  # wrap around, and forget which pages were probed
            self._turn = 1
            self._probed[:] = 0
            window.born[:] = 0
        window.turn = self._turn

    def probed(self, first: int, last: int) -> None:
        """Record that these pages were probed against every waiting tuple."""
        self._probed[first : last + 1] = self._turn

    def is_proven(self, window: QueueWindow, slot: int, low: int, high: int) -> bool:
        """Whether the only page that could hold this tuple's key was probed while it waited."""
        return low == high and bool(window.born[slot] < self._probed[low])

    def leave_proven(self, window: QueueWindow, index: PageIndex, head: int) -> None:
        """Schedule old tuples that are proven absent, at least those with the head's key."""
        self._head, self._next = head, -1
        if self._context.binding.conditions:  # a later tuple with the same key may match
            self._proven, self._next = np.array([head], np.int32), None
        if self._context.binding.codec.exact:
            most = self._output.most_rows
            slots = window.proven(index, self._probed, most)
            if len(slots):
                self._proven, self._next = slots, None

    def leave_head(self, head: int) -> None:
        """Schedule all tuples with this one's key."""
        self._head, self._next = head, -1

    def leave(self, window: QueueWindow) -> bool:
        """Emit and remove scheduled tuples; True when none is left."""
        return self._leave_proven(window) if self._proven is not None else self._leave_key(window)

    def _leave_proven(self, window: QueueWindow) -> bool:
        slots, self._proven = self._proven, None
        if self._output.wants_unmatched:
            self._output.emit_unmatched(window.take(slots), len(slots))
        window.state[slots] = states.ABSENT
        self._context.stats.unmatched += window.remove(window.codes[slots])
        return True

    def _leave_key(self, window: QueueWindow) -> bool:
        assert self._next is not None
        codec, head = self._context.binding.codec, np.array([self._head], np.int32)
        code = window.codes[self._head]
        slots, following = window.with_code(code, self._next, self._output.most_rows)
        if not codec.exact:
            key = [column.take(pa.array([0] * len(slots))) for column in window.keys(head)]
            slots = slots[codec.same(window.keys(slots), key)]
        if len(slots) and self._output.wants_unmatched:
            self._output.emit_unmatched(window.take(slots), len(slots))
        window.state[slots] = states.ABSENT
        self._next = following
        if following >= 0:
            return False
        self._next = None
        self._context.stats.unmatched += window.remove(np.array([code], np.int64))
        return True
