"""A master table that stays in PostgreSQL, and enriched rows written to PostgreSQL exactly once.

    python examples/postgresql.py postgresql://user:password@localhost/shop

Creates the tables example_customers and example_orders, and drops them at the end.
"""

import sys
import tempfile

import adbc_driver_postgresql.dbapi as postgresql
from pyspark.sql import SparkSession

import semistream as ss


def main(url: str, folder: str) -> int:
    execute(
        url,
        "DROP TABLE IF EXISTS example_customers",
        "DROP TABLE IF EXISTS example_orders",
        "CREATE TABLE example_customers (id BIGINT PRIMARY KEY, city TEXT)",
        "INSERT INTO example_customers SELECT n, 'city ' || n % 7 FROM generate_series(1, 5000) n",
    )
    spark = SparkSession.builder.master("local[2]").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.range(2_000).selectExpr("id AS order_id", "id % 5500 + 1 AS customer_id").write.parquet(
        f"{folder}/orders"
    )
    orders = spark.readStream.schema("order_id LONG, customer_id LONG").parquet(f"{folder}/orders")
    customers = ss.SqlMaster(url, "example_customers", key="id", unique=True)
    writer = ss.to_warehouse(
        orders,
        ss.Lookup(customers, on={"customer_id": "id"}),
        output="postgresql",
        url=url,
        table="example_orders",
        memory="64MB",
    )
    query = writer.option("checkpointLocation", f"{folder}/checkpoint")
    query.trigger(availableNow=True).start().awaitTermination()
    spark.stop()
    with postgresql.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT count(*), count(DISTINCT order_id) FROM example_orders")
        rows, distinct = cursor.fetchone()
    print(f"{rows:,} orders in example_orders, {distinct:,} of them distinct")
    execute(url, "DROP TABLE example_customers", "DROP TABLE example_orders")
    return int(rows)


def execute(url: str, *statements: str) -> None:
    with postgresql.connect(url) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        connection.commit()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/postgresql.py postgresql://user:password@host/database")
    with tempfile.TemporaryDirectory() as made:
        main(sys.argv[1], made)
