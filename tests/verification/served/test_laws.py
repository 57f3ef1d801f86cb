"""Model Equality Testing's statistic, against its sums written out; and the row `power` on pools that are known."""

from __future__ import annotations

import numpy as np
import pytest

from tests.verification.served import laws, model_equality
from tests.verification.served.laws import Size, powers


def test_the_statistic_is_the_sums_of_the_paper():
    one, other = [["abc", "abd"], ["x", "xy"]], [["abc", "zzz"], ["x", "x"]]

    def near(a: str, b: str) -> float:
        a, b = a.ljust(model_equality.LENGTH, "\0"), b.ljust(model_equality.LENGTH, "\0")
        return sum(x == y for x, y in zip(a, b, strict=True)) / model_equality.LENGTH

    own = np.mean([near(*answers) for answers in one]) + np.mean([near(*answers) for answers in other])
    across = np.mean([near(a, b) for mine, its in zip(one, other, strict=True) for a in mine for b in its])
    similar = np.stack([model_equality.kernel(mine + its) for mine, its in zip(one, other, strict=True)])
    found = model_equality.distances(similar, np.array([[[1, 1, 0, 0], [1, 1, 0, 0]]], float))
    assert found == pytest.approx([own - 2 * across])


def pool(letters: str, seed: int) -> laws.Pool:
    generator = np.random.default_rng(seed)
    made = {}
    for case in range(8):
        answers = ["".join(generator.choice(list(letters), 4)) for _ in range(20)]
        made[f"c-{case}"] = [(tuple(map(ord, answer)), answer) for answer in answers]
    return made


def test_powers_are_shares_of_trials():
    size, base = Size(answers=6, pool=20, trials=10), pool("ab", 0)
    assert powers(base, pool("yz", 1), size) == {"ours": 1.0, "theirs": 1.0, "within": 1.0}
    assert max(powers(base, base, size).values()) <= 0.3
