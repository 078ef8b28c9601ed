"""One sync in another process: ``python -m lab.changes.syncer TABLE SOURCE-AS-JSON``."""

from __future__ import annotations

import json
import resource
import sys
import time

import semistream as ss
from lab.changes.sync_sources import source_from


def main(path: str, described: str) -> None:
    table = ss.MasterTable.open(path)
    source = source_from(json.loads(described))
    print("begins", flush=True)
    began = time.monotonic()
    table = table.sync(source)
    info = table.synced
    assert info is not None
    print(
        json.dumps(
            {
                "seconds": time.monotonic() - began,
                "version": table.version,
                "inserted": info.inserted,
                "updated": info.updated,
                "deleted": info.deleted,
                "rows_read": info.rows_read,
                "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
