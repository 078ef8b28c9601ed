"""Pages that compiled code reads or maps by itself: frames, how long a map lasts, and when none is
made."""

from __future__ import annotations

import gc
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import semistream as ss
from master.split_base import rows, split
from semistream.master.scattered_pages import LEAST_MAPPED, ScatteredPages


@pytest.fixture(params=[(), (300, 700)], ids=["one file", "three files"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return split(tmp_path / "t", rows(0, 1000), request.param)


def maps(table: Any) -> list[str]:
    """The maps of the table's files."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [line for line in lines if str(table.path) in line]


def pages_of(table: Any) -> ScatteredPages:
    found: ScatteredPages = table.reader(4).scattered_pages(LEAST_MAPPED)
    return found


def test_a_map_lasts_while_it_is_used_and_no_longer(table: Any) -> None:
    """Another thread that meets a damaged page opens the files again at any moment."""
    pages, segment = pages_of(table), table.pages.segment
    places, files = pages.mapped(), len(segment.parts)
    assert len(maps(table)) == files
    segment.reopen()
    gc.collect()
    assert len(maps(table)) == files
    assert pages.mapped().limit - pages.mapped().base == places.limit - places.base
    gc.collect()
    assert len(maps(table)) == files, "the one before is still mapped"
    del pages
    segment.reopen()
    gc.collect()
    assert not maps(table)


def test_a_file_that_was_replaced_is_mapped_anew(table: Any) -> None:
    pages, segment = pages_of(table), table.pages.segment
    pages.mapped()
    for _, path in segment.parts:
        shutil.copy(path, f"{path}.copy")
        os.replace(f"{path}.copy", path)
    segment.reopen()  # after a read that has failed
    pages.mapped()
    gc.collect()
    assert len(maps(table)) == len(segment.parts)
    assert not any("(deleted)" in line for line in maps(table))


def test_a_buffer_is_released_before_pages_are_mapped(table: Any) -> None:
    """The plan has memory for one of both."""
    reader = table.reader(16)
    pages, memory = reader.scattered_pages(LEAST_MAPPED), reader._buffer.arrow
    for _ in range(2):
        reader.load(reader.plan(np.arange(16)))
        assert resident(memory) > 8 * 2048
        pages.mapped()
        assert resident(memory) == 0


def test_frames_are_a_part_of_the_buffer(table: Any) -> None:
    reader = table.reader(16)
    pages, memory = reader.scattered_pages(0), reader._buffer.arrow
    places = pages.in_frames()
    assert (pages.can_read, pages.can_map) == (True, False)
    assert memory.address == places.base < places.limit <= memory.address + memory.size
    assert places.most * places.frame == places.limit - places.base
    assert places.frame >= table.max_page_bytes
    assert places.most >= 2
    assert reader._buffer.used == places.limit - places.base, "it is released before a map is made"
    sizes = [int(part.ends(-1)) for part in table.pages.segment.by_file().values()]
    assert len(places.files[0]) == len(sizes)
    assert [os.fstat(descriptor).st_size for descriptor in places.files[1]] >= sizes
    assert places.files[0, 0] == 0
    starts = table.pages.segment.offsets[[first for first, _ in table.pages.segment.parts]]
    assert (places.files[0] <= starts).all()


def test_a_buffer_for_one_page_has_no_frames(tmp_path: Path) -> None:
    """A key may go on in the next page."""
    table = ss.MasterTable.build(rows(0, 1000), tmp_path / "t", key="k", page_bytes=8192)
    can_read = [table.reader(count).scattered_pages(0).can_read for count in (1, 2)]
    assert can_read == [False, True]


@pytest.mark.parametrize("places", ["mapped", "in_frames"])
def test_what_a_reader_has_mapped_is_unmapped(table: Any, places: str) -> None:
    reader = type(table).open(table.path, mapped=True).reader(16)
    for first in (0, 1):  # new pages are checked
        reader.load(reader.plan(np.arange(first, first + 8)))
    assert maps(table)
    found = getattr(reader.scattered_pages(LEAST_MAPPED), places)()
    gc.collect()
    assert len(maps(table)) == (len(found.files[0]) or len(table.pages.segment.parts)) * (
        places == "mapped"
    )


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
    assert pages.mapped() is not None
    for path, part in segment.by_file().items():
        file, end = Path(path), int(part.ends(len(part.pages) - 1))
        content = file.read_bytes()
        os.truncate(file, end - 1)
        assert pages.mapped() is None
        file.write_bytes(content)
        assert pages.mapped() is not None
