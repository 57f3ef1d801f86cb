"""Numbers of what was sent, held against what other programs make of the same times and against plain counting."""

from __future__ import annotations

import numpy as np
import pytest

from qualgate.pipeline.load.definitions import GUIDELLM, QUALGATE, VLLM, Definition
from qualgate.pipeline.load.measures import Measured, Percentile, measured
from qualgate.pipeline.load.sent import How, Sent, Stage
from qualgate.records import Slo


def sent(
    due: float, *pieces: float, ended: float | None = None, tokens: int | None = None, how: How = "answered", **more
):
    last = pieces[-1] if pieces else due + 1.0
    return Sent(
        prompt=more.pop("prompt", 0),
        due=due,
        began=more.pop("began", due),
        pieces=pieces,
        events=more.pop("events", pieces),
        ended=last if ended is None else ended,
        tokens=len(pieces) if tokens is None else tokens,
        how=how,
        **more,
    )


def stage(*of: Sent, opens: float = 10.0, closes: float = 20.0, end: float = 25.0) -> Stage:
    return Stage(start=0.0, opens=opens, closes=closes, end=end, sent=of)


def percentile(found: Measured, name: str, p: float) -> Percentile:
    return next(one for one in dict(found.times)[name] if one.p == p)


ONE = sent(10.0, 10.5, 10.75, 11.5, began=10.25, events=(10.3, 10.5, 10.75, 11.5, 11.6), ended=11.75, tokens=4)


@pytest.mark.parametrize(
    ("by", "ttft", "tpot", "e2e", "gaps"),
    [
        (QUALGATE, 0.5, 1.0 / 3, 1.5, [0.25, 0.75]),  # from when it was due; pieces that say something
        (VLLM, 0.05, 1.3 / 3, 1.35, [0.2, 0.25, 0.75, 0.1]),  # from when it was sent; every event with a choice
        (GUIDELLM, 0.25, 1.25 / 4, 1.5, [1.0 / 3]),  # TPOT of all tokens, the first too; to the stream's end
    ],
)
def test_one_request_by_three_definitions(by: Definition, ttft, tpot, e2e, gaps):
    assert by.ttft(ONE) == pytest.approx(ttft)
    assert by.tpot(ONE) == pytest.approx(tpot)
    assert by.e2e(ONE) == pytest.approx(e2e)
    assert list(by.gaps(ONE)) == pytest.approx(gaps)


def test_what_comes_in_warm_up_and_cool_down_is_not_counted_and_what_came_between_is_however_late_it_ends():
    inside = [sent(10.0, 11.0), sent(19.9, 23.0, 24.0)]
    found = measured([stage(sent(9.9, 12.0), *inside, sent(20.0, 20.5))], QUALGATE, None)
    assert found.requests == found.answered == 2
    assert percentile(found, "ttft", 0.99).pooled.value == pytest.approx(3.1)
    assert found.drained == 0.0
    assert measured([stage(sent(19.0, 26.0), sent(12.0, 13.0))], QUALGATE, None).drained == 0.5


def test_throughput_counts_what_came_in_the_window_whenever_it_was_asked():
    of = stage(
        sent(5.0, 9.0, 10.0, 11.0, 12.0, tokens=8),  # three of four pieces inside: 6 tokens
        sent(15.0, 19.0, 21.0, tokens=10),  # one of two: 5 tokens, and it ends outside
        sent(12.0, 13.0, tokens=1),
    )
    found = measured([of], QUALGATE, None)
    assert found.throughput == 2 / 10.0
    assert found.tokens == (6 + 5 + 1) / 10.0


def test_rounds_are_pooled_and_each_shown():
    rounds = [stage(*(sent(11.0, 11.0 + wait) for wait in waits)) for waits in ((1.0, 2.0, 3.0), (7.0,))]
    found = measured(rounds, QUALGATE, None)
    median = percentile(found, "e2e", 0.5)
    assert (median.pooled.value, median.pooled.count, median.rounds) == (2.0, 4, (2.0, 7.0))
    assert found.throughputs == (0.3, 0.1)
    assert found.throughput == 0.2


def test_tokens_that_a_server_does_not_count_are_not_made_up():
    found = measured([stage(Sent(prompt=0, due=11.0, began=11.0, pieces=(12.0, 13.0), ended=13.0, how="answered"))],
                     QUALGATE, None)  # fmt: skip
    assert found.tokens is None
    assert dict(found.times)["tpot"] == ()


def test_an_answer_is_good_within_every_limit_and_what_failed_is_not():
    limits = Slo(ttft=1.0, tpot=0.5, e2e=3.0)
    good = sent(11.0, 11.5, 12.0, 12.5), sent(11.0, 12.0, tokens=1)  # of one token there is no TPOT
    bad = sent(11.0, 12.5, 12.6), sent(11.0, 11.5, 12.5), sent(11.0, *(11.9 + 0.4 * n for n in range(8)))
    failed = sent(11.0, how="failed", failures=("status 503",))
    left = sent(11.0, 11.1, how="closed")
    found = measured([stage(*good, *bad, failed, left)], QUALGATE, limits)
    assert found.goodput == 2 / 10.0
    assert found.good[0] == pytest.approx(2 / 6)
    assert (found.answered, found.closed, found.failed) == (5, 1, (("status 503", 1),))


UNCOUNTED = Sent(prompt=0, due=11.0, began=11.0, pieces=(12.0, 13.0), events=(12.0, 13.0), ended=13.0, how="answered")
AT_ONCE = sent(11.0, 11.1, tokens=9)  # 0 s for 8 further tokens would be within any limit


@pytest.mark.parametrize(("by", "untold"), [(QUALGATE, UNCOUNTED), (VLLM, UNCOUNTED), (QUALGATE, AT_ONCE)])
def test_what_cannot_be_told_is_within_no_limit_and_beyond_none(untold, by):
    found = measured([stage(untold, sent(11.0, 11.5, 12.0))], by, Slo(tpot=1.0))
    assert (found.goodput, found.good) == (None, None)
    found = measured([stage(untold, sent(11.0, 11.5, 12.0))], by, Slo(ttft=2.0))
    assert found.good[0] == 1.0


def test_attempts_that_were_followed_by_another_are_retries_by_cause():
    some = (
        sent(11.0, 12.0, failures=("status 503", "timeout")),
        sent(12.0, how="failed", failures=("timeout", "status 429")),
    )
    found = measured([stage(*some)], QUALGATE, None)
    assert found.retried == (("status 503", 1), ("timeout", 2))
    assert found.failed == (("status 429", 1),)


def test_all_that_vllm_counts_is_counted_as_it_does():
    """Its sums, written down anew: over all requests, no window, percentiles between neighbours."""
    draws = np.random.default_rng(3)
    dues = np.sort(draws.uniform(0, 25, 60))
    many = [sent(due, *(due + np.cumsum(draws.exponential(0.2, 6)))) for due in dues]
    found = measured([stage(*many)], VLLM, Slo(e2e=1.2))
    latency = np.array([one.pieces[-1] - one.due for one in many])
    duration = max(one.pieces[-1] for one in many)
    assert found.requests == 60
    assert found.throughput == pytest.approx(60 / duration)
    assert found.tokens == pytest.approx(360 / duration)
    assert found.goodput == pytest.approx((latency <= 1.2).sum() / duration)
    for p in (0.5, 0.95, 0.99):
        assert percentile(found, "e2e", p).pooled.value == pytest.approx(np.percentile(latency, 100 * p))
        ttft = [one.pieces[0] - one.due for one in many]
        assert percentile(found, "ttft", p).pooled.value == pytest.approx(np.percentile(ttft, 100 * p))
        tpot = [(one.pieces[-1] - one.pieces[0]) / 5 for one in many]
        assert percentile(found, "tpot", p).pooled.value == pytest.approx(np.percentile(tpot, 100 * p))


def test_a_client_that_sends_late_says_so_and_users_wait_from_when_it_was_due():
    found = measured([stage(sent(11.0, 12.0, began=11.75))], QUALGATE, None)
    assert found.late == pytest.approx(0.75)
    assert percentile(found, "ttft", 0.5).pooled.value == pytest.approx(1.0)


def test_a_window_in_which_nothing_came_says_nothing():
    found = measured([stage()], QUALGATE, Slo(e2e=1.0))
    assert (found.requests, found.throughput, found.good, found.late) == (0, 0.0, None, None)
    assert all(not some for _, some in found.times)


def test_guidellm_counts_an_answer_once_a_token_in_percentiles_of_tpot_and_gaps():
    """Three short answers that are slow, and one that is as long as all of them and quick."""
    slow = [sent(11.0, 12.0, 13.0, tokens=2) for _ in range(3)]  # TPOT 2 s / 2, gap 1 s
    found = measured([stage(*slow, sent(11.0, 11.1, 12.0, tokens=7))], GUIDELLM, None)
    tpot, gap = (percentile(found, name, 0.5) for name in ("tpot", "gap"))
    assert tpot.pooled.value == pytest.approx(1.0 / 7), "7 of 13 tokens"
    assert gap.pooled.value == pytest.approx(0.9 / 6), "6 of 9"
    assert (tpot.pooled.low, tpot.pooled.high, tpot.pooled.count, tpot.rounds) == (None, None, 4, (tpot.pooled.value,))
    assert percentile(found, "ttft", 0.5).pooled.value == pytest.approx(1.0), "an answer is one"
