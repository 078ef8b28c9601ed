"""The reader that a join holds on a :class:`~semistream.master.sql.SqlMaster`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from semistream.master.reader import raise_read_error

if TYPE_CHECKING:
    from semistream.master.sql import SqlMaster


class SqlReader:
    """Pages of one SqlMaster; all its readers share a connection."""

    def __init__(self, source: SqlMaster, pages_at_once: int) -> None:
        self._source = source
        self._at_once = pages_at_once
        self._closed = False
        self.bytes_read = 0

    @property
    def nbytes(self) -> int:
        return 0 if self._closed else self._at_once * self._source.max_page_bytes

    def read(self, first: int, count: int = 1) -> list[pa.RecordBatch]:
        pages = self._source.num_pages
        if self._closed or first < 0 or count > self._at_once or first + count > pages:
            raise_read_error(first, count, pages, self._at_once, self._closed)
        batches = [self._source.page(number) for number in range(first, first + count)]
        self.bytes_read += sum(batch.nbytes for batch in batches)
        return batches

    def close(self) -> None:
        self._closed = True
