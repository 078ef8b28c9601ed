"""The intake: slices with codes, versions, and the position of the next tuple."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from engine.kit import binding, context, intake_and_output, slice_of
from semistream.engine.context import Context
from semistream.engine.intake import Intake
from semistream.engine.rows.message import FEW_ROWS
from semistream.engine.settings import Settings


def batch(*keys: int | None) -> pa.RecordBatch:
    return pa.record_batch({"k": pa.array(keys, pa.int64()), "a": range(len(keys))})


def intake_with(slice_rows: int = 3) -> Intake:
    shared = context()
    shared.settings = Settings(slice_rows=slice_rows)
    return intake_and_output(shared)[0]


def test_a_long_batch_comes_in_slices() -> None:
    intake = intake_with(slice_rows=3)
    intake.push(batch(1, 2, 3, 4), 1)
    assert intake.left == 4
    part = intake.slice()
    assert part.codes.tolist() == [1, 2, 3]
    assert intake.slice() is part
    intake.consume(2)
    assert (intake.left, intake.slice().position) == (2, 2)
    intake.consume(3)
    assert intake.slice().codes.tolist() == [4]
    intake.consume(1)
    assert not intake
    assert intake.left == 0


def test_batches_are_taken_in_order() -> None:
    intake = intake_with()
    intake.push(batch(1), 1)
    intake.push(batch(2), 2)
    assert intake.version == 1
    intake.slice()
    intake.consume(1)
    assert intake.version == 2
    assert intake.slice().codes.tolist() == [2]


def test_an_empty_batch_is_skipped() -> None:
    intake = intake_with()
    intake.push(batch(), 1)
    intake.push(batch(5), 1)
    assert intake.skip_empty()
    assert not intake.skip_empty()
    assert intake.slice().codes.tolist() == [5]


def test_batches_of_an_unavailable_version_move_to_another() -> None:
    intake = intake_with()
    for version in (2, 3, 2):
        intake.push(batch(1), version)
    intake.redirect(2, 9)
    versions = []
    while intake:
        versions.append(intake.version)
        intake.slice()
        intake.consume(1)
    assert versions == [9, 3, 9]


@pytest.fixture
def shared() -> Context:
    return context()


def test_rows_with_a_null_key(shared: Context) -> None:
    part = slice_of(batch(None, 1, None, None), shared)
    part.position = 1
    assert part.without_key(4).tolist() == [2, 3]
    assert part.without_key(3).tolist() == [2]
    assert slice_of(batch(1, 2), shared).without_key(2).tolist() == []


@pytest.mark.parametrize("keys", [(5, 6, 7), (5, None, 7)])
def test_rows_and_keys_of_a_slice(shared: Context, keys: tuple[int | None, ...]) -> None:
    part = slice_of(batch(*keys), shared)
    taken = part.take(np.array([2, 1]))
    assert [column.to_pylist() for column in taken] == [[keys[2], keys[1]], [2, 1]]
    assert part.keys(np.array([1]))[0].to_pylist() == [keys[1]]
    assert part.keys()[0].to_pylist() == list(keys)


@pytest.mark.parametrize("rows", [5, FEW_ROWS, FEW_ROWS + 1])
@pytest.mark.parametrize("null", [False, True])
def test_codes_of_few_tuples_and_of_many(shared: Context, rows: int, null: bool) -> None:
    """Of a few tuples they are read at the columns' addresses."""
    keys: list[int | None] = [*range(-2, 3 * rows + 4, 3)][: rows + 2]
    keys[-2] = None if null else -(2**62)
    some = batch(*keys).slice(2)
    part = slice_of(some, shared)
    assert len(part.codes) == rows
    valid = np.ones(rows, np.bool_) if part.valid is None else part.valid
    assert valid.tolist() == [key is not None for key in keys[2:]]
    expected = [key for key in keys[2:] if key is not None]
    assert part.codes[valid].tolist() == expected
    assert part.keys()[0].to_pylist() == keys[2:]


def test_texts_go_through_arrow() -> None:
    texts = pa.record_batch({"k": [1, 2], "t": ["a", None]})
    part = slice_of(texts, context(binding(stream=texts.schema)))
    assert [c.to_pylist() for c in part.take(np.array([1, 0]))] == [[2, 1], [None, "a"]]
