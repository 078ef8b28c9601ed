"""The pictures of the live page in docs/images, from the metrics of a real run.

    semistream demo --folder demo && python -m lab.live_picture demo/metrics.jsonl

Needs Playwright, Pillow and the system's Chromium.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from semistream.live.report import read_records, report

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"


def without_folders(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Paths of the machine are of no interest to readers of the picture."""
    for record in records:
        for lookup in record["lookups"]:
            lookup["master"] = f"/data/{Path(lookup['master']).name}"
    return records


def picture(page: Path) -> None:
    from PIL import Image
    from playwright.sync_api import sync_playwright

    IMAGES.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for theme, name in (("light", "live-page.png"), ("dark", "live-page-dark.png")):
            tab = browser.new_page(viewport={"width": 1160, "height": 925})
            tab.goto(f"file://{page}?theme={theme}")
            tab.screenshot(path=IMAGES / name)
            Image.open(IMAGES / name).convert("RGB").save(IMAGES / name, optimize=True)
        browser.close()


def main(arguments: list[str]) -> int:
    metrics = Path(arguments[0])
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        page.write_text(report(without_folders(read_records(metrics)), metrics.name))
        picture(page)
    print(json.dumps([str(path.name) for path in sorted(IMAGES.glob("live-page*.png"))]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
