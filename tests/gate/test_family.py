"""Errors of a whole policy: approval is an intersection of rules, a breach is one of a union."""

from __future__ import annotations

import numpy as np
import pytest

from qualgate.gate.comparisons.acceptance import terms_of
from qualgate.gate.comparisons.result import Measured, comparison
from qualgate.gate.evidence.checks import Examination
from qualgate.gate.rules import Slice
from qualgate.gate.verdict import judge
from qualgate.records import Policy, Rule, Verdict
from qualgate.stats.paired.compare import compare_pairs
from tests.gate.planted import run

N, MARGIN, FLIPS, RULES, DRAWS, ALPHA = 200, 0.05, 0.12, 5, 400, 0.05
LIMIT = ALPHA + 3 * (ALPHA * (1 - ALPHA) / DRAWS) ** 0.5
TERMS = terms_of(run(n=1), Policy(rules=()))


def verdicts(tiers: list[str], losses: list[float], seed: int) -> list[Verdict]:
    """Each draw: independent rules of 200 pairs with these true losses, judged together as a gate judges them."""
    rules = tuple(
        Rule(metric="exact_match", scope="evalset", evalset=f"s{i}", max_drop=MARGIN, tier=tier)  # type: ignore[arg-type]
        for i, tier in enumerate(tiers)
    )
    drawn = {
        f"s{i}": np.random.default_rng([seed, i]).multinomial(
            N, [(FLIPS + loss) / 2, (FLIPS - loss) / 2, 1 - FLIPS], DRAWS
        )
        for i, loss in enumerate(losses)
    }
    parts = [Slice(rule=rule, name=f"s{i}", evalsets=(f"s{i}",)) for i, rule in enumerate(rules)]
    found = []
    for draw in range(DRAWS):

        def by(part: Slice, pairs: object, draw=draw) -> Measured:
            lost, gained, _ = map(int, drawn[part.name][draw])
            result = compare_pairs(lost, gained, N, MARGIN, ALPHA)
            told = comparison(part, n=N, difference=result.difference, lower=result.lower, upper=result.upper,
                              lost=lost, gained=gained, p_broken=result.p_beyond)  # fmt: skip
            return Measured(slice=part, comparison=told, p_within=result.p_within)

        examined = Examination(variant="v", pairs={})
        found.append(judge(examined, parts, Policy(rules=rules, alpha=ALPHA), TERMS, by))
    return found


@pytest.mark.parametrize("tier", ["critical", "supporting"])
def test_at_the_margin_of_every_rule_hardly_ever_is_any_called_broken(tier):
    """Family-wise, after Holm. One by one the same rules would be called so several times as often."""
    judged = verdicts([tier] * RULES, [MARGIN] * RULES, seed=1)
    broken = sum(any(one.status == "broken" for one in verdict.comparisons) for verdict in judged)
    alone = sum(any((one.p_broken or 1) <= ALPHA for one in verdict.comparisons) for verdict in judged)
    assert broken / DRAWS <= LIMIT < alone / DRAWS
    if tier == "critical":
        assert sum(verdict.word == "block" for verdict in judged) == broken


def test_one_critical_rule_at_its_margin_among_others_without_loss_is_rarely_approved():
    """Every critical rule is tested at alpha itself: all must be proven, so none of them needs a correction."""
    judged = verdicts(["critical"] * RULES, [MARGIN] + [-0.05] * (RULES - 1), seed=2)
    approved = sum(verdict.word == "approve" for verdict in judged) / DRAWS
    alone = sum(verdict.comparisons[0].status == "proven" for verdict in judged) / DRAWS
    assert 0 < approved <= alone <= LIMIT


def test_only_rules_of_the_same_tier_share_its_correction():
    alone = verdicts(["critical"], [0.12], seed=3)
    beside = verdicts(["critical"] + ["supporting"] * 4, [0.12] + [0.0] * 4, seed=3)
    among = verdicts(["critical"] * RULES, [0.12] + [0.0] * 4, seed=3)
    blocked = [sum(verdict.word == "block" for verdict in judged) for judged in (alone, beside, among)]
    assert blocked[0] == blocked[1] > blocked[2] > 0
