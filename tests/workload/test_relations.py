"""Synthetic products: size, order, gaps, copies, and prices that a join can be checked by."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
import pytest

from semistream.errors import ConfigError
from semistream.workload import price_of, product_rows, products
from semistream.workload.relations import SCHEMA


@pytest.mark.parametrize("row_bytes", [28, 29, 40, 48, 49, 113, 120, 1_000])
def test_rows_have_the_requested_width(row_bytes: int) -> None:
    table = products(1_000, row_bytes, batch_rows=1_000).read_all()
    table.validate(full=True)
    assert table.nbytes == pytest.approx(1_000 * row_bytes, rel=0.01)


def test_key_order_and_shuffled_hold_the_same_rows() -> None:
    ordered = products(5_000, seed=3, batch_rows=700).read_all()
    shuffled = products(5_000, seed=3, batch_rows=900, shuffled=True).read_all()
    assert ordered.schema == SCHEMA
    assert ordered["product_id"].to_pylist() == list(range(1, 5_001))
    assert shuffled["product_id"].to_pylist() != ordered["product_id"].to_pylist()
    assert shuffled.sort_by("product_id").equals(ordered.combine_chunks())


def test_rows_do_not_depend_on_how_they_are_batched() -> None:
    one, many = products(3_000, batch_rows=3_000), products(3_000, batch_rows=7)
    assert one.read_all().equals(many.read_all())


def test_stride_leaves_gaps_and_copies_repeat_keys() -> None:
    keys = products(10, stride=3, copies=4).read_all()["product_id"].to_pylist()
    assert keys == [3, 3, 3, 3, 6, 6, 6, 6, 9, 9]


def test_copies_share_the_price_and_differ_in_the_rest() -> None:
    table = products(400, copies=4).read_all()
    assert len(set(table["price"].to_pylist())) == 100
    assert len(set(table["description"].to_pylist())) > 300


def test_prices_are_known_and_in_cents() -> None:
    table = products(10_000, seed=8, shuffled=True).read_all()
    prices = table["price"].to_numpy()
    assert np.array_equal(prices, price_of(table["product_id"].to_numpy(), seed=8))
    assert prices.min() >= 0.01
    assert prices.max() <= 999.99
    assert np.array_equal(np.round(prices * 100) / 100, prices)


def test_whole_rows_are_known_by_their_keys() -> None:
    table = products(2_000, 90, seed=3).read_all().combine_chunks()
    wanted = np.random.default_rng(5).integers(1, 2_001, 500)
    expected = table.take(pa.array(wanted - 1)).to_batches()[0]
    assert product_rows(wanted, 90, seed=3).equals(expected)
    assert not product_rows(wanted, 90, seed=4).equals(expected)
    assert product_rows([], 90).num_rows == 0


def test_an_empty_relation() -> None:
    assert products(0).read_all().num_rows == 0


def test_rate_is_millions_a_second() -> None:
    for _ in products(1_000):
        pass
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        rows = sum(batch.num_rows for batch in products(500_000))
        seconds.append(time.perf_counter() - start)
    assert rows / min(seconds) > 2.5e6, (
        "half of the target rate, because the test machine may be busy"
    )


def test_the_reader_is_arrow() -> None:
    assert isinstance(products(1), pa.RecordBatchReader)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"rows": -1}, "rows=-1"),
        ({"row_bytes": 27}, "row_bytes=27 cannot be used; give an integer from 28"),
        ({"stride": 0}, "stride=0"),
        ({"copies": 0}, "copies=0"),
        ({"batch_rows": 0}, "batch_rows=0"),
        ({"batch_rows": 2**30}, "exceed 2 GB"),
        ({"seed": 1.5}, "seed=1.5 is not a seed"),
    ],
)
def test_bad_input(changed: dict, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        products(**{"rows": 10, **changed})
    assert said in str(error.value)
