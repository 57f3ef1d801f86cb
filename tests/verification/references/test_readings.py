"""The row `readings`: no wrong approval, and every difference listed."""

from __future__ import annotations

import pytest

from tests.verification.references import readings


@pytest.mark.parametrize(("kind", "least"), [(readings.choices, 1_500), (readings.numbers, 400)])
def test_answers_are_read_as_a_careful_person_reads_them(kind, least):
    found = kind()
    assert found.approved == []
    assert found.different == []
    assert found.asked >= least
