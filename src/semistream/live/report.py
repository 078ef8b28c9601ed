"""A file of metrics as one HTML file that needs nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from semistream.errors import ConfigError
from semistream.live.page import page, to_json

_MARK = '<script id="embedded" type="application/json">null</script>'


def read_records(path: Path) -> list[dict[str, Any]]:
    """The records of a file of JSON lines. A last line that was cut off is left out."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not a file of metrics: it is not text in UTF-8") from error
    records = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            if number == len(lines):
                continue  # the process ended while it wrote the line
            raise ConfigError(f"{path}:{number}: not a line of JSON: {error}") from error
        if not isinstance(record, dict) or "query" not in record or "batch" not in record:
            raise ConfigError(
                f"{path}:{number}: not a record of metrics: the fields query and batch are missing"
                "; semistream run --metrics and semistream.spark.Metrics write such files"
            )
        records.append(record)
    if not records:
        raise ConfigError(
            f"{path} has no records of metrics yet; semistream run --metrics and "
            "semistream.spark.Metrics write such files"
        )
    return records


def report(records: list[dict[str, Any]], title: str) -> str:
    """The page with these records in it."""
    data = to_json({"title": title, "records": records, "queries": {}})
    # In a script element only "<" could end it early, or begin a comment.
    embedded = _MARK.replace("null", data.replace("<", "\\u003c"))
    html = page()
    assert html.count(_MARK) == 1
    return html.replace(_MARK, embedded)
