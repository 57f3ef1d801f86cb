"""A slice of the row `math_hostile`."""

from __future__ import annotations

from tests.verification.escapes.hostile_math import BOMBS, hostile


def test_what_is_meant_to_exhaust_a_reader_of_mathematics_is_never_right_and_never_raises():
    found = hostile(6 * len(BOMBS), 7)
    assert found.crashes == []
    assert found.right == []
    assert found.said["limit"]
    assert found.said["malformed"]
