"""Positions are turned by one set of frequencies, whatever is in the batch and whatever was read before."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from qualgate.engine.determinism import read_batch
from qualgate.engine.identity import identify
from qualgate.engine.job import run_job
from qualgate.engine.rope import fix_rope
from qualgate.errors import NotInThisVersion
from qualgate.quant.model_folder import read_model_folder
from qualgate.records import ArmSpec
from tests.engine.engines import load
from tests.engine.jobs import job, loaded
from tests.tiny_models import PAD, START, VOCABULARY, save_byte_tokenizer

TRAINED, LIMIT = 24, 96
LONG = {"rope_type": "longrope", "rope_theta": 1e4, "long_factor": [4.0] * 8, "short_factor": [1.0] * 8,
        "original_max_position_embeddings": TRAINED}  # fmt: skip
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}
ONE_SET = {"rope_type": "default", "rope_theta": 1e4}
TWO = {"full_attention": DYNAMIC, "sliding_attention": ONE_SET}
KINDS = {
    "longrope": ("phi3", LONG, LIMIT),
    "longrope, made for no more": ("phi3", LONG, TRAINED),
    "dynamic": ("llama", DYNAMIC, TRAINED),
    "dynamic in one kind of layer": ("gemma3_text", TWO, TRAINED),
}


def model_of(folder: Path, arch: str, rope: dict, limit: int) -> Path:
    from transformers import AutoConfig, AutoModelForCausalLM

    kept = {
        "phi3": {"original_max_position_embeddings": TRAINED},
        "gemma3_text": {"layer_types": ["full_attention", "sliding_attention"]},
    }.get(arch, {})
    config = AutoConfig.for_model(
        arch, vocab_size=VOCABULARY, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=limit, initializer_range=0.15, pad_token_id=PAD,
        bos_token_id=START, eos_token_id=3, rope_parameters=rope, **kept,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(0)
        AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    save_byte_tokenizer(folder, context=limit)
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return {name: model_of(tmp_path_factory.mktemp("model"), *kind) for name, kind in KINDS.items()}


@pytest.fixture(scope="module", params=KINDS)
def arm(request, models, tmp_path_factory):
    return loaded(models[request.param], tmp_path_factory.mktemp("cache"))


def test_an_answer_is_the_same_alone_beside_a_long_row_and_after_one(arm):
    work = job(arm, "", count=6)  # prompts of 1 to 60 tokens: on both sides of what the model was trained on
    together = [one.token_ids for one in run_job(arm, work).completions]
    alone = [run_job(arm, replace(work, prompts=(prompt,))).completions[0].token_ids for prompt in work.prompts]
    assert together == alone
    assert {len(prompt.token_ids) + len(said) > TRAINED for prompt, said in zip(work.prompts, alone, strict=True)} == {
        True, False
    }  # fmt: skip


def test_the_longer_set_is_that_of_transformers_for_a_text_that_needs_it(models, tmp_path):
    arm, theirs = loaded(models["longrope"], tmp_path, dtype="float32"), load(models["longrope"])
    ids = torch.randint(256, (40,), generator=torch.Generator().manual_seed(1)).tolist()
    (ours,), (short,) = (read_batch(arm.model, arm.choice, [text]) for text in (ids, ids[:20]))
    whole, other = (theirs(torch.tensor([text])).logits[0] for text in (ids, ids[:20]))
    torch.testing.assert_close(ours, whole, rtol=1e-4, atol=1e-4)
    assert torch.equal(short, ours[:20])
    assert (short - other).abs().max() > 0.1, "transformers would turn a shorter text by other frequencies"


def test_which_set_it_is_is_part_of_what_an_arm_is(models, tmp_path):
    def known(folder: Path) -> str:
        return identify(ArmSpec(name="a", model=str(folder)), read_model_folder(folder), {}, "engine").sampling

    said = {name: known(folder) for name, folder in models.items()}
    none = set()
    for name in ("longrope", "dynamic"):
        folder = Path(shutil.copytree(models[name], tmp_path / name))
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"rope_parameters": ONE_SET}))
        none.add(known(folder))
    assert len(none) == 1
    assert said["longrope"] != said["longrope, made for no more"] == said["dynamic"]
    assert said["dynamic"] not in none


class Elsewhere(nn.Module):
    """Switches in its own forward, as PhiMoE does."""

    rope_type = "longrope"

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(rope_parameters=LONG, max_position_embeddings=LIMIT)
        self.inv_freq = nn.Buffer(torch.ones(8))

    def forward(self, x: torch.Tensor, position_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        scale = 2.0 if position_ids.max() > TRAINED else 1.0
        angles = scale * position_ids[..., None] * self.inv_freq
        return angles.cos(), angles.sin()


class Nowhere(nn.Module):
    rope_type = "dynamic"


def test_what_switches_and_cannot_be_held_is_refused(arm):
    for module in (Elsewhere(), Nowhere()):
        with pytest.raises(NotInThisVersion, match=r"0 turns positions by the length of what is read \(rope_type "):
            fix_rope(nn.Sequential(module), "short")
    with torch.random.fork_rng():
        again = type(arm.model)(arm.model.config)  # whose config does not tell which
    with pytest.raises(NotInThisVersion, match="cannot be held fixed"):
        fix_rope(again, "")
