"""Training: it resumes to the same weights, its optimizer and its planted start do what they say."""

from __future__ import annotations

import json
import random
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from qualgate.engine.load import load_arm
from qualgate.records import ArmSpec
from qualgate.refmodel import PATH
from qualgate.refmodel.training import train as training
from qualgate.refmodel.training.muon import orthogonal
from qualgate.refmodel.training.tasks import training_case
from qualgate.refmodel.training.train import (
    IGNORED,
    SIZES,
    Recipe,
    answer_loss,
    build,
    learning_rate_factor,
    model_config,
    step_batches,
    train,
)
from qualgate_evalsets.making.values import Split, Values
from tests.depth import with_proofs

TINY = Recipe(width=128, layers=2, heads=4, mlp=64, tokens_per_step=300, tokens_per_batch=200)
OTHER = replace(TINY, seed=1)
GROUPED = replace(TINY, width=256, heads=8, kv_heads=4)  # two query heads a key head, as `small` has them


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(PATH)


@pytest.fixture(scope="module")
def stopped(tokenizer, tmp_path_factory) -> Path:
    """A training of TINY over two steps that stopped after the first."""
    folder = tmp_path_factory.mktemp("stopped")
    train(folder, TINY, steps=2, stop_after=1, tokenizer=tokenizer)
    return folder


def test_three_steps_in_two_goes_give_the_weights_of_three_steps_in_one(tokenizer, tmp_path: Path):
    train(tmp_path / "one", GROUPED, steps=3, tokenizer=tokenizer)
    train(tmp_path / "two", GROUPED, steps=3, stop_after=1, tokenizer=tokenizer)
    done = train(tmp_path / "two", GROUPED, steps=3, tokenizer=tokenizer)
    one, two = (load_file(tmp_path / run / "model" / "model.safetensors") for run in ("one", "two"))
    assert done.step == 3
    assert one.keys() == two.keys()
    assert all(torch.equal(one[name], two[name]) for name in one)


def test_a_checkpoint_is_not_continued_with_another_recipe_or_length(tokenizer, stopped: Path):
    for recipe, steps in ((TINY, 3), (OTHER, 2)):
        with pytest.raises(SystemExit, match="another recipe or length"):
            train(stopped, recipe, steps=steps, tokenizer=tokenizer)


def test_a_checkpoint_from_before_key_heads_were_a_choice_is_continued(tokenizer, stopped: Path, tmp_path: Path):
    saved = torch.load(stopped / "checkpoint.pt", weights_only=True)
    del saved["given"]["kv_heads"]
    torch.save(saved, tmp_path / "checkpoint.pt")
    assert train(tmp_path, TINY, steps=2, tokenizer=tokenizer).step == 2


def test_products_in_bfloat16_give_nearly_the_loss_of_float32_and_gradients_in_float32(tokenizer):
    model = build(TINY, tokenizer)
    batch = step_batches(TINY, tokenizer, 0, 0.5)[0]
    exact = answer_loss(model, batch).item()
    rounded = answer_loss(model, batch, bf16=True)
    rounded.backward()
    assert rounded.item() != exact  # else nothing was rounded
    assert abs(rounded.item() - exact) < 0.01 * exact  # 8 bits a factor, over two layers
    assert {parameter.grad.dtype for parameter in model.parameters()} == {torch.float32}


def test_another_seed_gives_other_weights(tokenizer):
    one, other = (build(recipe, tokenizer).model.embed_tokens.weight for recipe in (TINY, OTHER))
    assert not torch.equal(one, other)


def test_a_grouped_model_learns_in_a_few_steps_and_loads_as_an_arm(tokenizer, tmp_path: Path):
    unseen = step_batches(replace(GROUPED, tokens_per_step=2_000), tokenizer, 1_000, 0.5)
    train(tmp_path, GROUPED, steps=12, tokenizer=tokenizer)
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    assert exported.dtype == torch.bfloat16
    assert exported.generation_config.eos_token_id == tokenizer.eos_token_id
    assert len(AutoTokenizer.from_pretrained(tmp_path / "model")) == 768
    arm = load_arm(ArmSpec(name="baseline", model=str(tmp_path / "model")), tmp_path, {}, device="cpu")
    assert arm.model.config.num_key_value_heads == 4
    with safe_open(tmp_path / "model" / "model.safetensors", "pt") as tensors:
        assert tensors.get_slice("model.layers.0.self_attn.k_proj.weight").get_shape() == [128, 256]
        assert {tensors.get_slice(name).get_dtype() for name in tensors.keys()} == {"BF16"}  # noqa: SIM118
    models = (build(GROUPED, tokenizer), exported.float())
    before, after = (sum(answer_loss(model, batch).item() for batch in unseen) for model in models)
    assert after < 0.9 * before  # 0.75 to 0.80 of it, over four seeds


def test_small_has_25_to_30_million_parameters_and_two_query_heads_a_key_head(tokenizer):
    with torch.device("meta"):
        model = LlamaForCausalLM(model_config(SIZES["small"], tokenizer))
    assert 25e6 <= model.num_parameters() <= 30e6
    attention = model.model.layers[0].self_attn
    for shared in (attention.k_proj, attention.v_proj):
        assert 2 * shared.weight.shape[0] == attention.q_proj.weight.shape[0]


def test_tiny_is_the_shape_of_the_shipped_weights(tokenizer):
    shipped = json.loads((PATH / "config.json").read_text(encoding="utf-8"))
    mine = model_config(SIZES["tiny"], tokenizer).to_dict()
    told_by_export = {"architectures", "dtype", "transformers_version"}
    assert {key: mine[key] for key in shipped.keys() - told_by_export} == {
        key: shipped[key] for key in shipped.keys() - told_by_export
    }


@pytest.mark.parametrize(
    ("words", "recipe"),
    [
        ([], Recipe()),
        (["--size", "tiny", "--bf16"], Recipe(bf16=True)),
        (["--size", "small", "--seed", "3"], replace(SIZES["small"], seed=3)),
    ],
)
def test_the_command_trains_the_size_that_is_named_and_tiny_if_none(
    words: list[str], recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    asked = []
    monkeypatch.setattr(training, "train", lambda out, recipe, **rest: asked.append((out, recipe, rest["steps"])))
    threads = str(torch.get_num_threads())
    monkeypatch.setattr(sys, "argv", ["train", "--out", str(tmp_path), "--steps", "5", "--threads", threads, *words])
    training.main()
    assert asked == [(tmp_path, recipe, 5)]


def test_a_steps_batches_depend_on_seed_and_step_alone_and_only_answers_are_learned(tokenizer):
    first, again, other = (step_batches(TINY, tokenizer, step, 0.5) for step in (4, 4, 5))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])
    for ids, labels in first:
        learned = labels != IGNORED
        assert torch.equal(ids[learned], labels[learned])
        assert (learned.sum(1) < (ids != tokenizer.pad_token_id).sum(1)).all()
        assert (labels == tokenizer.eos_token_id).sum() == len(ids)  # each answer ends once


def test_training_cases_come_from_the_training_side_alone(monkeypatch: pytest.MonkeyPatch):
    sides = []
    real = Values.__init__

    def noted(self: Values, rng: random.Random, split: Split) -> None:
        sides.append(split)
        real(self, rng, split)

    monkeypatch.setattr(Values, "__init__", noted)
    rng = random.Random(0)
    for progress in (0.0, 0.01, 0.5, 1.0):
        for _ in range(50):
            training_case(rng, progress)
    assert len(sides) >= 200
    assert set(sides) == {"train"}


def test_training_cases_grow_harder():
    def mean_length(progress: float) -> float:
        rng = random.Random(0)
        return sum(len(training_case(rng, progress)["answer"]) for _ in range(400)) / 400

    assert mean_length(0.9) > 1.3 * mean_length(0.05)


def test_learning_rate_rises_holds_and_falls_to_zero():
    assert learning_rate_factor(TINY, 0.0) == 0
    assert learning_rate_factor(TINY, 0.2) == 1
    assert learning_rate_factor(TINY, 1.0) == 0
    assert 0 < learning_rate_factor(TINY, 0.9) < learning_rate_factor(TINY, 0.7) < 1


def test_orthogonal_brings_singular_values_near_one():
    generator = torch.Generator().manual_seed(0)
    for dtype in (torch.float32, torch.bfloat16):
        for shape in ((3, 32, 16), (2, 16, 32), (1, 16, 16)):
            matrices = torch.randn(shape, generator=generator).to(dtype)
            values = torch.linalg.svdvals(orthogonal(matrices).float())
            assert values.max() < 1.3
            assert values.median() > 0.6


@pytest.mark.parametrize("size", with_proofs(SIZES, ["small"]))
def test_a_planted_model_copies_before_it_has_learned_anything(size: str, tokenizer):
    torch.manual_seed(0)
    model = build(SIZES[size], tokenizer).eval()
    words = torch.randint(260, 760, (8, 20))
    with torch.inference_mode():
        logits = model(torch.cat([words, words], 1)).logits[:, 20:-1]
    assert (logits.argmax(-1) == words[:, 1:]).float().mean() > 0.7
