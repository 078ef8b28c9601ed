"""Which worker runs which Spark tests; the sessions are in ``tests/conftest.py``."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """``needs_spark(feature)``: skip where this version of Spark does not have it."""
    from semistream.spark.versions import VERSION, has

    for mark in item.iter_markers("needs_spark"):
        for feature in mark.args:
            if not has(feature):
                needed, found = (".".join(map(str, one)) for one in (feature.since, VERSION))
                pytest.skip(f"{feature.name}: Spark {needed}, and this is {found}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one kind of session go to one worker (with ``--dist loadgroup``)."""
    here = Path(__file__).parent
    for item in items:
        if here in Path(item.fspath).parents:
            kind = "cluster" if "cluster" in getattr(item, "fixturenames", ()) else "local"
            item.add_marker(pytest.mark.xdist_group(f"spark-{kind}"))
