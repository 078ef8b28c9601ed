"""RocksDB (``rocksdict``) behind an LRU of packed rows.

The budget goes to the LRU, because caching rows is better for scattered hot keys than caching
blocks; the block cache stays at 8 MB. Bloom filters and block indexes are part of the process's
overhead. Cold reads are direct I/O, which RocksDB offers.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lab.rivals.data import RivalData
from lab.rivals.lookups import ROW, BehindLru, Lru, pack

BLOCK_CACHE = 8 << 20


class RocksDb(BehindLru):
    name = "RocksDB + LRU"
    packages = ("rocksdict",)
    cold = "direct"

    @classmethod
    def store(cls, variant: str, data: RivalData) -> Path:
        return data.folder / "rocksdb"

    @classmethod
    def build(cls, variant: str, data: RivalData, path: Path) -> None:
        """Write sorted tables directly and ingest them: R is in key order."""
        import rocksdict

        path.mkdir(parents=True)
        options, size = _options(direct=False), ROW.itemsize
        files = []
        for number, batch in enumerate(data.products(2_500_000)):
            files.append(str(path / f"new-{number:03d}.sst"))
            writer = rocksdict.SstFileWriter(options)
            writer.open(files[-1])
            values, keys = pack(batch), batch["product_id"].to_numpy().astype(">i8").tobytes()
            for i in range(batch.num_rows):
                writer[keys[8 * i : 8 * i + 8]] = values[size * i : size * i + size]
            writer.finish()
        store = rocksdict.Rdict(str(path), options)
        moved = rocksdict.IngestExternalFileOptions()
        moved.set_move_files(True)
        store.ingest_external_file(files, moved)
        store.close()

    def open(self) -> None:
        import rocksdict

        path = str(self.store(self.variant, self.data))
        options = _options(self.is_cold)
        self._store = rocksdict.Rdict(
            path, options, access_type=rocksdict.AccessType.read_only(False)
        )
        # `store[keys]` with a list is RocksDB's MultiGet.
        get = self._store.__getitem__
        self.lru = Lru(self.grant.budget, self.data.rows, get, lambda keys: get(keys))

    def close(self) -> None:
        self._store.close()


def _options(direct: bool) -> Any:
    import rocksdict

    options = rocksdict.Options(raw_mode=True)
    options.set_compression_type(rocksdict.DBCompressionType.none())
    options.set_use_direct_reads(direct)
    table = rocksdict.BlockBasedOptions()
    table.set_block_cache(rocksdict.Cache(BLOCK_CACHE))
    table.set_bloom_filter(10, False)
    options.set_block_based_table_factory(table)
    return options
