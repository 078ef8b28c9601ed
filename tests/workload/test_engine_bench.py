"""The engine benchmark's own checks: wrong answers are detected, memory is counted correctly."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lab import lru_lmdb
from lab.engine_data import EngineData
from lab.engine_targets import PUSH, Rates, verdicts
from semistream import workload

DATA = EngineData(rows=5_000, seed=1)


def joined(sent: list[pa.RecordBatch], seed: int = 1) -> pa.RecordBatch:
    batch = pa.Table.from_batches(sent).combine_chunks().to_batches()[0]
    return batch.append_column("price", pa.array(workload.price_of(batch["product_id"], seed)))


def test_a_correct_answer_is_accepted_in_any_order() -> None:
    sent = DATA.stream(1_000, 100)
    rows = joined(sent)
    assert DATA.check(iter([rows.slice(600), rows.slice(0, 600)]), sent) is None


def test_wrong_answers_are_detected() -> None:
    sent = DATA.stream(1_000, 100)
    rows = joined(sent)
    assert "1 sales missing" in str(DATA.check(iter([rows.slice(1)]), sent))
    assert "1 sales repeated" in str(DATA.check(iter([rows, rows.slice(0, 1)]), sent))
    assert "price" in str(DATA.check(iter([joined(sent, seed=2)]), sent))
    swapped = rows.set_column(0, "sale_id", pa.array(range(999, -1, -1)))
    assert "another sale's product" in str(DATA.check(iter([swapped]), sent))
    beyond = rows.set_column(0, "sale_id", pa.array(range(1, 1_001)))
    assert "never sent" in str(DATA.check(iter([beyond]), sent))


@pytest.mark.parametrize("form", ["decoded", "packed"])
def test_the_alternative_is_correct_within_its_memory(form: str, tmp_path: Path) -> None:
    pytest.importorskip("lmdb")
    lru_lmdb.build(iter(workload.products(5_000, seed=1, batch_rows=999)), tmp_path, 10**6)
    peer = lru_lmdb.LruLmdb(tmp_path, budget=100_000, form=form, width=85)
    sent = DATA.stream(20_000, 500)
    assert DATA.check((peer.push(batch) for batch in sent), sent) is None
    assert peer.full
    assert 10_000 < peer.hits < 20_000
    assert 100 < peer.capacity < 100_000 // peer.row_bytes
    peer.close()


@pytest.mark.parametrize("budget", [10_000, 226_000, 5_000_000])
def test_capacity_uses_the_budget_and_no_more(budget: int) -> None:
    rows = lru_lmdb.capacity(budget, row_bytes=352)
    cache: OrderedDict[int, Any] = OrderedDict.fromkeys(range(rows))
    used = cache.__sizeof__() + rows * 352
    assert 0.5 * budget < used <= budget


def cell(join: str, percent: float, rate: float | None, push: int = PUSH) -> dict[str, Any]:
    return {"join": join, "percent": percent, "direct": False, "push": push, "rate": rate}


def test_targets_are_judged() -> None:
    cells = [
        cell("lru+lmdb", 10.0, 1.0),
        cell("meshjoin", 10.0, 3.0),
        cell("cmeshjoin", 10.0, 2.9),
        cell("hybridjoin", 10.0, None),
        cell("meshjoin", 10.0, 0.2, push=100),
    ]
    judged = {verdict.target: verdict.met for verdict in verdicts(Rates(cells))}
    assert judged == {
        "meshjoin / lru+lmdb at 10 %": True,
        "hybridjoin / lru+lmdb at 10 %": False,
        "cmeshjoin / lru+lmdb at 10 %": False,
        "cmeshjoin / meshjoin at 10 %": False,
        "meshjoin: pushes of 100 / 50,000 at 10 %": False,
    }
