"""Invalid input: each case has its error class and a helpful message."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import semistream as ss
from harness import build, cut, drive, size_named_in

STREAM = pa.table({"n": range(100), "k": range(100)})
MASTER = pa.table({"k": range(0, 200, 2), "v": range(100), "text": ["x" * 30] * 100})
BATCH = STREAM.to_batches()[0]

every_algorithm = pytest.mark.parametrize("algorithm", list(ss.ALGORITHMS))


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return build(tmp_path_factory.mktemp("bad") / "table", MASTER, ["k"])


def refuse(error: type[Exception], *words: str) -> Any:
    """An error of this class whose message has all these words; it survives pickling."""

    class Refusal:
        def __enter__(self) -> None:
            self.context = pytest.raises(error)
            self.info = self.context.__enter__()

        def __exit__(self, *details: Any) -> bool:
            caught = self.context.__exit__(*details)
            message = str(self.info.value)
            for word in words:
                assert word in message, f"{word!r} is not in: {message}"
            copy = pickle.loads(pickle.dumps(self.info.value))
            assert type(copy) is type(self.info.value)
            assert str(copy) == message
            return bool(caught)

    return Refusal()


@every_algorithm
def test_absent_key_column_in_the_stream(algorithm: str, master: Any) -> None:
    with ss.join(algorithm, memory="1MB").open(master, on="k") as run:
        with refuse(ss.SchemaError, "'k'", "stream", "n, other"):
            list(run.push(BATCH.rename_columns(["n", "other"])))
        assert run.stats.tuples_in == 0
        assert sum(rows.num_rows for rows in drive(run, [BATCH])) == 50, "a good batch goes on"


@every_algorithm
def test_key_is_not_the_master_key(algorithm: str, master: Any) -> None:
    with refuse(ss.SchemaError, "v", "k"):
        ss.join(algorithm, memory="1MB").open(master, on={"k": "v"})
    with refuse(ss.SchemaError, "nowhere"):
        ss.join(algorithm, memory="1MB").open(master, on={"k": "nowhere"})


@every_algorithm
@pytest.mark.parametrize("on", [[], {}, None, 5, ["k", "k"], {"k": 3}], ids=repr)
def test_invalid_on(algorithm: str, on: Any, master: Any) -> None:
    with refuse(ss.ConfigError, "on"):
        ss.join(algorithm, memory="1MB").open(master, on=on)


@every_algorithm
def test_invalid_select_values(algorithm: str, master: Any) -> None:
    with refuse(ss.ConfigError, "select", "'v'"):
        ss.join(algorithm, memory="1MB").open(master, on="k", select="v")


@every_algorithm
def test_key_of_another_type(algorithm: str, master: Any) -> None:
    text = STREAM.set_column(1, "k", STREAM["k"].cast(pa.string())).to_batches()[0]
    with (
        ss.join(algorithm, memory="1MB").open(master, on="k") as run,
        refuse(ss.SchemaError, "'k'", "string", "int64", "cast"),
    ):
        list(run.push(text))


@every_algorithm
@pytest.mark.parametrize(
    ("schema", "word"),
    [
        (pa.schema([("n", pa.int64()), ("k", pa.int32())]), "int32"),
        (pa.schema([("n", pa.string()), ("k", pa.int64())]), "string"),
        (pa.schema([("k", pa.int64()), ("n", pa.int64())]), "k"),
        (pa.schema([("n", pa.int64()), ("k", pa.int64()), ("z", pa.int8())]), "z"),
        (pa.schema([("k", pa.int64())]), "n"),
    ],
    ids=["key type", "payload type", "order", "more columns", "fewer columns"],
)
def test_schema_that_differs_from_the_first(
    algorithm: str, schema: pa.Schema, word: str, master: Any
) -> None:
    with ss.join(algorithm, memory="1MB").open(master, on="k") as run:
        out = list(run.push(BATCH))
        with refuse(ss.SchemaError, "schema", word):
            list(run.push(pa.RecordBatch.from_pylist([], schema=schema)))
        assert run.stats.tuples_in == 100, "the refused batch is not counted"
        out += drive(run, [BATCH])
        assert sum(rows.num_rows for rows in out) == 100


@every_algorithm
def test_duplicate_column_names(algorithm: str, master: Any) -> None:
    for names in (["n", "k", "k"], ["n", "k", "n"]):
        columns = [pa.array([1]), pa.array([2]), pa.array([3])]
        twice = pa.RecordBatch.from_arrays(columns, names=names)
        with (
            ss.join(algorithm, memory="1MB").open(master, on="k") as run,
            refuse(ss.SchemaError, repr(names[2])),
        ):
            list(run.push(twice))


def test_duplicate_column_names_in_the_master(tmp_path: Path) -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], ["k", "v", "v"])
    with refuse(ss.SchemaError, "'v'"):
        build(tmp_path / "table", twice, ["k"])


@every_algorithm
@pytest.mark.parametrize(
    "thing", [STREAM, {"k": [1]}, None, [BATCH]], ids=lambda x: type(x).__name__
)
def test_objects_that_are_not_batches(algorithm: str, thing: Any, master: Any) -> None:
    with (
        ss.join(algorithm, memory="1MB").open(master, on="k") as run,
        refuse(ss.SchemaError, type(thing).__name__),
    ):
        list(run.push(thing))


@every_algorithm
def test_invalid_memory(algorithm: str) -> None:
    with refuse(ss.ConfigError, "memory='lots'", "50MB"):
        ss.join(algorithm, memory="lots")


@every_algorithm
@pytest.mark.parametrize("how", ["inner", "left", "left_semi", "left_anti"])
def test_a_budget_too_small_names_the_smallest(algorithm: str, how: str, master: Any) -> None:
    """And that one works, while a byte less does not."""
    batches = cut(STREAM, 30)

    def serve(memory: int) -> None:
        with ss.join(algorithm, memory=memory, how=how).open(master, on="k") as run:
            drive(run, batches)

    with pytest.raises(ss.BudgetError) as refusal:
        serve(10)
    smallest = size_named_in(str(refusal.value))
    assert 500 < smallest < 200_000
    assert "10 B" in str(refusal.value) or "10" in str(refusal.value)
    assert str(pickle.loads(pickle.dumps(refusal.value))) == str(refusal.value)
    serve(smallest)
    with pytest.raises(ss.BudgetError) as again:
        serve(smallest - 1)
    assert size_named_in(str(again.value)) == smallest


@every_algorithm
@pytest.mark.parametrize("place", ["absent", "empty", "foreign"])
def test_a_folder_that_is_not_a_table(algorithm: str, place: str, tmp_path: Path) -> None:
    folder = tmp_path / "somewhere"
    if place != "absent":
        folder.mkdir()
    if place == "foreign":
        (folder / "notes.txt").write_text("not a table")
    with refuse(ss.MasterTableError, "somewhere"):
        ss.join(algorithm, memory="1MB").open(ss.MasterTable.open(folder), on="k")
