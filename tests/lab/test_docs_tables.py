"""The figures of the docs are those of the committed results."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lab import bench_tables, docs_tables

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for page in DOCS.glob("*.md"):
        shutil.copy(page, tmp_path)
    return tmp_path


def test_pages_have_the_figures_of_the_results(copy: Path) -> None:
    assert docs_tables.main(["--docs", str(copy)]) == 0
    assert bench_tables.main(["--docs", str(copy)]) == 0
    for page in sorted(DOCS.glob("*.md")):
        assert (copy / page.name).read_text() == page.read_text(), (
            f"{page.name} differs from its results: run `make bench-tables`"
        )


def test_every_part_is_rewritten(copy: Path) -> None:
    for page in {part.page for part in docs_tables.PARTS}:
        text = (copy / page).read_text()
        for part in docs_tables.PARTS:
            begin, end = f"<!-- {part.name} -->", f"<!-- end {part.name} -->"
            if part.page == page:
                before, rest = text.split(begin)
                text = before + begin + "gone" + end + rest.split(end)[1]
        (copy / page).write_text(text)
    docs_tables.main(["--docs", str(copy)])
    for page in {part.page for part in docs_tables.PARTS}:
        assert (copy / page).read_text() == (DOCS / page).read_text()
