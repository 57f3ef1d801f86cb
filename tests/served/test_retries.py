"""When a request is asked again."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise
from math import inf

import pytest

from qualgate.records.served import PATIENCE
from qualgate.served.retries import MOST, TRIES, Pace, asked_wait, pause

NOW = datetime(2026, 11, 25, 12, 0, 0, tzinfo=UTC)


def test_waits_double_to_a_cap_and_end():
    waits = [pause(failures, None, 1.0, tries=99) for failures in range(1, 12)]
    assert waits[:4] == [0.5, 1.0, 2.0, 4.0]
    assert waits[-1] == MOST
    assert pause(TRIES, None, 1.0) is None
    assert pause(9999, None, 1.0, inf) == MOST


def test_those_that_failed_together_come_back_apart():
    assert pause(3, None, 0.0) == 1.0
    assert pause(3, None, 1.0) == 2.0


def test_a_server_is_not_asked_before_it_says():
    assert pause(1, 9.0, 1.0) == 9.0
    assert pause(1, 0.0, 1.0) == 0.5
    assert pause(1, PATIENCE + 1, 1.0) is None
    assert pause(1, PATIENCE + 1, 1.0, inf) == PATIENCE + 1


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("12", 12.0),
        ("0.5", 0.5),
        ("1m30s", 90.0),
        ("6ms", 0.006),
        ("1h2m3.5s", 3723.5),
        ("1d", 86_400.0),
        ("Wed, 25 Nov 2026 12:00:30 GMT", 30.0),
        ("Wed, 25 Nov 2026 11:00:00 GMT", 0.0),
        ("2026-11-25T12:00:30Z", 30.0),
        ("2026-11-25T13:00:30+01:00", 30.0),
        (f"{NOW.timestamp() + 30:.0f}", 30.0),
        (f"{(NOW.timestamp() + 30) * 1000:.0f}", 30.0),
        ("soon", None),
        ("", None),
        ("-5", None),
        ("1m30", None),
        ("Mon, 01 Jan 99999999999999999999 00:00:00 GMT", None),
        ("Mon, 01 Jan 2027 00:00:00 +99999999999999999999", None),
        ("٣", None),
    ],
)
@pytest.mark.parametrize("name", ["retry-after", "x-ratelimit-reset-requests"])
def test_a_wait_is_seconds_parts_with_units_or_a_time(name, header, seconds):
    assert asked_wait({name: header}, NOW) == (None if seconds is None else pytest.approx(seconds))


def test_a_number_beyond_all_times_is_one_still():
    assert asked_wait({"retry-after": "9" * 400}, NOW) > PATIENCE


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
        ({"retry-after": "7", "x-ratelimit-reset-tokens": "1m"}, 7.0),
        ({"x-ratelimit-reset-requests": "12ms", "x-ratelimit-reset-tokens": "40s"}, 40.0),
        # What is left needs no wait, however long until all of it is free again.
        (
            {
                "x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "9s",
                "x-ratelimit-remaining-tokens": "800", "x-ratelimit-reset-tokens": "6m0s",
            },
            9.0,
        ),
        ({"x-ratelimit-remaining": "3", "x-ratelimit-reset": "60"}, None),
        ({"anthropic-ratelimit-requests-remaining": "0",
          "anthropic-ratelimit-requests-reset": "2026-11-25T12:01:00Z"}, 60.0),
        # By the server's own clock, whatever ours says.
        ({"date": "Wed, 25 Nov 2026 15:00:00 GMT", "retry-after": "Wed, 25 Nov 2026 15:00:20 GMT"}, 20.0),
    ],
)  # fmt: skip
def test_what_a_server_says_first_and_what_is_used_up_counts(headers, seconds):
    assert asked_wait(headers, NOW) == seconds


def test_when_a_count_is_free_again_matters_at_a_limit_alone():
    assert asked_wait({"x-ratelimit-reset-requests": "40s"}, NOW, 500) is None
    assert asked_wait({"retry-after": "40"}, NOW, 503) == 40.0


def sent_at(pace: Pace, now: float) -> float:
    while wait := pace.wait(now):
        now += wait
    return now


def test_requests_are_sent_no_faster_than_a_rate_by_two_clients_after_one_another():
    sent: list[float] = []
    now = 100.0
    for _ in range(2):  # the second knows nothing of the first
        pace = Pace(120.0)
        for _ in range(4):
            sent.append(now := sent_at(pace, now))
            now += 0.1
    assert min(after - before for before, after in pairwise(sent)) >= 0.5 - 1e-9


def test_one_that_was_not_asked_for_long_is_asked_at_once():
    pace = Pace(60.0)
    assert sent_at(pace, 10.0) == 11.0
    assert sent_at(pace, 50.0) == 50.0
    assert Pace(0.0).wait(10.0) == 0.0


def test_what_is_only_looked_up_has_no_pace_and_waits_out_a_limit():
    pace = Pace(60.0)
    assert pace.wait(10.0, paced=False) == 0.0
    pace.leave_alone(10.0, 5.0)
    assert pace.wait(10.0, paced=False) == 5.0


def limited(pace: Pace, now: float, sent: float, wait: float) -> float | None:
    pace.refused(sent, now)
    return pace.leave_alone(now, wait)


def test_many_that_meet_one_limit_together_wait_it_out_once():
    pace = Pace(0.0, patience=100.0)
    assert [limited(pace, 10.0, 9.0, 60.0) for _ in range(16)] == [60.0, *[0.0] * 15]
    assert pace.rounds == 1


def test_patience_ends_with_the_waits_between_two_answers():
    pace = Pace(0.0, patience=100.0)
    assert limited(pace, 0.0, 0.0, 60.0) == 60.0
    assert limited(pace, 60.0, 60.0, 60.0) is None
    assert Pace(0.0, patience=100.0).leave_alone(0.0, 101.0) is None
    assert not pace.answered(60.0, 61.0)
    assert limited(pace, 70.0, 70.0, 60.0) == 60.0


def test_behind_a_limit_the_pace_is_that_of_the_answers_until_then():
    pace = Pace(0.0)
    for at in range(30):  # 30 in 3 s, and then none for the rest of the minute
        pace.answered(at / 10, at / 10)
    assert limited(pace, 3.0, 3.0, 57.0) == 57.0
    assert pace.answered(60.0, 60.5)
    assert pace.per_minute == pytest.approx(30.0)
    assert sent_at(pace, 60.5) == pytest.approx(62.0)


def test_a_limit_that_is_met_no_more_is_forgotten_slowly_and_a_rate_that_is_said_never():
    pace = Pace(60.0)
    pace.answered(0.0, 0.0)
    limited(pace, 1.0, 1.0, 9.0)
    pace.answered(10.0, 10.0)
    assert pace.per_minute == pytest.approx(6.0)
    for at in range(11, 3_000):
        pace.answered(at, at)
    assert pace.per_minute == 60.0


def test_a_limit_met_before_any_answer_tells_no_pace():
    pace = Pace(0.0)
    limited(pace, 1.0, 0.0, 30.0)
    assert not pace.answered(31.0, 32.0)
    assert pace.wait(32.0) == 0.0
