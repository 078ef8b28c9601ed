"""A separate driver: enriches the stream in a folder, and is killed.

python driver_job.py FOLDER      SIGKILL for the JVM in the middle of batch 1
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import semistream as ss
from sessions import LOCAL, Sessions
from spark import saboteurs
from spark.streams import Sink, stream_of


def main(folder: Path) -> None:
    saboteurs.by_value()
    sessions = Sessions(folder / "spark")
    spark = sessions.get(LOCAL)
    stream = stream_of(spark, folder / "in")
    enriched = ss.enrich(stream, str(folder / "products"), on="product_id", memory="8MB")
    stage = saboteurs.once(folder / "killed", saboteurs.kill_executor, batch=1)
    Sink(folder / "out").run(enriched.mapInArrow(stage, enriched.schema))
    sessions.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
