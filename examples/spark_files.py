"""Enrich a stream of Parquet files with a master table in Spark, and watch it on the live page.

python examples/spark_files.py
"""

import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

import semistream as ss
from semistream.workload.relations import products
from semistream.workload.stream import sales


def main(folder: str) -> int:
    incoming = Path(folder) / "sales"
    incoming.mkdir()
    stream = sales(200_000, 100_000, exponent=1.0, scattered=True, batch_rows=50_000)
    for number, batch in enumerate(stream):
        pq.write_table(pa.Table.from_batches([batch]), incoming / f"{number}.parquet")
    ss.MasterTable.build(products(100_000), f"{folder}/products", key="product_id", unique=True)

    spark = SparkSession.builder.master("local[2]").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    with ss.dashboard(spark, port=0) as page:
        print(f"live page: {page.url}")
        orders = (
            spark.readStream.schema("sale_id LONG, product_id LONG, quantity INT")
            .option("maxFilesPerTrigger", 1)
            .parquet(str(incoming))
        )
        enriched = ss.enrich(
            orders, f"{folder}/products", on="product_id", select=["price"], memory="64MB"
        )
        query = enriched.writeStream.format("parquet").options(
            path=f"{folder}/warehouse", checkpointLocation=f"{folder}/checkpoint"
        )
        query.trigger(availableNow=True).start().awaitTermination()
        result = spark.read.parquet(f"{folder}/warehouse")
        result.selectExpr("count(*) AS sales", "round(sum(quantity * price), 2) AS revenue").show()
        count = result.count()
    spark.stop()
    return count


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(made)
