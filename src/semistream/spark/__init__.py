"""Streams enriched inside Spark; the only place that imports pyspark."""

from semistream.spark.build import build_master
from semistream.spark.enrich import Lookup, enrich
from semistream.spark.listener import Metrics

__all__ = ["Lookup", "Metrics", "build_master", "enrich"]
