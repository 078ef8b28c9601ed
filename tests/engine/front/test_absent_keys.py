"""Keys known to be absent: no false ones, in bounded memory."""

from __future__ import annotations

import numpy as np
import pytest

from semistream.engine.front.absent_keys import AbsentKeys


def known(absent: AbsentKeys, codes: list[int]) -> list[bool]:
    among = absent.lookup(np.array(codes), np.arange(len(codes)))
    return [False] * len(codes) if among is None else among.tolist()


def test_keys_are_known_until_the_table_changes() -> None:
    absent = AbsentKeys(1000)
    assert absent.lookup(np.array([1]), np.arange(1)) is None
    absent.add(np.array([3, -5, 2**63 - 1]))
    assert known(absent, [3, 4, -5, 2**63 - 1, 0]) == [True, False, True, True, False]
    absent.forget()
    assert absent.lookup(np.array([3]), np.arange(1)) is None
    absent.add(np.array([4]))
    assert known(absent, [3, 4]) == [False, True]


def test_only_the_requested_rows_are_checked() -> None:
    absent = AbsentKeys(1000)
    absent.add(np.array([1, 2]))
    among = absent.lookup(np.array([1, 9, 2, 9]), np.array([2, 3]))
    assert among is not None
    assert among.tolist() == [True, False]


def test_a_full_set_forgets_keys_but_never_reports_a_false_one() -> None:
    absent = AbsentKeys(9 * 64)
    for start in range(0, 1000, 10):
        absent.add(np.arange(start, start + 10))
    count = sum(known(absent, list(range(1000))))
    assert 32 < count <= 64
    assert not any(known(absent, list(range(1000, 2000))))
    assert all(known(absent, [999]))


@pytest.mark.parametrize("nbytes", [0, 8, 71, 72, 1000, 12_345])
def test_allocated_bytes_match_the_plan(nbytes: int) -> None:
    absent = AbsentKeys(nbytes)
    assert absent.nbytes == AbsentKeys.bytes_of(nbytes) <= nbytes
    assert nbytes - absent.nbytes < 72
    assert absent.nbytes == AbsentKeys.bytes_of(absent.nbytes)
    absent.add(np.array([1, 2, 3]))  # also without any room
    assert known(absent, [1]) == [nbytes >= 72]
