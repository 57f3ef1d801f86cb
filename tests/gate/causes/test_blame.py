"""A block names its cause when the same weights were also run through the torch twin."""

from __future__ import annotations

from dataclasses import replace

from qualgate.gate.verdict import decide_plain, overall_exit
from qualgate.records import TWIN, RunEvidence, UnitKey
from tests.gate.planted import POLICY, of, run


def with_twin(fused: RunEvidence, twin: RunEvidence) -> RunEvidence:
    """The evidence of `fused`, and the variant of `twin` as its int4's twin arm."""
    arm = twin.variants[0]
    name = arm.name + TWIN
    units = tuple(replace(unit, key=replace(unit.key, arm=name)) for unit in arm.units)
    return of(fused.baseline, fused.variants[0], replace(arm, name=name, units=units))


GOOD, BAD = run(), run(lost=0.3)


def test_a_loss_that_the_twin_shows_too_is_the_recipes():
    (verdict,) = decide_plain(with_twin(BAD, BAD), POLICY)
    assert (verdict.variant, verdict.word, verdict.cause) == ("int4", "block", "recipe")
    assert "as well" in verdict.reasons[-1]
    assert "KV cache and speculation: not available" in verdict.reasons[-1]


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
