"""`speculation:` of a gate file: what is taken, as which record, and what contradicts the part an arm plays of four."""

from __future__ import annotations

import pytest

from qualgate.records import DraftSource, QuantizeRecipe, Speculation
from qualgate.refmodel import PATH
from tests.config.gate_files import SMALL

MXFP4 = QuantizeRecipe(method="mxfp4", group_size=32)
INT4 = QuantizeRecipe(method="int4", group_size=64)
NGRAM = DraftSource(kind="ngram")
SELF = DraftSource(kind="quantize", quantize=MXFP4)


def variants(*lines: str) -> str:
    return SMALL.replace("variants: {int8: {quantize: int8}}", "\n  ".join(["variants:", *lines]))


def drafting(said: str) -> str:
    return variants(f"drafted: {{speculation: {said}}}")


TAKEN = {
    "{draft: ngram}": Speculation(draft=NGRAM),
    "{draft: suffix, tokens: auto, rule: keyed}": Speculation(draft=DraftSource(kind="suffix")),
    "{draft: ngram, tokens: 32}": Speculation(draft=NGRAM, tokens=32),
    "{draft: {quantize: mxfp4}, tokens: 5}": Speculation(draft=SELF, tokens=5),
    "{draft: {quantize: {method: int4, group_size: 64}}, tokens: 4, rule: block_verification}": Speculation(
        draft=DraftSource(kind="quantize", quantize=INT4), tokens=4, rule="block_verification"
    ),
    "{draft: {quantize: mxfp4}, tokens: 2, rule: typical}": Speculation(
        draft=DraftSource(kind="quantize", quantize=MXFP4), tokens=2, rule="typical"
    ),
    "{draft: {head: reference}, tokens: 3}": Speculation(draft=DraftSource(kind="head", head=str(PATH)), tokens=3),
    "{draft: {head: own}}": Speculation(draft=DraftSource(kind="head", head="own")),
    "{draft: {model: reference}}": Speculation(draft=DraftSource(kind="model", model=str(PATH))),
    "{draft: {quantize: mxfp4, under: {draft: ngram, tokens: 8}}, tokens: 4}": Speculation(
        draft=DraftSource(
            kind="quantize", quantize=MXFP4, under=Speculation(draft=NGRAM, tokens=8)
        ), tokens=4,
    ),
}  # fmt: skip


@pytest.mark.parametrize("said", TAKEN)
def test_what_is_said_is_a_record_and_the_weights_are_the_baselines(load, said):
    gate = load(drafting(said).replace("reference}\n", "reference, dtype: float16}\n", 1))
    (arm,) = gate.variants
    assert arm.speculation == TAKEN[said]
    assert (arm.model, arm.dtype, arm.quantize) == (gate.baseline.model, "float16", None)
    assert gate.baseline.speculation is None


def test_it_stands_beside_quantize_and_beside_a_model_too(load, tmp_path):
    (tmp_path / "ours").mkdir(exist_ok=True)
    gate = load(
        variants(
            "both: {quantize: mxfp4, speculation: {draft: {model: ./ours, quantize: mxfp4}}}",
            "other: {model: ./ours, dtype: float16, speculation: {draft: ngram}}",
            "plain: {quantize: int8}",
        )
    )
    both, other, plain = gate.variants
    source = DraftSource(kind="model", model=str(tmp_path / "ours"), quantize=MXFP4)
    assert (both.quantize, both.speculation) == (MXFP4, Speculation(draft=source))
    assert (other.model, other.dtype, other.speculation) == (
        str(tmp_path / "ours"), "float16", Speculation(draft=NGRAM)
    )  # fmt: skip
    assert plain.speculation is None


def test_a_cascade_of_four_levels_is_taken_and_named_from_the_target_on(load):
    (arm,) = load(
        drafting(
            "{draft: {quantize: int8, under: {draft: {quantize: mxfp4, under: {draft: {quantize: int2, under: "
            "{draft: ngram}}}}}}}"
        )
    ).variants
    assert arm.speculation.depth == 4
    assert arm.speculation.names == ("int8 per row draft", "mxfp4 draft", "int2 g32 draft", "ngram")


def test_a_draft_that_learns_knows_its_data_by_their_content(load):
    (arm,) = load(drafting("{draft: {quantize: {method: gptq, calibration: calibration}}}")).variants
    recipe = arm.speculation.draft.quantize
    assert recipe.calibration.endswith("calibration.jsonl")
    assert len(recipe.calibration_sha256) == 64


FOUR = (
    "q: {quantize: int4, arm: quantization}",
    "s: {speculation: {draft: {quantize: mxfp4}}, arm: speculation}",
    "x: {quantize: int4, speculation: {draft: {quantize: mxfp4}}, arm: both}",
)


def four(*changes: tuple[str, str], more: str = "") -> str:
    text = variants(*FOUR) + more
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def test_four_arms_of_our_own_engine_are_taken(load):
    gate = load(four())
    assert gate.four_arm is not None
    assert [arm.speculation is not None for arm in gate.variants] == [False, True, True]


DRAWN = "generation: {temperature: 0.7}\n"
LOSSLESS = "}}, arm: speculation", "}, tokens: 4, rule: speculative_sampling}, arm: speculation"
TYPICAL = "}}, arm: both", "}, tokens: 4, rule: typical}, arm: both"


@pytest.mark.parametrize(
    ("changes", "more", "line", "message"),
    [
        ([("{quantize: int4, arm", "{quantize: int4, speculation: {draft: ngram}, arm")], "", 4,
         "q is the arm that is quantized alone, and it speculates"),
        ([("s: {", "s: {quantize: int8, ")], "", 5, "s is the arm that speculates alone, and it is quantized"),
        ([("x: {quantize: int4, ", "x: {")], "", 6, "x is the arm that does both, and its weights are the baseline's"),
        ([TYPICAL], "", 6, "`parity: identical` promises the target's own tokens, and `rule: typical` of x changes"),
        ([TYPICAL], "four_arm: {parity: sampled}\n" + DRAWN, 6, "promises answers of the same distribution"),
        ([LOSSLESS], DRAWN, 5, "`rule: speculative_sampling` of s draws other tokens of the same distribution; write "
         "`four_arm: {parity: sampled}`"),
    ],
)  # fmt: skip
def test_an_arm_does_what_its_part_and_its_parity_say(faults, changes, more, line, message):
    found = faults(four(*changes, more=more))
    assert [number for number, text in found if message in text] == [line], found


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        ([TYPICAL], "four_arm: {parity: lossy}\n"),
        ([LOSSLESS], ""),  # at temperature 0 it says the likeliest tokens
        ([LOSSLESS], "four_arm: {parity: sampled}\n" + DRAWN),
        ([LOSSLESS, TYPICAL], "four_arm: {parity: lossy}\n" + DRAWN),
    ],
)
def test_a_rule_that_keeps_what_parity_says_is_taken(load, changes, more):
    assert load(four(*changes, more=more)).four_arm is not None


@pytest.mark.parametrize(
    "said",
    [
        "{draft: ngram, rule: block_verification}",
        "{draft: {quantize: mxfp4, under: {draft: ngram}}, tokens: 4, rule: typical}",
    ],
)
def test_a_rule_under_which_lengths_of_drafts_count_wants_them_said_at_every_level(faults, said):
    ((_, text),) = faults(drafting(said))
    assert "`tokens: auto` depends on measured time" in text
    assert "tokens: 5" in text


def test_a_rule_that_changes_the_distribution_is_taken_where_nobody_promises_parity(load):
    (arm,) = load(drafting("{draft: ngram, tokens: 3, rule: lenient}")).variants
    assert not arm.speculation.lossless


def test_every_fault_of_a_draft_and_of_its_cascade_is_said_at_once(faults):
    draft = ("    draft:", "      quantize: mxfp5", "      under:", "        draft: ngrm", "        tokens: 0")
    text = variants("a:", "  speculation:", *draft, "    tokens: 77", "    rule: none")
    assert sorted(line for line, _ in faults(text)) == [7, 9, 10, 11, 12]


def test_a_stored_run_is_decided_again_without_the_drafts_folder(load, tmp_path):
    (arm,) = load(drafting("{draft: {model: ./gone}}"), files=False).variants
    assert arm.speculation is not None
    assert arm.speculation.draft.model == str(tmp_path / "gone")
