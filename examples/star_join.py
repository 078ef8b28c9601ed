"""Three master tables, joined one after the other in one transfer of the rows to Python.

They share one budget: a small table gets no more than it can use, the rest goes to the larger ones.

    python examples/star_join.py
"""

import tempfile

import pyarrow as pa
from pyspark.sql import SparkSession

import semistream as ss


def main(folder: str) -> int:
    products = pa.table(
        {"product_id": range(100_000), "price": [n % 100 + 0.5 for n in range(100_000)]}
    )
    customers = pa.table(
        {"id": range(50_000), "city": [("Lyon", "Bari", "Gent")[n % 3] for n in range(50_000)]}
    )
    stores = pa.table({"store": ["north", "south"], "manager": ["Ines", "Olaf"]})
    ss.MasterTable.build(products, f"{folder}/products", key="product_id", unique=True)
    ss.MasterTable.build(customers, f"{folder}/customers", key="id", unique=True)
    ss.MasterTable.build(stores, f"{folder}/stores", key="store", unique=True)

    spark = SparkSession.builder.master("local[2]").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    sales = spark.range(100_000).selectExpr(
        "id AS sale_id",
        "id * 7919 % 100000 AS product_id",
        "id * 31 % 60000 AS customer_id",  # a sixth of them is unknown
        "IF(id % 5 = 0, 'north', 'south') AS store",
    )
    enriched = ss.enrich(
        sales,
        [
            ss.Lookup(f"{folder}/products", on="product_id"),
            ss.Lookup(f"{folder}/customers", on={"customer_id": "id"}, how="left"),
            ss.Lookup(f"{folder}/stores", on="store"),
        ],
        memory="96MB",
    )
    summary = enriched.groupBy("city", "manager").agg({"price": "sum", "*": "count"})
    summary.orderBy("city", "manager").show()
    count = enriched.count()
    spark.stop()
    return count


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(made)
