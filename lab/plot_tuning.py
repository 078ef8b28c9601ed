"""The picture of docs/tuning.md: the curves around a plan, for a table that is not there.

    python -m lab.plot_tuning

Only shapes are needed, so nothing is built or opened.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

import semistream as ss
from semistream.cost import Case, Machine, Traffic, zipf
from semistream.engine.binding import Binding
from semistream.engine.shape import StreamShape, TableShape
from semistream.engine.window.tuple_layout import TupleLayout
from semistream.tuning.curves import curves, draw
from semistream.tuning.plan import TuningPlan
from semistream.tuning.search import tuned

ROWS, PAGE, ROW = 2_000_000, 16 << 10, 113
STREAM = pa.schema([("sale_id", pa.int64()), ("product_id", pa.int64()), ("quantity", pa.int32())])
MASTER = pa.schema([("product_id", pa.int64()), ("price", pa.float64()), ("text", pa.string())])
DOCS = Path(__file__).resolve().parent.parent / "docs"


class Side:
    """The master's side of a binding, without pages."""

    schema, key, code_column = MASTER, ("product_id",), None


def table() -> TableShape:
    pages = -(-ROWS // (PAGE // ROW))
    types = (pa.float64(), pa.string())
    return TableShape(
        num_pages=pages,
        num_rows=ROWS,
        unique=True,
        ordered=True,
        exact=True,
        by_code=True,
        index_bytes=46 * pages,
        max_page_bytes=PAGE,
        max_row_bytes=ROW + 8,
        row_bytes=float(ROW),
        output_types=types,
        cached_types=types,
        continues=np.zeros(pages, np.bool_),
        buffer_bytes=lambda n: n * PAGE,
        can_prefetch=True,
        can_address=True,
    )


def main() -> None:
    binding = Binding(Side(), "product_id", None, "inner")
    binding.bind(STREAM)
    batch = pa.RecordBatch.from_pydict({name: [1] for name in STREAM.names}, schema=STREAM)
    stream = StreamShape.of(batch, TupleLayout(binding, STREAM)).with_widest(24)
    join = ss.CachedHybridJoin(memory="20MB")
    case = Case(join, table(), stream, Traffic(zipf(ROWS, 1.0)), Machine())
    best = tuned(case)
    assert best is not None
    plan = TuningPlan(best.join, best.prediction, origin="defaults")
    draw(curves(case, plan), plan, DOCS / "tuning.png")
    print(plan)


if __name__ == "__main__":
    main()
