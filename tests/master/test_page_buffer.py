"""Buffers for reads: huge pages where they fit, and no more bytes than requested."""

from __future__ import annotations

import itertools
import mmap
from pathlib import Path

import pyarrow as pa
import pytest

from semistream.master.page_buffer import PageBuffer

HUGE = 2 << 20


def anonymous() -> int:
    """Resident anonymous memory of this process."""
    status = Path("/proc/self/status").read_text()
    fields = dict(line.split(":", 1) for line in status.splitlines())
    return (int(fields["RssAnon"].split()[0]) + int(fields["RssShmem"].split()[0])) << 10


def fill(buffer: PageBuffer) -> None:
    for at in range(0, buffer.nbytes, mmap.PAGESIZE):
        buffer.view[at] = 1


@pytest.mark.parametrize("nbytes", [1, 300_000, HUGE, 5 * HUGE // 2, 9 * HUGE])
def test_a_buffer_takes_no_more_memory_than_reported(nbytes: int) -> None:
    before = anonymous()
    buffer = PageBuffer(nbytes)
    assert nbytes <= buffer.nbytes < nbytes + mmap.PAGESIZE
    assert len(buffer.view) == len(buffer.arrow) == buffer.nbytes
    fill(buffer)
    assert anonymous() - before < buffer.nbytes + (256 << 10)


def test_large_buffers_begin_with_a_huge_page() -> None:
    assert PageBuffer(3 * HUGE).arrow.address % HUGE == 0


def test_small_buffers_share_huge_pages() -> None:
    before = anonymous()
    buffers = PageBuffer.side_by_side(HUGE // 2 + 5, 4)
    starts = [buffer.arrow.address for buffer in buffers]
    assert starts[0] % HUGE == 0
    assert {after - start for start, after in itertools.pairwise(starts)} == {buffers[0].nbytes}
    for buffer in buffers:
        fill(buffer)
    assert anonymous() - before < sum(buffer.nbytes for buffer in buffers) + (256 << 10)
    for i, buffer in enumerate(buffers):
        buffer.view[:] = bytes([i]) * buffer.nbytes
    assert [set(buffer.arrow.to_pybytes()) for buffer in buffers] == [{0}, {1}, {2}, {3}]


def test_the_last_huge_page_may_be_nearly_full() -> None:
    before = anonymous()
    buffers = PageBuffer.side_by_side((2 * HUGE - 8192) // 3, 3)
    for buffer in buffers:
        fill(buffer)
    assert anonymous() - before < 2 * HUGE + (256 << 10)
    if not (found := in_huge_pages(buffers[0].arrow.address)):
        pytest.skip("huge pages are not available now")
    assert found >= 2 * HUGE


def in_huge_pages(address: int) -> int:
    """Bytes in huge pages of the map that has this address."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if "-" in (span := line.split(" ", 1)[0]) and ":" not in span:
            begin, end = (int(value, 16) for value in span.split("-"))
            inside = begin <= address < end
        elif inside and line.startswith("AnonHugePages"):
            return int(line.split()[1]) << 10
    return 0


def test_buffers_use_huge_pages_if_available() -> None:
    plain = mmap.mmap(-1, 8 * HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    plain.madvise(mmap.MADV_HUGEPAGE)
    plain[:] = bytes(8 * HUGE)
    if not in_huge_pages(pa.py_buffer(plain).address + 4 * HUGE):
        pytest.skip("huge pages are not available now")
    buffer = PageBuffer(8 * HUGE)
    fill(buffer)
    assert HUGE <= in_huge_pages(buffer.arrow.address) <= buffer.nbytes
