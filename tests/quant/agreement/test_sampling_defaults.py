"""Sampling defaults that a server would apply: told in the plan, and part of what a served arm is."""

from __future__ import annotations

import pytest

from qualgate.errors import UsageError
from qualgate.pipeline.folder_notes import folder_notes
from qualgate.quant.model_folder import read_model_folder, read_tokenizer_folder
from qualgate.records import ArmSpec, Served
from qualgate.served.declared import identify_served
from tests.quant.agreement.shipped import GENERATION, edited

SET = {"repetition_penalty": 1.3, "temperature": 1.5, "do_sample": True, "top_k": 50}
WARM = {"temperature": 0.7, "do_sample": False}  # vLLM samples all the same
CASES = {  # baseline, variant, words of the line; none: nothing is told
    "neutral": ({}, {"temperature": 1.0, "top_p": 1, "top_k": None, "repetition_penalty": 1.0}, ()),
    "the variant's alone": (
        {}, SET, ("arms differ", "baseline: none", "v: temperature 1.5", "repetition_penalty 1.3", "vllm, sglang"),
    ),
    "the baseline's alone": (SET, {}, ("arms differ", "v: none")),
    "alike": (SET, SET, ("there are", "baseline, v: temperature 1.5")),
    "though it does not sample": ({}, WARM, ("v: temperature 0.7, do_sample False",)),
    "texts that end an answer": ({}, {"stop_strings": ["\n"]}, ("transformers serve would apply", "stop_strings")),
    "what transformers alone applies": ({}, {"suppress_tokens": [3]}, ("transformers serve would apply",)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_defaults_that_a_server_applies_are_told(tmp_path, name):
    *both, words = CASES[name]
    folders = [
        (arm, read_model_folder(edited(tmp_path / arm, {GENERATION: settings}), hashed=False))
        for arm, settings in zip(("baseline", "v"), both, strict=True)
    ]
    lines = list(folder_notes(folders))
    assert len(lines) == bool(words)
    assert all(word in lines[0] for word in words)


def test_files_beside_the_weights_are_told(tmp_path):
    folder = edited(tmp_path / "v", {"params.json": "{}", "original/model.safetensors": "x"})
    (line,) = folder_notes([("v", read_model_folder(folder, hashed=False))])
    assert line.startswith("v: beside the model's weights its folder holds original/model.safetensors, params.json,")


@pytest.mark.parametrize("value", ["x", {}, [False], 3])
def test_a_do_sample_that_is_no_bool_is_refused(tmp_path, value):
    folder = read_model_folder(edited(tmp_path / "v", {GENERATION: {"do_sample": value}}), hashed=False)
    with pytest.raises(UsageError, match=r"do_sample is .*expected true or false"):
        list(folder_notes([("v", folder)]))


def test_a_served_arm_s_identity_knows_the_defaults_of_its_folder(tmp_path):
    arm = ArmSpec(name="v", model="m", served=Served(endpoint="http://localhost:1/v1", engine="vllm"))
    plain, same, other = (
        identify_served(arm, read_tokenizer_folder(edited(tmp_path / str(place), {GENERATION: settings})), {}, "")
        for place, settings in enumerate(({}, {"temperature": 1.0}, SET))
    )
    assert plain == same
    assert plain.sampling != other.sampling
