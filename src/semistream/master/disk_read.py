"""Asynchronous direct reads (Linux AIO): the kernel reads while the process continues.

Linux does this without a thread (``io_submit``, ``io_getevents``). A reader thread would cost two
context switches per read, and on a single core it would submit too late: when the other thread
blocks. Python's library does not have these system calls, so the four are called here.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import sys
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from semistream.master.extents import Extents

_CALLS = {  # io_setup, io_destroy, io_submit, io_getevents
    "x86_64": (206, 207, 209, 208),
    "aarch64": (0, 1, 2, 4),
}
_PREAD = 0
_Long = ctypes.c_long
_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.restype = _Long


# The kernel's struct iocb and struct io_event, on a little-endian machine.
_REQUEST = np.dtype(
    [
        ("data", "u8"), ("key", "u4"), ("rw_flags", "u4"), ("opcode", "u2"), ("priority", "i2"),
        ("descriptor", "u4"), ("address", "u8"), ("nbytes", "u8"), ("offset", "i8"),
        ("reserved", "u8"), ("flags", "u4"), ("result_descriptor", "u4"),
    ]
)  # fmt: skip
_EVENT = np.dtype([("data", "u8"), ("request", "u8"), ("result", "i8"), ("result2", "i8")])


def address_of(target: memoryview) -> int:
    """The address of a writable buffer."""
    return ctypes.addressof(ctypes.c_char.from_buffer(target))


class DiskRead:
    """Asynchronous reads of one group of ranges at a time.

    :meth:`make` returns None if the system does not support them.
    """

    def __init__(self, calls: list[_Long], context: _Long, most: int) -> None:
        _, destroy, self._submit, self._get = calls
        self._context = context
        # The fields of the requests and events are views that are made once: a visit of a few
        # pages lasts half a millisecond, of which they would take a tenth.
        requests, events = np.zeros(most, _REQUEST), np.zeros(most, _EVENT)
        requests["opcode"] = _PREAD
        requests["data"] = np.arange(most)  # completions come in any order
        self._descriptors, self._offsets = requests["descriptor"], requests["offset"]
        self._addresses, self._sizes = requests["address"], requests["nbytes"]
        at = requests.ctypes.data
        self._pointers = at + _REQUEST.itemsize * np.arange(most, dtype=np.uint64)
        self._pointers_at, self._events_at = self._pointers.ctypes.data, events.ctypes.data
        self._numbers, self._results = events["data"].view(np.int64), events["result"]
        self.most = most  # ranges in one group
        self.pending = False  # submitted, and not finished
        self._count = self._arrived = 0  # ranges that were submitted, and that were read
        # The kernel must not write into a freed buffer: this waits for reads in flight.
        self.close = weakref.finalize(self, _destroy, destroy, context, os.getpid())

    @classmethod
    def make(cls, most: int = 1) -> DiskRead | None:
        if sys.platform != "linux" or platform.machine() not in _CALLS:
            return None
        calls, context = [_Long(call) for call in _CALLS[platform.machine()]], _Long(0)
        if _syscall(calls[0], _Long(most), ctypes.byref(context)) != 0:
            return None
        return cls(calls, context, most)

    def begin(self, descriptor: Any, address: int, extents: Extents) -> None:
        """Submit reads of at most ``most`` ranges of a file, or of several with a descriptor for
        each range; if the system refuses, nothing is pending."""
        count = len(extents)
        self._descriptors[:count], self._offsets[:count] = descriptor, extents.offsets
        self._addresses[:count], self._sizes[:count] = address + extents.places, extents.sizes
        self._least = extents.least
        self._count, self._arrived = 0, 0
        while self._count < count:
            pointers = ctypes.c_void_p(self._pointers_at + 8 * self._count)
            taken = _syscall(self._submit, self._context, _Long(count - self._count), pointers)
            if taken <= 0:
                break
            self._count += taken
        self.pending = self._count > 0
        self._whole = self._count == count

    @property
    def in_flight(self) -> bool:
        """Whether a read is not complete yet."""
        return self.pending and not self._collect(0)

    def finish(self) -> int:
        """Wait. Returns the number of bytes read, 0 if a range lacks bytes of its pages, or a
        negative number for an error."""
        while not self._collect(self._count - self._arrived):
            if ctypes.get_errno() != errno.EINTR:
                self.pending = False
                return -ctypes.get_errno()
        self.pending = False
        results = self._results[: self._count]
        if results.min() < 0:
            return int(results[results < 0][0])
        # Range by range: rounding makes some longer, which must not make up for a short one.
        numbers = self._numbers[: self._count]
        whole = self._whole and (results >= self._least[numbers]).all()
        return int(results.sum()) if whole else 0

    def _collect(self, least: int) -> bool:
        """Collect completions, and wait for ``least`` of them; returns whether all are there."""
        left = self._count - self._arrived
        if left:
            at = ctypes.c_void_p(self._events_at + _EVENT.itemsize * self._arrived)
            found = _syscall(self._get, self._context, _Long(least), _Long(left), at, None)
            self._arrived += max(0, found)
        return self._arrived == self._count


def _destroy(call: _Long, context: _Long, process: int) -> None:
    if os.getpid() == process:  # a forked child does not own the context
        _syscall(call, context)
