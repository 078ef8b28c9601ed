"""A file of metrics as a page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from live.records import record
from semistream.cli.report import app, write_report
from semistream.errors import ConfigError
from semistream.live.report import read_records


def lines(path: Path, *records: dict[str, Any], end: str = "") -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in records) + end)
    return path


def embedded(html: str) -> Any:
    (text,) = re.findall(r'<script id="embedded"[^>]*>(.*?)</script>', html, re.DOTALL)
    return json.loads(text)


def test_all_records_are_in_the_file(tmp_path: Path) -> None:
    records = [record(n) for n in range(4)]
    metrics = lines(tmp_path / "metrics.jsonl", *records)
    done = CliRunner().invoke(app, [str(metrics)])
    assert done.exit_code == 0, done.output
    assert "metrics.html: 4 batches" in done.output
    data = embedded((tmp_path / "metrics.html").read_text())
    assert data["records"] == records
    assert write_report(metrics, tmp_path / "last.html", last=3) == 3
    assert embedded((tmp_path / "last.html").read_text())["records"] == records[1:]


def test_text_cannot_leave_the_data(tmp_path: Path) -> None:
    hostile = record(0) | {"name": "</script><script>alert(1)</script><!--"}
    write_report(lines(tmp_path / "m.jsonl", hostile), tmp_path / "m.html")
    html = (tmp_path / "m.html").read_text()
    assert "alert(1)</script>" not in html
    assert embedded(html)["records"] == [hostile]


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    path = lines(tmp_path / "m.jsonl", record(0), end='{"query": "q1", "ba')
    assert [r["batch"] for r in read_records(path)] == [0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no records of metrics yet; semistream run --metrics"),
        ("{bad}\n{}\n", r"m.jsonl:1: not a line of JSON"),
        ('{"a": 1}\n', r"m.jsonl:1: not a record of metrics: the fields query and batch"),
        ("[1]\n", r"m.jsonl:1: not a record of metrics"),
    ],
)
def test_other_files_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_records(path)


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no\.jsonl cannot be read: No such file"):
        read_records(tmp_path / "no.jsonl")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not text in UTF-8"):
        read_records(tmp_path / "binary")
    path = lines(tmp_path / "m.jsonl", record(0))
    with pytest.raises(ConfigError, match="cannot be written: No such file"):
        write_report(path, tmp_path / "no" / "m.html")
