"""Sales: shares of unmatched and null keys, replay, batches."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from semistream.errors import ConfigError
from semistream.workload import products, sales, zipf
from semistream.workload.stream import SCHEMA


def whole(*args, **kwargs) -> pa.Table:
    return pa.Table.from_batches(sales(*args, **kwargs), SCHEMA)


def test_batches_have_the_requested_size() -> None:
    batches = list(sales(1_050, products=10, batch_rows=500))
    assert [batch.num_rows for batch in batches] == [500, 500, 50]
    assert all(batch.schema == SCHEMA for batch in batches)
    assert list(sales(0, products=10)) == []


def test_keys_are_those_of_zipf() -> None:
    table = whole(10_000, 500, exponent=0.8, seed=6, scattered=True)
    assert np.array_equal(table["product_id"].to_numpy(), zipf(10_000, 500, 0.8, 6, True))


def test_any_part_can_be_replayed() -> None:
    options = {"products": 300, "seed": 2, "unmatched": 0.2, "nulls": 0.1, "stride": 4}
    table = whole(5_000, batch_rows=5_000, **options).combine_chunks()
    again = whole(1_000, offset=2_500, batch_rows=7, **options)
    assert again.combine_chunks().equals(table.slice(2_500, 1_000))
    assert again["sale_id"].to_pylist() == list(range(2_500, 3_500))


@pytest.mark.parametrize("stride", [1, 2, 5])
def test_unmatched_keys_are_below_between_and_above(stride: int) -> None:
    n, count = 100_000, 1_000
    master = products(count, stride=stride).read_all()["product_id"]
    keys = whole(n, count, unmatched=0.3, nulls=0.1, stride=stride, seed=5)["product_id"]
    assert keys.null_count / n == pytest.approx(0.1, abs=0.01)
    keys = keys.drop_null()
    strange = keys.filter(pc.invert(pc.is_in(keys, master))).to_numpy()
    assert strange.size / n == pytest.approx(0.3, abs=0.01)
    shares = [
        (strange < stride).mean(),
        ((strange >= stride) & (strange <= count * stride)).mean(),
        (strange > count * stride).mean(),
    ]
    expected = [1 / 3, 1 / 3, 1 / 3] if stride > 1 else [1 / 2, 0, 1 / 2]
    assert shares == pytest.approx(expected, abs=0.02)


@pytest.mark.parametrize("stride", [1, 3])
def test_a_single_product(stride: int) -> None:
    keys = whole(1_000, 1, unmatched=0.5, stride=stride)["product_id"].to_numpy()
    assert 0.4 < (keys == stride).mean() < 0.6


def test_a_key_source_is_not_modified() -> None:
    source = np.arange(1, 101)
    table = whole(100, 100, keys=lambda start, n: source[start : start + n], unmatched=1.0)
    assert source.tolist() == list(range(1, 101))
    assert not pc.any(pc.is_in(table["product_id"], pa.array(source))).as_py()


def test_quantities_are_small_and_positive() -> None:
    quantities = whole(10_000, 10)["quantity"].to_numpy()
    assert quantities.min() == 1
    assert quantities.max() == 7


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"n": -1}, "n=-1"),
        ({"products": 0}, "products=0"),
        ({"exponent": -1}, "exponent=-1"),
        ({"batch_rows": 0}, "batch_rows=0"),
        ({"unmatched": 1.1}, "unmatched=1.1 cannot be used"),
        ({"nulls": -0.1}, "nulls=-0.1"),
        ({"nulls": 0.6, "unmatched": 0.6}, "add up to more than 1"),
        ({"stride": 0}, "stride=0"),
        ({"offset": -1}, "offset=-1"),
    ],
)
def test_bad_input_is_refused_before_the_first_batch(changed: dict, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        sales(**{"n": 10, "products": 10, **changed})
    assert said in str(error.value)
