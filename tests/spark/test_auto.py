"""``using="auto"`` in a worker: the first batch of a task decides, and a line says why."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import naive
from semistream.cost import Machine
from semistream.engine.binding import Binding
from semistream.spark.enrich import Lookup, bound_lookup
from semistream.spark.worker import Enrichment, Star, log_to_stderr
from semistream.tuning import auto
from semistream.tuning.calibration_file import save
from spark.streams import master, products, sales


def task(table: Any, using: str, schema: pa.Schema) -> Enrichment:
    binding = Binding(table, "product_id", None, "inner")
    binding.bind(schema)
    chosen = auto.choose(auto.join(using), table, "inner", drained=True)
    bound = bound_lookup(Lookup(table, "product_id"), table, chosen)
    return Enrichment("name", (bound,), 24_000_000, 1, binding.schema)


@pytest.mark.parametrize("number", [3, 3_000])
def test_the_first_batch_decides(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    table = master(tmp_path / "products")
    seen = []

    def decide(join: Any, source: Any, observed: Any) -> Any:
        seen.append(observed.traffic)
        return auto.Choice(join.named("hybridjoin"), "hybridjoin: because", 1e6)

    monkeypatch.setattr(auto, "decide", decide)
    rows = sales(number)
    enrichment = task(table, "auto", rows.schema)
    with caplog.at_level(logging.INFO, "semistream.auto"):
        star = Star(enrichment.lookups, 20_000_000, [1])
        out = list(star.serve(rows.to_batches()))
        (run,) = star.runs
        joined = naive.join(rows, products(), "product_id")
        naive.same_rows(naive.rows_of(out), joined)
        assert run.join.name == ("sweepjoin" if number == 3 else "hybridjoin")
        assert run.stats.waiting == 0
        assert run.memory.total <= 20_000_000
        star.close()
    assert [traffic.drained for traffic in seen] == [True] * (number == 3_000)
    lines = [record.message for record in caplog.records]
    assert lines == ["auto: hybridjoin: because"] * (number == 3_000)


def test_a_join_that_was_named_has_a_predicted_rate_if_there_is_a_calibration(
    tmp_path: Path,
) -> None:
    table = master(tmp_path / "products")
    rates = []
    for _ in range(2):
        rows = sales(2_000)
        star = Star(task(table, "cinlj", rows.schema).lookups, 20_000_000, [1])
        assert list(star.serve(rows.to_batches()))
        rates.append(star.runs[0].stats.predicted_rate)
        star.close()
        save(table, Machine())
    assert rates[0] is None
    assert rates[1] is not None


def test_a_line_is_shown_once_where_no_logging_is_configured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logger = logging.getLogger("semistream.test_auto")
    logger.propagate = False
    log_to_stderr(logger.name)
    log_to_stderr(logger.name)
    logger.info("auto: because")
    assert capsys.readouterr().err.count("auto: because") == 1
