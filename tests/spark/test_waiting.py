"""Time budgets and parking in the warehouse sink: rows wait outside of it, and none is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import naive
import semistream as ss
from disks import small_disk
from semistream.overload.backlog import Backlog
from semistream.spark.listener import Metrics
from semistream.spark.sink import write_each_batch
from semistream.spark.waiting import drain
from servers import postgres_server, query
from spark import clocks
from spark.streams import feed, master, products, sales, stream_of

SMALL = "spark.sql.execution.arrow.maxRecordsPerBatch"
MEMORY = "16MB"


@pytest.fixture(scope="module")
def postgres() -> Iterator[Any]:
    with postgres_server() as server:
        yield server


@pytest.fixture(autouse=True)
def _small_batches(spark: Any) -> Iterator[None]:
    clocks.by_value()
    before = spark.conf.get(SMALL)
    spark.conf.set(SMALL, "20")
    yield
    spark.conf.set(SMALL, before)


class Warehouse:
    """A query with waiting rows, its output and its dead letters."""

    def __init__(self, spark: Any, folder: Path, kind: str = "parquet", url: str = "") -> None:
        self.spark, self.folder, self.kind, self.url = spark, folder, kind, url
        self.table = f"facts_{folder.name}"[:40]
        place = {"path": str(folder / "out")}
        if kind == "postgresql":
            place = {"url": url, "table": self.table, "backlog": str(folder / "waiting")}
        self.options: dict[str, Any] = {"output": kind, "memory": MEMORY, **place}
        self.lookups: Any = ss.Lookup(str(folder / "products"), on="product_id")
        self.waits: dict[str, Any] = {}
        self.steps: Any = None

    @property
    def stream(self) -> Any:
        return stream_of(self.spark, self.folder / "in").repartition(2)

    def run(self, clock: Any = None) -> None:
        waits = dict(self.waits) if clock is None else {**self.waits, "clock": clock}
        waits["steps"] = self.steps
        writer = write_each_batch(self.stream, self.lookups, **self.options, **waits)
        writer = writer.option("checkpointLocation", str(self.folder / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    def drain(self) -> dict[str, float]:
        kept = {n: v for n, v in self.waits.items() if n not in ("batch_time", "unmatched")}
        if self.steps is not None:
            kept |= {"steps": self.steps, "stream": self.stream}
        return drain(self.folder / "checkpoint", self.lookups, **self.options, **kept)

    def rows(self) -> naive.Rows:
        if self.kind == "postgresql":
            return query(self.url, f'select * from "{self.table}"')
        if self.kind == "delta":
            from deltalake import DeltaTable

            return naive.rows_of([DeltaTable(self.folder / "out").to_pyarrow_table()])
        return naive.rows_of([pq.read_table(self.folder / "out")])

    def dead(self) -> list[dict[str, Any]]:
        found = pq.read_table(self.folder / "dead").to_pylist()
        return sorted(found, key=lambda row: row["sale_id"])


LONG = (pytest.mark.slow, pytest.mark.long)
FURTHER = [
    pytest.param("parquet", marks=pytest.mark.slow),
    pytest.param("delta", marks=LONG),
    pytest.param("postgresql", marks=LONG),
]
KINDS = [
    "parquet",
    pytest.param("delta", marks=pytest.mark.slow),
    pytest.param("postgresql", marks=pytest.mark.slow),
]


@pytest.fixture
def warehouse(request: pytest.FixtureRequest, spark: Any, tmp_path: Path) -> Warehouse:
    kind = getattr(request, "param", "parquet")
    url = request.getfixturevalue("postgres").get_uri() if kind == "postgresql" else ""
    return Warehouse(spark, tmp_path, kind, url)


@pytest.mark.parametrize("warehouse", KINDS, indirect=True)
def test_rows_beyond_the_time_of_a_batch_are_deferred(
    warehouse: Warehouse, spark: Any, tmp_path: Path
) -> None:
    master(tmp_path / "products")
    for i in range(3):
        feed(tmp_path / "in", sales(200, start=200 * i))
    warehouse.waits = {"batch_time": "3s"}
    with Metrics(spark) as metrics:
        warehouse.run(clocks.Ticking())
    records = metrics.records
    expected = naive.join(sales(600), products(), "product_id")
    assert records[0]["deferred"] > 0
    assert records[0]["deferred_oldest_seconds"] >= 0
    first = warehouse.rows()
    assert 0 < len(first) < len(expected)
    assert not set(first) - set(expected)
    assert warehouse.drain()["deferred"] == 0
    naive.same_rows(warehouse.rows(), expected)
    assert warehouse.drain()["deferred"] == 0, "a second drain has nothing to do"
    feed(tmp_path / "in", sales(100, start=600))
    warehouse.run()
    expected = naive.join(sales(700), products(), "product_id")
    naive.same_rows(warehouse.rows(), expected)


def test_unmatched_rows_wait_for_their_key(
    warehouse: Warehouse, spark: Any, tmp_path: Path
) -> None:
    table = master(tmp_path / "products", products(stride=4))
    feed(tmp_path / "in", sales(300))
    feed(tmp_path / "in", sales(300, start=300))
    parking = ss.Parking(tmp_path / "parked")
    warehouse.waits = {"unmatched": "park", "parking": parking}
    with Metrics(spark) as metrics:
        warehouse.run()
    records = metrics.records
    early = naive.join(sales(600), products(stride=4), "product_id")
    naive.same_rows(warehouse.rows(), early)
    has_key = sales(600).filter(pa.compute.field("product_id").is_valid())
    parked = len(naive.join(has_key, products(stride=4), "product_id", "left_anti"))
    assert records[-1]["parked"] == parked
    new = products().filter(~pa.compute.field("product_id").isin(products(stride=4)["product_id"]))
    table.upsert(new.slice(0, 150))
    feed(tmp_path / "in", sales(50, start=600))
    warehouse.run()
    now = pa.concat_tables([products(stride=4), new.slice(0, 150)])
    expected = early + naive.join(sales(50, start=600), now, "product_id")
    expected += naive.join(has_key, new.slice(0, 150), "product_id")
    naive.same_rows(warehouse.rows(), expected)
    ss.MasterTable.open(tmp_path / "products").upsert(new.slice(150))
    left = warehouse.drain()["parked"]
    complete = pa.concat_tables([products(stride=4), new])
    assert left == sum(
        len(naive.join(part, complete, "product_id", "left_anti"))
        for part in (
            has_key,
            sales(50, start=600).filter(pa.compute.field("product_id").is_valid()),
        )
    )
    naive.same_rows(warehouse.rows(), naive.join(sales(650), complete, "product_id"))


def test_rows_that_were_parked_for_too_long(warehouse: Warehouse, tmp_path: Path) -> None:
    master(tmp_path / "products")
    parts = [sales(100, start=100 * i) for i in range(3)]
    for part in parts:
        feed(tmp_path / "in", part)
    parking = ss.Parking(tmp_path / "parked", max_rows=40)
    warehouse.waits = {
        "unmatched": "park", "parking": parking, "dead_letters": str(tmp_path / "dead"),
    }  # fmt: skip
    warehouse.run()
    naive.same_rows(warehouse.rows(), naive.join(sales(300), products(), "product_id"))
    unmatched = naive.join(sales(300), products(), "product_id", "left_anti")
    nulls = {row[0] for row in unmatched if row[1] is None}
    dead = warehouse.dead()
    assert {row["sale_id"] for row in dead if "null" in row["dead_letter_reason"]} == nulls
    late = [row for row in dead if "max_rows=40" in row["dead_letter_reason"]]
    assert len(late) == len(unmatched) - len(nulls) - 40
    assert {(r["sale_id"], r["product_id"], r["note"]) for r in late} <= set(unmatched)
    assert len({row["sale_id"] for row in dead}) == len(dead)
    warehouse.waits["parking"] = ss.Parking(tmp_path / "parked", max_age="0s")
    assert warehouse.drain()["parked"] == 0
    assert {row["sale_id"] for row in warehouse.dead()} == {row[0] for row in unmatched}


@pytest.mark.parametrize("warehouse", FURTHER, indirect=True)
def test_a_full_disk_while_rows_are_deferred(warehouse: Warehouse, tmp_path: Path) -> None:
    master(tmp_path / "products")
    feed(tmp_path / "in", sales(200))
    warehouse.waits = {"batch_time": "3s"}
    with small_disk(tmp_path / "disk") as disk:
        warehouse.options["backlog"] = str(disk.path / "waiting")
        warehouse.run(clocks.Ticking())
        before = warehouse.rows()
        feed(tmp_path / "in", sales(200, start=200))
        disk.fill()
        with pytest.raises(Exception, match="cannot be written"):
            warehouse.run(clocks.Ticking())
        naive.same_rows(warehouse.rows(), before)
        disk.make_room()
        warehouse.run(clocks.Ticking())
        assert warehouse.drain()["deferred"] == 0
    naive.same_rows(warehouse.rows(), naive.join(sales(400), products(), "product_id"))


@pytest.mark.parametrize("warehouse", FURTHER, indirect=True)
def test_steps_between_the_look_ups_and_the_sink(
    warehouse: Warehouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are deferred and parked before the steps, and pass them when they are served; a driver
    that dies between the two commits changes nothing."""
    early = products(stride=4)
    table = master(tmp_path / "products", early)
    for i in range(2):
        feed(tmp_path / "in", sales(200, start=200 * i))
    parking = ss.Parking(tmp_path / "waiting")
    warehouse.waits = {"batch_time": "4s", "unmatched": "park", "parking": parking}
    warehouse.steps = lambda rows: rows.selectExpr(
        "product_id", "sale_id", "price * 2 as twice", "name"
    ).where("sale_id % 7 <> 0")

    def expected(rows: int, of: pa.Table) -> naive.Rows:
        found = naive.join(sales(rows), of, "product_id", select=["price", "name"])
        return [(k, n, 2 * price, name) for n, k, _, price, name in found if n % 7]

    warehouse.run(clocks.Ticking())
    assert 0 < len(warehouse.rows()) < len(expected(400, early))
    assert not set(warehouse.rows()) - set(expected(400, early))
    late = products().filter(~pa.compute.field("product_id").isin(early["product_id"]))
    table.upsert(late)
    feed(tmp_path / "in", sales(200, start=400))
    before, publish = warehouse.rows(), Backlog.publish
    with monkeypatch.context() as patch:

        def dies(*arguments: Any) -> Any:
            publish(*arguments)
            raise OSError("the driver dies here")

        patch.setattr(Backlog, "publish", dies)
        with pytest.raises(Exception, match="dies here"):
            warehouse.run(clocks.Ticking())
    naive.same_rows(warehouse.rows(), before)
    warehouse.run(clocks.Ticking())
    assert warehouse.drain()["deferred"] == 0
    naive.same_rows(warehouse.rows(), expected(600, pa.concat_tables([early, late])))
    assert list((tmp_path / "waiting").rglob("*.note")) == []


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        (lambda rows: rows.groupBy("product_id").count(), "each row by itself"),
        (lambda rows: rows.dropDuplicates(["sale_id"]), "each row by itself"),
        (lambda rows: rows.selectExpr("row_number() over (order by price)"), "each row by itself"),
        (lambda rows: rows.where("1 = 0"), "drop every row"),
    ],
)
def test_steps_that_need_other_rows(
    steps: Any, says: str, warehouse: Warehouse, tmp_path: Path
) -> None:
    master(tmp_path / "products")
    warehouse.waits, warehouse.steps = {"batch_time": "4s"}, steps
    with pytest.raises(ss.ConfigError, match=says):
        warehouse.run()
