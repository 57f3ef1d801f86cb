"""What a constraint admits by hand is what the product's mask does, and a target under it says nothing else."""

from __future__ import annotations

from itertools import product

import pytest

from tests.verification.lossless.constrained import admitted, fresh_mask


@pytest.mark.parametrize("vocabulary", [2, 3, 4])
def test_the_mask_admits_behind_every_text_what_it_should(vocabulary: int):
    mask = fresh_mask(vocabulary)  # one for all: what was asked before changes nothing
    for length in range(5):
        for said in product(range(vocabulary), repeat=length):
            here = admitted(said, vocabulary)
            possible = all(said[at] in admitted(said[:at], vocabulary) for at in range(length))
            rows = mask.admitted(said, ())
            assert bool(rows) == possible
            if possible:
                assert tuple(token for token in range(vocabulary) if rows[0][token]) == here


def test_by_hand_units_are_aab_and_ba():
    assert [admitted(said, 4) for said in [(), (0,), (1, 0), (0, 0, 2), (3,), (3, 1)]] == [
        (0, 1, 2, 3), (0, 1), (2, 3), (0, 1, 2, 3), (0, 1), (0, 1, 2, 3),
    ]  # fmt: skip
    assert admitted((2, 2), 4) == admitted((2, 2, 0), 4) == ()
