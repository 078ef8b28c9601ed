"""The pages with the most requests of a stream."""

from __future__ import annotations

import pyarrow as pa
import pytest

from engine.kit import binding, context, pages_of, slice_of
from semistream.engine.page_popularity import PagePopularity, hot_key_columns
from semistream.errors import ConfigError

SOURCE = pages_of([[1, 5], [10, 15], [20, 20], [20, 25], [30]])


def observe(popularity: PagePopularity, keys: list[int | None]) -> None:
    batch = pa.record_batch({"k": pa.array(keys, pa.int64()), "a": range(len(keys))})
    popularity.observe(binding(SOURCE), slice_of(batch, context(binding(SOURCE))))


def test_pages_are_ranked_by_given_keys() -> None:
    popularity = PagePopularity(SOURCE, pa.table({"key": [30, 15, 31, None, 11, 30]}), 100)
    assert popularity.is_decided
    assert popularity.ranking() == [4, 1]
    popularity.done()
    assert not popularity.is_decided


def test_pages_are_ranked_by_the_head_of_the_stream() -> None:
    popularity = PagePopularity(SOURCE, None, 5)
    observe(popularity, [1, None, 15])
    assert not popularity.is_decided
    observe(popularity, [15, 15, 30, 30, 30, 30])  # only two more are counted
    assert popularity.is_decided
    assert popularity.ranking() == [1, 0]


def test_a_page_that_cuts_a_key_is_never_ranked() -> None:
    popularity = PagePopularity(SOURCE, pa.table({"key": [20, 20, 21, 25, 5]}), 1)
    assert popularity.ranking() == [0]


def test_a_repeated_slice_counts_once() -> None:
    popularity = PagePopularity(SOURCE, None, 4)
    shared = context(binding(SOURCE))
    part = slice_of(pa.record_batch({"k": [1, 1], "a": [0, 1]}), shared)
    popularity.observe(shared.binding, part)
    popularity.observe(shared.binding, part)
    assert not popularity.is_decided
    observe(popularity, [1, 1])
    assert popularity.is_decided


def test_keys_with_the_wrong_number_of_columns_are_refused() -> None:
    with pytest.raises(ConfigError, match="2 columns but the master's key has 1: k"):
        PagePopularity(SOURCE, pa.table({"a": [1], "b": [2]}), 1)


@pytest.mark.parametrize("keys", [[1, 2], pa.array([1, 2]), pa.table({"key": [1, 2]})], ids=str)
def test_hot_keys_in_every_form(keys: object) -> None:
    assert hot_key_columns(keys) == pa.table({"key": [1, 2]})


def test_missing_or_invalid_hot_keys() -> None:
    assert hot_key_columns(None) is None
    with pytest.raises(ConfigError, match="not a column of keys"):
        hot_key_columns([1, "a"])
