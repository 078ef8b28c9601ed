"""How SweepJoin divides its budget, and moves memory while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from semistream.joins.front_stage import FrontStage
from semistream.joins.gathered import Gathered
from semistream.joins.hot_rows import HotRows, KnownAbsent
from semistream.joins.memory_mover import MemoryMover
from semistream.joins.page_map import PageMap
from semistream.joins.probing import ProbingRun
from semistream.joins.sweep_window import Stretches, SweepWindow
from semistream.master.pages import PageReader, PageSource
from semistream.master.reader import MappedReader, PlainReader

_STRETCH_SHARE = 20  # of the budget, one in so many bytes for a stretch
_STRETCH = 16  # pages that are read with one request, at most
_MAPPED_STRETCH, _MAPPED_SHARE = 96, 4  # the same, for pages that are mapped
_IN_FLIGHT = 3  # reads ahead of the visit that is being joined
_DISK_SHARE = 5  # of the budget, one in so many bytes for all disk buffers
_LEAST_SHARE = 12  # a reader that takes more than one in so many bytes reads nothing ahead
_MAP_SHARE = 32  # the page map may take one in so many bytes of the budget
_GONE_SHARE = 128  # of the budget, one in so many bytes for keys that are known to be absent
_OFFERS = 1024  # rows that are offered to the front stage together


class SweepMemory(ProbingRun):
    """The part of a run that knows what everything costs, and where a byte more would gain most."""

    _window: SweepWindow
    _window_kind = SweepWindow
    _served_before = _hits_before = 0  # when the last decision on memory was made
    _pressed = False  # the window was full during this sweep
    _moving = False  # memory is to move between front stage and window as soon as nothing waits
    _drains = False  # nothing is taken in until then
    _most_waiting = 0
    _mover: MemoryMover | None = None

    def _buffer_pages(self) -> int:
        """A stretch. Mapped pages are cheap to have, and nothing else is in flight."""
        mapped = getattr(self._source, "mapped", False)
        self._disk_most = _MAPPED_STRETCH if mapped else _STRETCH
        self._disk_share = _MAPPED_SHARE if mapped else _STRETCH_SHARE
        return super()._buffer_pages()

    def _attach(self, source: PageSource) -> None:
        super()._attach(source)
        assert source.index is not None
        self._stretches = Stretches(source.index, self._pages_at_once)
        reader = self._reader
        asks = isinstance(reader, PlainReader) and not isinstance(reader, MappedReader)
        self._ahead = _IN_FLIGHT if asks and source.num_pages else 0
        if self._ahead and self._direct:  # each read needs a buffer; else the page cache is one
            fit = self._budget // _DISK_SHARE // reader.nbytes - 1
            one = 1 if _LEAST_SHARE * reader.nbytes <= self._budget else 0
            self._ahead = min(max(one, fit), _IN_FLIGHT)
        self._idle: list[PageReader] = []
        if self._ahead and self._direct:
            assert isinstance(reader, PlainReader)
            self._idle.extend(reader.beside(self._ahead))
        self._readers = [reader, *self._idle]
        self._map: PageMap | None = None
        if self._stream is not None:
            self._window.wait_for(self._stretches)
            self._map_pages()
            self._gone.forget()

    def _disk_bytes(self) -> int:
        readers = sum(reader.nbytes for reader in self._readers)
        pages = self._source.num_pages if self._can_map() else 0
        mapped = PageMap.bytes_for(pages, len(self._binding.master_columns))
        return readers + self._page_scratch() + self._stretches.nbytes + mapped

    def _can_map(self) -> bool:
        """Whether pages can be joined without Arrow: single rows per key, codes as stored."""
        binding = self._binding
        plain = pa.types.is_int64(self._source.schema.field(binding.master_key[0]).type)
        nbytes = PageMap.bytes_for(self._source.num_pages, len(binding.master_columns))
        fits = _MAP_SHARE * nbytes <= self._budget
        loads = isinstance(self._reader, PlainReader)
        return binding.codec.exact and plain and self._source.unique and loads and fits

    def _map_pages(self) -> None:
        if self._map is None and self._can_map():
            names = self._binding.master_columns
            self._map = PageMap(self._source, self._binding.master_key[0], names)

    def _fit(self) -> None:
        if self._stream is not None and self._source.max_row_bytes > self._widest:
            self._divide()  # rows that are being gathered may take more than was set apart
        else:
            super()._fit()

    def _hold_least(self) -> int:
        return super()._hold_least() + 2 * self._source.max_row_bytes

    def _scratch_bytes(self) -> int:
        if not self._stream:
            return 0
        return super()._scratch_bytes() + self._places.nbytes + self._gathered.nbytes

    def _front_share(self) -> float | int | str:
        if self.join.front_stage is not None:
            return self.join.front_stage  # type: ignore[no-any-return]
        if self._mover is None:
            self._mover = MemoryMover()
        return self._mover.share

    def _front_bytes(self) -> int:
        if not self._stream:
            return 0
        return super()._front_bytes() + self._gone.nbytes + self._offered.nbytes

    def _new_front_stage(
        self, types: Sequence[pa.DataType], nbytes: int, variable: float
    ) -> HotRows:
        return HotRows(types, nbytes, variable, remembers=bool(self._mover and self._mover.idle))

    def _allocate(self, nbytes: int) -> None:
        assert self._stream is not None
        nbytes -= self._make_front_stage()
        most = self._most_rows
        self._rows = np.empty(most, np.int32)
        self._slots = np.empty(most, np.int32)
        self._places = np.empty(most, np.int32)
        self._map_pages()
        schema = self._source.schema
        types = [schema.field(name).type for name in self._binding.master_columns]
        widest = self._widest = self._source.max_row_bytes
        row_bytes = min(self._source.row_bytes, widest)
        self._gathered = Gathered(types, most, row_bytes)
        nbytes -= most * widest
        spare = max(0, nbytes - self._hold_least())
        offers = min(most, _OFFERS, 1 + spare // 16 // max(1, widest))
        self._offered = Gathered(types, offers, row_bytes)
        self._offers: list[tuple[Any, Any]] = []  # codes and counts of the offered rows
        self._gone = KnownAbsent(spare // _GONE_SHARE if self._stretches.exact else 0)
        nbytes -= offers * widest + self._gone.nbytes
        self._window = SweepWindow(self._stream, nbytes, self._variable_bytes, self._stretches)

    def _went_round(self) -> None:
        """A sweep is done: perhaps memory would be of more use elsewhere."""
        mover, front, pressed = self._mover, self._front, self._pressed
        self._pressed = False
        if mover is None or self._moving or not isinstance(front, HotRows):
            return
        if not pressed:
            full = 10 * front.count > 9 * front.capacity
            self._moving = full and mover.decide_idle(self._most_waiting, self._window.capacity)
            self._drains = False
            self._most_waiting = self._window.count
            return
        term, stats = mover.term, self.stats
        term.sweeps += 1
        served = stats.matched + stats.unmatched
        term.tuples, term.hits = (
            served - self._served_before,
            stats.front_stage_hits - self._hits_before,
        )
        row_bytes = front.nbytes / max(1, front.capacity)
        self._drains = self._moving = mover.decide(front.coldest, row_bytes, self._window.nbytes)
        if mover.term is not term:
            self._served_before, self._hits_before = served, stats.front_stage_hits

    def _move_memory(self) -> None:
        """Divide the budget anew; the front stage's most used rows stay."""
        self._moving = self._drains = False
        self._withdraw_offers()
        before, self._front = self._front, None
        self._divide()
        self._take_over(before)

    def _withdraw_offers(self) -> None:
        """Rows that were offered to the front stage, and not admitted yet, are not to be."""
        if self._stream is not None:
            self._offers.clear()
            self._offered.clear()

    def _take_over(self, before: FrontStage | HotRows | None) -> None:
        if isinstance(before, HotRows) and isinstance(self._front, HotRows):
            self._front.adopt(before)
