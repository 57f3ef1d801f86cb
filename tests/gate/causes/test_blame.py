"""A block names its cause when the same weights were also run through the torch twin."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qualgate.gate.verdict import decide_plain, overall_exit
from qualgate.records import PLAIN, TWIN, WIDE, RunEvidence, UnitKey
from tests.gate.planted import POLICY, of, run, witness


def beside(whole: RunEvidence, witnesses: dict[str, RunEvidence]) -> RunEvidence:
    """The evidence of `whole`, and the variants of others as its int4's witnesses, by what ends their names."""
    return of(whole.baseline, whole.variants[0], *(witness(other, end) for end, other in witnesses.items()))


TOOLS, CODE = ("tools", "tool_call.valid"), ("code", "exact_match")
GOOD, BAD = run(), run(lost=0.3)
PARTLY, BOTH = run(lost={TOOLS: 0.5}), run(lost={TOOLS: 0.5, CODE: 0.5})


@pytest.mark.parametrize(
    ("fused", "witness", "cause", "told"),
    [
        (BAD, {TWIN: BAD}, "recipe", ("as well", "speculation and KV cache: not available")),
        (BAD, {TWIN: GOOD}, "kernel", ()),
        (BOTH, {TWIN: PARTLY}, "kernel and recipe", ()),
        (BAD, {TWIN: run(lost=0.06)}, "", ("cause: not known; the torch twin leaves",)),
        (BAD, {PLAIN: GOOD}, "speculation", ()),
        (BAD, {PLAIN: BAD}, "recipe", ()),
        (BAD, {WIDE: GOOD}, "KV", ()),
        (BAD, {WIDE: BAD}, "recipe", ()),
    ],
)
def test_a_loss_is_that_of_the_part_without_which_it_is_not_shown(fused, witness, cause, told):
    (verdict,) = decide_plain(beside(fused, witness), POLICY)
    assert (verdict.variant, verdict.word, verdict.cause) == ("int4", "block", cause)
    assert overall_exit([verdict]) == 10
    assert all(words in verdict.reasons[-1] for words in told), verdict.reasons


def test_the_twin_gets_no_verdict_and_changes_none():
    (alone,) = decide_plain(GOOD, POLICY)
    for twin in (GOOD, BAD):
        assert decide_plain(beside(GOOD, {TWIN: twin}), POLICY) == (alone,)


def test_a_twin_that_was_lost_leaves_the_cause_open_and_the_block_standing():
    extra = (*BAD.expected, UnitKey("int4" + TWIN, "code", "code-0"))
    (verdict,) = decide_plain(replace(BAD, expected=extra), POLICY)
    assert (verdict.word, verdict.cause) == ("block", "")
    assert "cause: not known; the torch twin's answers cannot be used" in verdict.reasons[-1]


@pytest.mark.parametrize(
    ("part", "other", "twin", "cause"),
    [
        (PLAIN, {}, {}, "speculation"),  # the twin keeps them because it drafts nothing
        (PLAIN, {TOOLS: 0.5, CODE: 0.5}, {}, "kernel"),
        (PLAIN, {TOOLS: 0.5, CODE: 0.5}, {TOOLS: 0.5, CODE: 0.5}, "recipe"),
        (PLAIN, {CODE: 0.5}, {}, "speculation and kernel"),
        (PLAIN, {CODE: 0.5}, {CODE: 0.5}, "speculation and recipe"),
        (WIDE, {}, {}, "KV"),  # the twin keeps them because it holds keys and values in float32
        (WIDE, {TOOLS: 0.5, CODE: 0.5}, {}, "kernel"),
        (WIDE, {TOOLS: 0.5, CODE: 0.5}, {TOOLS: 0.5, CODE: 0.5}, "recipe"),
        (WIDE, {CODE: 0.5}, {}, "kernel and KV"),
        (WIDE, {CODE: 0.5}, {CODE: 0.5}, "KV and recipe"),
    ],
)
def test_a_kernel_is_blamed_for_what_is_lost_without_a_draft_or_with_the_baseline_s_cache_as_well(
    part, other, twin, cause
):
    (verdict,) = decide_plain(beside(BOTH, {TWIN: run(lost=twin), part: run(lost=other)}), POLICY)
    assert (verdict.word, verdict.cause) == ("block", cause)
    if part == WIDE:
        assert "through the baseline's KV cache the same weights" in verdict.reasons[-1]


def test_what_only_both_parts_together_lose_is_neither_the_kernels_nor_the_recipes():
    """Without the draft and without the cache alone nothing is lost: the twin, which has neither, is not asked."""
    witnesses = {TWIN: BAD, WIDE: GOOD, PLAIN: GOOD}
    (verdict,) = decide_plain(beside(BAD, witnesses), POLICY)
    assert (verdict.word, set(verdict.cause.split(" and "))) == ("block", {"KV", "speculation"})
