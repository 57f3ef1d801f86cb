"""What readings of a server's counters add up to, whatever ran side by side."""

from __future__ import annotations

import random

import pytest

from qualgate.records import DraftCounts, DraftWindow, Generation, counted_in, evalsets_of, joined


def counts(drafts: int, proposed: int | None = None, accepted: int | None = None) -> DraftCounts:
    proposed = 4 * drafts if proposed is None else proposed
    return DraftCounts(verifications=drafts, proposed=proposed, accepted=2 * drafts if accepted is None else accepted)


def window(first: int, last: int, evalset: str = "s", server: str = "one") -> DraftWindow:
    return DraftWindow(server=server, evalset=evalset, before=counts(first), after=counts(last))


def drafts(*windows: DraftWindow, evalset: str | None = None) -> int | None:
    found = counted_in(joined(windows), evalset)
    return found.verifications if found else None


@pytest.mark.parametrize(
    ("windows", "total"),
    [
        ([window(0, 10), window(10, 30)], 30),
        ([window(0, 10), window(20, 30)], 20),  # what others drafted between them is nobody's here
        ([window(0, 10), window(0, 10, server="two")], 20),  # two servers are two countings
        ([window(7, 7), window(7, 7, "b")], 0),
        ([], None),
    ],
)
def test_windows_in_turn_add_up_and_none_drafted_is_told_from_none_told(windows, total):
    assert drafts(*windows) == total


def test_windows_side_by_side_are_counted_once_in_whatever_order_they_come():
    given = [window(0, 10), window(5, 30), window(7, 9), window(40, 41)]
    for seed in range(20):
        random.Random(seed).shuffle(given)
        total = Generation()
        for one in given:
            total += Generation(windows=(one,))
        assert total.windows == joined(given)
        assert drafts(*given) == 31


def test_a_set_has_its_drafts_where_no_other_set_was_answered_in_the_same_time():
    apart = joined([window(0, 10, "a"), window(10, 30, "b"), window(30, 35, "a")])
    assert evalsets_of(apart) == ("a", "b")
    assert (drafts(*apart, evalset="a"), drafts(*apart, evalset="b")) == (15, 20)
    assert evalsets_of(joined([window(0, 10, "a"), window(9, 30, "b")])) == ()


def test_counts_that_fall_are_another_servers():
    assert counts(5).since(counts(6)) is None
    assert counts(5).since(DraftCounts(proposed=3)) is None
    before = DraftCounts(proposed=4, accepted=2, by_place=(2,))
    assert DraftCounts(proposed=8, accepted=5, by_place=(3, 2)).since(before) == DraftCounts(
        proposed=4, accepted=3, by_place=(1, 2)
    )
    assert DraftCounts(proposed=8, accepted=5, by_place=(1, 2)).since(before) is None


def test_length_and_rate_are_as_vllm_defines_them():
    found = DraftCounts(verifications=1000, proposed=3938, accepted=1224)
    assert found.acceptance_length == 2.224
    assert found.acceptance_rate == 1224 / 3938
    assert DraftCounts(verifications=9).acceptance_length is None
    assert DraftCounts(proposed=0, accepted=0).acceptance_rate is None
