"""The rate to expect of a run, from its first batch, if this machine was calibrated.

For runs that nobody tuned, such as those of Spark's workers. Nothing is measured here, and nothing
is loaded unless the table has a calibration.
"""

from __future__ import annotations

import logging
import os
from typing import Any

import pyarrow as pa

CALIBRATION = "calibration.json"  # beside the table
FEW = 1_000  # tuples: a smaller sample says little about the skew
_MOST = 100_000  # tuples that are looked at

_log = logging.getLogger(__name__)


def predicted_rate(
    join: Any, source: Any, batch: pa.RecordBatch, on: Any, select: Any, drained: bool
) -> float | None:
    """Tuples per second; None if nothing is known of this machine, or of so small a batch."""
    path = getattr(source, "path", None)
    if batch.num_rows < FEW or path is None or not os.path.exists(os.path.join(path, CALIBRATION)):
        return None
    try:
        return _predicted(join, source, batch, on, select, drained)
    except Exception:  # a prediction that fails must not stop the stream
        _log.debug("no prediction for %s", join.name, exc_info=True)
        return None


def _predicted(
    join: Any, source: Any, batch: pa.RecordBatch, on: Any, select: Any, drained: bool
) -> float | None:
    from dataclasses import replace

    from semistream.cost import Case, predict
    from semistream.tuning.calibration_file import load
    from semistream.tuning.sample import observe
    from semistream.tuning.tuner import fits_the_page_cache

    machine = load(source).machine
    if machine is None:  # damaged, old, or of another machine
        return None
    machine = replace(machine, is_cached=fits_the_page_cache(source))
    seen = observe(
        source, batch.slice(0, _MOST), on,
        how=join.how, select=select, push=batch.num_rows, drained=drained, lookups=False,
    )  # fmt: skip
    return predict(Case(join, seen.table, seen.stream, seen.traffic, machine)).rate
