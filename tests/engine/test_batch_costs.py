"""What passes of an arm that speculates cost is timed at load, level by level; the control of drafts starts from it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qualgate.engine import batch_costs, drafting, pass_costs
from qualgate.records import DraftSource, Speculation
from qualgate.records.speculated import (
    BATCH_COST,
    DRAFT_COST,
    DRAFT_STEP_COST,
    PLAIN_STEP,
    READING_COST,
    VERIFY_COST,
    costs_of,
)
from qualgate.stats.speedup import verify_cost
from tests.engine.jobs import INT4, NGRAM, SELF_DRAFT

LOWER = Speculation(draft=DraftSource(kind="quantize", quantize=INT4, under=NGRAM), tokens=3)
THREE = replace(SELF_DRAFT.draft, under=LOWER)


@pytest.mark.parametrize(
    ("tokens", "rows", "verified"), [(4, (1, 5), (5,)), (0, batch_costs.ROWS, pass_costs.ROWS)], ids=["4", "any"]
)
def test_every_batch_every_level_s_step_and_every_verification_has_a_cost(arms_of, tiny_arm, tokens, rows, verified):
    arm = arms_of()("variant", speculation=replace(SELF_DRAFT, draft=THREE, tokens=tokens))
    facts = arm.footprint.facts
    passes, steps = costs_of(facts, BATCH_COST), costs_of(facts, DRAFT_STEP_COST)
    all_ = {(count, count * each) for count in batch_costs.BATCHES for each in rows}
    assert set(passes) == {shape for shape in all_ if shape[1] <= 320}
    assert tokens or {(1, 17), (4, 68), (16, 272), (64, 320)} <= set(passes), "drafts of 16 tokens are foretold"
    assert set(steps) == {(level, count) for level in (1, 2) for count in batch_costs.BATCHES}
    assert all(cost > 0 for cost in (*passes.values(), *steps.values(), facts[PLAIN_STEP]))
    assert passes[1, 1] == 1.0
    assert f"{READING_COST}1" not in facts, "a self-draft reads no text"
    found = {name: value for name, value in facts.items() if name.startswith((DRAFT_COST, VERIFY_COST))}
    drafts = [f"{DRAFT_COST}{level}" for level in (1, 2, 3)]
    assert [*found] == [*drafts, *(f"{VERIFY_COST}{count}" for count in verified)]
    assert found[drafts[2]] == 0.0, "n-grams run no model"
    assert all(value > 0 for name, value in found.items() if name != drafts[2])
    known = {int(name[len(VERIFY_COST) :]): cost for name, cost in found.items() if name.startswith(VERIFY_COST)}
    longest = tokens or drafting.MOST
    assert tokens or None not in [verify_cost(known, drafted + 1) for drafted in range(longest + 1)], "are foretold"
    assert not [name for name in tiny_arm.footprint.facts if name.startswith("speculation.")], "who drafts not has none"


def test_costs_are_the_least_of_what_was_timed_in_steps_of_the_target(tiny_arm, monkeypatch):
    clock = iter([0.0, 0.9, *(at for length in (0.5, 0.2, 0.4, 0.3, 0.6) for at in (0.0, length))] * 3)
    monkeypatch.setattr(pass_costs, "perf_counter", lambda: next(clock))
    runs = (tiny_arm.model, tiny_arm.choice)
    costs = pass_costs.pass_costs(runs, replace(SELF_DRAFT, tokens=3), [runs])
    assert set(costs.values()) == {1.0}
    assert next(clock, None) is None


def test_who_reads_its_text_has_a_cost_of_that_and_larger_passes_are_left_out_once_one_takes_long(
    tiny_arm, monkeypatch
):
    runs = (tiny_arm.model, tiny_arm.choice)
    monkeypatch.setattr(batch_costs, "LONGEST", 0.0)
    facts = batch_costs.batch_costs(runs, 3, [runs])
    assert facts[f"{READING_COST}1"] >= 0
    assert set(costs_of(facts, BATCH_COST)) == {(1, 1)}


def test_a_pass_that_takes_long_leaves_out_those_of_as_many_rows_and_no_smaller_one(tiny_arm, monkeypatch):
    begins, rows, made = True, 0, batch_costs.batch

    def clock() -> float:  # a pass takes 7.5 ms a row
        nonlocal begins
        begins = not begins
        return 0.0075 * rows if begins else 0.0

    def counting(parts, blocks):
        nonlocal rows
        rows = sum(len(part.tokens) for part in parts)
        return made(parts, blocks)

    monkeypatch.setattr(batch_costs, "batch", counting)
    monkeypatch.setattr(batch_costs, "perf_counter", clock)
    found = costs_of(batch_costs.batch_costs((tiny_arm.model, tiny_arm.choice), 0, []), BATCH_COST)
    assert {shape for shape, cost in found.items() if cost > 66} == {(4, 68)}, "half a second is long"
    assert max(rows for shape, rows in found if shape != 4) == 64
    assert {(16, 32), (64, 64)} <= found.keys()


def test_the_control_of_drafts_starts_from_what_was_timed():
    facts = {PLAIN_STEP: 0.01, f"{READING_COST}1": 0.2}
    facts |= {f"{BATCH_COST}{count}x{rows}": 0.9 + 0.1 * rows for count, rows in ((1, 1), (1, 5), (4, 4), (4, 20))}
    facts |= {f"{DRAFT_STEP_COST}1x{count}": 0.3 + 0.05 * count for count in (1, 4, 16)}
    found = batch_costs.learned_from(facts, ("draft", "ngram"))
    assert found.costs.now.seconds(4, 20) == pytest.approx(0.029, rel=0.05)
    assert found.lengths("draft").draft.now.seconds(16, 16) == pytest.approx(0.011, rel=0.05)
    assert batch_costs.learned_from({}, ("draft",)).costs.now == type(found)().costs.now
