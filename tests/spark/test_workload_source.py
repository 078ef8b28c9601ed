"""The workload as a Spark source: the library's own bytes, replayed exactly, at a rate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import semistream as ss
from semistream import workload
from semistream.spark import workload_source
from semistream.spark.versions import BATCH_SOURCE, STREAM_SOURCE, ReadAllAvailable, ReadMaxRows
from semistream.spark.workload_source import WorkloadStream, parse_options, parts

OPTIONS = {
    "products": "5000",
    "exponent": "0.8",
    "seed": "7",
    "scattered": "true",
    "unmatched": "0.1",
    "nulls": "0.05",
    "stride": "2",
    "batchRows": "700",
}


def expected(count: int, offset: int = 0) -> pa.Table:
    settings = {"scattered": True, "unmatched": 0.1, "nulls": 0.05, "stride": 2, "offset": offset}
    return pa.Table.from_batches(workload.sales(count, 5_000, 0.8, 7, **settings))


def stream(spark: Any, **options: Any) -> Any:
    ss.register(spark)
    reader = spark.readStream.format("semistream-workload")
    return reader.options(**OPTIONS, **options).load()


def run(df: Any, folder: Path) -> list[dict[str, Any]]:
    """Write the available tuples to Parquet. Returns the progress of every non-empty batch."""
    writer = df.writeStream.format("parquet").option("path", str(folder / "rows"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return [progress for progress in query.recentProgress if progress["numInputRows"]]


def rows_of(spark: Any, folder: Path) -> pa.Table:
    return spark.read.parquet(str(folder / "rows")).toArrow().sort_by("sale_id")


def same(found: pa.Table, wanted: pa.Table) -> bool:
    return bool(found.cast(wanted.schema).combine_chunks().equals(wanted.combine_chunks()))


@pytest.mark.needs_spark(STREAM_SOURCE)
def test_the_source_returns_the_librarys_bytes(spark: Any, tmp_path: Path) -> None:
    batches = run(stream(spark, tuples=10_000, maxRowsPerBatch=3_000, partitions=3), tmp_path)
    assert [progress["numInputRows"] for progress in batches] == [3_000, 3_000, 3_000, 1_000]
    assert same(rows_of(spark, tmp_path), expected(10_000))


@pytest.mark.needs_spark(STREAM_SOURCE)
@pytest.mark.slow
def test_a_stream_resumes_at_its_checkpoint(spark: Any, tmp_path: Path) -> None:
    run(stream(spark, tuples=2_000, offset=500), tmp_path)
    run(stream(spark, tuples=5_000, offset=500, partitions=4), tmp_path)
    assert same(rows_of(spark, tmp_path), expected(5_000, offset=500))


@pytest.mark.needs_spark(STREAM_SOURCE)
@pytest.mark.slow
def test_a_replayed_batch_is_identical(spark: Any, tmp_path: Path) -> None:
    """The last batch was planned, not committed: Spark runs it again from its offsets."""
    df = stream(spark, tuples=6_000, maxRowsPerBatch=2_000)
    seen: list[tuple[int, pa.Table]] = []

    def take(rows: Any, batch: int) -> None:
        seen.append((batch, rows.toArrow().sort_by("sale_id")))
        if batch == 1 and sum(number == 1 for number, _ in seen) == 1:
            raise RuntimeError("the sink is down")

    writer = df.writeStream.foreachBatch(take).trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(Exception, match="the sink is down"):
        writer.start().awaitTermination()
    writer.start().awaitTermination()
    assert [batch for batch, _ in seen] == [0, 1, 1, 2]
    assert seen[1][1].equals(seen[2][1])
    found = pa.concat_tables([seen[0][1], seen[2][1], seen[3][1]])
    assert same(found, expected(6_000))


@pytest.mark.needs_spark(BATCH_SOURCE)
def test_as_a_table(spark: Any) -> None:
    ss.register(spark)
    endless = spark.read.format("semistream-workload").options(**OPTIONS).load()
    with pytest.raises(Exception, match="set semistream-workload's option tuples"):
        endless.count()
    whole = spark.read.format("semistream-workload").options(**OPTIONS, tuples=3_000).load()
    assert same(whole.toArrow().sort_by("sale_id"), expected(3_000))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"exponent": -1}, "exponent='-1' cannot be used; give a number of at least 0"),
        ({"products": 0}, "products=0 cannot be used"),
        ({"rowsPerSecond": 0}, "rowsPerSecond='0' cannot be used; give a number above 0"),
        ({"maxRowsPerBatch": "many"}, "maxRowsPerBatch='many' cannot be used"),
        ({"partitions": 0}, "partitions=0 cannot be used"),
        ({"scattered": "perhaps"}, "scattered='perhaps' is not a boolean; use true or false"),
        ({"unmatched": 0.7, "nulls": 0.6}, "add up to more than 1"),
        ({"colour": "red"}, "unknown option 'colour'; valid options are products, exponent"),
        ({"exponnt": "1"}, "unknown option 'exponnt'; did you mean 'exponent'"),
    ],
)
def test_bad_options_are_refused_by_name(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ss.ConfigError) as refusal:
        parse_options({**OPTIONS, **{name: str(value) for name, value in options.items()}})
    assert said in str(refusal.value)


@pytest.mark.needs_spark(STREAM_SOURCE)
def test_a_bad_option_is_refused_when_the_stream_is_created(spark: Any) -> None:
    with pytest.raises(Exception, match="exponent='-1' cannot be used"):
        stream(spark, Exponent=-1)
    with pytest.raises(Exception, match="needs the option products"):
        spark.readStream.format("semistream-workload").load()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    now = [1_000_000]
    monkeypatch.setattr(workload_source, "_now", lambda: now[0])
    return now


def reader(**options: Any) -> WorkloadStream:
    return WorkloadStream(parse_options({**OPTIONS, **{k: str(v) for k, v in options.items()}}), 2)


def test_tuples_arrive_at_their_rate_while_the_query_is_down(clock: list[int]) -> None:
    source = reader(rowsPerSecond=100, maxRowsPerBatch=150, tuples=1_000)
    limit = source.getDefaultReadLimit()
    assert limit == ReadMaxRows(150)
    start = json.loads(json.dumps(source.initialOffset()))
    assert source.latestOffset(start, limit) == start
    clock[0] += 1_000
    first = source.latestOffset(start, limit)
    assert first["tuple"] == 100
    clock[0] += 5_000  # down for five seconds: a backlog of 500, taken in limited batches
    again = reader(rowsPerSecond=100, maxRowsPerBatch=150, tuples=1_000)
    second = again.latestOffset(first, limit)
    assert second["tuple"] == 250
    assert again.latestOffset(second, ReadAllAvailable())["tuple"] == 600
    clock[0] += 60_000
    assert again.latestOffset(second, ReadAllAvailable())["tuple"] == 1_000


def test_without_a_rate_there_is_always_one_more_batch(clock: list[int]) -> None:
    source = reader()
    start = source.initialOffset()
    assert source.latestOffset(start, ReadAllAvailable())["tuple"] == workload_source.UNPACED_BATCH
    with pytest.raises(ss.ConfigError, match="neither an end nor a rate"):
        source.prepareForTriggerAvailableNow()


def test_available_now_ends_with_what_had_arrived(clock: list[int]) -> None:
    source = reader(rowsPerSecond=100, maxRowsPerBatch=60)
    start = source.initialOffset()
    clock[0] += 1_000
    source.prepareForTriggerAvailableNow()
    limit, ends = source.getDefaultReadLimit(), []
    for _ in range(3):
        start = source.latestOffset(start, limit)
        ends.append(start["tuple"])
        clock[0] += 1_000
    assert ends == [60, 100, 100]


@pytest.mark.parametrize(("start", "end", "most"), [(0, 10, 3), (5, 7, 4), (3, 3, 2), (0, 1, 1)])
def test_parts_cover_the_range_once(start: int, end: int, most: int) -> None:
    found = [part.value for part in parts(start, end, most)]
    assert [p for low, count in found for p in range(low, low + count)] == list(range(start, end))
    assert all(count > 0 for _, count in found)
    assert len(found) == min(most, end - start)
