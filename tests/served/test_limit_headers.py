"""How long a server asks to wait, by its headers."""

from __future__ import annotations

from datetime import UTC, datetime
from math import isfinite

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualgate.records.served import PATIENCE
from qualgate.served.limit_headers import MOST, asked_wait

NOW = datetime(2026, 11, 25, 12, 0, 0, tzinfo=UTC)
NAMES = ("date", "retry-after", "retry-after-ms", "ratelimit", "x-ratelimit-reset", "x-ratelimit-remaining")


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
        ("30 seconds", 30.0),
        ("2 minutes", 120.0),
        ("250 milliseconds", 0.25),
        ("6h", 21_600.0),
        ('"30"', 30.0),
        ("950µs", 0.00095),
        ("5, 5", 5.0),  # a header that came twice
        ("5s, 9s", 9.0),
        ("-5, 7", 7.0),
        ("Wed, 25 Nov 2026 12:00:30 GMT, Wed, 25 Nov 2026 12:00:40 GMT", 40.0),
        ("Wednesday, 25-Nov-26 12:00:30 GMT", 30.0),
        ("Wed Nov 25 12:00:30 2026", 30.0),
        ("2026-11-25 12:00:30", 30.0),
        ("30 minutes ago", None),
        ("nan", None),
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
        ({"x-ms-retry-after-ms": "250"}, 0.25),
        ({"x-ratelimit-reset-ms": "1500"}, 1.5),
        ({"ratelimit": '"default";r=0;t=30'}, 30.0),
        ({"ratelimit": '"burst";r=0;t=5, "daily";r=9;t=3600'}, 5.0),
        ({"ratelimit": '"burst";r=0;t=5, "daily";r=0;t=3600'}, 3600.0),
        ({"ratelimit": "limit=100, remaining=0, reset=30"}, 30.0),
        ({"ratelimit": "limit=100, remaining=7, reset=30"}, None),
        ({"ratelimit": '"default";r=0', "ratelimit-policy": '"default";q=100;w=60'}, None),
        ({"ratelimit-limit": "9", "ratelimit-remaining": "0", "ratelimit-reset": "50"}, 50.0),
        # By the server's own clock, whatever ours says.
        ({"date": "Wed, 25 Nov 2026 15:00:00 GMT", "retry-after": "Wed, 25 Nov 2026 15:00:20 GMT"}, 20.0),
    ],
)  # fmt: skip
def test_what_a_server_says_first_and_what_is_used_up_counts(headers, seconds):
    assert asked_wait(headers, NOW) == seconds


def test_when_a_count_is_free_again_matters_at_a_limit_alone():
    assert asked_wait({"x-ratelimit-reset-requests": "40s"}, NOW, at_limit=False) is None
    assert asked_wait({"retry-after": "40"}, NOW, at_limit=False) == 40.0


PIECES = ("5", "-1", "0", ".5", "9" * 30, "s", "ms", " seconds", ", ", ";r=0", ";t=", "reset=", "GMT", "Wed, ",
          "25 Nov", " 2026", " 12:00:30 ", "2026-11-25T", "Z", '"', "µ", "é", "\0")  # fmt: skip


@given(st.dictionaries(st.sampled_from(NAMES), st.lists(st.sampled_from(PIECES)).map("".join) | st.text()))
def test_no_header_breaks_the_reader_and_no_wait_is_below_zero_or_endless(headers):
    wait = asked_wait(headers, NOW)
    assert wait is None or (isfinite(wait) and 0 <= wait <= MOST)


@given(st.integers(0, 10**6), st.sampled_from(["{}", "{}s", "{} seconds", '"{}"', "{0}, {0}"]))
def test_a_wait_is_the_same_in_every_form(seconds, form):
    expected = {
        asked_wait({"retry-after": form.format(seconds)}, NOW),
        asked_wait({"retry-after-ms": str(seconds * 1000)}, NOW),
        asked_wait({"ratelimit": f'"a";r=0;t={seconds}'}, NOW),
        asked_wait({"x-ratelimit-reset": f"{seconds // 60}m{seconds % 60}s"}, NOW),
    }
    assert expected == {float(seconds)}
