"""TPC-H: Customer as the master relation, Orders as the stream.

The workload of Naeem, Dobbie, Lutteroth, Weber, *Skewed Distributions in Semi-Stream Joins: How
much can Caching help?*, section 5.1: an order gets its customer's details before it is loaded
into the warehouse. TPC-H draws customers uniformly and gives a third of them no order at all;
:func:`reskew` draws them by Zipf's law instead.

The rows come from ``tpchgen-cli`` on PyPI: ``pip install 'semistream[workload]'``.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from semistream.errors import ConfigError
from semistream.workload.checks import integer, number
from semistream.workload.stream import KeySource
from semistream.workload.zipfian import zipf_at

TABLES = ("customer", "orders")
CUSTOMERS_PER_SCALE = 150_000
ORDERS_PER_SCALE = 1_500_000


def generate(folder: str | Path, scale: float = 1.0) -> dict[str, Path]:
    """Write Customer and Orders of this scale factor as Parquet files; return their paths.

    Existing files are kept, so use a separate folder for each scale.
    """
    scale = number("scale", scale, 0.0, 100_000.0, open_low=True)
    folder = Path(folder)
    paths = {table: folder / f"{table}.parquet" for table in TABLES}
    missing = [table for table in TABLES if not paths[table].exists()]
    if not missing:
        return paths
    folder.mkdir(parents=True, exist_ok=True)
    command = [_program(), "parquet", "--scale-factor", f"{scale:g}", "--quiet"]
    command += ["--tables", ",".join(missing), "--output-dir", str(folder)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    if finished.returncode != 0 or not all(path.exists() for path in paths.values()):
        raise ConfigError(
            f"tpchgen-cli could not generate scale={scale:g} in {folder}: "
            f"{finished.stderr.strip() or 'no file was written'}; check the folder and the version"
        )
    return paths


def customers(folder: str | Path, batch_rows: int = 65_536) -> pa.RecordBatchReader:
    """The Customer table, key ``c_custkey``, in key order."""
    return _read(Path(folder) / "customer.parquet", batch_rows)


def orders(folder: str | Path, batch_rows: int = 50_000) -> pa.RecordBatchReader:
    """The Orders table as a stream; ``o_custkey`` refers to the customer."""
    return _read(Path(folder) / "orders.parquet", batch_rows)


def reskew(
    batches: Iterable[pa.RecordBatch],
    customers: int,
    exponent: float = 1.0,
    seed: int = 0,
    scattered: bool = True,
    keys: KeySource | None = None,
) -> Iterator[pa.RecordBatch]:
    """The same orders, but from customers drawn by Zipf's law or by another key source."""
    customers = integer("customers", customers, 1)
    exponent = number("exponent", exponent, 0.0)

    def redrawn() -> Iterator[pa.RecordBatch]:
        offset = 0
        for batch in batches:
            count = batch.num_rows
            drawn = (
                keys(offset, count)
                if keys is not None
                else zipf_at(offset, count, customers, exponent, seed, scattered)
            )
            place = batch.schema.get_field_index("o_custkey")
            yield batch.set_column(place, batch.schema.field(place), pa.array(drawn))
            offset += count

    return redrawn()


def _program() -> str:
    beside_python = Path(sys.executable).with_name("tpchgen-cli")
    found = str(beside_python) if beside_python.exists() else shutil.which("tpchgen-cli")
    if found is None:
        raise ConfigError(
            "TPC-H data needs the program tpchgen-cli, which is not installed; "
            "run pip install 'semistream[workload]' or pip install tpchgen-cli"
        )
    return found


def _read(path: Path, batch_rows: int) -> pa.RecordBatchReader:
    batch_rows = integer("batch_rows", batch_rows, 1)
    if not path.exists():
        raise ConfigError(
            f"{path} does not exist; create it with tpch.generate({str(path.parent)!r})"
        )
    file = pq.ParquetFile(path)
    # The generator writes string views; other tools support only plain strings.
    schema = pa.schema(
        [
            pa.field(
                field.name,
                pa.string() if pa.types.is_string_view(field.type) else field.type,
                field.nullable,
            )
            for field in file.schema_arrow
        ]
    )

    def batches() -> Iterator[pa.RecordBatch]:
        with file:
            for batch in file.iter_batches(batch_rows):
                columns = [
                    column.cast(field.type)
                    for column, field in zip(batch.columns, schema, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())
