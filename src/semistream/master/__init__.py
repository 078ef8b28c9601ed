"""The master table on disk: build, open, read, change, verify."""

from semistream.master.parquet import ParquetPages
from semistream.master.table import MasterTable
from semistream.master.verify import Problem, verify

__all__ = ["MasterTable", "ParquetPages", "Problem", "verify"]
