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
    """One asynchronous read at a time; :meth:`make` returns None if it is not supported."""

    def __init__(self, calls: list[_Long], context: _Long) -> None:
        _, destroy, self._submit, self._get = calls
        self._context = context
        self._request = _Request(opcode=_PREAD)
        self._requests = (ctypes.POINTER(_Request) * 1)(ctypes.pointer(self._request))
        self._event = _Event()
        self._event_at = ctypes.byref(self._event)
        self.pending = False  # submitted, and not finished
        self._arrived = False  # completed, and not finished
        # The kernel must not write into a freed buffer: this waits for reads in flight.
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
        """Submit a read; if the system refuses it, nothing is pending."""
        request = self._request
        request.descriptor, request.offset = descriptor, offset
        request.address = ctypes.addressof(ctypes.c_char.from_buffer(target))
        request.nbytes = len(target)
        self.pending = _syscall(self._submit, self._context, _ONE, self._requests) == 1

    @property
    def in_flight(self) -> bool:
        """Whether the read is not complete yet."""
        return self.pending and not (self._arrived or self._collect(_NONE))

    def finish(self) -> int:
        """Wait. Returns the number of bytes read, or a negative number for an error."""
        while not (self._arrived or self._collect(_ONE)):
            if ctypes.get_errno() != errno.EINTR:
                self.pending = False
                return -ctypes.get_errno()
        self.pending = self._arrived = False
        return int(self._event.result)

    def _collect(self, least: _Long) -> bool:
        """Collect the completion; with ``least`` 1, wait for it."""
        found = _syscall(self._get, self._context, least, _ONE, self._event_at, None)
        self._arrived = found == 1
        return self._arrived


def _destroy(call: _Long, context: _Long, process: int) -> None:
    if os.getpid() == process:  # a forked child does not own the context
        _syscall(call, context)
