"""Joins with pages that were forged together with their checksums.

Run as a separate process, because compiled code may crash on such a page.

    python tests/faults/hostile_pages.py FOLDER FIRST COUNT
"""

from __future__ import annotations

import dataclasses
import faulthandler
import sys
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

import semistream as ss
from semistream.master.page_claims import Claims
from semistream.master.reader import open_segment

TABLES: dict[str, pa.Table] = {
    "int64": pa.table(
        {
            "k": range(300),
            "text": ["x" * (i % 40) for i in range(300)],
            "v": range(300),
        }
    ),
    "payloads": pa.table(
        {
            "k": pa.array([i // 2 for i in range(300)], pa.int32()),
            "flag": pa.array([i % 3 == 0 if i % 5 else None for i in range(300)]),
            "list": pa.array([[i] * (i % 4) if i % 7 else None for i in range(300)]),
            "struct": pa.array([{"a": i, "b": "y" * (i % 9)} for i in range(300)]),
            "large": pa.array([b"z" * (i % 6) for i in range(300)], pa.large_binary()),
            "price": pa.array([Decimal(i) for i in range(300)], pa.decimal128(9, 2)),
        }
    ),
    "text": pa.table({"k": sorted(f"{'ab' * (i % 5)}{i}" for i in range(300)), "v": range(300)}),
}
INTERESTING = (0, 1, -1, 7, 8, 255, 2**15, 2**31 - 1, -(2**31), 2**32, 2**62, 2**63 - 1, -(2**63))
ACCESS = ("read", "mapped", "direct")


def stream_of(table: pa.Table) -> pa.RecordBatch:
    rows = pa.table({"n": range(table.num_rows), "k": table["k"]}).combine_chunks().to_batches()[0]
    return rows.take(pa.array([(37 * i) % table.num_rows for i in range(table.num_rows)]))


def falsified(rng: Random, page: bytes, schema: pa.Schema) -> bytes:
    """Forged bytes of at most the same length."""
    how = rng.randrange(9)
    batch = pa.ipc.read_record_batch(pa.py_buffer(page), schema)
    if how < 6:
        return _scribbled(rng, page, metadata=how < 3)
    if how == 6:
        codec = pa.ipc.IpcWriteOptions(compression=rng.choice(("lz4", "zstd")))
        other = _packed(batch, codec)
    elif how == 7:
        other = bytes(batch.slice(rng.randrange(batch.num_rows)).serialize())
    else:
        rows = list(range(batch.num_rows))
        rng.shuffle(rows)
        other = bytes(batch.take(pa.array(rows)).serialize())
    return other if len(other) <= len(page) else _scribbled(rng, page, metadata=False)


def _packed(batch: pa.RecordBatch, options: pa.ipc.IpcWriteOptions) -> bytes:
    """The batch's message alone, compressed."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
    reader.read_next_message()  # the schema
    message = reader.read_next_message()
    return bytes(message.serialize())


def _scribbled(rng: Random, page: bytes, metadata: bool) -> bytes:
    """A few bytes or numbers overwritten, in the metadata or in the values."""
    other = bytearray(page)
    border = 8 + int.from_bytes(page[4:8], "little")
    first, last = (0, border) if metadata else (border, len(page))
    for _ in range(rng.choice((1, 1, 2, 5))):
        if rng.random() < 0.3 or last - first < 8:
            other[rng.randrange(first, last)] ^= 1 << rng.randrange(8)
            continue
        width = rng.choice((1, 2, 4, 8))
        at = rng.randrange(first, last - width + 1) // width * width
        value = rng.choice((*INTERESTING, rng.randrange(1 << 64), len(page)))
        other[at : at + width] = (value % (1 << 8 * width)).to_bytes(width, "little")
    return bytes(other)


def falsify(table: Any, rng: Random) -> None:
    """Overwrite pages of an open table, with matching checksums."""
    segment, first = table.pages.segment, 0
    lengths = segment.pages.lengths.copy()
    claims = segment.claims.of(np.arange(len(segment.pages)))
    for info in table.manifest.segments:
        pages = open_segment(table.store, table.manifest, info).pages
        with open(table.store.path(info.file), "r+b") as file:
            for page in rng.sample(range(len(pages)), min(len(pages), rng.choice((1, 1, 3)))):
                file.seek(int(pages.offsets[page]))
                before = file.read(int(pages.lengths[page]))
                after = falsified(rng, before, segment.schema)
                file.seek(int(pages.offsets[page]))
                file.write(after)
                lengths[first + page] = len(after)
                claims.checksums[first + page] = xxhash.xxh3_64_intdigest(after)
        first += len(pages)
    segment.pages = dataclasses.replace(segment.pages, lengths=lengths)
    segment.claims = Forged(claims)


class Forged:
    """Claims that match the overwritten pages."""

    def __init__(self, claims: Claims) -> None:
        self._claims = claims

    def of(self, pages: Any) -> Claims:
        return Claims(*(column[pages] for column in self._claims))

    def close(self) -> None: ...


def attempt(folder: Path, seed: int) -> str:
    """Forge pages and join; raises MasterTableError or returns rows of the right shape."""
    rng = Random(seed)
    name = rng.choice(list(TABLES))
    data, path = TABLES[name], folder / f"{name}{rng.choice(('', ' changed'))}"
    access = rng.choice(ACCESS)
    pristine = {file: file.read_bytes() for file in (path / "segments").iterdir()}
    try:
        table = ss.MasterTable.open(path, mapped=access == "mapped")
        falsify(table, rng)
        how = rng.choice(("inner", "left"))
        join = ss.join(
            rng.choice(list(ss.ALGORITHMS)), memory=rng.choice((150_000, "4MB")), how=how
        )
        stream = stream_of(data)
        with join.open(table, on="k", direct=access == "direct") as run:
            for part in (stream, stream):  # the second time, pages are known
                for rows in run.push(part):
                    check(rows, run)
            for rows in run.flush():
                check(rows, run)
    except ss.MasterTableError:
        return "refused"
    finally:
        for file, content in pristine.items():
            file.write_bytes(content)
    return "joined"


def check(rows: pa.RecordBatch, run: Any) -> None:
    assert rows.schema == run.schema
    rows.validate()


def build(folder: Path) -> None:
    for name, data in TABLES.items():
        ss.MasterTable.build(data, folder / name, key="k", page_bytes=1500)
        table = ss.MasterTable.build(data, folder / f"{name} changed", key="k", page_bytes=1500)
        table.upsert(data.slice(100, 20)).delete(data["k"].slice(50, 5).combine_chunks())


def main() -> None:
    faulthandler.enable()
    folder, first, count = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    build(folder)
    ends = {"refused": 0, "joined": 0}
    for seed in range(first, first + count):
        print(f"seed {seed}", file=sys.stderr, flush=True)
        ends[attempt(folder, seed)] += 1
    print(ends["refused"], ends["joined"])


if __name__ == "__main__":
    main()
