"""A read past the page cache that the kernel carries out while the process goes on.

Linux can do that without a thread (``io_submit``, ``io_getevents``). A thread that asks and waits
costs two changes of threads per read, and where there is one core it asks too late: when the
other thread stops. Python's library has no such call, so the kernel's own four are called here.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import sys
import weakref

_CALLS = {  # io_setup, io_destroy, io_submit, io_getevents
    "x86_64": (206, 207, 209, 208),
    "aarch64": (0, 1, 2, 4),
}
_PREAD = 0
_Long = ctypes.c_long
_NONE, _ONE = _Long(0), _Long(1)
_syscall = ctypes.CDLL(None, use_errno=True).syscall
_syscall.restype = _Long


class _Request(ctypes.Structure):
    """The kernel's ``struct iocb``, on a little-endian machine."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("key", ctypes.c_uint32),
        ("rw_flags", ctypes.c_uint32),
        ("opcode", ctypes.c_uint16),
        ("priority", ctypes.c_int16),
        ("descriptor", ctypes.c_uint32),
        ("address", ctypes.c_uint64),
        ("nbytes", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("reserved", ctypes.c_uint64),
        ("flags", ctypes.c_uint32),
        ("result_descriptor", ctypes.c_uint32),
    )


class _Event(ctypes.Structure):
    """The kernel's ``struct io_event``."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("request", ctypes.c_uint64),
        ("result", ctypes.c_int64),
        ("result2", ctypes.c_int64),
    )


class DiskRead:
    """One read at a time, in the background; :meth:`make` says whether the system can do that."""

    def __init__(self, calls: list[_Long], context: _Long) -> None:
        _, destroy, self._submit, self._get = calls
        self._context = context
        self._request = _Request(opcode=_PREAD)
        self._requests = (ctypes.POINTER(_Request) * 1)(ctypes.pointer(self._request))
        self._event = _Event()
        self._event_at = ctypes.byref(self._event)
        self.pending = False  # asked for, and not finished
        self._arrived = False  # and the answer is there
        # The kernel must not write into a buffer that has gone: this waits for what is in flight.
        self.close = weakref.finalize(self, _destroy, destroy, context, os.getpid())

    @classmethod
    def make(cls) -> DiskRead | None:
        if sys.platform != "linux" or platform.machine() not in _CALLS:
            return None
        calls, context = [_Long(call) for call in _CALLS[platform.machine()]], _Long(0)
        if _syscall(calls[0], _ONE, ctypes.byref(context)) != 0:
            return None
        return cls(calls, context)

    def begin(self, descriptor: int, target: memoryview, offset: int) -> None:
        """Ask for bytes; if the system refuses, nothing is pending."""
        request = self._request
        request.descriptor, request.offset = descriptor, offset
        request.address = ctypes.addressof(ctypes.c_char.from_buffer(target))
        request.nbytes = len(target)
        self.pending = _syscall(self._submit, self._context, _ONE, self._requests) == 1

    @property
    def in_flight(self) -> bool:
        """Whether the disk is still at it."""
        return self.pending and not (self._arrived or self._collect(_NONE))

    def finish(self) -> int:
        """Wait; how many bytes were read, or a negative number for an error."""
        while not (self._arrived or self._collect(_ONE)):
            if ctypes.get_errno() != errno.EINTR:
                self.pending = False
                return -ctypes.get_errno()
        self.pending = self._arrived = False
        return int(self._event.result)

    def _collect(self, least: _Long) -> bool:
        """Take the answer, if there is one; wait for it if at ``least`` one is wanted."""
        found = _syscall(self._get, self._context, least, _ONE, self._event_at, None)
        self._arrived = found == 1
        return self._arrived


def _destroy(call: _Long, context: _Long, process: int) -> None:
    if os.getpid() == process:  # a child has no part in it
        _syscall(call, context)
