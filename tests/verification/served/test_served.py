"""Benchmark `served`: rows are measured by parts."""

from __future__ import annotations

from tests.verification.goals import SERVED
from tests.verification.served import served


def test_every_row_is_one_parts():
    assert sorted(row for _, rows in served.PARTS for row in rows) == sorted(SERVED.goals)
