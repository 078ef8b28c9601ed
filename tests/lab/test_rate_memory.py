"""The README's chart and its caption are those of the committed run."""

from __future__ import annotations

import json
from pathlib import Path

from lab import rate_memory


def test_the_committed_chart_is_of_the_committed_run(tmp_path: Path) -> None:
    held = json.loads(rate_memory.RESULTS.read_text())
    readme = (rate_memory.ROOT / "README.md").read_text()
    assert " ".join(rate_memory.caption(held).split()) in " ".join(readme.split())
    asked = {(cell.rival, cell.variant, cell.memory) for cell in rate_memory.cells()}
    assert {(c["rival"], c["variant"], c["memory"]) for c in held["cells"]} == asked
    assert {cell["outcome"] for cell in held["cells"]} == {"right"}
    rate_memory.draw(held, tmp_path / "chart.svg")
    assert (tmp_path / "chart.svg").read_bytes() == rate_memory.PICTURE.read_bytes()
