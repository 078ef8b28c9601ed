"""A segment mapped as a whole: one range of addresses, in which each file has its place."""

from __future__ import annotations

import ctypes
import sys
import weakref
from typing import Any

import pyarrow as pa

from semistream.errors import ConfigError, MasterTableError
from semistream.master.local_file import RangeFile

_PROT_NONE, _PROT_READ = 0, 1
_MAP_SHARED, _MAP_PRIVATE, _MAP_FIXED, _MAP_ANONYMOUS = 0x1, 0x2, 0x10, 0x20
_HUGE = 2 << 20  # bytes of a huge page
_Size = ctypes.c_size_t
_libc: Any = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p, _Size, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64
)  # fmt: skip
_libc.munmap.argtypes = ctypes.c_void_p, _Size
_FAILED = ctypes.c_void_p(-1).value


class WholeMap:
    """The first ``nbytes`` of a file, or of several that are read as one, by address.

    Python's mmap cannot map several files side by side. ``end`` is where the pages that are there
    end: before ``nbytes`` if a file is truncated. Addresses are aligned as the file is, so that the
    kernel can map huge pages of the page cache as such.
    """

    def __init__(self, file: RangeFile, nbytes: int) -> None:
        if sys.platform != "linux":
            raise ConfigError("mapped='resident' needs Linux; use mapped=False")
        self.end = 0
        size = nbytes + _HUGE
        address = _map(0, size, _PROT_NONE, _MAP_PRIVATE | _MAP_ANONYMOUS, -1)
        self._unmap = weakref.finalize(self, _libc.munmap, address, size)
        begin = address + -address % _HUGE
        for descriptor, at, length in file.extent(nbytes):
            if length:
                _map(begin + at, length, _PROT_READ, _MAP_SHARED | _MAP_FIXED, descriptor)
            self.end = at + length
        self._range = begin, max(1, nbytes)

    @property
    def memory(self) -> pa.Buffer:
        """The mapped bytes, which keep the map. The map does not keep them: it would never go."""
        return pa.foreign_buffer(*self._range, base=self)


def _map(address: int, nbytes: int, protection: int, flags: int, descriptor: int) -> int:
    found = _libc.mmap(address, nbytes, protection, flags, descriptor, 0)
    if found == _FAILED:
        raise MasterTableError(
            f"a file of {nbytes} bytes cannot be mapped (error {ctypes.get_errno()}); open the "
            "table with mapped=False"
        )
    return int(found)
