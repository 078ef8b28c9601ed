"""What works with which version of Spark: errors that name the version, docs that say the same."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import ArrayType, MapType, StructType, TimestampNTZType, TimestampType

import semistream as ss
from semistream.spark import versions
from semistream.spark.versions import FEATURES, SUPPORTED, Feature

ROOT = Path(__file__).resolve().parents[2]
EVERYWHERE = (
    "`enrich`, `build_master`, metrics",
    "pipelines, `to_warehouse`, `PostgresSink`",
    "Spark's own sources and sinks",
)


def docs_table() -> str:
    """The table in docs/cluster.md."""
    names = [".".join(map(str, version)) for version in SUPPORTED]
    lines = [f"| | {' | '.join(names)} |", "|---|" + "---|" * len(names)]
    lines += [f"| {name} |" + " yes |" * len(names) for name in EVERYWHERE]
    for feature in FEATURES:
        cells = ["yes" if version >= feature.since else "no" for version in SUPPORTED]
        lines.append(f"| {feature.described} | {' | '.join(cells)} |")
    return "\n".join(lines)


def test_the_docs_say_what_works_where() -> None:
    assert docs_table() in (ROOT / "docs" / "cluster.md").read_text()


def test_the_supported_versions_are_declared_and_tested() -> None:
    oldest, newest = SUPPORTED[0], SUPPORTED[-1]
    declared = f"pyspark>={oldest[0]}.{oldest[1]},<{newest[0]}.{newest[1] + 1}"
    assert f'"{declared}"' in (ROOT / "pyproject.toml").read_text()
    assert versions.VERSION in SUPPORTED
    spec = importlib.util.spec_from_file_location("runner", ROOT / "tests" / "spark_versions.py")
    assert spec is not None
    assert spec.loader is not None
    runner = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(runner)
    assert tuple(".".join(map(str, version)) for version in SUPPORTED) == runner.VERSIONS


def test_versions_are_asked_for_in_one_file_only() -> None:
    asks = re.compile(r"pyspark\.__version__|from pyspark\.sql(\.streaming)?\.datasource")
    folder = ROOT / "src" / "semistream"
    found = [file.name for file in folder.rglob("*.py") if asks.search(file.read_text())]
    assert found == ["versions.py"]


@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.described)
def test_an_older_spark_is_told_the_version_that_it_needs(
    feature: Feature, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "VERSION", feature.since)
    versions.require(feature)
    monkeypatch.setattr(versions, "VERSION", (3, 4))
    needed = ".".join(map(str, feature.since))
    with pytest.raises(ss.ConfigError, match=f"needs pyspark {needed} or newer, and this is"):
        versions.require(feature)


def test_data_sources_that_this_spark_lacks(spark: Any) -> None:
    from semistream.spark.sink import WarehouseSource
    from semistream.spark.workload_source import WorkloadSource

    sink = WarehouseSource({"path": "out"})
    source = WorkloadSource({"products": "5"})
    for feature, use in (
        (versions.BATCH_SOURCE, lambda: ss.register(spark)),
        (versions.SINK, lambda: sink.streamWriter(StructType(), False)),
        (versions.STREAM_SOURCE, lambda: source.streamReader(StructType())),
    ):
        if versions.has(feature):
            use()
        else:
            with pytest.raises(ss.ConfigError, match=r"needs pyspark \d\.\d or newer"):
                use()


def test_timestamps_have_the_zone_of_the_session_however_deep() -> None:
    moment, plain = pa.timestamp("us", "Asia/Tokyo"), pa.timestamp("us")
    struct = StructType().add("t", TimestampType()).add("n", TimestampNTZType())
    found = versions.arrow_type(ArrayType(MapType(TimestampType(), struct)), "Asia/Tokyo", False)
    inner = found.value_type
    assert inner.key_type == moment
    assert [field.type for field in inner.item_type] == [moment, plain]


def test_a_timestamp_without_a_zone_stays_without() -> None:
    assert versions.spark_type(pa.timestamp("us")) == TimestampNTZType()
    assert versions.spark_type(pa.timestamp("us", "UTC")) == TimestampType()


def test_kafka_comes_for_the_scala_version_of_spark(spark: Any) -> None:
    scala = spark.sparkContext._jvm.scala.util.Properties.versionNumberString()
    assert f"_{scala.rpartition('.')[0]}:" in versions.KAFKA
