"""Warm up until the front stage has settled, then measure for a fixed time.

Streams are generated between the timed parts, a chunk at a time: a long measurement needs no more
memory than a short one. One batch of every part's output is handed to a check, off the clock.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

Push = Callable[[pa.RecordBatch], Iterable[pa.RecordBatch]]
Stream = Callable[[int, int], list[pa.RecordBatch]]  # (position, tuples)
STEADY = 0.005  # the hit rate has settled when it changes by no more between two chunks, ...
STEADY_CHUNKS = 2  # ... so many times in a row


@dataclass
class Subject:
    """What is warmed up and measured: a run of a join, or the alternative to it."""

    push: Push
    hits: Callable[[], int]
    waiting: Callable[[], int]
    is_full: Callable[[], bool] = lambda: True  # a cache that is still filling is not warm


@dataclass
class Pusher:
    """Pushes an endless stream through a subject, chunk by chunk."""

    subject: Subject
    stream: Stream
    chunk: int
    position: int = 0
    check: Callable[[pa.RecordBatch], str | None] = lambda rows: None
    trouble: str | None = field(default=None, init=False)
    returned: int = field(default=0, init=False)  # rows, since the beginning

    def settle(self, most_seconds: float) -> dict[str, Any]:
        """Push until the hit rate is steady and the window was turned over, or time is up."""
        first, spent, most_waiting, steady = self.position, 0.0, 0, 0
        before, is_settled = None, False
        while spent < most_seconds and not is_settled:
            hits, start = self.subject.hits(), self.position
            spent += self._push_chunk(most_seconds - spent)[1]
            rate = (self.subject.hits() - hits) / max(1, self.position - start)
            steady = steady + 1 if before is not None and abs(rate - before) <= STEADY else 0
            before, most_waiting = rate, max(most_waiting, self.subject.waiting())
            turned_over = self.position - first >= 2 * most_waiting
            is_settled = steady >= STEADY_CHUNKS and turned_over and self.subject.is_full()
        return {
            "warm_up_tuples": self.position - first,
            "warm_up_seconds": round(spent, 3),
            "settled": is_settled,
        }

    def measure(self, seconds: float) -> dict[str, Any]:
        """Push for this time. The rate is rows returned, not tuples pushed."""
        gc.collect()
        rows, spent, hits, start = 0, 0.0, self.subject.hits(), self.position
        processor = 0.0
        while spent < seconds:
            returned, elapsed, processor_seconds = self._push_chunk(seconds - spent)
            rows, spent, processor = rows + returned, spent + elapsed, processor + processor_seconds
        return {
            "rows_out": rows,
            "measured_seconds": spent,
            "processor_seconds": processor,
            "hit_rate": (self.subject.hits() - hits) / max(1, self.position - start),
        }

    def _push_chunk(self, most_seconds: float) -> tuple[int, float, float]:
        batches = self.stream(self.position, self.chunk)
        rows, kept = 0, None
        processor, start = time.process_time(), time.perf_counter()
        is_late = False
        for batch in batches:
            self.position += batch.num_rows
            for out in self.subject.push(batch):  # may be cut: one push of a slow join is long
                rows += out.num_rows
                kept = out if kept is None else kept
                is_late = time.perf_counter() - start > most_seconds
                if is_late:
                    break
            if is_late or time.perf_counter() - start > most_seconds:
                break
        elapsed, processor = time.perf_counter() - start, time.process_time() - processor
        self.returned += rows
        if kept is not None and self.trouble is None:
            self.trouble = self.check(kept)
        return rows, elapsed, processor
