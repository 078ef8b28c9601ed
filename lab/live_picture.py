"""The pictures of the live page in docs/images, from a real run.

    python -m lab.live_picture

Runs a pipeline with two look-ups on generated sales, writes its report, and takes pictures of it in
Chromium. Needs Spark, Playwright and the system's Chromium.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import semistream as ss
from semistream.cli.report import write_report
from semistream.cli.run import run_pipeline
from semistream.workload.relations import products
from semistream.workload.stream import sales

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
ROWS, BATCHES, BATCH_ROWS = 500_000, 30, 100_000
PIPELINE = """\
name: sales
source:
  format: parquet
  path: {folder}/sales
  schema: {{sale_id: long, product_id: long, quantity: int}}
  options: {{maxFilesPerTrigger: 1}}
lookups:
  - {{master: {folder}/products, on: product_id, select: [price, supplier_id]}}
  - {{master: {folder}/suppliers, on: supplier_id, how: left}}
sink: {{output: parquet, path: {folder}/warehouse}}
checkpoint: {folder}/checkpoint
memory: 48MB
"""


def run(folder: Path) -> Path:
    """The metrics of a run."""
    table = ss.MasterTable.build(products(ROWS), folder / "products", key="product_id", unique=True)
    kind = table.schema.field("supplier_id").type
    ids = pa.array(range(200_000), pa.int64()).cast(kind)
    names = [f"supplier {n}" for n in range(200_000)]
    suppliers = pa.table({"supplier_id": ids, "supplier": names})
    ss.MasterTable.build(suppliers, folder / "suppliers", key="supplier_id", unique=True)
    (folder / "sales").mkdir()
    stream = sales(BATCHES * BATCH_ROWS, ROWS, exponent=1.0, scattered=True, batch_rows=BATCH_ROWS)
    for number, batch in enumerate(stream):
        file = folder / "sales" / f"{number:03d}.parquet"
        pq.write_table(pa.Table.from_batches([batch]), file)
    (folder / "pipeline.yaml").write_text(PIPELINE.format(folder=folder))
    metrics = folder / "metrics.jsonl"
    run_pipeline(folder / "pipeline.yaml", once=True, metrics_file=metrics)
    # Paths of this machine are of no interest to readers of the picture.
    metrics.write_text(metrics.read_text().replace(str(folder), "/data"))
    return metrics


def picture(page: Path) -> None:
    from PIL import Image
    from playwright.sync_api import sync_playwright

    IMAGES.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for theme, name in (("light", "live-page.png"), ("dark", "live-page-dark.png")):
            tab = browser.new_page(viewport={"width": 1160, "height": 980})
            tab.goto(f"file://{page}?theme={theme}")
            tab.screenshot(path=IMAGES / name)
            few_colours = Image.open(IMAGES / name).convert("P", palette=Image.ADAPTIVE, colors=128)
            few_colours.save(IMAGES / name, optimize=True)
        browser.close()


def main() -> int:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        write_report(run(folder), folder / "report.html")
        picture(folder / "report.html")
    print(f"written to {IMAGES.name}/")
    return 0


if __name__ == "__main__":
    sys.exit(main())
