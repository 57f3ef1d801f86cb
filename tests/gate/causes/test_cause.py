"""A cause is named from stored evidence alone, and only where that evidence speaks."""

from __future__ import annotations

from dataclasses import replace
from struct import pack

import pytest

from qualgate.gate.causes.blame import WITNESSES
from qualgate.gate.verdict import decide_plain
from qualgate.records import TWIN, WIDE, ArmEvidence, RunEvidence, UnitEvidence
from tests.gate.planted import POLICY, identity, of, run, with_each, with_unit, with_units, with_variant, witness

END = 9


def answered(evidence: RunEvidence, said, **fields) -> RunEvidence:
    """Both arms' answers in tokens: the baseline says `before`, each variant unit what `said(unit, before)` gives."""
    before = list(range(100, 120))

    def units(arm: ArmEvidence, answer) -> tuple[UnitEvidence, ...]:
        told = []
        for unit in arm.units:
            ids, parts, reason = answer(unit, before)
            kl = unit.kl if arm is not evidence.baseline else ()
            ids = [*ids, END] if reason == "eos" else ids
            told.append(
                replace(
                    unit, token_ids=pack(f"<{len(ids)}i", *ids), finish_reason=reason, first_divergence=parts, kl=kl,
                    truncated=reason == "length", prompt_tokens=12,
                )
            )  # fmt: skip
        return tuple(told)

    baseline = replace(evidence.baseline, units=units(evidence.baseline, lambda u, b: (b, None, "eos")))
    variant = replace(evidence.variants[0], units=units(evidence.variants[0], said), **fields)
    return of(baseline, variant)


BEFORE = {(u.key.evalset, u.key.case_id): u.values for u in run(lost=0.3).baseline.units}


def wrong(unit: UnitEvidence) -> bool:
    before = BEFORE[unit.key.evalset, unit.key.case_id]
    return any(
        unit.values[metric] < before[metric] for metric in ("exact_match", "tool_call.valid") if metric in before
    )


def other_words(unit, before):
    return ([*before[:5], 7, *before[6:]], 5, "eos") if wrong(unit) else (before, None, "eos")


def cut(unit, before):
    return (before[:9], None, "length") if wrong(unit) else (before, None, "eos")


def one_token_early(unit, before):
    return (before[:-1], None, "eos") if wrong(unit) else (before, None, "eos")


def one_token_late(unit, before):
    return ([*before, 7], None, "stop") if wrong(unit) else (before, None, "eos")


def ends_by_itself(unit, before):
    return (before[:9], 9, "eos") if wrong(unit) else (before, None, "eos")


def rambles(unit, before):
    return ([*before[:3], *range(50)], 3, "length") if wrong(unit) else (before, None, "eos")


def out_of_a_cache(unit, before):
    return ([*before[:12], 7], 4, "eos") if wrong(unit) else (before, None, "eos")


def judged(evidence: RunEvidence):
    return decide_plain(evidence, POLICY)[0]


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        (other_words, "recipe"), (ends_by_itself, "recipe"), (rambles, "truncation"),
        (cut, "truncation"), (one_token_early, "truncation"), (one_token_late, "truncation"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)  # fmt: skip
def test_the_lost_answers_show_whether_the_weights_or_the_end_of_an_answer_changed(said, cause):
    verdict = judged(answered(run(lost=0.3), said))
    assert (verdict.word, verdict.cause) == ("block", cause)
    assert verdict.reasons[-1].startswith(f"cause: {cause}; ")


def test_choices_that_were_given_to_read_contradict_nothing():
    """Both arms have the texts of all choices as their tokens, wherever the variant would say another."""
    evidence = answered(run(), lambda unit, before: (before, 4, "stop"))
    assert judged(evidence).exit == 12, "words that were said do"
    read = with_each(evidence, "both", lambda u: replace(u, values=u.values | {"multiple_choice.acc": 1.0}))
    assert judged(of(read.baseline, *read.variants)).exit == 0


def test_answers_that_contradict_their_own_teacher_forcing_are_not_compared():
    verdict = judged(answered(run(lost=0.3), out_of_a_cache))
    assert (verdict.exit, verdict.cause) == (12, "infrastructure")
    assert "answers are not what its own weights say" in verdict.reasons[0]
    quiet = judged(answered(run(), lambda unit, before: (before, 4, "eos")))
    assert quiet.exit == 12, "the baseline's answers out of a cache lose nothing, and prove nothing"


@pytest.mark.parametrize("measured", [240, 144, 60, 24], ids=lambda count: f"{count} measured")
def test_answers_without_drift_do_not_speak_for_those_that_contradict_their_own(measured):
    evidence = answered(run(), lambda unit, before: ([*before[:12], 7], 4, "eos"))
    (arm,) = evidence.variants
    units = [
        unit if at < measured else replace(unit, kl=(), top1_agreement=None, first_divergence=None, top1_differs=None)
        for at, unit in enumerate(arm.units)
    ]
    without_drift_rules = replace(
        POLICY, rules=tuple(rule for rule in POLICY.rules if not rule.metric.startswith("drift.kl"))
    )
    (verdict,) = decide_plain(of(evidence.baseline, replace(arm, units=tuple(units))), without_drift_rules)
    assert (verdict.word, verdict.exit) == ("undecided", 12)
    assert f"{measured} answers are not what its own weights say there" in verdict.reasons[0]


LOST = answered(run(lost=0.3), other_words)
SERVED = {"engine": "other", "served": "vllm 0.32.0"}


@pytest.mark.parametrize(
    ("evidence", "exit", "cause"),
    [
        (with_each(LOST, "int4", prompt_tokens=14), 10, "template"),
        (with_variant(run(lost=0.3), identity=identity("int4", template="other")), 12, "template"),
        (with_variant(run(lost=0.3), identity=identity("int4", tokenizer="other")), 12, "template"),
        (with_variant(run(lost=0.3), identity=identity("int4", engine="other")), 12, "infrastructure"),
        (with_variant(LOST, identity=identity("int4", **SERVED)), 10, ""),  # weights are not blamed unseen
        (with_variant(LOST, identity=identity("int4", **SERVED, sampling="other")), 12, ""),
        (with_unit(run(), "int4", 0, status="error", error="out of memory", values={}), 13, "infrastructure"),
        (answered(run(lost=0.3), cut, identity=identity("int4", sampling="other")), 12, "truncation"),
        (answered(run(lost=0.3), other_words, identity=identity("int4", sampling="other")), 12, ""),
        (run(lost=0.3), 10, ""),  # no tokens were stored
        (with_each(LOST, "int4", kernel="c avx2"), 10, ""),  # recipe or kernel: only the twin can tell
        (with_variant(LOST, identity=identity("baseline")), 10, ""),  # the same weights lost: no recipe did that
        (answered(run(), other_words), 0, ""),  # an approval has no cause
    ],
)
def test_what_differs_is_named_and_where_evidence_is_silent_or_names_two_suspects_nothing(evidence, exit, cause):
    verdict = judged(evidence)
    assert (verdict.exit, verdict.cause) == (exit, cause), verdict.reasons


def test_calls_that_another_dialect_reads_are_the_parsers():
    read = with_each(LOST, "int4", lambda u: replace(u, misread="pythonic" if wrong(u) else ""))
    verdict = judged(read)
    assert verdict.cause == "parser"
    assert "pythonic" in verdict.reasons[-1]
    few = with_units(
        read, "int4", lambda us: (replace(u, misread=u.misread if i % 3 == 0 else "") for i, u in enumerate(us))
    )
    assert judged(few).cause == "recipe", "what most lost answers do not show is not the cause"


def test_without_a_witness_a_single_suspect_is_enough():
    lost, ours = LOST, LOST.baseline.identity
    cached, drafted = replace(ours, kv_cache="int4"), replace(ours, speculation="d")
    assert judged(with_variant(lost, identity=cached)).cause == "KV"
    for two in (
        replace(cached, weights="another"),
        replace(cached, speculation="d"),
        replace(drafted, weights="another"),
        drafted,
    ):
        assert judged(with_variant(lost, identity=two)).cause == "", two
    fused = with_each(with_variant(lost, identity=cached), "int4", kernel="int4 in C")
    assert judged(fused).cause == "", "the kernel is another, too"


def test_an_adapter_over_the_same_weights_is_no_recipe():
    lost, plain = LOST, LOST.baseline.identity
    lora = replace(plain, weights="with it", adapter="a", adapted=plain.weights)
    verdict = judged(with_variant(lost, identity=lora))
    assert verdict.cause == "adapter"
    assert "the adapter alone differs" in verdict.reasons[-1]
    newer = replace(lora, weights="with another", adapter="b")
    both = of(replace(lost.baseline, identity=lora), replace(lost.variants[0], identity=newer))
    assert judged(both).cause == "adapter", "one adapter in place of another"
    packed = with_each(with_variant(lost, identity=lora), "both", kernel="int4 in C")
    assert judged(packed).cause == "adapter", "over packed weights of one kernel as well"
    for two in (replace(lora, adapted="other weights"), replace(lora, kv_cache="int4"), replace(lora, adapted="")):
        assert judged(with_variant(lost, identity=two)).cause == "", two


def test_what_a_witness_breaks_too_may_be_its_adapter_s():
    """A witness has the variant's adapter, so it cannot tell it from the recipe; the identities can."""
    evidence = run(lost=0.3)
    mine, without = evidence.variants[0], witness(evidence, WIDE)

    def cause(identity) -> str:
        return judged(of(evidence.baseline, replace(mine, identity=identity), without)).cause

    same = evidence.baseline.identity
    lora = replace(same, weights="with it", adapter="a", adapted=same.weights, kv_cache="int4")
    assert cause(lora) == "adapter"
    assert cause(replace(lora, adapted="int4 of them")) == "recipe or adapter"
    assert cause(replace(lora, adapter="", adapted="")) == "recipe"


def test_the_end_of_an_answer_goes_before_what_a_twin_tells():
    short = answered(run(lost=0.3), cut)
    assert judged(of(short.baseline, short.variants[0], witness(short, TWIN))).cause == "truncation"


def test_answers_that_only_the_whole_variant_contradicts_are_the_part_s_that_its_witness_lacks():
    evidence = answered(run(), lambda unit, before: ([*before[:12], 7], 4, "eos"))
    assert judged(evidence).cause == "infrastructure"

    def beside(suffix: str, said) -> RunEvidence:
        return of(evidence.baseline, evidence.variants[0], witness(answered(run(), said), suffix))

    for suffix, part in WITNESSES.items():
        verdict = judged(beside(suffix, lambda unit, before: (before, None, "eos")))
        assert (verdict.exit, verdict.cause) == (12, part)
        assert "without that part they are" in verdict.reasons[-1]
    same = judged(beside("@plain", lambda unit, before: ([*before[:12], 7], 4, "eos")))
    assert same.cause == "infrastructure", "the witness contradicts itself as well"
