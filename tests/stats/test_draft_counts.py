"""Passes as arrays against the steps they were made of, one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from qualgate.stats.draft_counts import Passes

OVERLAP = st.one_of(st.just(float("nan")), st.floats(0, 8))
PASS = st.tuples(st.integers(0, 6), st.integers(0, 8), st.integers(0, 8), st.integers(0, 3), OVERLAP).map(
    lambda drawn: (drawn[0], drawn[1], min(drawn[2], drawn[1]), *drawn[3:])
)  # answer, proposed, accepted, unverified, overlap


@given(st.lists(PASS, max_size=40))
def test_counts_by_answer_and_by_place_are_those_of_the_passes_one_by_one(given_):
    rejected = [int(accepted < proposed) for _, proposed, accepted, *_ in given_]
    columns = [np.array([one[place] for one in given_], int) for place in range(4)]
    found = Passes(
        answer=columns[0], proposed=columns[1], accepted=columns[2], unverified=columns[3], answers=7,
        rejected=np.array(rejected, int), overlap=np.array([one[4] for one in given_], float),
    )  # fmt: skip
    assert (found.proposed == found.accepted + found.rejected + found.discarded).all()
    assert found.longest == max((proposed for _, proposed, *_ in given_), default=0)
    assert found.verifies.sum() == sum(proposed > 0 for _, proposed, *_ in given_)
    assert found.known.sum() == sum(overlap == overlap for *_, overlap in given_)
    for answer in range(7):
        of = [one for one in given_ if one[0] == answer]
        assert found.by_answer(found.accepted)[answer] == sum(accepted for _, _, accepted, *_ in of)
    for place in range(1, 9):
        fates = [
            "accepted" if place <= accepted else "rejected" if place == accepted + 1 and place <= proposed else "other"
            for _, proposed, accepted, *_ in given_
        ]
        assert found.accepted_at(place).sum() == fates.count("accepted")
        assert found.tested_at(place).sum() == fates.count("accepted") + fates.count("rejected")
    assert found.accepted.sum() == sum(found.accepted_at(place).sum() for place in range(1, 9))
