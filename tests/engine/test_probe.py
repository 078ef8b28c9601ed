"""Probing pages into a window, one output batch at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from engine.kit import binding, context, emitted, intake_and_output, pages_of
from semistream.engine.disk_buffer import Scan
from semistream.engine.page_rows import BatchRows
from semistream.engine.probe import Probe
from semistream.engine.window.hash_window import QueueWindow
from semistream.engine.window.tuple_layout import WindowSize
from semistream.kernels import states

PAGES = [[1, 2, 2], [3, 4]]
STREAM = [2, 9, 1, 2, 4]


def probe_all(how: str, kind: pa.DataType, rows: int) -> tuple[list[Any], Any, Scan, list[int]]:
    """(rows, window, scan, size of each output batch)."""
    exact = kind == pa.int64()
    source = pages_of(PAGES if exact else [[str(k) for k in page] for page in PAGES], kind)
    keys = pa.array([k if exact else str(k) for k in STREAM], kind)
    batch = pa.record_batch({"k": keys, "a": range(len(STREAM))})
    shared = context(binding(source, batch.schema, how))
    intake, output = intake_and_output(shared, rows)
    window = QueueWindow(intake.layout, WindowSize(10, 1000, 0))
    codes, _ = shared.binding.stream_codes(batch)
    window.add(codes, intake.layout.columns(batch), np.arange(len(STREAM)))
    scan, probe = Scan(0, 1), Probe(shared, output, window, rows)
    scan.fill(BatchRows(source.pages, shared.binding))
    assert probe.nbytes == 8 * rows
    out, sizes, done = [], [], False
    while not done:
        done = probe.advance(scan)
        more = emitted(output)
        out += more
        sizes.append(len(more))
    return out, window, scan, sizes


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()], ids=str)
@pytest.mark.parametrize("rows", [1, 2, 100])
@pytest.mark.parametrize("how", ["inner", "left", "left_semi", "left_anti"])
def test_every_row_meets_every_tuple_of_its_key(how: str, rows: int, kind: pa.DataType) -> None:
    out, window, scan, sizes = probe_all(how, kind, rows)
    found = sorted((row["a"], row.get("v")) for row in out)
    if how in ("inner", "left"):
        assert found == [
            (0, "2/1"), (0, "2/2"), (2, "1/0"), (3, "2/1"), (3, "2/2"), (4, "4/1")
        ]  # fmt: skip
        assert scan.counts.tolist() == [1, 2, 2, 0, 1]
    else:
        assert found == ([(0, None), (2, None), (3, None), (4, None)] if how == "left_semi" else [])
    assert max(sizes) <= rows
    matched = window.state[np.arange(len(STREAM))] == states.MATCHED
    numbers = window.take(np.arange(len(STREAM), dtype=np.int32))[1].to_pylist()
    assert {n for n, m in zip(numbers, matched, strict=True) if m} == {0, 2, 3, 4}
