"""The example of docs/changing-tables.md runs, and prints what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs/changing-tables.md"


def test_the_example_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    exec(compile(example, str(PAGE), "exec"), {})
    printed = capsys.readouterr().out
    assert "900 updated, 100 deleted, version 2" in printed
    before, after = printed.split("900 updated")
    assert before.count("'price': 9.99") == 3
    for order in ("5, 'price': 9.99", "1500, 'price': 12.5", "1999, 'price': None"):
        assert order in re.sub(r"'product_id_master': [^,]*, ", "", after)
