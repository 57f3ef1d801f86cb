"""The programs that stand in `programs/`."""

from __future__ import annotations

from tests.verification.escapes.hostile import ESCAPES, FORGERIES, FORGERY_TESTS


def test_the_suite_is_as_large_as_it_says():
    assert len(FORGERIES) >= 80
    assert len(FORGERY_TESTS) == 10
    assert {name.split()[0] for name in ESCAPES} >= {
        f"S{number}" for number in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 14, 15)
    }
