"""From a Kafka topic into a Delta table, with a pipeline file.

    python examples/kafka_to_delta.py localhost:9092

Reads the topic example-orders from its beginning: messages such as
{"order_id": 1, "product_id": 42, "quantity": 3}. Stops when it has read what is there.
"""

import os
import sys
import tempfile
from pathlib import Path

from deltalake import DeltaTable

import semistream as ss
from semistream.cli.run import run_pipeline
from semistream.workload.relations import products

PIPELINE = """\
name: example-orders
source:
  format: kafka
  servers: ${{KAFKA_SERVERS}}
  topic: example-orders
  schema: {{order_id: long, product_id: long, quantity: int}}
  options: {{startingOffsets: earliest}}
lookups:
  - {{master: {folder}/products, on: product_id, how: left, select: [price, supplier_id]}}
sink: {{output: delta, path: {folder}/warehouse}}
checkpoint: {folder}/checkpoint
memory: 64MB
spark: {{spark.master: "local[2]"{settings}}}
"""


def main(servers: str, folder: str, settings: str = "") -> int:
    """``settings``: further entries of ``spark``, such as ", spark.jars: connector.jar"."""
    os.environ["KAFKA_SERVERS"] = servers
    ss.MasterTable.build(products(10_000), f"{folder}/products", key="product_id", unique=True)
    file = Path(folder) / "pipeline.yaml"
    file.write_text(PIPELINE.format(folder=folder, settings=settings))
    rows = run_pipeline(file, once=True, show=print)
    orders = DeltaTable(f"{folder}/warehouse").to_pyarrow_table()
    print(orders.slice(0, 3).to_pylist())
    print(f"{rows:,} messages read, {orders.num_rows:,} orders in the Delta table")
    return orders.num_rows


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/kafka_to_delta.py HOST:PORT")
    with tempfile.TemporaryDirectory() as made:
        main(sys.argv[1], made)
