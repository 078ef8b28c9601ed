"""The front stage of 003 (algorithm 3, and lines 19 to 22 of algorithm 1), one tuple at a time.

The phase before the join:

    1   w_F = 0
    2   while fewer than w_B tuples are in SB_2 and SB_1 is not empty:
    3     read a tuple t of SB_1
    4     if H_R holds the key of t:
    5       output t with its row
    6       w_F = w_F + 1
    8-9   else put t into SB_2

and, for each row r of the disk buffer that matched f tuples of H_S:

   19   if f >= threshold:
   20     overwrite the least frequent row of H_R with r; an empty slot has the frequency 0
   21     note f as the frequency of r

The threshold falls when the front stage is not full, and rises when it evicts too often; the
paper gives no figures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from reference.trace import Call, FrontStageChanged, Loop, Row, Tuple

AS_BUILT = {
    "rows_of_a_buffer_enter_together": True,
    "hits_pass_a_full_window": True,
    "threshold_moves": True,
}
MOST_ROWS_PER_KEY = 16
HIGHEST_FREQUENCY = 255
FULL = 0.98  # of the rows
PROBES_WHILE_FILLING = 1 / 8  # for each row of the front stage
MANY_EVICTIONS, MOST_EVICTIONS, FEWEST_EVICTIONS = 1, 1 / 8, 1 / 256  # the same, in a round


@dataclass
class Entry:
    """A key, all its rows, and the frequency recorder's notes on it."""

    rows: list[Row]
    frequency: int
    ranked: int  # the order in which entries got their frequency: ties go to the oldest


class FrontStage:
    """H_R with its frequency recorder.

    An entry is a key "with *all* its master rows, so duplicate keys are joined exactly;
    frequencies above 255 count as 255; a key with more than 16 rows is not cached".

    Parameters
    ----------
    capacity
        Rows that H_R holds.
    rows_of_a_buffer_enter_together
        "All rows of a disk buffer that are hot enter together and do not evict one another; if
        they would fill more than half of the front stage, the most frequent ones enter." In the
        paper a row may overwrite one that was just read with it.
    threshold_moves
        "The threshold moves: down while the cache is not full (or next to nothing is evicted),
        up when it evicts too much." The paper has the same sentence without figures, so with
        the switch off the threshold stays.
    """

    def __init__(
        self,
        capacity: int,
        threshold: int,
        *,
        rows_of_a_buffer_enter_together: bool = False,
        threshold_moves: bool = False,
    ) -> None:
        self.capacity = capacity
        self.threshold = threshold
        self.together = rows_of_a_buffer_enter_together
        self.threshold_moves = threshold_moves
        self.entries: dict[int, Entry] = {}
        self.rankings = 0
        self.probes = 0  # since the threshold moved last
        self.evicted = 0
        self.rounds = 0.0  # visits of the whole table

    def rows_of(self, key: int | None) -> list[Row]:
        entry = self.entries.get(key) if key is not None else None
        return entry.rows if entry else []

    def held(self) -> int:
        return sum(len(entry.rows) for entry in self.entries.values())

    def admit(self, hot: Sequence[tuple[list[Row], int]], call: Call) -> None:
        """Lines 19 to 22, for keys with their rows and frequencies."""
        hot = [(rows, f) for rows, f in hot if len(rows) <= MOST_ROWS_PER_KEY]
        admitted: list[Row] = []
        evicted: list[Row] = []
        if self.together:
            hot = self.most_frequent(hot)
            evicted += self.make_room(sum(len(rows) for rows, _ in hot))
        for rows, f in hot:
            held = rows[0].key in self.entries
            if not self.together and not held:
                evicted += self.make_room(len(rows))
            self.enter(rows, f)
            admitted += [] if held else rows
        if admitted or evicted:
            held_now, threshold = self.held(), self.threshold
            changed = FrontStageChanged(tuple(admitted), tuple(evicted), held_now, threshold)
            call.events.append(changed)

    def most_frequent(
        self, hot: Sequence[tuple[list[Row], int]]
    ) -> Sequence[tuple[list[Row], int]]:
        """As many as fill half of the front stage, in key order."""
        half = self.capacity // 2
        if sum(len(rows) for rows, _ in hot) <= half:
            return hot
        taken, kept = 0, []
        for rows, f in sorted(hot, key=lambda entry: -entry[1]):
            taken += len(rows)
            if taken > half:
                break
            kept.append((rows, f))
        return sorted(kept, key=lambda entry: entry[0][0].key)

    def make_room(self, rows: int) -> list[Row]:
        """Evict the least frequent entries until ``rows`` rows fit."""
        evicted: list[Row] = []
        while self.entries and self.capacity - self.held() < rows:
            evicted += self.entries.pop(min(self.entries, key=self.rank)).rows
        self.evicted += len(evicted)
        return evicted

    def rank(self, key: int) -> tuple[int, int]:
        entry = self.entries[key]
        return entry.frequency, entry.ranked

    def enter(self, rows: list[Row], frequency: int) -> None:
        self.rankings += 1
        frequency = min(frequency, HIGHEST_FREQUENCY)
        self.entries[rows[0].key] = Entry(list(rows), frequency, self.rankings)

    def adapt(self) -> None:
        """Move the threshold after enough probes, or a round, if there is reason to."""
        if not self.threshold_moves:
            return
        if not self.evicted and self.held() < FULL * self.capacity:
            if self.probes < PROBES_WHILE_FILLING * self.capacity:
                return
            self.threshold -= self.threshold // 4 or 1
        elif self.rounds < 1.0:
            return
        elif self.evicted > MANY_EVICTIONS * self.capacity:
            self.threshold += 1 + self.threshold // 2
        elif self.evicted > MOST_EVICTIONS * self.capacity:
            self.threshold += 1 + self.threshold // 8
        elif self.evicted < FEWEST_EVICTIONS * self.capacity:
            self.threshold -= 1
        self.threshold = max(1, self.threshold)
        self.probes = self.evicted = 0
        self.rounds = 0.0


class FrontPhase:
    """Algorithm 3 in front of a join.

    Parameters
    ----------
    hits_pass_a_full_window
        "Hits that directly follow the tuple which took the last vacant slot go out before the
        next iteration, if they came in the same batch." The paper's loop ends at line 2 when
        SB_2 is full.
    """

    def __init__(
        self, front: FrontStage, join: Loop, *, hits_pass_a_full_window: bool = False
    ) -> None:
        self.front = front
        self.join = join
        self.hits_pass_a_full_window = hits_pass_a_full_window

    def take_in(self, vacant: Callable[[], int], miss: Callable[[Tuple], None]) -> None:
        while self.join.stream_buffer and vacant():
            self.look_up(vacant(), miss)

    def look_up(self, most_misses: int, miss: Callable[[Tuple], None]) -> None:
        """Lines 2 to 11: until ``most_misses`` misses. A null key misses, and then leaves."""
        buffer = self.join.stream_buffer
        misses = 0
        while buffer:
            rows = self.front.rows_of(buffer[0].key)
            passes = rows and self.hits_pass_a_full_window
            if misses == most_misses and not passes:  # line 2
                break
            tuple_ = buffer.popleft()  # line 3
            self.front.probes += 1
            if rows:  # lines 4 to 6
                for row in rows:
                    self.join.output(tuple_, row)
                self.join.call.hits += 1
                continue
            misses += 1  # lines 8 and 9
            if tuple_.key is None:
                self.join.leave_without_key(tuple_)
            else:
                miss(tuple_)
        self.front.adapt()


def whole_keys(
    rows: Sequence[Row], matches: Sequence[int], threshold: int, cut: tuple[bool, bool]
) -> list[tuple[list[Row], int]]:
    """The keys of a disk buffer that are hot, with all their rows and their frequency.

    A row is hot if it matched ``threshold`` tuples or more. ``cut`` says whether the first and
    the last key of the buffer have rows outside it; such keys are passed over.
    """
    groups: dict[int, list[int]] = {}
    for place, row in enumerate(rows):
        groups.setdefault(row.key, []).append(place)
    hot = []
    for key, places in groups.items():
        split = (cut[0] and key == rows[0].key) or (cut[1] and key == rows[-1].key)
        if not split and max(matches[place] for place in places) >= threshold:
            hot.append(([rows[place] for place in places], matches[places[0]]))
    return hot
