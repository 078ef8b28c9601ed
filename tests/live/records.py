"""Records of micro-batches as Metrics writes them, made up."""

from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone
from typing import Any

BEGIN = datetime(2026, 3, 2, 9, 0, tzinfo=timezone.utc)


def record(
    batch: int, *, query: str = "q1", run: str = "r1", lookups: int = 2, **more: Any
) -> dict[str, Any]:
    wave = math.sin(batch / 6)
    return {
        "time": (BEGIN + timedelta(seconds=2 * batch)).isoformat().replace("+00:00", "Z"),
        "query": query,
        "run": run,
        "name": f"sales-{query}",
        "batch": batch,
        "rows_in": 500_000,
        "seconds": 0.6 - 0.1 * wave,
        "rows_per_second": 500_000 / (0.6 - 0.1 * wave),
        "lag": 40_000 * (1 + wave),
        "lag_unit": "messages",
        "tasks": 2,
        "warm_tasks": 0 if batch == 0 else 2,
        "lookups": [_lookup(batch, number) for number in range(lookups)],
        **more,
    }


def _lookup(batch: int, number: int) -> dict[str, Any]:
    hit_rate = (0.82 - 0.2 * number) * (1 - math.exp(-(batch + 1) / 5))
    return {
        "master": ("/data/products", "/data/customers", "/data/stores")[number],
        "join": "sweepjoin",
        "version": 1 + batch // 25,
        "age_seconds": 600.0 * number + 2.0 * (batch % 25),
        "counters": {
            "tuples_in": 500_000,
            "matched": 498_000,
            "unmatched": 2_000,
            "shed": 0,
            "waiting": 0,
            "front_stage_hits": int(500_000 * hit_rate),
            "pages_read": 20_000 - batch,
            "bytes_read": 640_000_000,
        },
        "hit_rate": hit_rate,
        "match_rate": 0.996,
        "workers": 2,
        "memory": {
            "window": 9_000_000 - 40_000 * batch,
            "front stage": 12_000_000 + 40_000 * batch,
            "disk buffer": 2_000_000,
            "page index": 1_200_000,
            "output": 3_100_000,
            "budget": 32_000_000,
        },
    }


def full_record(batch: int, **more: Any) -> dict[str, Any]:
    """With the figures that are only sometimes reported."""
    made = record(batch, **more)
    for lookup in made["lookups"]:
        burst = max(0, 20 - abs(batch - 30))
        lookup["counters"] |= {"parked": 150 * burst, "shed": 400 * burst, "waiting": 900 * burst}
        lookup["predicted"] = {
            "rate": 880_000.0,
            "hit_rate": 0.8 if "prod" in lookup["master"] else 0.6,
        }
    return made
