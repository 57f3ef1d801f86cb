"""An arm is judged by the answers of the model that it asks for, not by another's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qualgate.errors import Exit
from qualgate.gate.decide import decide
from qualgate.records import ArmEvidence, Generation, RunEvidence
from tests.gate.planted import POLICY, run

OWN = tuple(f"{at:08x}{at:012x}" for at in range(120))  # replies with ids and texts of their own
OTHERS = tuple(f"{at:08x}{at:012x}" for at in range(500, 620))
CONSTANT_ID = tuple(f"{7:08x}{at:012x}" for at in range(120))


def evidence(variant: dict, baseline: dict | None = None) -> RunEvidence:
    """The variant asks for `quant` and the baseline for `base`."""
    found = run()
    before = {"asked_for": "base", "generation": said(("base", 120)), "replies": OTHERS}
    return replace(
        found,
        baseline=changed(found.baseline, **(before | (baseline or {}))),
        variants=(changed(found.variants[0], **({"asked_for": "quant", "replies": OWN} | variant)),),
    )


def changed(arm: ArmEvidence, *, replies: tuple[str, ...], **fields: object) -> ArmEvidence:
    """The other replies have no id."""
    given = [*replies, *[""] * (len(arm.units) - len(replies))]
    units = tuple(replace(unit, reply=reply) for unit, reply in zip(arm.units, given, strict=True))
    return replace(arm, units=units, **fields)


def said(*names: tuple[str, int]) -> Generation:
    return Generation(answered_by=names)


@pytest.mark.parametrize(
    ("variant", "reason"),
    [
        ({"generation": said(("base", 120))}, "120 replies name base, which baseline asks for"),
        ({"generation": said(("base", 1), ("quant", 119))}, "1 reply names base, which baseline asks for"),
        (
            {"generation": said(("fallback", 3), ("quant", 117))},
            "name fallback 3 times, quant 117 times: several",
        ),
        ({"generation": said(("gpt-2", 120)), "answered_probes": ("gpt-1",)}, "its replies name gpt-2 120 times"),
        (
            {"generation": said(("quant", 120)), "replies": (*OWN[1:], OTHERS[0])},
            "1 reply of int4 and of baseline",
        ),
        ({"generation": said(("org/Base", 120))}, "120 replies name org/Base, which baseline asks for"),
        ({"asked_for": "llama-awq", "generation": said(("llama", 120))}, "name llama, which lacks its awq"),
        ({"replies": OTHERS}, "120 replies of int4 and of baseline are the same"),
        ({"replies": (*OWN[:60], *OWN[:60])}, "60 answers of int4 repeat an earlier reply, with id and text"),
        (
            {"generation": said(("like-it", 60), ("quant", 60)), "answered_probes": ("like-it", "quant")},
            "name like-it 60 times, quant 60 times: several",
        ),
        ({"generation": said(("quant-0806", 60), ("quant-1106", 60))}, "quant-1106 60 times: several"),
        ({"generation": said(("no name", 60), ("quant", 60))}, "no name 60 times, quant 60 times: several"),
        ({"generation": said(("quant (from a cache)", 3))}, "3 replies of int4 came out of a gateway's cache"),
        ({"generation": said(("quant (by fallback)", 1))}, "1 reply names quant, which answered as a fallback"),
    ],
)
def test_answers_of_another_decide_nothing(variant, reason):
    (verdict,) = decide(evidence(variant), POLICY).verdicts
    assert (verdict.word, verdict.exit) == ("undecided", Exit.UNDECIDED)
    assert reason in verdict.reasons[0]


@pytest.mark.parametrize(
    "variant",
    [
        {"generation": said(("quant", 120))},
        {"generation": said(("quant-2026-08-06", 120))},
        {"generation": said(("quant", 60), ("quant-2026-08-06", 60))},
        {"generation": said(("openai/quant (deployment a1)", 60), ("openai/quant (deployment b2)", 60))},
        {"generation": said(("no name", 120))},
        {"generation": said(("org/QUANT", 120))},
        {"asked_for": "llama-awq", "generation": said(("TheBloke/Llama-AWQ", 120))},
        {"generation": said(("org/Quant", 120)), "answered_probes": ("org/Quant",)},
        {"generation": said(("a", 60), ("b", 60)), "answered_by": ("a", "b")},
        {"generation": said(("quant", 120)), "replies": CONSTANT_ID},
        {"replies": CONSTANT_ID[:1] * 120},
        {"replies": (*OWN[1:], OWN[1])},
        {"replies": (*OWN[:60], *OWN[:59], f"{OWN[0][:8]}{7:012x}")},
        {"replies": tuple(f"{reply}?" for reply in (*OWN[:60], *OWN[:60]))},
        {"generation": said(("base", 120)), "answered_by": ("base",)},
        {"replies": ()},
    ],
)
def test_an_alias_and_constant_ids_are_no_others(variant):
    alike = {"replies": CONSTANT_ID}
    (verdict,) = decide(evidence(variant, alike), POLICY).verdicts
    assert verdict.exit == Exit.APPROVE
    assert "asked for" not in verdict.reasons[0]


def test_one_other_name_of_all_replies_is_told_first():
    (verdict,) = decide(evidence({"generation": said(("llama-70b", 120))}), POLICY).verdicts
    assert verdict.exit == Exit.APPROVE
    assert verdict.reasons[0].startswith("int4 asked for quant; its replies name llama-70b")


DEPLOYED = {"generation": Generation(answered_by=(("up (deployment a1)", 120),))}
SAME = {"generation": Generation(answered_by=(("up", 120),))}


@pytest.mark.parametrize(
    ("arms", "address", "word"), [(DEPLOYED, "", "undecided"), (SAME, "h:1", "undecided"), (SAME, "", "approve")]
)
def test_one_address_that_sends_both_arms_to_one_model_decides_nothing(arms, address, word):
    """At two addresses one constant name is told."""
    (verdict,) = decide(evidence({**arms, "address": address}, {**arms, "address": address}), POLICY).verdicts
    assert verdict.word == word
    assert "asked for base, and 120 replies name up" in verdict.reasons[0] or "as those of" in verdict.reasons[0]


COUNTED = tuple(f"{at:08x}{at:012x}?" for at in range(120))


@pytest.mark.parametrize(("address", "word"), [("h:1", "undecided"), ("h:2", "approve")])
def test_short_ids_count_at_one_address_alone(address, word):
    arms = {"generation": said(("quant", 120)), "replies": COUNTED, "address": address}
    (verdict,) = decide(evidence(arms, {"replies": COUNTED, "address": "h:1"}), POLICY).verdicts
    assert verdict.word == word


def test_an_aa_arm_out_of_a_cache_measures_no_noise_and_nothing_is_decided():
    found = evidence({"generation": said(("quant", 120))})
    again = changed(found.baseline, name="baseline@aa", replies=(*OWN[:5], OTHERS[7]))
    (verdict,) = [
        one for one in decide(replace(found, variants=(*found.variants, again)), POLICY).verdicts
        if one.variant == "int4"
    ]  # fmt: skip
    assert verdict.exit == Exit.UNDECIDED
    assert "1 reply of baseline@aa and of baseline are the same" in verdict.reasons[0]
    assert "the noise floor is none" in verdict.reasons[0]
