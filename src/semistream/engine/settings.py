"""Constants of the machine and of the engine, in one place, each with its reason.

A *share* of n means budget // n bytes.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Tuning constants of a run. The defaults were measured on two cores and one SSD."""

    # Intake and output
    slice_rows: int = 1 << 16  # tuples whose keys are encoded in one cache-friendly call
    lookups_per_output_row: int = 2  # misses need no output row, so probe more than fit
    output_share: int = 16
    output_least: int = 64 << 10  # in smaller batches the overhead per batch dominates
    output_most: int = 8 << 20  # larger batches leave the CPU cache before they are read

    # Disk buffer of the published joins
    buffer_share: int = 16
    mesh_buffer_pages: int = 64  # a sequential scan gains from larger reads
    hybrid_buffer_pages: int = 4  # a partition is read for one tuple: its neighbours rarely match
    mesh_group_pages: int = 16  # R-MESHJOIN: pages per chunk of the stream
    pool_frames: int = 1 << 14  # INLJ: beyond this the pool's bookkeeping costs more than it saves

    # SweepJoin: reads
    stretch_share: int = 20
    stretch_pages: int = 16  # a request of megabytes; more only adds latency
    mapped_stretch_share: int = 4  # mapped pages are not copied, so a stretch costs no buffer
    mapped_stretch_pages: int = 96
    reads_ahead: int = 3  # queued ahead of the visit that is being joined
    reads_in_flight: int = 2  # during visits: completions of queued reads arrive together
    read_ahead_share: int = 5  # limit for all disk buffers together
    least_buffer_share: int = 12  # a larger buffer leaves no memory for reading ahead
    page_map_share: int = 32
    disk_bytes_per_miss: int = 1536  # disk bytes read per admitted miss (estimate)

    # SweepJoin: visits
    dense_waiters: int = 8  # tuples per page, above which the whole stretch is read
    gap_pages: int = 1  # unneeded pages read to coalesce two requests into one
    visits_per_batch: int = 16  # maximum number of visits gathered into one output batch
    vacancy: int = 8  # admit tuples when at least slots // 8 are vacant, or earlier

    # SweepJoin: front stage
    absent_share: int = 128  # cache of absent keys
    offers: int = 1024  # rows offered to the front stage per call


DEFAULTS = Settings()
