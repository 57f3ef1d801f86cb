"""When something is due, over changes of the clock, ends and days of the week."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest

from qualgate.records.schedule import Schedule

BERLIN = Schedule(at=time(2, 30), timezone="Europe/Berlin")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("schedule", "now", "last", "following"),
    [
        (Schedule(at=time(2)), "2026-11-26 01:59", "2026-11-25 02:00", "2026-11-26 02:00"),
        (Schedule(at=time(2)), "2026-11-26 02:00", "2026-11-26 02:00", "2026-11-27 02:00"),
        (Schedule(at=time(2), days=("mon",)), "2026-11-26 12:00", "2026-11-23 02:00", "2026-11-30 02:00"),
        (BERLIN, "2026-11-26 12:00", "2026-11-26 01:30", "2026-11-27 01:30"),
        (BERLIN, "2026-07-01 12:00", "2026-07-01 00:30", "2026-07-02 00:30"),
        (BERLIN, "2026-03-29 12:00", "2026-03-29 01:30", "2026-03-30 00:30"),  # 02:30 does not exist: 03:30 does
        (BERLIN, "2026-10-25 12:00", "2026-10-25 00:30", "2026-10-26 01:30"),  # 02:30 comes twice: once, the first
        (Schedule(at=time(23, 30), timezone="Pacific/Kiritimati"), "2026-11-26 12:00", "2026-11-26 09:30",
         "2026-11-27 09:30"),
    ],
)  # fmt: skip
def test_the_last_and_the_next_time(schedule, now, last, following):
    assert schedule.last(at(now)) == at(last)
    assert schedule.next(at(now)) == at(following)


def test_after_its_last_day_it_is_never_due_again_and_was_last_on_it():
    ended = Schedule(at=time(2), until=date(2026, 11, 20))
    assert ended.next(at("2026-11-26 12:00")) is None
    assert ended.last(at("2026-11-26 12:00")) == at("2026-11-20 02:00")
    assert ended.next(at("2026-11-19 12:00")) == at("2026-11-20 02:00")


def test_every_night_of_two_years_comes_once_whatever_the_clock_does():
    now, seen = at("2026-01-01 12:00"), []
    while now < at("2028-01-01 12:00"):
        now = BERLIN.next(now)
        seen.append(now)
        assert BERLIN.last(now) == now
        assert BERLIN.last(now + timedelta(hours=22)) == now
    days = [one.astimezone(ZoneInfo(BERLIN.timezone)).date() for one in seen]
    assert days == [date(2026, 1, 2) + timedelta(days=ahead) for ahead in range(731)]
