"""A streaming job into a warehouse, also as a separate process that can be killed.

Arguments: folder, output, url (or -), way (sink or foreach), Spark's master.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))


def start(spark: Any, folder: Path, output: str, url: str, way: str) -> Any:
    """The query: all files of ``in``, one per batch, joined with ``master``."""
    import semistream as ss

    orders = (
        spark.readStream.schema("n long, k long")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / "in"))
        .repartition(2)
    )
    lookup = ss.Lookup(str(folder / "master"), on="k", how="left")
    if way == "waiting":
        writer = waiting_writer(spark, orders, folder, output, url)
    elif way == "foreach":
        enriched = ss.enrich(orders, [lookup], memory="64MB")
        writer = enriched.writeStream.foreachBatch(ss.PostgresSink(url, "facts", patience=1))
    else:
        place = {"path": folder / "out"} if url == "-" else {"url": url, "table": "facts"}
        if url != "-":
            place["patience"] = 1
        writer = ss.to_warehouse(orders, lookup, output=output, memory="64MB", **place)
    return (
        writer.option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


def waiting_writer(spark: Any, orders: Any, folder: Path, output: str, url: str) -> Any:
    """Batches with little time, and unmatched rows that wait."""
    import semistream as ss
    from semistream.spark.sink import write_each_batch
    from spark import clocks

    clocks.by_value()
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "50")
    return write_each_batch(
        orders,
        ss.Lookup(str(folder / "master"), on="k"),
        batch_time="3s",
        clock=clocks.Ticking(),
        **waiting_options(folder, output, url),
    )


def waiting_options(folder: Path, output: str, url: str) -> dict[str, Any]:
    import semistream as ss

    place = {"path": folder / "out"} if url == "-" else {"url": url, "table": "facts"}
    return {
        "output": output,
        "memory": "64MB",
        "unmatched": "park",
        "parking": ss.Parking(folder / "parked", max_rows=30),
        "dead_letters": str(folder / "dead"),
        **place,
    }


def main(folder: Path, output: str, url: str, way: str, master: str) -> None:
    import psutil
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    spark = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.local.dir", str(folder / "local"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    jvms = [p.pid for p in psutil.Process().children(recursive=True) if "java" in p.name()]
    (folder / "pids").write_text(" ".join(map(str, [*jvms, os.getpid()])))
    start(spark, folder, output, url, way).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
