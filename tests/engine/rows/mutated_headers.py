"""Opens pages whose bytes were changed after they were checked, and takes all their rows.

Run as a separate process: each page lies beside memory that must not be read, so that a read
outside the page ends the process.

    python tests/engine/rows/mutated_headers.py FIRST COUNT
"""

from __future__ import annotations

import faulthandler
import sys
from random import Random

import numpy as np
import pyarrow as pa

from kernels.mutated_pages import Guarded, mutated, original
from semistream.engine.rows.page_opener import PageOpener
from semistream.errors import MasterTableError
from semistream.kernels.page_columns import copy_codes

COPIES = 100


def attempt(rng: Random, memory: Guarded) -> int:
    """How many of the mutated copies of a page were opened."""
    whole = original(rng)
    while "map<" in str(whole.schema):  # Arrow ends the process when a key of a map is null
        whole = original(rng)
    names = whole.schema.names
    codes = pa.array(np.arange(whole.num_rows))
    whole = pa.RecordBatch.from_arrays([*whole.columns, codes], names=[*names, "code"])
    opener = PageOpener(whole.schema, names, "code")
    page, opened = bytes(whole.serialize()), 0
    for _ in range(COPIES):
        data = mutated(rng, page)
        for at_end in (False, True):
            address, size = np.array([memory.put(data, at_end)]), np.array([len(data)])
            try:
                loaded = opener.open(np.zeros(1, np.int64), address, size)
                copy_codes(loaded.codes, loaded.sizes, np.empty(int(loaded.sizes[0]), np.int64))
                rows = np.arange(loaded.sizes[0])
                loaded.columns.take(0 * rows, rows)
            except MasterTableError:
                continue
            opened += at_end
    return opened


def main() -> None:
    faulthandler.enable()
    first, count = int(sys.argv[1]), int(sys.argv[2])
    memory, opened = Guarded(64), 0
    for seed in range(first, first + count):
        print(f"seed {seed}", file=sys.stderr, flush=True)
        opened += attempt(Random(seed), memory)
    print(opened, count * COPIES - opened)


if __name__ == "__main__":
    main()
