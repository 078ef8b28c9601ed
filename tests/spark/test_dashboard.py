"""The live page beside a real query, and beside other metrics of the same session."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import semistream as ss
from live.browser import new_browser
from semistream.spark import Metrics
from spark.streams import Sink, feed, master, sales, stopping, stream_of, wait_until


def test_the_page_and_other_metrics_see_the_same_batches(spark: Any, tmp_path: Path) -> None:
    table = master(tmp_path / "products")
    enriched = ss.enrich(stream_of(spark, tmp_path / "in"), table, on="product_id", memory="16MB")
    with (
        Metrics(spark) as metrics,
        ss.dashboard(spark, port=0) as page,
        stopping(Sink(tmp_path / "out").start(enriched, once=False)) as query,
    ):
        assert page.url in page._repr_html_()
        for first in (0, 100):
            feed(tmp_path / "in", sales(100, first))
            query.processAllAvailable()
        wait_until(lambda: len(page.metrics.records) == len(metrics.records) == 2)
        data = json.loads(urllib.request.urlopen(page.url + "data").read())
        assert data["records"] == page.metrics.records
        assert [_counters(r) for r in data["records"]] == [_counters(r) for r in metrics.records]
        assert data["queries"][str(query.id)]["state"] == "running"
        record = data["records"][1]
        assert record["run"] == str(query.runId)
        assert record["lag_unit"] == "seconds"
        query.stop()
        queries = page.metrics.feed.since
        wait_until(lambda: queries(None, 0)["queries"][str(query.id)]["state"] == "stopped")


def _counters(record: dict[str, Any]) -> Any:
    return record["batch"], [lookup["counters"] for lookup in record["lookups"]]


PIPELINE = """\
name: sales
source:
  format: parquet
  path: in
  schema: {sale_id: long, product_id: long, note: string}
  options: {maxFilesPerTrigger: 1}
lookups:
  - {master: products, on: product_id, select: [price]}
sink: {output: parquet, path: out}
checkpoint: checkpoint
memory: 64MB
spark: {spark.master: "local[2]", spark.driver.memory: 1g}
"""


def started(folder: Path, log: Path) -> tuple[subprocess.Popen[bytes], str]:
    """``semistream run --ui`` and the address of its page."""
    script = "from semistream.cli import main; import sys; sys.argv[0] = 'semistream'; main()"
    command = [sys.executable, "-u", "-c", script, "run", "pipeline.yaml", "--ui", "--port", "0"]
    with open(log, "w") as out:
        running = subprocess.Popen(command, cwd=folder, stdout=out, stderr=subprocess.STDOUT)
    deadline = time.monotonic() + 200
    while not (found := re.search(r"live page: (http://127\.0\.0\.1:\d+/)", log.read_text())):
        assert running.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)
    return running, found[1]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_semistream_run_in_a_browser(tmp_path: Path) -> None:
    """Values appear, and the page of the restarted pipeline goes on with its next batch."""
    master(tmp_path / "products")
    (tmp_path / "pipeline.yaml").write_text(PIPELINE)
    with new_browser() as browser:
        tab = browser.new_page()
        for start in range(2):
            feed(tmp_path / "in", sales(100, 200 * start))
            running, url = started(tmp_path, tmp_path / f"log{start}")
            try:
                tab.goto(url)
                rows = tab.locator(".tile[data-figure=rows] b")
                rows.get_by_text("100", exact=True).wait_for(timeout=100_000)
                assert f"batch {2 * start}," in tab.locator("#updated").inner_text()
                assert tab.locator("#name").inner_text() == "sales"
                feed(tmp_path / "in", sales(100, 200 * start + 100))
                rows.get_by_text("200", exact=True).wait_for(timeout=60_000)
                tab.reload()
                rows.get_by_text("200", exact=True).wait_for(timeout=10_000)
                pictures = os.environ.get("SEMISTREAM_PICTURES")
                if pictures:
                    tab.screenshot(path=f"{pictures}/run.png", full_page=True)
                running.send_signal(signal.SIGINT)
                log = tmp_path / f"log{start}"
                assert running.wait(60) == 0, log.read_text()
            finally:
                if running.poll() is None:
                    running.kill()
            tab.locator("#state", has_text="disconnected").wait_for(timeout=5000)
