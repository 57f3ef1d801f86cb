"""Every way is taken, with its probability, and what a run draws has the law that was enumerated."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
import torch
from scipy.stats import chisquare

from qualgate.speculation.chance import HashedChance
from qualgate.speculation.rules import block_verification
from tests.verification.lossless.chances import every_way, law


def weights(*some: float) -> torch.Tensor:
    return torch.tensor(some, dtype=torch.float64)


def test_ways_are_all_and_their_probabilities_add_up():
    found = law(lambda chance: (chance.accepts(0.25), chance.token(weights(1, 2, 1))))
    assert found == pytest.approx({(yes, token): (0.25 if yes else 0.75) * p
                                   for yes in (True, False) for token, p in enumerate((0.25, 0.5, 0.25))})  # fmt: skip


def test_a_number_that_is_asked_twice_is_the_same_number():
    def twice(chance):
        again = replace(chance)
        return chance.accepts(0.5), again.accepts(0.25), again.accepts(0.5)

    assert law(twice) == pytest.approx({(True, True, True): 0.125, (True, True, False): 0.125,
                                        (True, False, True): 0.125, (True, False, False): 0.125,
                                        (False, False, True): 0.25, (False, False, False): 0.25})  # fmt: skip
    assert all(numbers.reused for _, numbers in every_way(twice))
    assert not any(
        numbers.reused for _, numbers in every_way(lambda chance: chance.accepts(0.5) or chance.accepts(0.5))
    )


def test_a_runs_chances_have_the_law_that_is_enumerated():
    """Seeded: a p-value below 1e-4 once in 10,000 seeds."""
    p = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7], [0.3, 0.3, 0.4]], dtype=torch.float64)
    q = torch.tensor([[0.2, 0.2, 0.6], [0.4, 0.5, 0.1]], dtype=torch.float64)

    def drawing(chance):
        draft = [chance.within(place).token(row) for place, row in enumerate(q)]
        return block_verification(p, draft, q, chance).tokens

    expected = law(drawing)
    seen = Counter(drawing(HashedChance(seed=5, case=case, round=(0,))) for case in range(3000))
    assert seen.keys() <= expected.keys()
    assert len(expected) == 32
    assert min(expected.values()) * 3000 > 15
    assert chisquare([seen[one] for one in expected], [3000 * p for p in expected.values()]).pvalue > 1e-4
