"""What passes of an arm that speculates cost is timed at load, level by level, in steps of its own."""

from __future__ import annotations

import pytest

from qualgate.engine import drafting
from qualgate.engine import pass_costs as timing
from qualgate.records import DraftSource, QuantizeRecipe, Speculation
from qualgate.records.speculated import DRAFT_COST, VERIFY_COST
from qualgate.stats.speedup import verify_cost
from tests.engine.jobs import loaded
from tests.tiny_models import save_tiny_model

MXFP4 = QuantizeRecipe(method="mxfp4", group_size=32)
EARLY = Speculation(draft=DraftSource(kind="early_exit", layers=1, under=Speculation(draft=DraftSource(kind="ngram"))))


@pytest.mark.parametrize(("tokens", "rows"), [(4, (5,)), (0, timing.ROWS)])
def test_every_level_s_step_and_every_verification_has_a_cost(tmp_path, tokens, rows):
    model = save_tiny_model(tmp_path / "model", arch="llama")
    speculation = Speculation(draft=DraftSource(kind="quantize", quantize=MXFP4, under=EARLY), tokens=tokens)
    facts = loaded(model, tmp_path, "drafted", speculation=speculation).footprint.facts
    found = {name: value for name, value in facts.items() if name.startswith((DRAFT_COST, VERIFY_COST))}
    drafts, verified = [f"{DRAFT_COST}{level}" for level in (1, 2, 3)], [f"{VERIFY_COST}{count}" for count in rows]
    assert [*found] == [*drafts, *verified]
    assert found[drafts[2]] == 0.0, "n-grams run no model"
    assert all(found[name] > 0 for name in (*drafts[:2], *verified))


def test_the_gain_of_the_longest_draft_that_is_chosen_can_be_foretold(tmp_path):
    model = save_tiny_model(tmp_path / "model", arch="llama")
    facts = loaded(model, tmp_path, "drafted", speculation=EARLY).footprint.facts
    prefix = len(VERIFY_COST)
    known = {int(name[prefix:]): cost for name, cost in facts.items() if name.startswith(VERIFY_COST)}
    assert None not in [verify_cost(known, drafted + 1) for drafted in range(drafting.MOST + 1)]


def test_costs_are_the_least_of_what_was_timed_in_steps_of_the_target(tmp_path, monkeypatch):
    model = save_tiny_model(tmp_path / "model", arch="llama")
    arm, early = loaded(model, tmp_path), Speculation(draft=DraftSource(kind="early_exit", layers=1), tokens=3)
    clock = iter([0.0, 0.9, *(at for length in (0.5, 0.2, 0.4, 0.3, 0.6) for at in (0.0, length))] * 3)
    monkeypatch.setattr(timing, "perf_counter", lambda: next(clock))
    costs = timing.pass_costs((arm.model, arm.choice), early, [None])
    assert set(costs.values()) == {1.0}
    assert next(clock, None) is None


def test_an_arm_without_a_draft_has_none(tmp_path):
    model = save_tiny_model(tmp_path / "model", arch="llama")
    assert not [name for name in loaded(model, tmp_path).footprint.facts if name.startswith("speculation.")]
