"""Constants of the machine and of the engine, in one place, each with its reason.

A *share* of n means budget // n bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from semistream.master.mapped_reader import MAPPED_PAGES


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
    mesh_buffer_bytes: int = 16 << 20  # a sequential scan gains from larger reads
    hybrid_buffer_bytes: int = 1 << 20  # read for one tuple: a page's neighbours rarely match
    # Fixed cost of a read (calls, an admission, an output batch), as bytes of pages that are read
    # and probed in the same time: 0.3 ms beside 5 us for a page of 16 KiB.
    read_cost_bytes: int = 1 << 20
    reduced_buffer_bytes: int = 1 << 20  # R-MESHJOIN: a small part of a group, but a large request
    reduced_group_bytes: int = 4 << 20  # R-MESHJOIN: pages per chunk of the stream
    pool_frames: int = 1 << 14  # INLJ: beyond this the pool's bookkeeping costs more than it saves

    # SweepJoin: reads
    stretch_share: int = 20
    stretch_bytes: int = 4 << 20  # a request of megabytes; more only adds latency
    mapped_stretch_share: int = 4  # mapped pages are not copied, so a stretch costs no buffer
    mapped_stretch_bytes: int = 24 << 20
    resident_visit_share: int = 32  # for the addresses in the pages of a visit; none is copied
    mapped_visit_pages: int = MAPPED_PAGES  # of a stretch that is mapped and visited alone
    reads_ahead: int = 3  # queued ahead of the visit that is being joined
    reads_in_flight: int = 2  # during visits: completions of queued reads arrive together
    read_ahead_share: int = 5  # limit for all disk buffers together
    least_buffer_share: int = 12  # a larger buffer leaves no memory for reading ahead
    disk_bytes_per_miss: int = 1536  # disk bytes read per admitted miss (estimate)

    # SweepJoin: rows that are copied out of scattered pages
    copied_share: int = 128
    copied_bytes: int = 1 << 20  # what is copied should stay in the CPU cache until it is used
    few_copied_share: int = 32  # at most, for
    few_copied_bytes: int = 64 << 10  # so many: with fewer, a call has few rows
    copied_pages: int = 4096  # of a visit: more of them make a push long
    mapped_share: int = 16
    mapped_most: int = 16 << 20  # unmapping eight huge pages is cheap among so many rows

    # SweepJoin: visits
    # Unneeded bytes read to coalesce two requests into one. Of scattered direct reads, a hundred or
    # more are in flight together: then a request costs 7 us beside 0.3 us for a KiB, as much as
    # 24 KiB (lab/bench_disk.py). A call for cached pages costs as much as 4 KiB.
    gap_bytes: int = 24 << 10
    cached_gap_bytes: int = 4 << 10
    # More tuples than four times those of an average stretch in a full window, and than one for so
    # many bytes of pages, are not served by one visit: it would be one long push.
    stretch_fill: int = 4
    visit_bytes_per_tuple: int = 128
    visits_per_batch: int = 16  # maximum number of visits gathered into one output batch
    index_growth_share: int = 40  # the index takes 10 bytes more for every key that changes
    first_growth_share: int = 120  # of a table that has not changed before
    index_step_share: int = 400  # of the budget, when it has outgrown that: the window gives way
    vacancy: int = 8  # admit tuples when at least slots // 8 are vacant, or earlier

    # SweepJoin: front stage
    absent_share: int = 128  # cache of absent keys
    offers: int = 1024  # rows offered to the front stage per call,
    offers_share: int = 8  # and at most this part of its rows
    offers_while_filling: int = 128  # an offer costs 0.15 ms, as much as 50 tuples of a small batch


DEFAULTS = Settings()
