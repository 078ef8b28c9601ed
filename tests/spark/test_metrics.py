"""A record per micro-batch: the runs' counters beside Spark's own, as lines and for Prometheus."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import naive
import semistream as ss
from semistream.cost import Machine
from semistream.spark import Metrics
from semistream.tuning.calibration_file import save
from spark.streams import Sink, feed, master, products, sales, stopping, stream_of, wait_until


def test_one_record_per_batch(spark: Any, tmp_path: Path) -> None:
    table = master(tmp_path / "products")
    people = master(tmp_path / "notes", products().select(["name", "price"]), key="name")
    save(table, Machine())  # a calibration: the rate of this look-up can be predicted
    stream = stream_of(spark, tmp_path / "in").repartition(2)
    lookups = [
        ss.Lookup(table, on="product_id", select=["price"], how="left"),
        ss.Lookup(people, on={"note": "name"}, how="left_anti"),
    ]
    enriched = ss.enrich(stream, lookups, memory="16MB")
    lines = tmp_path / "metrics.jsonl"
    parts = [sales(4_000), sales(2_200, 4_000)]  # each task of each batch is enough to predict from
    with (
        Metrics(spark, json_lines=lines, prometheus_port=0) as metrics,
        stopping(Sink(tmp_path / "out").start(enriched, once=False)) as query,
    ):
        for part in parts:
            feed(tmp_path / "in", part)
            query.processAllAvailable()
        wait_until(lambda: len(metrics.records) == 2)
        assert metrics.url is not None
        assert metrics.url.startswith("http://127.0.0.1:")
        text = urllib.request.urlopen(metrics.url).read().decode()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(metrics.url.replace("/metrics", "/secrets"))
    records = [json.loads(line) for line in lines.read_text().splitlines()]
    assert records == metrics.records
    for batch, (record, part) in enumerate(zip(records, parts, strict=True)):
        assert (record["query"], record["batch"]) == (str(query.id), batch)
        assert record["rows_in"] == len(part)
        assert record["tasks"] == 2
        assert record["rows_per_second"] > 0
        first, second = record["lookups"]
        matched = len(naive.join(part, products(), "product_id", "left_semi"))
        counters = first["counters"]
        assert (counters["tuples_in"], counters["matched"]) == (len(part), matched)
        assert counters["unmatched"] == len(part) - matched
        assert counters["waiting"] == 0
        assert second["counters"]["tuples_in"] == counters["rows_out"]
        assert 0 <= first["hit_rate"] <= 1
        assert first["rate"] > 0
        assert first["predicted_rate"] > 0
        assert first["why"].startswith(first["join"])
        assert second["predicted_rate"] is None
        assert first["version"] == 1
        assert 0 <= first["age_seconds"] < 600
        components = {k: v for k, v in first["memory"].items() if k != "budget"}
        assert 0 < sum(components.values()) <= first["memory"]["budget"] <= 16_000_000
    total = f'semistream_tuples_in_total{{query="{query.id}",master="{table.path}"}} 6200'
    assert total in text.splitlines()
    assert "# TYPE semistream_hit_rate gauge" in text
    measured = [line for line in text.splitlines() if line.startswith("semistream_rate{")]
    predicted = [line for line in text.splitlines() if line.startswith("semistream_predicted_")]
    assert (len(measured), len(predicted)) == (2, 1)


def test_metrics_that_cannot_be_written(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(ss.ConfigError, match="cannot be written"):
        Metrics(spark, json_lines=tmp_path / "no" / "folder")
