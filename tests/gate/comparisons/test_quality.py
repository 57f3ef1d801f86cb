"""A baseline must be right often enough to lose the margin; where it is not, the reason says what would do."""

from __future__ import annotations

import re

import numpy as np
import pytest

from qualgate.gate.comparisons.quality import too_weak
from qualgate.gate.rules import Slice
from qualgate.records import Rule

RULE = Rule(metric="exact_match", max_drop=0.1)
SLICE = Slice(rule=RULE, name="a", evalsets=("a",))


def _said(cases: int, right: float, each: int = 1, times: int = 1) -> str:
    """Of so many cases, in clusters of `each` that are right or wrong as a whole, and so many times as many."""
    baseline = np.tile(np.repeat(np.arange(cases // each) < right * cases // each, each), times)
    return too_weak(SLICE, baseline.astype(float), np.arange(len(baseline)) // each)


@pytest.mark.parametrize("each", [1, 4])
@pytest.mark.parametrize(("cases", "right"), [(80, 0.55), (40, 0.6), (12, 0.75)])
def test_about_as_many_cases_as_the_reason_says_show_it(cases: int, right: float, each: int) -> None:
    few = cases * each
    found = re.search(r"; about ([0-9,]+) such cases would do$", _said(few, right, each))
    assert found, "so few do not"
    times = int(found[1].replace(",", "")) / few
    assert _said(few, right, each, round(1.2 * times)) == ""
    assert _said(few, right, each, max(1, int(0.8 * times)))


def test_no_number_would_do_where_it_is_right_too_rarely() -> None:
    assert _said(400, 0.5).endswith(
        "under 50% a loss of 10 points would not show; easier cases would do, or a smaller margin"
    )
