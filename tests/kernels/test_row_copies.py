"""Rows that are copied out of pages of a real file, mapped or read, against plain Python."""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import semistream as ss
from semistream.engine.rows.node_buffers import NodeBuffers
from semistream.engine.rows.page_opener import PageOpener
from semistream.kernels import column_forms as forms
from semistream.kernels import row_copies
from semistream.kernels.row_copies import DAMAGED, FULL, UNREADABLE
from semistream.master.page_buffer import HUGE

NAMES = ["v", "text", "flag", "k"]
PLAIN = ["k", "flag"]  # they never lack anything
MANY = 1 << 30
GUARD, GUARDED = 64, 0xA5  # behind the last frame
PEAK = Path("/proc/self/clear_refs")  # forgets the peak of a process
BLOCK = os.sysconf("SC_PAGE_SIZE")
SMALL, LARGE = (400, 60, 1024), (700, 20_000, 200 << 10)  # keys, longest text, bytes of a page


def rows(count: int, longest: int) -> pa.Table:
    """Even keys with one row, and odd ones with so many that these go on over page borders."""
    rng = np.random.default_rng(1)
    odd = np.arange(7, 2 * count, 98)
    copies = rng.integers(40, 150, len(odd))
    copies[:3] = 60, 20, 75
    keys = np.sort(np.r_[np.repeat(odd, copies), 2 * np.arange(count)])
    texts = [f"{i}:" + "x" * int(rng.integers(longest)) for i in range(len(keys))]
    return pa.table(
        {
            "k": keys,
            "v": [None if i % 40 == 39 else i for i in range(len(keys))],
            "text": [None if i % 5 == 0 else text for i, text in enumerate(texts)],
            "flag": [i % 3 == 0 for i in range(len(keys))],
        }
    )


class Stop(NamedTuple):
    """What a call returns, and the rows that it has copied."""

    status: int
    following: int
    nbytes: int
    rows: list[tuple[Any, ...]]


class Pages:
    """A mapped table, what is in each of its pages, and output buffers for ``room`` rows."""

    def __init__(self, path: Path, shape: tuple[int, int, int]) -> None:
        count, longest, page_bytes = shape
        data = rows(count, longest)
        table: Any = ss.MasterTable.build(data, path, key="k", unique=False, page_bytes=page_bytes)
        self.segment = table.pages.segment
        self.file = Path(self.segment.parts[0][1])
        self.offsets, self.lengths = self.segment.offsets, self.segment.pages.lengths
        self.map = self.segment.whole_map().memory
        self._opener_of = partial(PageOpener, table.page_schema, code=table.code_column)
        self.pages = [page.to_pylist() for page in _all_pages(table)]
        self.first = [page[0]["k"] for page in self.pages]
        self.last = [page[-1]["k"] for page in self.pages]
        self.of_code: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
        for page in self.pages:
            for row in page:
                self.of_code[row["k"]].append(tuple(row[name] for name in NAMES))
        self.lacked: set[str] = set()

    def needed(self, codes: Sequence[int], others: Sequence[int] = ()) -> tuple[Any, Any]:
        """The pages that can hold these codes, and ``others``; and the first one of each code."""
        # A code that begins a page may begin in the page before it.
        lows = [max(0, bisect_left(self.first, code) - 1) for code in codes]
        highs = [max(0, bisect_right(self.first, code) - 1) for code in codes]
        both = zip(lows, highs, strict=True)
        numbers = sorted({*others, *(p for low, high in both for p in range(low, high + 1))})
        return np.array(numbers), np.array([numbers.index(low) for low in lows], np.int32)

    def fits(
        self, code: int, place: int, numbers: Any, group: int, most: int, in_frames: bool
    ) -> bool:
        """Whether the pages in which to look for a code can be open together."""
        pages = numbers.tolist()
        end = place + 1
        while (
            self.last[pages[end - 1]] <= code
            and end < len(pages)
            and pages[end] == pages[end - 1] + 1
        ):
            end += 1
            if self.first[pages[end - 1]] > code:
                break
        needed = end - place if in_frames else self.huge(pages[place:end])
        return end - place <= group and needed <= most

    def huge(self, pages: Sequence[int]) -> int:
        """How many huge pages these pages lie on."""
        ends = self.offsets + self.lengths
        return len(
            {
                huge
                for p in pages
                for huge in range(self.offsets[p] >> 21, ((ends[p] - 1) >> 21) + 1)
            }
        )

    def resident(self) -> int:
        """Bytes of the map that are resident."""
        with open("/proc/self/pagemap", "rb", 0) as file:
            file.seek(self.map.address // BLOCK * 8)
            entries = np.frombuffer(file.read(-(-self.map.size // BLOCK) * 8), np.uint64)
        return BLOCK * int((entries >> np.uint64(63)).sum())

    def copy(
        self, codes: Sequence[int], numbers: Any, places: Any, first: int = 0,
        room: int = 3000, group: int = 64, most: int = 100, in_frames: bool = False,
        names: Sequence[str] = NAMES,
    ) -> Stop:  # fmt: skip
        """Copy as far as there is room for rows; buffers of texts grow as they must.

        Pages are read into ``most`` frames, or mapped, ``most`` huge pages at a time."""
        opener = self._opener_of(names=names)
        nodes = opener.nodes
        buffers = NodeBuffers(nodes, room)
        buffers.allocate()
        out_codes, pairs = np.empty(room, np.int64), np.empty((2, room), np.int32)
        columns = np.zeros((forms.PAGE_ROWS, len(nodes), group), np.int64)
        at = nbytes = 0
        following, tuple_codes = first, np.array(codes, np.int64)
        source = self.map.address, self.map.address + self.map.size, most, 0, np.zeros((2, 0), int)
        if in_frames:
            frame = int(self.lengths.max()) + 8 + -int(self.lengths.max()) % 8
            memory = np.full(most * frame + GUARD, GUARDED, np.uint8)
            base = memory.ctypes.data
            files = np.array(self.segment.file.descriptors()).T.copy()
            source = base, base + most * frame, most, frame, files
        while True:
            status, following, at, more = row_copies.copy(
                tuple_codes, places, following, numbers, self.offsets, self.lengths,
                *source, *opener.description, columns, nodes.forms, at, buffers.out, out_codes,
                *pairs,
            )  # fmt: skip
            assert self.resident() == 0, "pages are still mapped"
            assert not in_frames or (memory[-GUARD:] == GUARDED).all()
            nbytes += more
            if status < 0:
                break
            lacks_bitmap = buffers.out[forms.OUT_END, status] == forms.NO_BITMAP
            self.lacked.add("bitmap" if lacks_bitmap else NAMES[status])
            assert buffers.extend(status, at, MANY)
        arrays = buffers.arrays(at, copy=True)
        assert out_codes[:at].tolist() == arrays[names.index("k")].to_pylist()
        values = zip(*(a.to_pylist() for a in arrays), strict=True)
        return Stop(status, following, nbytes, list(values))

    def expected(self, codes: Sequence[int]) -> list[tuple[Any, ...]]:
        """The rows of every code, once."""
        return [row for code in dict.fromkeys(codes) for row in self.of_code.get(code, [])]


def _all_pages(table: Any) -> Iterator[pa.RecordBatch]:
    reader = table.reader()
    for page in range(table.num_pages):
        yield from reader.read(page)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    return Pages(tmp_path_factory.mktemp("small") / "table", SMALL)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    return Pages(tmp_path_factory.mktemp("large") / "table", LARGE)


def check(
    pages: Pages, codes: Sequence[int], others: Sequence[int], room: int, group: int, most: int,
    in_frames: bool,
) -> None:  # fmt: skip
    """Every call copies the rows of the tuples that it has passed, and passes all that it can."""
    numbers, places = pages.needed(codes, others)
    options: Any = {"room": room, "group": group, "most": most, "in_frames": in_frames}
    at = 0
    while at < len(codes):
        stop = pages.copy(codes, numbers, places, at, **options)
        assert stop.rows == pages.expected(codes[at : stop.following])
        assert (stop.status == FULL) == (stop.following < len(codes))
        if stop.status == FULL:
            code, place = codes[stop.following], places[stop.following]
            has_room = len(stop.rows) + len(pages.of_code.get(code, [])) <= room
            fits = pages.fits(code, place, numbers, group, most, in_frames)
            assert not (has_room and fits), "there was room for the next tuple"
            if stop.following == at:  # these pages are to be read
                at = bisect_right(codes, code)
        at = max(at, stop.following)


@settings(max_examples=150)
@given(st.data())
def test_rows_of_the_tuples_that_are_passed(small: Pages, large: Pages, data: Any) -> None:
    pages = data.draw(st.sampled_from([small, large]))
    some = st.integers(-3, pages.last[-1] + 3) | st.sampled_from(
        [*range(7, pages.last[-1], 98), *pages.first]
    )
    codes = sorted(data.draw(st.lists(some, min_size=1, max_size=40)))
    others = data.draw(st.sets(st.integers(0, len(pages.pages) - 1), max_size=5))
    room = data.draw(st.sampled_from([3, 61, 100, 1000]))
    group = data.draw(st.sampled_from([1, 2, 3, 6, 10, 64]))
    most, in_frames = data.draw(st.sampled_from([1, 2, 3, 100])), data.draw(st.booleans())
    check(pages, codes, sorted(others), room, group, most, in_frames)


@pytest.mark.parametrize("in_frames", [False, True], ids=["mapped", "in frames"])
@pytest.mark.parametrize("most", [1, 2, 100])
@pytest.mark.parametrize("group", [2, 6, 10, 64])
def test_all_rows(small: Pages, large: Pages, group: int, most: int, in_frames: bool) -> None:
    for pages in (small, large):
        codes = sorted([*pages.of_code, *pages.of_code, *range(1, 99, 2)])
        for room in (200, 3000):
            check(pages, codes, [], room, group, most, in_frames)


def test_every_page_is_opened_once(small: Pages) -> None:
    codes = sorted([*small.of_code, 300, 301, 301])
    numbers, places = small.needed(codes)
    stop = small.copy(codes, numbers, places, group=len(numbers), names=PLAIN)
    assert (stop.status, stop.following) == (forms.DONE, len(codes))
    assert stop.nbytes == small.lengths[numbers].sum()
    assert stop.rows == [(row[3], row[2]) for row in small.expected(codes)]


def test_texts_and_nulls_find_no_room(small: Pages) -> None:
    codes = sorted(small.of_code)
    small.lacked.clear()
    stop = small.copy(codes, *small.needed(codes))
    assert stop.rows == small.expected(codes)
    assert small.lacked == {"bitmap", "text"}


def test_a_call_goes_on_where_the_last_one_was_full(small: Pages) -> None:
    codes = [2, 4, 7, 8, 105, 203, 203, 204]  # 60 rows of 7, 20 of 105, 75 of 203
    numbers, places = small.needed(codes)
    found, at, stops = [], 0, []
    while at < len(codes):
        stop = small.copy(codes, numbers, places, at, room=75)
        at = stop.following
        found += stop.rows
        stops.append(at)
    assert stops == [4, 5, 7, 8]
    assert found == small.expected(codes)
    assert small.copy([203], *small.needed([203]), room=74)[:2] == (FULL, 0)


@pytest.mark.skipif(not os.access(PEAK, os.W_OK), reason="this system does not count the peak")
def test_few_huge_pages_are_mapped_at_a_time(large: Pages) -> None:
    codes = sorted(large.of_code)
    numbers, places = large.needed(codes)
    peaks = {}
    for most in (2, 3, 100):
        large.copy(codes, numbers, places, most=most, names=PLAIN)
        before = _reset_peak()
        stop = large.copy(codes, numbers, places, most=most, names=PLAIN)
        assert stop.status == forms.DONE
        peaks[most] = (_peak() - before) / HUGE
    assert peaks[2] < 2.5 < peaks[3] < 3.5 < large.map.size / HUGE - 1 < peaks[100]


def _reset_peak() -> int:
    PEAK.write_text("5")
    return _peak()


def _peak() -> int:
    (line,) = [x for x in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in x]
    return int(line.split()[1]) << 10


@pytest.mark.parametrize("in_frames", [False, True], ids=["mapped", "in frames"])
def test_pages_that_cannot_be_read(tmp_path: Path, in_frames: bool) -> None:
    """The rows before them are there, and the process is alive."""
    pages = Pages(tmp_path / "table", LARGE)
    codes, content = sorted(pages.of_code), pages.file.read_bytes()
    numbers, places = pages.needed(codes)
    half = len(pages.pages) // 2
    for damage, status in (
        (lambda: os.truncate(pages.file, pages.offsets[half]), UNREADABLE),
        (lambda: _overwrite(pages.file, int(pages.offsets[half])), DAMAGED),
    ):
        damage()
        stop = pages.copy(codes, numbers, places, group=10, in_frames=in_frames)
        assert stop.status == status
        assert stop.rows == pages.expected(codes[: stop.following])
        assert half - 10 < numbers[places[stop.following]] <= half
        pages.file.write_bytes(content)
        assert pages.copy(codes, numbers, places).rows == pages.expected(codes)


def _overwrite(file: Path, place: int) -> None:
    with open(file, "r+b") as opened:
        opened.seek(place)
        opened.write(bytes(64))


@given(st.data())
def test_huge_pages_are_counted(data: Any) -> None:
    sizes = data.draw(st.lists(st.integers(1, 5 << 20), min_size=1, max_size=50))
    offsets = np.cumsum(sizes)
    pages = sorted(data.draw(st.sets(st.integers(0, len(sizes) - 1))))
    expected = len({offset // HUGE for offset in offsets[pages].tolist()})
    assert row_copies.huge_pages(np.array(pages, np.int64), offsets) == expected


def test_the_tables_have_what_is_tested(small: Pages, large: Pages) -> None:
    for pages in (small, large):
        assert any(a == b for a, b in pairwise(pages.first)), "rows of a code fill a page"
    assert any(large.huge([page]) > 1 for page in range(len(large.pages)))
    assert large.map.size > 6 * HUGE
