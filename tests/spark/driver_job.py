"""A driver of its own: enriches the stream in a folder until nothing is left.

python driver_job.py FOLDER [kill]      kill: SIGKILL for the JVM in the middle of batch 1
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import semistream as ss
from spark import saboteurs
from spark.conftest import LOCAL, Sessions
from spark.streams import Sink, stream_of


def main(folder: Path, kill: bool) -> None:
    saboteurs.by_value()
    sessions = Sessions(folder / "spark")
    spark = sessions.get(LOCAL)
    stream = stream_of(spark, folder / "in")
    enriched = ss.enrich(stream, str(folder / "products"), on="product_id", memory="8MB")
    if kill:
        stage = saboteurs.once(folder / "killed", saboteurs.kill_executor, batch=1)
        enriched = enriched.mapInArrow(stage, enriched.schema)
    Sink(folder / "out").run(enriched)
    sessions.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), "kill" in sys.argv[2:])
