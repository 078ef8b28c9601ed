"""``semistream tune``: a table of joins, the plan, the code to use it."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import semistream as ss
from semistream import workload
from semistream.cli.tune import app

ROWS = 5_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place: Path = tmp_path_factory.mktemp("tune")
    products = workload.products(ROWS, 80, seed=1).read_all()
    ss.MasterTable.build(products, place / "products", key="product_id", page_bytes="4KiB")
    sales = list(workload.sales(2_000, ROWS, 1.0, 1, batch_rows=2_000))
    pq.write_table(pa.Table.from_batches(sales), place / "sales.parquet")
    return place


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(part) for part in arguments])
    return result.exit_code, result.output


def test_all_joins_and_the_code_to_use_the_best(folder: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = folder / "curves.png"
    code, text = run(
        folder / "products", "--sample", folder / "sales.parquet", "--on", "product_id",
        "--memory", "500kB", "--plot", picture,
    )  # fmt: skip
    assert code == 0, text
    for name in ss.ALGORITHMS:
        assert re.search(rf"^{re.escape(name)} ", text, re.MULTILINE)
    assert "ss.join('" in text
    assert "using: " in text
    assert picture.stat().st_size > 5_000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--memory", "1MB"], "give --sample FILE and --on COLUMN"),
        (["--sample", "none.parquet", "--on", "product_id"], "there is no such file"),
        (["--sample", "{sales}", "--on", "product_id"], "needs memory="),
        (["--sample", "{sales}", "--on", "product_id", "--memory", "3kB"], "smallest budget"),
        (
            ["--sample", "{table}/manifests", "--on", "product_id", "--memory", "1MB"],
            "not a parquet",
        ),
    ],
)
def test_errors(arguments: list[str], message: str, folder: Path) -> None:
    places = {"sales": folder / "sales.parquet", "table": folder / "products"}
    code, text = run(folder / "products", *(part.format(**places) for part in arguments))
    assert code == 2
    assert message in " ".join(text.split())
