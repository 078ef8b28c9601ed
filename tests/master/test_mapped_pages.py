"""Pages that compiled code maps by itself: how long a map lasts, and when none is made."""

from __future__ import annotations

import gc
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from master.split_base import rows, split
from semistream.master.mapped_pages import LEAST_MAPPED, MappedPages


@pytest.fixture(params=[(), (300, 700)], ids=["one file", "three files"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return split(tmp_path / "t", rows(0, 1000), request.param)


def maps(table: Any) -> list[str]:
    """The maps of the table's files."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [line for line in lines if str(table.path) in line]


def pages_of(table: Any) -> MappedPages:
    found: MappedPages = table.reader(4).mapped_pages(LEAST_MAPPED)
    return found


def test_a_map_lasts_while_it_is_used_and_no_longer(table: Any) -> None:
    """Another thread that meets a damaged page opens the files again at any moment."""
    pages, segment = pages_of(table), table.pages.segment
    places, files = pages.places(), len(segment.parts)
    assert len(maps(table)) == files
    segment.reopen()
    gc.collect()
    assert len(maps(table)) == files
    assert pages.places().limit - pages.places().base == places.limit - places.base
    gc.collect()
    assert len(maps(table)) == files, "the one before is still mapped"
    del pages
    segment.reopen()
    gc.collect()
    assert not maps(table)


def test_a_file_that_was_replaced_is_mapped_anew(table: Any) -> None:
    pages, segment = pages_of(table), table.pages.segment
    pages.places()
    for _, path in segment.parts:
        shutil.copy(path, f"{path}.copy")
        os.replace(f"{path}.copy", path)
    segment.reopen()  # after a read that has failed
    pages.places()
    gc.collect()
    assert len(maps(table)) == len(segment.parts)
    assert not any("(deleted)" in line for line in maps(table))


def test_a_buffer_is_released_before_pages_are_mapped(table: Any) -> None:
    """The plan has memory for one of both."""
    reader = table.reader(16)
    pages, memory = reader.mapped_pages(LEAST_MAPPED), reader._buffer.arrow
    for _ in range(2):
        reader.load(reader.plan(np.arange(16)))
        assert resident(memory) > 8 * 2048
        pages.places()
        assert resident(memory) == 0


def resident(memory: Any) -> int:
    """Bytes of this memory that are resident."""
    block = os.sysconf("SC_PAGE_SIZE")
    with open("/proc/self/pagemap", "rb", 0) as file:
        file.seek(memory.address // block * 8)
        entries = np.frombuffer(file.read(-(-memory.size // block) * 8), np.uint64)
    return block * int((entries >> np.uint64(63)).sum())


def test_a_file_that_became_shorter_is_not_mapped(table: Any) -> None:
    """What is missing of the last block of a file reads as zeros in a map."""
    pages, segment = pages_of(table), table.pages.segment
    assert pages.places() is not None
    for path, part in segment.by_file().items():
        file, end = Path(path), int(part.ends(len(part.pages) - 1))
        content = file.read_bytes()
        os.truncate(file, end - 1)
        assert pages.places() is None
        file.write_bytes(content)
        assert pages.places() is not None
