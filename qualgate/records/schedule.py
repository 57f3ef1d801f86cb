"""Schedules: a time of day, days of the week, a time zone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Due at `at` on each of `days`. A time skipped by a clock change is due that much later; a repeated one counts
    once, the first time."""

    at: time
    days: tuple[str, ...] = WEEKDAYS
    timezone: str = "UTC"
    until: date | None = None  # the last day, in that zone

    def last(self, now: datetime) -> datetime | None:
        """The latest due time up to `now`, in UTC; None if there was none in the week before."""
        today = now.astimezone(ZoneInfo(self.timezone)).date()
        ends = min(today, self.until) if self.until else today
        times = (self._on(ends - timedelta(days=back)) for back in range(8))
        return next((moment for moment in times if moment is not None and moment <= now), None)

    def next(self, now: datetime) -> datetime | None:
        """The first due time after `now`, in UTC; None if there is none."""
        today = now.astimezone(ZoneInfo(self.timezone)).date()
        times = (self._on(today + timedelta(days=ahead)) for ahead in range(-1, 9))
        return next((moment for moment in times if moment is not None and moment > now), None)

    def _on(self, day: date) -> datetime | None:
        if WEEKDAYS[day.weekday()] not in self.days or (self.until is not None and day > self.until):
            return None
        return datetime.combine(day, self.at, ZoneInfo(self.timezone)).astimezone(UTC)
