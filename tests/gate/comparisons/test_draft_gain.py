"""The gain that is predicted of drafts: each at the cost and with the chances of whoever made it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qualgate.gate.comparisons.draft_gain import gain_of
from qualgate.gate.evidence.checks import Pair
from qualgate.records import (
    DraftSource,
    DraftStep,
    QuantizeRecipe,
    RunEvidence,
    Speculation,
    UnitEvidence,
    UnitKey,
)
from tests.drafts import steps_of
from tests.gate.comparisons.test_speculation import of, speculating, steps_in
from tests.gate.four import with_units

CASCADE = Speculation(
    draft=DraftSource(
        kind="quantize",
        quantize=QuantizeRecipe(method="mxfp4", group_size=32),
        under=Speculation(draft=DraftSource(kind="ngram")),
    )
)
COSTS = {"speculation.draft_cost.1": 0.5, "speculation.draft_cost.2": 0.0, "speculation.verify_cost.9": 1.8}


def by_two(share: float, n: int = 60) -> RunEvidence:
    """The model drafts four tokens, which are mostly right; in `share` of the cases n-grams draft eight for the target
    in its place, which mostly are not."""

    def steps(unit: UnitEvidence) -> tuple[DraftStep, ...]:
        if int(unit.key.case_id[2:]) < share * n:
            return tuple(steps_of(unit.key, 60, (0.3,) * 8, proposer="ngram"))
        return tuple(steps_of(unit.key, 60, (0.95,) * 4))

    found = with_units(speculating(n=n), "drafted", lambda unit: replace(unit, draft_steps=steps(unit)))
    first, arm, last = found.variants
    return replace(found, variants=(first, replace(arm, speculation=CASCADE, facts=COSTS), last))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_what_n_grams_draft_for_the_target_itself_costs_nothing_of_the_model_above_them(share):
    found = by_two(share)
    steps = steps_in(found, "drafted")
    seconds = sum(1 + 0.1 * step.proposed for step in steps)
    seconds += sum(0.5 * (step.proposed + step.unverified) for step in steps if step.proposer == "mxfp4 draft")
    tokens = sum(1 + step.accepted for step in steps)
    assert of(found).gain.predicted == pytest.approx(tokens / seconds)


@pytest.mark.parametrize(("share", "who"), [(0.1, "mxfp4 draft"), (0.9, "ngram")])
def test_the_best_length_is_of_the_drafts_of_one_proposer_whoever_drafted_most(share, who):
    gain = of(by_two(share)).gain
    alone = of(by_two(float(who == "ngram"))).gain
    assert (gain.best_by, gain.best_tokens) == (who, alone.best_tokens)
    assert gain.best == pytest.approx(alone.best, rel=0.05)
    assert gain.best_tokens == (1 if who == "ngram" else 4)


def test_what_drafts_for_a_draft_is_in_its_cost_by_its_own_proposer():
    """Three levels: of what level 2 is to verify a half is drafted by n-grams, past the model at level 3."""
    key = UnitKey("drafted", "code", "c-0000")

    def step(level: int, proposed: int, accepted: int, who: str) -> DraftStep:
        rejected = int(accepted < proposed)
        return DraftStep(
            key=key, level=level, position=4, proposed=proposed, accepted=accepted, rejected=rejected, proposer=who
        )

    steps = (step(1, 6, 6, "a"), step(2, 4, 3, "b"), step(2, 4, 1, "c"), step(3, 2, 2, "c"))
    unit = UnitEvidence(key=key, case_hash="x", status="done", tokens=12, draft_steps=steps)
    facts = {f"speculation.draft_cost.{at}": cost for at, cost in ((1, 0.6), (2, 0.2), (3, 0.05))}
    facts["speculation.verify_cost.7"] = 1.5
    pair = Pair(baseline=unit, variant=unit, cluster=0)
    found = gain_of([pair], (by_two(0.5).baseline, True), ("a", "b", "c"), facts, 0.05)
    b = (2 * 0.05 + 0.2) / 3
    a = ((4 * b + 4 * 0.05) / 2 + 0.6) / (1 + 4 / 2)
    assert found.predicted == pytest.approx(7 / (1.5 + 6 * a))
    unknown = gain_of([pair], (by_two(0.5).baseline, True), ("a", "b"), facts, 0.05)
    assert unknown.predicted_reason == "what a drafted token costs (c) was not measured"


def test_one_report_tells_one_gain_of_one_sequence_though_its_passes_were_timed_twice():
    found = by_two(0.1)
    batches = {f"speculation.batch_cost.{shape}": cost for shape, cost in (("1x1", 1.0), ("1x9", 7.0), ("4x4", 2.0),
               ("4x36", 3.0))}  # fmt: skip
    first, arm, last = found.variants
    gain = of(replace(found, variants=(first, replace(arm, facts=COSTS | batches), last))).gain
    assert [one.sequences for one in gain.by_batch] == [1, 4]
    assert gain.by_batch[0].predicted == gain.best
