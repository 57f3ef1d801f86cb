"""Flags of other servers: what a proposer, its length and its rule mean there, and where there is no equal."""

from __future__ import annotations

import json
import shlex

import pytest

from qualgate.records import DraftSource, QuantizeRecipe, Speculation
from qualgate.report.peer_flags import draft_command, peer_flags

NGRAM, SUFFIX = DraftSource(kind="ngram"), DraftSource(kind="suffix")
SMALL = DraftSource(kind="model", model="./models/support small")
INT4 = QuantizeRecipe(method="int4", group_size=32)


def flags(draft: DraftSource, rule="keyed", tokens: int = 5) -> dict[str, list[str]]:
    """By server, as a shell reads them."""
    return {one.server: shlex.split(one.flags) for one in peer_flags(Speculation(draft=draft, rule=rule), tokens)}


def config(draft: DraftSource, rule="keyed", tokens: int = 5) -> dict:
    name, given = flags(draft, rule, tokens)["vLLM"]
    assert name == "--speculative-config"
    return json.loads(given)


def notes(draft: DraftSource, rule="keyed") -> dict[str, str]:
    return {one.server: "; ".join(one.notes) for one in peer_flags(Speculation(draft=draft, rule=rule), 5)}


def test_vllm_gets_the_method_and_its_own_names_of_length_and_folder():
    assert config(NGRAM) == {
        "method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_min": 2, "prompt_lookup_max": 8,
    }  # fmt: skip
    assert config(SUFFIX, tokens=16) == {"method": "suffix", "num_speculative_tokens": 16}
    assert config(SMALL) == {"method": "draft_model", "num_speculative_tokens": 5, "model": "./models/support small"}
    made = DraftSource(kind="quantize", quantize=INT4)
    assert config(made)["model"] == "DRAFT"


def test_sglang_counts_the_token_before_the_draft_and_takes_a_chain_for_a_tree_of_one():
    given = flags(SMALL)["SGLang"]
    assert dict(zip(given[::2], given[1::2], strict=True)) == {
        "--speculative-algorithm": "STANDALONE", "--speculative-draft-model-path": "./models/support small",
        "--speculative-num-steps": "5", "--speculative-eagle-topk": "1", "--speculative-num-draft-tokens": "6",
    }  # fmt: skip
    assert flags(NGRAM)["SGLang"] == ["--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", "6"]
    assert "the nearest it has" in notes(SUFFIX)["SGLang"]
    assert "unquant" in notes(SMALL)["SGLang"]


@pytest.mark.parametrize(
    ("draft", "rule", "without"),
    [
        (SMALL, "typical", {"vLLM", "SGLang"}),
        (SMALL, "lenient", {"vLLM", "SGLang"}),
        (SMALL, "block_verification", {"SGLang"}),
        (SMALL, "speculative_sampling", set()),
        (NGRAM, "keyed", set()),
    ],
)
def test_where_a_server_has_no_equal_it_gets_no_flags_and_a_reason(draft, rule, without):
    found = peer_flags(Speculation(draft=draft, rule=rule), 4)
    assert {one.server for one in found if not one.flags} == without
    assert all("it has no" in one.notes[0] for one in found if not one.flags)


def test_a_published_eagle_3_head_is_read_by_both_servers_as_it_lies_there():
    head = DraftSource(kind="head", head="./heads/eagle 3")
    assert config(head, tokens=3) == {"method": "eagle3", "num_speculative_tokens": 3, "model": "./heads/eagle 3"}
    given = flags(head, tokens=3)["SGLang"]
    assert dict(zip(given[::2], given[1::2], strict=True)) == {
        "--speculative-algorithm": "EAGLE3", "--speculative-draft-model-path": "./heads/eagle 3",
        "--speculative-num-steps": "3", "--speculative-eagle-topk": "1", "--speculative-num-draft-tokens": "4",
    }  # fmt: skip
    assert "unquant" not in notes(head)["SGLang"]


def test_a_model_s_own_layer_needs_no_folder_and_both_servers_draft_by_it():
    own = DraftSource(kind="head", head="own")
    assert config(own, tokens=2) == {"method": "mtp", "num_speculative_tokens": 2}
    given = flags(own, tokens=2)["SGLang"]
    assert dict(zip(given[::2], given[1::2], strict=True)) == {
        "--speculative-algorithm": "EAGLE", "--speculative-num-steps": "2", "--speculative-eagle-topk": "1",
        "--speculative-num-draft-tokens": "3",
    }  # fmt: skip


def test_rules_of_acceptance_that_vllm_has_are_asked_for_by_its_names():
    assert config(SMALL, "block_verification")["rejection_sample_method"] == "block"
    assert config(SMALL, "speculative_sampling")["draft_sample_method"] == "probabilistic"
    assert "draft_sample_method" not in config(NGRAM, "speculative_sampling"), "its drafts are one token each"
    assert "drawn tokens are others of the same distribution" in notes(SMALL)["vLLM"]
    assert "drawn tokens" not in notes(SMALL, "speculative_sampling")["vLLM"]


def test_a_cascade_is_told_to_lose_its_lower_levels():
    cascade = DraftSource(kind="model", model="m", under=Speculation(draft=NGRAM))
    assert all("ngram is left out" in said for said in notes(cascade).values())


def test_the_command_that_makes_a_draft_says_its_whole_recipe():
    def command(recipe: QuantizeRecipe, model: str = "") -> str:
        return draft_command(
            Speculation(draft=DraftSource(kind="model" if model else "quantize", model=model, quantize=recipe))
        )

    assert draft_command(Speculation(draft=SMALL)) == ""
    assert (
        command(QuantizeRecipe(method="mxfp4", group_size=32)) == "qualgate quantize MODEL --method mxfp4 --out DRAFT"
    )
    assert command(INT4, "my model") == "qualgate quantize 'my model' --method int4 --group-size 32 --out DRAFT"
    gptq = QuantizeRecipe(
        method="gptq", bits=4, group_size=128, symmetric=False, calibration="c.yaml", calibration_sha256="0" * 64,
        keep=(("*.down_proj", "int8"),), act_order="static",
    )  # fmt: skip
    assert shlex.split(command(gptq)) == [
        "qualgate", "quantize", "MODEL", "--method", "gptq", "--bits", "4", "--group-size", "128", "--calibration",
        "c.yaml", "--keep", "*.down_proj=int8", "--option", "symmetric=false", "--option", "act_order=static", "--out",
        "DRAFT",
    ]  # fmt: skip
