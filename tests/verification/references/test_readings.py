"""The row `readings`: no wrong approval, and every difference listed."""

from __future__ import annotations

import os

import pytest

from tests.verification.references import readings
from tests.verification.references.math_pairs import INTERPRETER
from tests.verification.references.readings_unfinished import unfinished

LEAST = {  # a kind → how many answers it has; `make test` asks each so many-th of the dear ones
    readings.choices: (1_500, 1),
    readings.numbers: (400, 1),
    readings.mathematics: (500, 4),
    readings.thoughts: (160, 1),
    readings.replies: (150, 1),
    readings.patterns: (230, 6),
    readings.programs: (200, 40),
    unfinished: (150, 40),
}
DEAR = [kind for kind, (_, every) in LEAST.items() if every > 1]


def held(kind, folder, every: int) -> int:
    found = kind(folder, every) if kind is unfinished else kind(every)
    assert found.approved == []
    assert found.different == []
    return found.asked


@pytest.mark.parametrize("kind", LEAST)
def test_answers_are_read_as_a_careful_person_reads_them(kind, tmp_path):
    least, every = LEAST[kind]
    assert held(kind, tmp_path, every) >= least // every // 2


@pytest.mark.proof
@pytest.mark.parametrize("kind", DEAR)
def test_all_of_them_are(kind, tmp_path):
    assert held(kind, tmp_path, 1) >= LEAST[kind][0]


@pytest.mark.skipif(INTERPRETER not in os.environ, reason="no interpreter that has Math-Verify is named")
def test_where_math_verify_says_otherwise_a_reason_is_written_down():
    assert readings.unlike_math_verify(os.environ[INTERPRETER]) == []
