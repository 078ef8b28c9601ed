"""Page access of SweepJoin: prefetching, reuse of readers, failures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import semistream as ss
from engine.kit import MemoryPages, binding, context, pages_of
from semistream.engine.plan import plan_memory
from semistream.engine.shape import StreamShape, TableShape
from semistream.joins.sweep.read_ahead import ReadAhead, Visit

KEYS = [[page * 10, page * 10 + 1] for page in range(8)]
NONE = np.zeros(0, np.int32)


def reads_of(source: MemoryPages, ahead: int, direct: bool, pages: int = 2) -> tuple[Any, Any]:
    shared = replace(context(binding(source)), direct=direct)
    table = TableShape.of(source, shared.binding, direct)
    plan = plan_memory(ss.join("sweepjoin", memory=100_000), table, StreamShape())
    plan = replace(plan, reads_ahead=ahead, buffer_pages=pages)
    return ReadAhead(shared, source, table, plan), shared


def visit(first: int, last: int) -> Visit:
    return Visit(first, last, NONE, NONE)


def test_pages_of_a_visit() -> None:
    reads, shared = reads_of(pages_of(KEYS), 0, False)
    scan = reads.load(visit(3, 6))
    assert scan.codes.tolist() == [30, 31, 40, 41]
    assert not scan.ended
    reads.fill(scan)
    assert (scan.first, scan.codes.tolist()) == (5, [50, 51, 60, 61])
    assert shared.stats.pages_read == 4


@pytest.mark.parametrize("direct", [False, True])
def test_visits_are_requested_in_order_up_to_a_limit(direct: bool) -> None:
    source = pages_of(KEYS)
    reads, _ = reads_of(source, 2, direct)
    visits = [visit(0, 1), visit(3, 3), visit(5, 7)]
    reads.request(visits, 2)
    assert [v.reader is not None for v in visits] == [True, True, False]
    reads.request(visits, 2)
    assert visits[2].reader is None  # two are in flight
    readers = {id(v.reader): v.reader for v in visits[:2]}
    assert [a for reader in readers.values() for a in reader.prefetched] == [(0, 2), (3, 1)]
    for number, first in enumerate((0, 3)):
        scan = reads.load(visits[number])
        assert scan.codes[0] == 10 * first
        assert visits[number].reader is None


def test_direct_reads_need_a_buffer_each() -> None:
    source = pages_of(KEYS)
    reads, _ = reads_of(source, 2, True)
    visits = [visit(page, page) for page in range(4)]
    reads.request(visits, 9)
    assert [v.reader is not None for v in visits] == [True, True, False, False]
    assert reads.nbytes == 3 * source.buffer_bytes(2, True)
    reads.load(visits.pop(0))
    reads.request(visits, 9)
    assert [v.reader is not None for v in visits] == [True, True, False]
    reads.close()
    assert all(reader.is_closed for reader in reads._readers)


@pytest.mark.parametrize("direct", [False, True])
def test_a_failed_read_can_be_repeated(direct: bool) -> None:
    source = pages_of(KEYS)
    reads, shared = reads_of(source, 1, direct)
    wanted = visit(2, 2)
    reads.request([wanted], 2)
    source.fail = [2]
    with pytest.raises(OSError, match="page 2"):
        reads.load(wanted)
    assert shared.stats.pages_read == 0
    assert reads.load(wanted).codes.tolist() == [20, 21]
    following = visit(4, 4)
    reads.request([following], 2)
    assert following.reader is not None  # no buffer was lost


def test_without_prefetching_nothing_is_requested() -> None:
    reads, _ = reads_of(pages_of(KEYS), 0, False)
    wanted = visit(0, 0)
    reads.request([wanted], 2)
    assert wanted.reader is None
