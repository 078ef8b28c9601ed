"""Which worker runs which Spark tests; the sessions are in ``tests/conftest.py``."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one kind of session go to one worker (with ``--dist loadgroup``)."""
    here = Path(__file__).parent
    for item in items:
        if here in Path(item.fspath).parents:
            kind = "cluster" if "cluster" in getattr(item, "fixturenames", ()) else "local"
            item.add_marker(pytest.mark.xdist_group(f"spark-{kind}"))
