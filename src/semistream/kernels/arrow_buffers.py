"""Bits and offsets in Arrow buffers. A position of a bit is 8 times its address, plus its place."""

from semistream.kernels.column_forms import LARGE_LIST, LARGE_TEXT
from semistream.kernels.compile import compiled
from semistream.kernels.intrinsics import (
    load_int32,
    load_int64,
    load_uint8,
    store_int32,
    store_int64,
    store_uint8,
)


@compiled(inline=True)
def is_large(form):
    return form in (LARGE_TEXT, LARGE_LIST)


@compiled(inline=True)
def load_offset(address, row, large):
    if large:
        return load_int64(address + row * 8)
    return int(load_int32(address + row * 4))


@compiled(inline=True)
def store_offset(address, row, large, value):
    if large:
        store_int64(address + row * 8, value)
    else:
        store_int32(address + row * 4, value)


@compiled(inline=True)
def load_bit(position):
    return (int(load_uint8(position >> 3)) >> (position & 7)) & 1


@compiled(inline=True)
def store_bit(address, row, bit):
    byte, shift = address + (row >> 3), row & 7
    store_uint8(byte, (int(load_uint8(byte)) & ~(1 << shift)) | (bit << shift))
