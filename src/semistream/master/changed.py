"""The codes that a change has touched, sorted: what a delta hides in the segments before it.

A delta lists every code that was upserted or deleted, and whether rows with that code are in the
delta itself (``present``) or the code is deleted. Each list is a small Arrow file beside the
segment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from semistream.errors import MasterTableError
from semistream.keys import Codes, Mask
from semistream.master.format_version import check_format_version
from semistream.master.manifest import ChangedInfo
from semistream.master.store import LocalStore

FORMAT_VERSION = 2
_FORMAT = b"semistream-changed-codes"  # metadata key of the format version


@dataclass(frozen=True)
class ChangedCodes:
    """Sorted codes without duplicates; ``present``: the delta has rows with this code."""

    codes: Codes
    present: Mask

    def __len__(self) -> int:
        return len(self.codes)

    def to_bytes(self) -> bytes:
        batch = pa.record_batch({"code": pa.array(self.codes), "present": pa.array(self.present)})
        batch = batch.replace_schema_metadata({_FORMAT: str(FORMAT_VERSION)})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        return bytes(sink.getvalue())

    def write(self, store: LocalStore, name: str) -> ChangedInfo:
        data = self.to_bytes()
        with store.create(f"segments/{name}", is_read_next=True) as file:
            file.write(data)
        return ChangedInfo(name, len(self), xxhash.xxh3_64_hexdigest(data))

    @classmethod
    def read(cls, store: LocalStore, info: ChangedInfo) -> ChangedCodes:
        path = store.path(info.file)
        data = store.read_array(info.file)
        if xxhash.xxh3_64_hexdigest(data.data) != info.checksum:
            raise _damaged(path, "its checksum does not match")
        try:
            batch = pa.ipc.open_file(pa.py_buffer(data)).get_batch(0)
            batch.validate(full=True)
            version = (batch.schema.metadata or {}).get(_FORMAT, b"").decode(errors="replace")
            codes, present = batch.column("code"), batch.column("present")
        except (pa.ArrowException, OSError, KeyError, ValueError) as error:
            raise _damaged(path, str(error)) from error
        check_format_version(path, int(version) if version.isdigit() else version, FORMAT_VERSION)
        if codes.null_count or present.null_count or codes.type != pa.int64():
            raise _damaged(path, "a code is missing")
        found = cls(_numbers(data, codes), _flags(present))
        if len(found) != info.codes or not bool(np.all(found.codes[1:] > found.codes[:-1])):
            raise _damaged(path, "its codes are incomplete or out of order")
        return found


def _numbers(data: np.ndarray[Any, Any], array: pa.Array) -> Codes:
    """The codes where they are in the file's content. They can be written to: kernels are compiled
    once, not again for read-only arrays."""
    if not len(array):
        return np.zeros(0, np.int64)
    begin = array.buffers()[1].address - data.ctypes.data
    if not 0 <= begin <= len(data) - 8 * len(array):  # compressed, by another program
        return np.array(array.to_numpy())
    return data[begin : begin + 8 * len(array)].view(np.int64)


def _flags(array: pa.Array) -> Mask:
    """Not ``to_numpy``, which takes ten times as long."""
    bits = np.frombuffer(array.buffers()[1] or b"", np.uint8)
    return np.unpackbits(bits, count=len(array), bitorder="little").view(np.bool_)


def united(lists: Sequence[ChangedCodes]) -> ChangedCodes:
    """The union; where a code is in several lists, the first one is right. At least one list."""
    if len(lists) == 1:
        return lists[0]
    every = np.concatenate([one.codes for one in lists])
    order = np.argsort(every, kind="stable")  # merges sorted lists, unlike np.unique
    codes = every[order]
    first = np.append(True, codes[1:] != codes[:-1])[: len(codes)]
    return ChangedCodes(codes[first], np.concatenate([one.present for one in lists])[order[first]])


def contains(sorted_codes: Codes, codes: Codes) -> Mask:
    """For each code, whether it is among ``sorted_codes``."""
    if len(sorted_codes) == 0:
        return np.zeros(len(codes), dtype=np.bool_)
    places = np.searchsorted(sorted_codes, codes)
    found = sorted_codes[np.minimum(places, len(sorted_codes) - 1)] == codes
    return np.asarray((places < len(sorted_codes)) & found, dtype=np.bool_)


def _damaged(path: object, why: str) -> MasterTableError:
    return MasterTableError(
        f"the list of changed codes {path} is damaged: {why}; "
        "restore the file from a copy or build the table again"
    )
