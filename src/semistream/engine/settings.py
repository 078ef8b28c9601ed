"""Constants of the machine and of the engine, in one place, each with its reason.

A *share* n means one byte in n of the budget.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """What a run takes for granted. The defaults were measured on two cores and one SSD."""

    # Intake and output
    slice_rows: int = 1 << 16  # tuples whose keys are coded together: one cache-friendly call
    lookups_per_output_row: int = 2  # probe further ahead than fits: hits and misses go apart
    output_share: int = 16
    output_least: int = 64 << 10  # smaller batches cost more than their rows
    output_most: int = 8 << 20  # larger ones leave the cache before they are read

    # Disk buffer of the published joins
    buffer_share: int = 16
    mesh_buffer_pages: int = 64  # a scan gains from every page that is read along
    hybrid_buffer_pages: int = 4  # a partition is read for one tuple: neighbours rarely help
    mesh_group_pages: int = 16  # R-MESHJOIN: pages that a chunk of the stream is tied to
    pool_frames: int = 1 << 14  # INLJ: beyond this the pool's bookkeeping costs more than it saves

    # SweepJoin: reads
    stretch_share: int = 20
    stretch_pages: int = 16  # a request of megabytes; more only adds latency
    mapped_stretch_share: int = 4  # mapped pages are not copied, so a stretch costs no buffer
    mapped_stretch_pages: int = 96
    reads_ahead: int = 3  # beyond the visit that is being joined
    reads_in_flight: int = 2  # during visits: completions of queued reads arrive together
    read_ahead_share: int = 5  # all disk buffers together
    least_buffer_share: int = 12  # a larger buffer leaves no memory for reading ahead
    page_map_share: int = 32
    disk_bytes_per_miss: int = 1536  # read while one tuple that must wait is admitted (estimate)

    # SweepJoin: visits
    dense_waiters: int = 8  # tuples per page: then unneeded pages are rare, and are read along
    gap_pages: int = 1  # unneeded pages that are read along between two that are needed
    visits_per_batch: int = 16  # visits whose rows are kept back, at most, to fill an output batch
    vacancy: int = 8  # admit tuples when at least slots // 8 are vacant, or earlier

    # SweepJoin: front stage
    absent_share: int = 128  # keys that are known to be absent
    offers: int = 1024  # rows that are offered to the front stage together


DEFAULTS = Settings()
