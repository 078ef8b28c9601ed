"""Join a stream of record batches with a table on disk, in 10 MB, while the table changes.

python examples/engine_only.py
"""

import tempfile

import pyarrow as pa

import semistream as ss
from semistream.workload.relations import products
from semistream.workload.stream import sales


def main(folder: str) -> int:
    master = ss.MasterTable.build(
        products(200_000), f"{folder}/products", key="product_id", unique=True
    )
    print(f"{master.num_rows:,} products, {master.nbytes / 1e6:.0f} MB on disk")

    join = ss.join("auto", memory="10MB", how="left")
    rows_out = 0
    with join.open(master, on="product_id", select=["price"]) as run:
        for number, batch in enumerate(sales(500_000, 200_000, exponent=1.0, scattered=True)):
            if number == 1:  # the run reads the new price from its next push on
                master.upsert(changed_price(master, product_id=1))
            for rows in run.push(batch):
                rows_out += rows.num_rows
        for rows in run.flush():  # tuples that still wait
            rows_out += rows.num_rows
        stats = run.stats
        print(f"{stats.tuples_in:,} sales in, {rows_out:,} rows out, version {run.version}")
        print(f"hit rate of the front stage: {stats.front_stage_hits / stats.tuples_in:.0%}")
        print(f"memory: {run.memory.total / 1e6:.1f} of {run.memory.budget / 1e6:.0f} MB")
    return rows_out


def changed_price(master: ss.MasterTable, product_id: int) -> pa.Table:
    row = master.lookup([product_id])
    place = row.schema.get_field_index("price")
    return row.set_column(place, row.schema.field(place), pa.array([9.99], row["price"].type))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(made)
