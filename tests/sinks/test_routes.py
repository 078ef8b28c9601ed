"""Two routes of one batch: distinct ledger keys, or an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import semistream as ss
from semistream.sinks import Batch, open_sink

pytest.importorskip("pyspark")


def postgres(user: str = "me", **options: Any) -> Any:
    uri = f"postgresql://{user}:hunter2@host/shop?password=hunter3"
    return open_sink("postgresql", uri=uri, **{"table": "facts", **options})


def test_which_sinks_share_a_target(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "out")
    same = [
        open_sink(kind, path=tmp_path / name)
        for kind in ("parquet", "delta")
        for name in ("out", "link", "in/../out")
    ]
    assert len({sink.target for sink in same}) == 1
    assert open_sink("parquet", path=tmp_path / "other").target != same[0].target
    assert postgres().target == postgres("you").target == postgres(schema="public").target
    others = {postgres(schema="b").target, postgres(table="c").target}
    assert len({postgres().target, *others}) == 3
    assert "hunter2" not in postgres().target


def test_the_second_sink_of_a_batch_is_refused() -> None:
    from semistream.spark.foreach import _Done

    done, first, second = _Done(), postgres(), postgres("you")
    batch = Batch("query", 7)
    done.check_not_written("run 1", batch, first)
    done.add("run 1", batch, first)
    with pytest.raises(ss.ConfigError, match=r"two sinks .* batch 7 .*facts.* route="):
        done.check_not_written("run 1", batch, second)
    done.check_not_written("run 1", Batch("query", 8), second)
    done.check_not_written("run 1", Batch("query-late", 7), second)
    done.check_not_written("run 1", batch, postgres(table="others"))
    done.check_not_written("run 2", batch, first)  # a new start repeats the batch, as it must


def test_ledger_keys_of_routes() -> None:
    from semistream.spark.foreach import _key

    keys = [_key("q", name, number) for name in (None, "late") for number in range(3)]
    assert keys[0] == "q"
    assert len(set(keys)) == len(keys)
