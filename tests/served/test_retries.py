"""When a request is asked again."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

import pytest

from qualgate.served.retries import MOST, MOST_ASKED, TRIES, Pace, pause, retry_after

NOW = datetime(2026, 11, 25, 12, 0, 0, tzinfo=UTC)


def test_waits_double_to_a_cap_and_end():
    waits = [pause(failures, None, 1.0, tries=99) for failures in range(1, 12)]
    assert waits[:4] == [0.5, 1.0, 2.0, 4.0]
    assert waits[-1] == MOST
    assert pause(TRIES, None, 1.0) is None


def test_those_that_failed_together_come_back_apart():
    assert pause(3, None, 0.0) == 1.0
    assert pause(3, None, 1.0) == 2.0


def test_a_server_is_not_asked_before_it_says():
    assert pause(1, 9.0, 1.0) == 9.0
    assert pause(1, 0.0, 1.0) == 0.5
    assert pause(1, MOST_ASKED + 1, 1.0) is None


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("12", 12.0),
        ("Wed, 25 Nov 2026 12:00:30 GMT", 30.0),
        ("Wed, 25 Nov 2026 11:00:00 GMT", 0.0),
        ("soon", None),
        ("-5", None),
        ("Mon, 01 Jan 99999999999999999999 00:00:00 GMT", None),
        ("Mon, 01 Jan 2027 00:00:00 +99999999999999999999", None),
        ("9" * 400, 999_999_999.0),
        ("٣", None),
    ],
)
def test_retry_after_is_seconds_or_a_date(header, seconds):
    assert retry_after(header, NOW) == seconds


def test_requests_are_sent_no_faster_than_a_rate_by_two_clients_after_one_another():
    sent: list[float] = []
    now = 100.0
    for _ in range(2):  # the second knows nothing of the first
        pace = Pace(120.0)
        for _ in range(4):
            now += pace.wait(now)
            sent.append(now)
            now += 0.1
    assert min(after - before for before, after in pairwise(sent)) >= 0.5 - 1e-9


def test_several_that_ask_at_once_wait_each_for_its_own_time():
    pace = Pace(60.0)
    assert [pace.wait(10.0) for _ in range(3)] == [1.0, 2.0, 3.0]
    assert pace.wait(50.0) == 0.0
    assert Pace(0.0).wait(10.0) == 0.0
