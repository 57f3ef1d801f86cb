"""Several baselines: how often one verdict over all of them errs, on draws whose true losses are known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from qualgate.gate.decide import decide
from qualgate.records import ArmEvidence, Policy, Rule, RunEvidence
from tests.gate.planted import arm, of

MARGIN, ALPHA, CASES = 0.05, 0.05, 300
RULE = Rule(metric="exact_match", max_drop=MARGIN)
POLICY = Policy(rules=(RULE, replace(RULE, against="yesterday")), alpha=ALPHA)
ARMS = [arm(name, {("code", "exact_match"): np.zeros(CASES)}) for name in ("baseline", "yesterday", "int4")]


def answered(made: ArmEvidence, right: np.ndarray) -> ArmEvidence:
    scored = ({"exact_match": float(score)} for score in right)
    return replace(made, units=tuple(replace(u, kl=(), values=v) for u, v in zip(made.units, scored, strict=True)))


def drawn(generator: np.random.Generator, *losses: float) -> RunEvidence:
    """A run in which the variant truly loses so much against each; given its answers, the two flip independently."""
    variant = generator.random(CASES) < 0.8
    sides = [
        np.where(generator.random(CASES) < np.where(variant, 0.02 / 0.8, (loss + 0.02) / 0.2), ~variant, variant)
        for loss in losses
    ]
    return of(*map(answered, ARMS, (*sides, variant)), metrics={"code": ("exact_match",)})


def words(draws: int, *losses: float) -> list[str]:
    generator = np.random.default_rng(7)
    return [decide(drawn(generator, *losses), POLICY).verdicts[0].word for _ in range(draws)]


def test_an_equal_variant_passes_and_a_loss_against_either_blocks():
    assert words(5, 0.0, 0.0) == ["approve"] * 5
    assert words(5, 0.15, 0.0) == words(5, 0.0, 0.15) == ["block"] * 5


def test_a_baseline_of_another_architecture_on_purpose_is_named_in_each_verdict():
    evidence = drawn(np.random.default_rng(1), 0.0, 0.0)
    other = [replace(arm, another_model=arm.name == "yesterday") for arm in evidence.variants]
    (verdict,) = decide(replace(evidence, variants=tuple(other)), POLICY).verdicts
    assert verdict.reasons[0].startswith("config of yesterday: another model than the baseline, on purpose")


@pytest.mark.proof
@pytest.mark.parametrize(
    ("losses", "wrong"), [((0.0, MARGIN), "approve"), ((MARGIN, 0.0), "approve"), ((MARGIN, MARGIN), "block")]
)
def test_wrong_verdicts_stay_within_alpha_over_all_baselines(losses, wrong):
    draws = 400
    count = words(draws, *losses).count(wrong)
    assert binom.sf(count - 1, draws, ALPHA) > 1e-3, f"{count} of {draws}"
    assert count > 0.002 * draws, "a gate that never decides would show nothing"
