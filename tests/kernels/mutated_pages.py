"""Checks mutated pages, and compares the result with Arrow's.

Run as a separate process: each page lies beside memory that must not be read, so that a read
outside the page ends the process.

    python tests/kernels/mutated_pages.py FIRST COUNT
"""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import sys
from collections import Counter
from random import Random

import numpy as np
import pyarrow as pa

from kernels.page_cases import LEAVES, batch
from semistream.kernels import page_format, page_nodes
from semistream.master.arrow_page_check import bare_schema, malformed
from semistream.master.page_spec import PageSpec

INTERESTING = (0, 1, -1, 7, 8, 255, 2**15, 2**31 - 1, -(2**31), 2**32, 2**62, 2**63 - 1, -(2**63))
_BLOCK = mmap.PAGESIZE
_PROTECT_NONE = 0


class Guarded:
    """Memory whose neighbouring blocks cannot be read."""

    def __init__(self, blocks: int) -> None:
        self._map = mmap.mmap(-1, (blocks + 2) * _BLOCK)
        self._start = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self._size = blocks * _BLOCK
        libc = ctypes.CDLL(None, use_errno=True)
        for block in (0, blocks + 1):
            place = ctypes.c_void_p(self._start + block * _BLOCK)
            assert libc.mprotect(place, ctypes.c_size_t(_BLOCK), _PROTECT_NONE) == 0

    def put(self, data: bytes, at_end: bool) -> int:
        """The address of a copy that touches the blocks behind, or those before."""
        address = self._start + _BLOCK + (self._size - len(data) if at_end else 0)
        ctypes.memmove(address, data, len(data))
        return address


def original(rng: Random) -> pa.RecordBatch:
    """A small batch of a few columns; nested types are frequent, as they have most to check."""
    kinds = []
    for _ in range(rng.randint(1, 4)):
        kind = rng.choice(LEAVES)
        for _ in range(rng.choice((0, 0, 1, 2))):
            kind = rng.choice(
                (
                    pa.list_(kind),
                    pa.large_list(kind),
                    pa.list_(kind, 2),
                    pa.struct([("a", kind), ("b", pa.string())]),
                    pa.map_(pa.string(), kind),
                )
            )
        kinds.append(kind)
    return batch(rng, kinds, rng.choice((1, 2, 8, 9, 70)))


def mutated(rng: Random, page: bytes) -> bytes:
    """A few bytes or numbers overwritten, in the metadata or in the values, or a shorter page."""
    other = bytearray(page)
    border = 8 + int.from_bytes(page[4:8], "little")
    in_metadata = len(page) == border or rng.random() < 0.6
    first, last = (0, border) if in_metadata else (border, len(page))
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        how = rng.random()
        if how < 0.3 or last - first < 8:
            other[rng.randrange(first, last)] ^= 1 << rng.randrange(8)
            continue
        width = rng.choice((1, 2, 4, 8))
        at = rng.randrange(first, last - width + 1) // width * width
        before = int.from_bytes(other[at : at + width], "little")
        value = rng.choice((*INTERESTING, rng.randrange(1 << 64), len(page)))
        if how > 0.8:
            value = before + rng.choice((-8, -4, -1, 1, 4, 8))
        other[at : at + width] = (value % (1 << 8 * width)).to_bytes(width, "little")
    return bytes(other[: rng.randrange(len(page))] if rng.random() < 0.03 else other)


def attempt(rng: Random, memory: Guarded, copies: int, found: Counter[int]) -> None:
    whole = original(rng)
    spec, bare = PageSpec(whole.schema), bare_schema(whole.schema)
    page = bytes(whole.serialize())
    problem = np.empty((1, 2), np.int64)
    for i in range(copies + 1):
        data = mutated(rng, page) if i else page
        for at_end in (False, True):
            page_format.check_pages(
                np.array([memory.put(data, at_end)]), np.array([len(data)]),
                np.array([whole.num_rows]), spec.nodes, spec.buffers, problem,
            )  # fmt: skip
        found[int(problem[0, 0])] += 1
        assert i or problem[0, 0] == page_nodes.FINE, f"refused as written: {whole.schema}"
        if problem[0, 0] == page_nodes.FINE:
            said = malformed(pa.py_buffer(data), whole.num_rows, bare)
            assert said is None, f"accepted, but {said}: {whole.schema}"


def main() -> None:
    faulthandler.enable()
    first, count = int(sys.argv[1]), int(sys.argv[2])
    memory, found = Guarded(64), Counter[int]()
    for seed in range(first, first + count):
        print(f"seed {seed}", file=sys.stderr, flush=True)
        attempt(Random(seed), memory, 100, found)
    print(*(found[code] for code in range(page_nodes.OUT_OF_ORDER)))


if __name__ == "__main__":
    main()
