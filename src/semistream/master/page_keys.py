"""The key columns and codes of pages, as small arrays for the kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from semistream import kernels
from semistream.kernels.key_parts import (
    BIT,
    BYTES,
    DECIMAL,
    HASHED,
    PACKED,
    SIGNED,
    SINGLE,
    TEXT,
    UNSIGNED,
    WIDE_DECIMAL,
)
from semistream.master.codes import KeyCodes
from semistream.master.page_spec import PageSpec


class PageKeys:
    """Checks the codes of pages whose structure is valid."""

    def __init__(self, codes: KeyCodes, spec: PageSpec) -> None:
        codec = codes.codec
        columns = [spec.buffers_of(spec.names.index(name)) for name in codes.key]
        code = spec.buffers_of(spec.names.index(codes.column))[1]
        texts = [max(content, values) for _, values, content in columns]  # the same if fixed
        self._buffers = np.array([code, *(values for _, values, _ in columns), *texts], np.int64)
        self._count = len(columns)
        self._computed = not codec.native
        self._how = SINGLE if codec.exact else HASHED
        packed = [(0, 0)] * len(columns)
        if codec.packing is not None:
            self._how = PACKED
            packed = [(part.bits, part.offset) for part in codec.packing.columns]
        parts = [(*_part(kind), *bits) for kind, bits in zip(codec.types, packed, strict=True)]
        self._parts = np.array(parts, np.int64)

    def check(self, pages: Any, first_codes: Any, last_codes: Any, problem: Any) -> None:
        """Write the problems of pages at these addresses, all of them FINE so far."""
        addresses = np.empty((len(self._buffers), len(pages)), np.int64)
        sizes, rows = np.empty_like(addresses), np.empty(len(pages), np.int64)
        kernels.page_format.open_pages(pages, self._buffers, addresses, sizes, rows)
        code = addresses[0]
        if self._computed:
            values, texts = addresses[1 : 1 + self._count], addresses[1 + self._count :]
            kernels.key_codes.check_keys(
                code, rows, self._parts, self._how, values, texts, sizes[1 + self._count :], problem
            )
        kernels.key_codes.check_codes(code, rows, first_codes, last_codes, problem)


def _part(kind: pa.DataType) -> tuple[int, int]:
    """The kind and width of a key column, as in kernels/key_parts.py."""
    types = pa.types
    if types.is_boolean(kind):
        return BIT, 0
    if types.is_decimal(kind):
        return WIDE_DECIMAL if kind.precision > 38 else DECIMAL, kind.bit_width // 8
    if types.is_string(kind) or types.is_binary(kind):
        return TEXT, 4
    if types.is_large_string(kind) or types.is_large_binary(kind):
        return TEXT, 8
    if types.is_fixed_size_binary(kind):
        return BYTES, kind.byte_width
    return UNSIGNED if types.is_unsigned_integer(kind) else SIGNED, kind.bit_width // 8
