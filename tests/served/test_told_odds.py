"""How far a token that was said is ahead of the likeliest other, by what its server lists beside it."""

from __future__ import annotations

import pytest

from qualgate.served.told_odds import margins_told


@pytest.mark.parametrize(
    ("chosen", "top", "margin"),
    [
        (-0.1, {"a": -0.1, "b": -2.5}, 2.4),
        (-2.5, {"a": -0.1, "b": -2.5}, -2.4),
        (-0.1000001, {"a": -0.1, "b": -2.5}, 2.4),  # told twice, each time rounded otherwise: it is not beside itself
        (-0.0999999, {"a": -0.1, "b": -2.5}, 2.4),
        (-0.7, {"a": -0.7, "b": -0.7}, 0.0),
        (-9.0, {"a": -0.1, "b": -2.5, "c": -9.0}, -8.9),
        (-0.1, {"a": -0.1}, None),
        (None, {"a": -0.1, "b": -2.5}, None),
        (-0.1, None, None),
    ],
)
def test_a_margin_is_to_the_likeliest_other_token(chosen, top, margin):
    assert margins_told([chosen], [top]) == [pytest.approx(margin, abs=1e-6)]
