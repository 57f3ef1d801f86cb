"""Several baselines: how often one verdict over all of them errs, on draws whose true losses are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from qualgate.gate.decide import decide
from qualgate.records import Policy, Rule, RunEvidence
from tests.gate.planted import arm, of

MARGIN, ALPHA, CASES = 0.05, 0.05, 400
RULE = Rule(metric="exact_match", max_drop=MARGIN)
POLICY = Policy(rules=(RULE, replace(RULE, against="yesterday")), alpha=ALPHA)


def drawn(generator: np.random.Generator, baseline: float, yesterday: float) -> RunEvidence:
    """A run in which the variant truly loses so much against each; given its answers, the two flip independently."""
    variant = generator.random(CASES) < 0.8

    def better_by(loss: float) -> np.ndarray:
        lost, gained = (loss + 0.02) / 0.2, 0.02 / 0.8  # of the answers that the variant has wrong, and right
        return np.where(generator.random(CASES) < np.where(variant, gained, lost), ~variant, variant)

    sides = {"baseline": better_by(baseline), "yesterday": better_by(yesterday), "int4": variant}
    return of(*(arm(name, {("code", "exact_match"): right * 1.0}) for name, right in sides.items()),
              metrics={"code": ("exact_match",)})  # fmt: skip


def words(draws: int, *losses: float) -> list[str]:
    generator = np.random.default_rng(7)
    decided = (decide(drawn(generator, *losses), POLICY).verdicts for _ in range(draws))
    return [verdict.word for (verdict,) in decided]


def test_an_equal_variant_passes_and_a_loss_against_either_blocks():
    assert words(5, 0.0, 0.0) == ["approve"] * 5
    assert words(5, 0.15, 0.0) == words(5, 0.0, 0.15) == ["block"] * 5


@pytest.mark.proof
@pytest.mark.parametrize(
    ("losses", "wrong"),
    [
        ((0.0, MARGIN), "approve"),  # no loss against one of the two does not help the other past its margin
        ((MARGIN, 0.0), "approve"),
        ((MARGIN, MARGIN), "block"),  # two tests, each at its boundary: without one correction over both too many
    ],
)
def test_wrong_verdicts_stay_within_alpha_over_all_baselines(losses, wrong):
    draws = 2_000
    count = words(draws, *losses).count(wrong)
    assert binom.sf(count - 1, draws, ALPHA) > 1e-3, f"{count} of {draws}"
    assert count > 0.002 * draws, "a gate that never decides would show nothing"
