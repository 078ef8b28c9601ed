"""The disk buffer and its cursor: pages in order, failures that can be repeated, and counters."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from engine.kit import binding, context, pages_of
from semistream.engine.disk_buffer import DiskBuffer, Scan
from semistream.engine.page_rows import BatchRows
from semistream.testing import RecordingObserver

SOURCE = [[1, 2], [3], [4, 5, 6], [7]]


def test_a_partition_is_read_in_pieces_of_the_buffers_size() -> None:
    source = pages_of(SOURCE)
    shared = context(binding(source))
    buffer, scan = DiskBuffer(shared, source, 2), Scan(0, 2)
    buffer.fill(scan)
    assert scan.codes.tolist() == [1, 2, 3]
    assert (scan.first, scan.next, scan.ended) == (0, 2, False)
    assert scan.counts.tolist() == [0, 0, 0]
    scan.cursor[:] = 3, 5
    buffer.fill(scan)
    assert scan.codes.tolist() == [4, 5, 6]
    assert (scan.begin, scan.first, scan.next) == (0, 2, 3)
    assert scan.cursor.tolist() == [0, -1]
    assert not scan.ended
    scan.clear()
    assert scan.ended


def test_reads_are_counted_and_reported() -> None:
    source, observer = pages_of(SOURCE), RecordingObserver()
    shared = context(binding(source), observer)
    buffer = DiskBuffer(shared, source, 3)
    pages = buffer.read(1, 3)
    nbytes = sum(page.nbytes for page in pages)
    assert (shared.stats.pages_read, shared.stats.bytes_read) == (3, nbytes)
    assert observer.named("page_read") == [(1, 3, nbytes, 1.0)]  # the clock ticks once
    assert buffer.nbytes == source.buffer_bytes(3, False)
    buffer.close()
    assert source.readers[0].is_closed


def test_a_failed_read_changes_nothing_and_can_be_repeated() -> None:
    source = pages_of(SOURCE)
    source.fail = [1]
    shared = context(binding(source))
    buffer, scan = DiskBuffer(shared, source, 2), Scan(0, 3)
    with pytest.raises(OSError, match="page 1"):
        buffer.fill(scan)
    assert (scan.next, scan.pages, shared.stats.pages_read) == (0, 0, 0)
    buffer.fill(scan)
    assert scan.codes.tolist() == [1, 2, 3]


def test_rows_of_the_buffer_are_rows_of_its_pages() -> None:
    source = pages_of(SOURCE)
    scan = Scan(0, 3)
    scan.fill(BatchRows(source.pages, binding(source)))
    assert scan.pages == 4
    places, rows = scan.places(np.array([0, 2, 5, 6]))
    assert (places.tolist(), rows.tolist()) == ([0, 1, 2, 3], [0, 0, 2, 0])
    keys, values = scan.take(np.array([6, 0, 4]), ["k", "v"])
    assert keys.to_pylist() == [7, 1, 5]
    assert values.to_pylist() == ["7/0", "1/0", "5/1"]
    assert scan.columns(["v"]) is scan.columns(["v"])


def test_keys_that_are_null_are_masked() -> None:
    source = pages_of([[1, 2], [3, 4]])
    scan = Scan(0, 1)
    scan.fill(BatchRows(source.pages, binding(source)))
    assert scan.valid is None
    with_null = pa.record_batch({"k": pa.array([None, 9], pa.int64()), "v": ["a", "b"]})
    scan.fill(BatchRows([source.pages[0], with_null], binding(source)))
    assert scan.valid is not None
    assert scan.valid.tolist() == [True, True, False, True]


def test_an_empty_scan_has_ended() -> None:
    assert Scan(0, -1).ended
    assert len(Scan(0, -1).codes) == 0
