"""`qualgate draft compare`: drafts tried on a model and prompts of one's own."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from qualgate.config import load_gate_file
from qualgate.errors import Exit
from qualgate.pipeline.draft_compare import try_drafts
from qualgate.report.draft_compare import comparison_lines
from tests.command_line import qualgate
from tests.gated_model import make_workspace
from tests.tiny_models import save_tiny_model

DRAFTS = ("--draft", "ngram", "--draft", "{draft: {quantize: int8}, tokens: 3}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("drafts")
    make_workspace(found, cases=6, tokens=12)
    rows = [{"id": f"t{n}", "task": "free", "prompt": "once upon a time " * n, "max_new_tokens": 6} for n in (1, 2, 3)]
    (found / "free.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (found / "free.yaml").write_text("name: free\nversion: '1'\nmetrics: [format.nonempty]\n")
    return found


@pytest.fixture(scope="module")
def told(folder):
    done = qualgate(
        "draft", "compare", "./model", "--evalset", "./echo.yaml", "--evalset", "./free.yaml", *DRAFTS, "--cases", "3",
        "--json", cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_each_draft_says_what_was_accepted_of_it_by_task_and_that_answers_are_plain_decoding_s(told):
    assert [one["found"]["spec"]["draft"]["kind"] for one in told] == ["ngram", "quantize"]
    for one in told:
        assert (one["prompts"], one["unlike"]) == (6, 0)
        assert one["found"]["gain"]["measured"]["value"] > 0
        assert one["again"]["value"] > 0
        (level,) = one["found"]["levels"]
        assert level["proposed"] == level["accepted"] + level["rejected"] + level["discarded"]
    int8 = told[1]
    assert set(int8["accepted"]) == {"echo", "free"}
    assert min(int8["accepted"].values()) > 0.5, "its own weights, hardly changed"


def test_the_target_is_counted_without_its_drafts(told):
    memory = told[1]["found"]["memory"]
    assert memory["draft_weights"] > 0
    assert memory["draft_workspace"] > 0
    assert "saved_by_quantization" not in memory, "full precision saved nothing"
    assert (
        memory["draft_cache_token"] == 0
        or memory["draft_cache_token"] == told[1]["found"]["memory"]["draft_cache_token"]
    )


def test_the_gate_file_that_it_writes_has_each_draft_as_a_variant_and_no_file_of_another_is_written_over(told, folder):
    gate_file = folder / "qualgate-drafts.yaml"
    labels = [arm.speculation.label for arm in load_gate_file(gate_file).variants if arm.speculation]
    assert labels == ["ngram, as many tokens as pay", "int8 per row draft, 3 tokens"]
    gate_file.with_name("mine.yaml").write_text("version: 1\n")
    done = qualgate("draft", "compare", "./model", "--evalset", "./free.yaml", "--out", "mine.yaml", cwd=folder)
    assert done.returncode == Exit.USAGE
    assert gate_file.with_name("mine.yaml").read_text() == "version: 1\n", "a file of the user's own stays"


def test_prompts_without_references_are_enough(folder):
    done = qualgate(
        "draft", "compare", "./model", "--evalset", "./free.yaml", "--draft", "ngram", "--cases", "2", cwd=folder
    )
    assert done.returncode == 0, done.stderr
    text = " ".join(done.stdout.split())
    for words in (
        "2 prompts, one sequence at a time", "draft-1: ngram", "plain decoding against itself",
        "answers: those of plain decoding, token for token", "gain a token, measured against plain",
    ):  # fmt: skip
        assert words in text


def test_another_answer_is_called_a_defect_but_where_the_rule_draws_anew(folder):
    gate = load_gate_file(folder / "qualgate-drafts.yaml")
    [found] = try_drafts(gate, 1, folder / "cache", lambda *_: None)
    assert "token for token" in " ".join(comparison_lines([found], "drafts.yaml"))
    other = replace(found, unlike=1)
    assert any("others in 1 of 1: A DEFECT" in line for line in comparison_lines([other], "drafts.yaml"))
    drawn = replace(found.found.spec, rule="block_verification")
    for anew in (True, False):
        lines = comparison_lines([replace(other, found=replace(found.found, spec=drawn), drawn=anew)], "drafts.yaml")
        assert any("DEFECT" in line for line in lines) != anew, "at temperature 0 every rule says the same"


def test_a_damaged_draft_is_named_and_why_drafts_rested_is_told_as_in_a_run(folder):
    damaged = save_tiny_model(folder / "damaged")
    weights = load_file(damaged / "model.safetensors")
    for name in [name for name in weights if "mlp" in name]:
        weights[name] = torch.full_like(weights[name], float("nan"))
    save_file(weights, damaged / "model.safetensors", metadata={"format": "pt"})
    done = qualgate(
        "draft", "compare", "./model", "--evalset", "./free.yaml", "--draft", "{draft: {model: ./damaged}, tokens: 2}",
        "--cases", "2", cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "ended with logits that are no numbers (NaN or infinite), and its target went on alone" in done.stdout
    assert "drafts rested: in 0.0 % of" in done.stdout


@pytest.mark.parametrize(
    ("draft", "words"),
    [
        ("{quantize: mxfp5}", "qualgate-drafts.yaml:6"),
        ("{draft: ngram, tokens: 0}", "`tokens` is a whole number from 1 to 32"),
        ("{model: ./other}", "tokenizer of its draft"),
    ],
)
def test_a_draft_that_cannot_be_is_refused_before_a_model_is_loaded(folder, draft, words):
    other = save_tiny_model(folder / "other", seed=2)
    tokenizer = other / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text().replace("<|start|>", "<|begin|>"))
    done = qualgate("draft", "compare", "./model", "--evalset", "./free.yaml", "--draft", draft, cwd=folder)
    assert done.returncode == Exit.USAGE
    assert words in " ".join(done.stderr.split())
