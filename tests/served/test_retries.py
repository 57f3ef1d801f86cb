"""When a request is asked again."""

from __future__ import annotations

from itertools import pairwise
from math import inf

import pytest

from qualgate.records.served import PATIENCE
from qualgate.served.retries import MOST, TRIES, Pace, pause


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
