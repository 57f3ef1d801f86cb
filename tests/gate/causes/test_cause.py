"""A cause is named from stored evidence alone, and only where that evidence speaks."""

from __future__ import annotations

from dataclasses import replace
from struct import pack

import pytest

from qualgate.gate.causes.blame import WITNESSES
from qualgate.gate.verdict import decide_plain
from qualgate.records import TWIN, WIDE, ArmEvidence, RunEvidence, UnitEvidence
from tests.gate.planted import POLICY, identity, of, run, with_units, with_variant

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
        (other_words, "recipe"), (ends_by_itself, "recipe"), (rambles, "recipe"),
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
    read = [
        with_units(evidence, arm, lambda us: (replace(u, values=u.values | {"multiple_choice.acc": 1.0}) for u in us))
        for arm in ("baseline", "int4")
    ]
    assert judged(of(read[0].baseline, read[1].variants[0])).exit == 0


def test_answers_that_contradict_their_own_teacher_forcing_are_not_compared():
    verdict = judged(answered(run(lost=0.3), out_of_a_cache))
    assert (verdict.exit, verdict.cause) == (12, "infrastructure")
    assert "answers are not what its own weights say" in verdict.reasons[0]
    quiet = judged(answered(run(), lambda unit, before: (before, 4, "eos")))
    assert quiet.exit == 12, "the baseline's answers out of a cache lose nothing, and prove nothing"


def test_a_prompt_of_another_length_is_the_templates():
    evidence = with_units(
        answered(run(lost=0.3), other_words), "int4", lambda us: (replace(u, prompt_tokens=14) for u in us)
    )
    assert judged(evidence).cause == "template"


@pytest.mark.parametrize(
    ("field", "cause"), [("template", "template"), ("tokenizer", "template"), ("engine", "infrastructure")]
)
def test_what_differs_in_identity_is_named_though_nothing_was_compared(field, cause):
    verdict = judged(with_variant(run(lost=0.3), identity=identity("int4", **{field: "other"})))
    assert (verdict.exit, verdict.cause) == (12, cause)


def test_an_engine_that_is_served_is_judged_and_its_weights_are_not_blamed_unseen():
    here = answered(run(lost=0.3), other_words)
    assert judged(here).cause == "recipe"
    served = judged(with_variant(here, identity=identity("int4", engine="other", served="vllm 0.32.0")))
    assert (served.word, served.cause) == ("block", "")
    not_asked_alike = identity("int4", engine="other", served="vllm 0.32.0", sampling="other")
    assert judged(with_variant(here, identity=not_asked_alike)).exit == 12


def test_what_failed_is_infrastructure():
    evidence = run()
    failed = replace(evidence.variants[0].units[0], status="error", error="out of memory", values={})
    verdict = judged(with_variant(evidence, units=(failed, *evidence.variants[0].units[1:])))
    assert (verdict.exit, verdict.cause) == (13, "infrastructure")


def test_calls_that_another_dialect_reads_are_the_parsers():
    evidence = answered(run(lost=0.3), other_words)
    read = with_units(evidence, "int4", lambda us: (replace(u, misread="pythonic" if wrong(u) else "") for u in us))
    verdict = judged(read)
    assert verdict.cause == "parser"
    assert "pythonic" in verdict.reasons[-1]
    few = with_units(
        read, "int4", lambda us: (replace(u, misread=u.misread if i % 3 == 0 else "") for i, u in enumerate(us))
    )
    assert judged(few).cause == "recipe", "what most lost answers do not show is not the cause"


def test_where_the_evidence_is_silent_or_names_two_suspects_no_cause_is_named():
    silent = run(lost=0.3)
    assert judged(silent).cause == "", "no tokens were stored"
    evidence = answered(silent, other_words)
    packed = with_units(evidence, "int4", lambda us: (replace(u, kernel="c avx2") for u in us))
    assert judged(packed).cause == "", "recipe or kernel: only the twin can tell"
    same = with_variant(evidence, identity=identity("baseline"))
    assert judged(same).cause == "", "the same weights lost: no recipe did that"
    assert judged(answered(run(), other_words)).cause == "", "an approval has no cause"


def test_without_a_witness_a_single_suspect_is_enough():
    lost = answered(run(lost=0.3), other_words)
    ours = lost.baseline.identity
    cached, drafted = replace(ours, kv_cache="int4"), replace(ours, speculation="d")
    assert judged(with_variant(lost, identity=cached)).cause == "KV"
    for two in (
        replace(cached, weights="another"),
        replace(cached, speculation="d"),
        replace(drafted, weights="another"),
        drafted,
    ):
        assert judged(with_variant(lost, identity=two)).cause == "", two
    fused = tuple(replace(unit, kernel="int4 in C") for unit in lost.variants[0].units)
    assert judged(with_variant(lost, identity=cached, units=fused)).cause == "", "the kernel is another, too"


def test_an_adapter_over_the_same_weights_is_no_recipe():
    lost = answered(run(lost=0.3), other_words)
    plain = lost.baseline.identity
    lora = replace(plain, weights="with it", adapter="a", adapted=plain.weights)
    verdict = judged(with_variant(lost, identity=lora))
    assert verdict.cause == "adapter"
    assert "the adapter alone differs" in verdict.reasons[-1]
    newer = replace(lora, weights="with another", adapter="b")
    both = of(replace(lost.baseline, identity=lora), replace(lost.variants[0], identity=newer))
    assert judged(both).cause == "adapter", "one adapter in place of another"
    fused = tuple(replace(unit, kernel="int4 in C") for unit in lost.variants[0].units)
    packed = of(
        replace(lost.baseline, units=tuple(replace(unit, kernel="int4 in C") for unit in lost.baseline.units)),
        replace(lost.variants[0], identity=lora, units=fused),
    )
    assert judged(packed).cause == "adapter", "over packed weights of one kernel as well"
    for two in (replace(lora, adapted="other weights"), replace(lora, kv_cache="int4"), replace(lora, adapted="")):
        assert judged(with_variant(lost, identity=two)).cause == "", two


def test_what_a_witness_breaks_too_may_be_its_adapter_s():
    """A witness has the variant's adapter, so it cannot tell it from the recipe; the identities can."""
    evidence = run(lost=0.3)
    mine = evidence.variants[0]
    without = replace(
        mine,
        name=mine.name + WIDE,
        units=tuple(replace(u, key=replace(u.key, arm=mine.name + WIDE)) for u in mine.units),
    )

    def cause(identity) -> str:
        return judged(of(evidence.baseline, replace(mine, identity=identity), without)).cause

    same = evidence.baseline.identity
    lora = replace(same, weights="with it", adapter="a", adapted=same.weights, kv_cache="int4")
    assert cause(lora) == "adapter"
    assert cause(replace(lora, adapted="int4 of them")) == "recipe or adapter"
    assert cause(replace(lora, adapter="", adapted="")) == "recipe"


def test_a_twin_decides_between_kernel_and_recipe_and_the_end_of_an_answer_goes_before_both():
    def with_twin(evidence: RunEvidence, other: RunEvidence) -> RunEvidence:
        arm = other.variants[0]
        units = tuple(replace(u, key=replace(u.key, arm="int4" + TWIN)) for u in arm.units)
        return of(evidence.baseline, evidence.variants[0], replace(arm, name="int4" + TWIN, units=units))

    packed = with_units(
        answered(run(lost=0.3), other_words), "int4", lambda us: (replace(u, kernel="c avx2") for u in us)
    )
    assert judged(with_twin(packed, run(lost=0.3))).cause == "recipe"
    assert judged(with_twin(packed, run())).cause == "kernel"
    short = answered(run(lost=0.3), cut)
    assert judged(with_twin(short, short)).cause == "truncation"


@pytest.mark.parametrize(("suffix", "part"), list(WITNESSES.items()))
def test_an_arm_without_one_part_tells_whether_that_part_did_it(suffix, part):
    """A witness for the KV cache or speculation, whoever runs it, is read as the torch twin is."""

    def with_witness(other: RunEvidence) -> RunEvidence:
        evidence, arm = run(lost=0.3), other.variants[0]
        units = tuple(replace(u, key=replace(u.key, arm="int4" + suffix)) for u in arm.units)
        return of(evidence.baseline, evidence.variants[0], replace(arm, name="int4" + suffix, units=units))

    assert judged(with_witness(run())).cause == part
    assert judged(with_witness(run(lost=0.3))).cause == "recipe"


def test_answers_that_only_the_whole_variant_contradicts_are_the_part_s_that_its_witness_lacks():
    evidence = answered(run(), lambda unit, before: ([*before[:12], 7], 4, "eos"))
    assert judged(evidence).cause == "infrastructure"

    def beside(suffix: str, said) -> RunEvidence:
        arm = answered(run(), said).variants[0]
        units = tuple(replace(u, key=replace(u.key, arm="int4" + suffix)) for u in arm.units)
        return of(evidence.baseline, evidence.variants[0], replace(arm, name="int4" + suffix, units=units))

    for suffix, part in WITNESSES.items():
        verdict = judged(beside(suffix, lambda unit, before: (before, None, "eos")))
        assert (verdict.exit, verdict.cause) == (12, part)
        assert "without that part they are" in verdict.reasons[-1]
    same = judged(beside("@plain", lambda unit, before: ([*before[:12], 7], 4, "eos")))
    assert same.cause == "infrastructure", "the witness contradicts itself as well"


def test_other_stop_tokens_are_truncation_where_answers_end_elsewhere():
    other = identity("int4", sampling="other")
    assert judged(answered(run(lost=0.3), cut, identity=other)).cause == "truncation"
    assert judged(answered(run(lost=0.3), other_words, identity=other)).cause == "", "other words: something else"
