"""A block names its cause when the same weights were also run through the torch twin."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qualgate.gate.verdict import decide_plain, overall_exit
from qualgate.records import PLAIN, TWIN, WIDE, RunEvidence, UnitKey
from tests.gate.planted import POLICY, of, run


def with_twin(fused: RunEvidence, twin: RunEvidence) -> RunEvidence:
    """The evidence of `fused`, and the variant of `twin` as its int4's twin arm."""
    return beside(fused, {TWIN: twin})


def beside(whole: RunEvidence, witnesses: dict[str, RunEvidence]) -> RunEvidence:
    """The evidence of `whole`, and the variants of others as its int4's witnesses, by what ends their names."""
    arms = []
    for end, other in witnesses.items():
        arm, name = other.variants[0], other.variants[0].name + end
        units = tuple(replace(unit, key=replace(unit.key, arm=name)) for unit in arm.units)
        arms.append(replace(arm, name=name, units=units))
    return of(whole.baseline, whole.variants[0], *arms)


GOOD, BAD = run(), run(lost=0.3)


def test_a_loss_that_the_twin_shows_too_is_the_recipes():
    (verdict,) = decide_plain(with_twin(BAD, BAD), POLICY)
    assert (verdict.variant, verdict.word, verdict.cause) == ("int4", "block", "recipe")
    assert "as well" in verdict.reasons[-1]
    assert "speculation and KV cache: not available" in verdict.reasons[-1]


def test_a_loss_that_the_twin_does_not_show_is_the_kernels():
    (verdict,) = decide_plain(with_twin(BAD, GOOD), POLICY)
    assert (verdict.word, verdict.cause) == ("block", "kernel")
    assert overall_exit([verdict]) == 10


def test_one_rule_each_blames_both():
    partly = run(lost={("tools", "tool_call.valid"): 0.5})
    (verdict,) = decide_plain(
        with_twin(run(lost={("tools", "tool_call.valid"): 0.5, ("code", "exact_match"): 0.5}), partly), POLICY
    )
    assert verdict.cause == "kernel and recipe"


def test_the_twin_gets_no_verdict_and_changes_none():
    (alone,) = decide_plain(GOOD, POLICY)
    for twin in (GOOD, BAD):
        assert decide_plain(with_twin(GOOD, twin), POLICY) == (alone,)


def test_a_twin_that_was_lost_leaves_the_cause_open_and_the_block_standing():
    evidence = with_twin(BAD, GOOD)
    lost = tuple(key for key in evidence.expected if not key.arm.endswith(TWIN))
    extra = (*lost, UnitKey("int4" + TWIN, "code", "code-0"))
    (verdict,) = decide_plain(replace(evidence, variants=evidence.variants[:1], expected=extra), POLICY)
    assert (verdict.word, verdict.cause) == ("block", "")
    assert "cause: not known; the torch twin's answers cannot be used" in verdict.reasons[-1]


def test_a_twin_that_cannot_decide_leaves_the_cause_open():
    (verdict,) = decide_plain(with_twin(BAD, run(lost=0.06)), POLICY)
    assert (verdict.word, verdict.cause) == ("block", "")
    assert "cause: not known; the torch twin leaves" in verdict.reasons[-1]


TOOLS, CODE = ("tools", "tool_call.valid"), ("code", "exact_match")


@pytest.mark.parametrize(
    ("plain", "twin", "cause"),
    [
        ({}, {}, "speculation"),  # the twin keeps them because it drafts nothing
        ({TOOLS: 0.5, CODE: 0.5}, {}, "kernel"),
        ({TOOLS: 0.5, CODE: 0.5}, {TOOLS: 0.5, CODE: 0.5}, "recipe"),
        ({CODE: 0.5}, {}, "speculation and kernel"),
        ({CODE: 0.5}, {CODE: 0.5}, "speculation and recipe"),
    ],
)
def test_a_kernel_is_blamed_for_what_is_lost_without_a_draft_as_well(plain, twin, cause):
    witnesses = {TWIN: run(lost=twin) if twin else GOOD, PLAIN: run(lost=plain) if plain else GOOD}
    (verdict,) = decide_plain(beside(run(lost={TOOLS: 0.5, CODE: 0.5}), witnesses), POLICY)
    assert (verdict.word, verdict.cause) == ("block", cause)


@pytest.mark.parametrize(
    ("wide", "twin", "cause"),
    [
        ({}, {}, "KV"),  # the twin keeps them because it holds keys and values in float32
        ({TOOLS: 0.5, CODE: 0.5}, {}, "kernel"),
        ({TOOLS: 0.5, CODE: 0.5}, {TOOLS: 0.5, CODE: 0.5}, "recipe"),
        ({CODE: 0.5}, {}, "kernel and KV"),
        ({CODE: 0.5}, {CODE: 0.5}, "KV and recipe"),
    ],
)
def test_a_cache_is_blamed_for_what_the_same_weights_keep_with_the_baselines(wide, twin, cause):
    witnesses = {TWIN: run(lost=twin) if twin else GOOD, WIDE: run(lost=wide) if wide else GOOD}
    (verdict,) = decide_plain(beside(run(lost={TOOLS: 0.5, CODE: 0.5}), witnesses), POLICY)
    assert (verdict.word, verdict.cause) == ("block", cause)
    assert "through the baseline's KV cache the same weights" in verdict.reasons[-1]


def test_what_only_both_parts_together_lose_is_neither_the_kernels_nor_the_recipes():
    """Without the draft and without the cache alone nothing is lost: the twin, which has neither, is not asked."""
    witnesses = {TWIN: BAD, WIDE: GOOD, PLAIN: GOOD}
    (verdict,) = decide_plain(beside(BAD, witnesses), POLICY)
    assert (verdict.word, set(verdict.cause.split(" and "))) == ("block", {"KV", "speculation"})
