"""Cache policies in front of a semi-stream join, simulated on keys only.

In a semi-stream join a missed row is loaded later, when its page is visited. So every policy has
two methods: ``touch`` is called with the tuples of the stream and returns which ones hit, and
``insert`` offers the keys whose rows were loaded. Keys are 0 .. domain - 1, which lets linked
lists be plain arrays.

- SIEVE: Zhang et al., NSDI 2024. S3-FIFO: Yang et al., SOSP 2023. W-TinyLFU: Einziger, Friedman
  and Manes, ACM ToS 2017. Written from the papers' descriptions.
- ``threshold``: the front stage of CHYBRIDJOIN. ``sweep``: that of SweepJoin. Both as shipped.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from semistream.engine.front.counting_cache import ENTRY_BYTES as COUNTING_BYTES
from semistream.engine.front.counting_cache import CountingCache
from semistream.engine.front.recorder import ENTRY_BYTES as RECORDER_BYTES
from semistream.engine.front.recorder import FrequencyRecorder
from semistream.kernels.states import LISTS


class Sieve:
    """A FIFO queue whose hand skips entries that were hit since its last pass."""

    def __init__(self, domain: int, capacity: int) -> None:
        self._links = np.full((2, domain), -1, np.int32)
        self._held = np.zeros(domain, np.bool_)
        self._visited = np.zeros(domain, np.bool_)
        self._ends = np.array([-1, -1, -1, 0, capacity], np.int64)  # head, tail, hand, count

    def touch(self, keys: Any) -> Any:
        hits = self._held[keys]
        self._visited[keys[hits]] = True
        return hits

    def insert(self, keys: Any) -> None:
        _sieve_insert(keys, self._links[0], self._links[1], self._held, self._visited, self._ends)


@njit(cache=True)
def _sieve_insert(keys, newer, older, held, visited, ends):  # type: ignore[no-untyped-def]
    for key in keys:
        if held[key]:
            continue
        if ends[3] == ends[4]:
            victim = ends[2] if ends[2] >= 0 else ends[1]
            while visited[victim]:
                visited[victim] = False
                victim = newer[victim] if newer[victim] >= 0 else ends[1]
            ends[2] = newer[victim]
            if newer[victim] >= 0:
                older[newer[victim]] = older[victim]
            else:
                ends[0] = older[victim]
            if older[victim] >= 0:
                newer[older[victim]] = newer[victim]
            else:
                ends[1] = newer[victim]
            held[victim] = False
            ends[3] -= 1
        newer[key], older[key] = -1, ends[0]
        if ends[0] >= 0:
            newer[ends[0]] = key
        else:
            ends[1] = key
        ends[0] = key
        held[key], visited[key] = True, False
        ends[3] += 1


class S3Fifo:
    """Three FIFO queues: small for newcomers, main for those hit there, ghost for the rest."""

    def __init__(self, domain: int, capacity: int) -> None:
        small = max(1, capacity // 10)
        self._place = np.zeros(domain, np.int8)  # 0 nowhere, 1 small, 2 main, 3 ghost
        self._freq = np.zeros(domain, np.int8)
        self._rings = [np.zeros(n + 1, np.int32) for n in (small, capacity - small, capacity)]
        self._state = np.zeros((3, 2), np.int64)  # first, count

    def touch(self, keys: Any) -> Any:
        return _s3_touch(keys, self._place, self._freq)

    def insert(self, keys: Any) -> None:
        _s3_insert(keys, self._place, self._freq, *self._rings, self._state)


@njit(cache=True)
def _s3_touch(keys, place, freq):  # type: ignore[no-untyped-def]
    hits = np.zeros(len(keys), np.bool_)
    for i in range(len(keys)):
        if place[keys[i]] in (1, 2):
            hits[i] = True
            freq[keys[i]] = min(freq[keys[i]] + 1, 3)
    return hits


@njit(cache=True)
def _push(ring, state, queue, key):  # type: ignore[no-untyped-def]
    ring[(state[queue, 0] + state[queue, 1]) % len(ring)] = key
    state[queue, 1] += 1


@njit(cache=True)
def _pop(ring, state, queue):  # type: ignore[no-untyped-def]
    key = ring[state[queue, 0]]
    state[queue, 0] = (state[queue, 0] + 1) % len(ring)
    state[queue, 1] -= 1
    return key


@njit(cache=True)
def _s3_main(key, place, freq, main, state):  # type: ignore[no-untyped-def]
    while state[1, 1] >= len(main) - 1:
        old = _pop(main, state, 1)
        if freq[old] > 0:
            freq[old] -= 1
            _push(main, state, 1, old)
        else:
            place[old] = 0
    place[key] = 2
    _push(main, state, 1, key)


@njit(cache=True)
def _s3_insert(keys, place, freq, small, main, ghost, state):  # type: ignore[no-untyped-def]
    for key in keys:
        if place[key] in (1, 2):
            continue
        if place[key] == 3:
            freq[key] = 0
            _s3_main(key, place, freq, main, state)
            continue
        while state[0, 1] >= len(small) - 1:
            old = _pop(small, state, 0)
            if freq[old] > 0:
                freq[old] = 0
                _s3_main(old, place, freq, main, state)
            else:
                while state[2, 1] >= len(ghost) - 1:
                    gone = _pop(ghost, state, 2)
                    if place[gone] == 3:
                        place[gone] = 0
                place[old] = 3
                _push(ghost, state, 2, old)
        place[key], freq[key] = 1, 0
        _push(small, state, 0, key)


class TinyLfu:
    """A small LRU window, then a segmented LRU with admission by a count-min sketch."""

    def __init__(self, domain: int, capacity: int) -> None:
        self._links = np.full((2, domain + 3), -1, np.int32)  # three sentinels follow the keys
        self._place = np.zeros(domain, np.int8)  # 0 nowhere, 1 window, 2 probation, 3 protected
        for sentinel in range(domain, domain + 3):
            self._links[:, sentinel] = sentinel
        width = 1 << max(8, int(np.ceil(np.log2(capacity))) + 2)
        self._sketch = np.zeros((4, width), np.uint8)
        window = max(1, capacity // 100)
        limits = (window, capacity - window, (capacity - window) * 4 // 5)
        self._state = np.array([0, 0, 0, 0, 10 * capacity, *limits], np.int64)

    def touch(self, keys: Any) -> Any:
        return _tiny_touch(keys, *self._links, self._place, self._sketch, self._state)

    def insert(self, keys: Any) -> None:
        _tiny_insert(keys, *self._links, self._place, self._sketch, self._state)


@njit(cache=True)
def _cell(key, row, width):  # type: ignore[no-untyped-def]
    mixed = (np.uint64(key) + np.uint64(row + 1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    mixed *= np.uint64(0xBF58476D1CE4E5B9) + np.uint64(2 * row)
    return np.int64((mixed >> np.uint64(32)) & np.uint64(width - 1))


@njit(cache=True)
def _estimate(key, sketch):  # type: ignore[no-untyped-def]
    least = 15
    for row in range(4):
        least = min(least, np.int64(sketch[row, _cell(key, row, sketch.shape[1])]))
    return least


@njit(cache=True)
def _unlink(key, newer, older):  # type: ignore[no-untyped-def]
    older[newer[key]] = older[key]
    newer[older[key]] = newer[key]


@njit(cache=True)
def _link(key, sentinel, newer, older):  # type: ignore[no-untyped-def]
    newer[key], older[key] = sentinel, older[sentinel]
    newer[older[sentinel]] = key
    older[sentinel] = key


@njit(cache=True)
def _tiny_touch(keys, newer, older, place, sketch, state):  # type: ignore[no-untyped-def]
    domain = len(place)
    hits = np.zeros(len(keys), np.bool_)
    for i in range(len(keys)):
        key = keys[i]
        for row in range(4):
            cell = _cell(key, row, sketch.shape[1])
            if sketch[row, cell] < 15:
                sketch[row, cell] += 1
        state[3] += 1
        if state[3] >= state[4]:
            for row in range(4):
                for cell in range(sketch.shape[1]):
                    sketch[row, cell] = sketch[row, cell] // 2
            state[3] = 0
        if place[key] == 0:
            continue
        hits[i] = True
        _unlink(key, newer, older)
        if place[key] == 2:  # promote it; the oldest protected entry is demoted
            state[1] -= 1
            state[2] += 1
            place[key] = 3
            if state[2] > state[7]:
                back = newer[domain + 2]
                _unlink(back, newer, older)
                place[back] = 2
                state[2] -= 1
                state[1] += 1
                _link(back, domain + 1, newer, older)
        _link(key, domain + place[key] - 1, newer, older)
    return hits


@njit(cache=True)
def _tiny_insert(keys, newer, older, place, sketch, state):  # type: ignore[no-untyped-def]
    domain = len(place)
    for key in keys:
        if place[key] != 0:
            continue
        place[key] = 1
        state[0] += 1
        _link(key, domain, newer, older)
        if state[0] <= state[5]:
            continue
        candidate = newer[domain]
        _unlink(candidate, newer, older)
        state[0] -= 1
        place[candidate] = 0
        if state[1] + state[2] >= state[6]:
            sentinel = domain + 1 if state[1] else domain + 2
            victim = newer[sentinel]
            if _estimate(candidate, sketch) <= _estimate(victim, sketch):
                continue
            _unlink(victim, newer, older)
            state[place[victim] - 1] -= 1
            place[victim] = 0
        place[candidate] = 2
        state[1] += 1
        _link(candidate, domain + 1, newer, older)


class Shipped:
    """A front stage of this library, without columns."""

    def __init__(self, domain: int, capacity: int) -> None:
        self._front = self._make(capacity)

    def _make(self, capacity: int) -> Any:
        raise NotImplementedError

    def touch(self, keys: Any) -> Any:
        codes = keys.astype(np.int64)
        found = self._front.probe(codes, None, 0, len(keys), len(keys), True)
        hits = np.zeros(len(keys), np.bool_)
        hits[found.hit_rows] = True
        return hits

    def insert(self, keys: Any) -> None:
        codes, counts = np.unique(keys.astype(np.int64), return_counts=True)
        hot = counts >= self._front.threshold
        codes, counts = codes[hot], counts[hot]
        if len(codes):
            self._front.offer(codes, np.ones_like(codes), counts, [], np.arange(len(codes)))


class Threshold(Shipped):
    """The papers' policy: rows are admitted and ranked by the matches of one page visit."""

    def _make(self, capacity: int) -> Any:
        size = FrequencyRecorder.size_for([], capacity * RECORDER_BYTES + 8 * LISTS)
        return FrequencyRecorder([], size, threshold=2)


class Sweep(Shipped):
    """SweepJoin's policy: hits and misses are counted over a whole sweep."""

    visits = 64  # per sweep

    def _make(self, capacity: int) -> Any:
        return CountingCache([], CountingCache.size_for([], capacity * COUNTING_BYTES))

    def insert(self, keys: Any) -> None:
        self._front.age(1 / self.visits, len(keys))
        super().insert(keys)


POLICIES = {
    "sweepjoin": Sweep,
    "papers' threshold": Threshold,
    "W-TinyLFU": TinyLfu,
    "S3-FIFO": S3Fifo,
    "SIEVE": Sieve,
}
