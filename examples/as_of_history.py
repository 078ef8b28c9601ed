"""Join sales with the price that was valid when they were made, in stream order, in 10 MB.

python examples/as_of_history.py
"""

import tempfile
from datetime import datetime, timedelta

import numpy as np
import pyarrow as pa

import semistream as ss

PRODUCTS, DAYS = 20_000, 360
START = datetime(2025, 1, 1)


def prices() -> pa.Table:
    """A new price for every product each 90 days: four rows per product."""
    ids = np.tile(np.arange(PRODUCTS), 4)
    quarter = np.repeat(np.arange(4), PRODUCTS)
    since = [START + timedelta(days=90 * int(q)) for q in quarter]
    return pa.table({"product_id": ids, "valid_from": since, "price": 10.0 + quarter})


def sales(count: int, seed: int) -> pa.RecordBatch:
    random = np.random.default_rng(seed)
    times = [START + timedelta(days=int(day)) for day in random.integers(-30, DAYS, count)]
    return pa.record_batch({"sold_at": times, "product_id": random.integers(0, PRODUCTS, count)})


def main(folder: str) -> int:
    master = ss.MasterTable.build(
        prices(), f"{folder}/prices", key="product_id", history="valid_from"
    )
    print(f"{master.num_rows:,} prices of {PRODUCTS:,} products")
    join = ss.join("auto", memory="10MB", how="left")
    rows = []
    with join.open(master, on="product_id", as_of="sold_at", order="stream") as run:
        for number in range(5):
            if number == 4:  # a late correction: products were cheaper for a week in May
                master = master.upsert(correction("2025-05-05", 1.0))
                master = master.upsert(correction("2025-05-12", 11.0))
            rows += run.push(sales(20_000, number))
        rows += run.flush()
    found = pa.Table.from_batches(rows)
    quarter = [min((sold - START).days // 90, 3) for sold in found["sold_at"].to_pylist()]
    expected = [None if q < 0 else 10.0 + q for q in quarter]
    corrected = sum(a != b for a, b in zip(found["price"].to_pylist(), expected, strict=True))
    early = found["price"].null_count
    print(f"{len(found):,} sales with the price of their day, {early:,} before the first price")
    print(f"{corrected} of the last 20,000 with a corrected price")
    return len(found)


def correction(day: str, price: float) -> pa.Table:
    """Another price of the first thousand products from this day on, until their next price."""
    since = pa.array([datetime.fromisoformat(day)] * 1000, pa.timestamp("us"))
    return pa.table({"product_id": range(1000), "valid_from": since, "price": [price] * 1000})


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        main(made)
