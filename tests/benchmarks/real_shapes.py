"""Rows of benchmark `real-size` on models of 0.5B and 1.5B parameters, which have random weights and no words to say:
decoding beside transformers, and int4 beside our own bfloat16."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

import torch

from qualgate.engine.loaded import LoadedArm
from qualgate.records import Prompt, UnitKey
from tests.benchmarks import ours, peers
from tests.benchmarks.goals import REAL_SIZE
from tests.benchmarks.race import race, shown, standing
from tests.benchmarks.real_ground import KIND, OF_BFLOAT16, RECIPES, Found, Ground, endless, row
from tests.benchmarks.shape import told
from tests.benchmarks.speculating import Told, answered

VOCABULARY = 151_936


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Of a Qwen2 whose output head is tied to its embedding. tokens: that each answer has here."""

    width: int
    inner: int
    layers: int
    heads: int
    heads_of_keys: int = 2
    vocabulary: int = VOCABULARY
    tokens: int = 32


SHAPES = {
    "05b": Shape(width=896, inner=4864, layers=24, heads=14),
    "15b": Shape(width=1536, inner=8960, layers=28, heads=12, tokens=16),
}
PROMPT_TOKENS = (16, 32)  # from, to
AT_ONCE = 12
MOST_ROUNDS = 3  # beside transformers, whose turns are long


def write_random(shape: Shape, tokenizer_of: Path, out: Path) -> Path:
    """A bfloat16 model of `shape` in folder `out`: seeded normal weights and biases of deviation 0.02, norms of ones,
    and the tokenizer of the folder `tokenizer_of`."""
    from transformers import AutoModelForCausalLM, Qwen2Config

    config = Qwen2Config(
        vocab_size=shape.vocabulary, hidden_size=shape.width, intermediate_size=shape.inner,
        num_hidden_layers=shape.layers, num_attention_heads=shape.heads, num_key_value_heads=shape.heads_of_keys,
        max_position_embeddings=2048, tie_word_embeddings=True, bos_token_id=None, eos_token_id=2, pad_token_id=None,
    )  # fmt: skip
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.to_empty(device="cpu").tie_weights()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():  # the tied head is named once
            if name.endswith("norm.weight"):
                parameter.fill_(1.0)
            else:
                parameter.normal_(0, 0.02, generator=generator)
    weights = ("*.safetensors*", "*.md", "config.json", "generation_config.json")
    shutil.copytree(tokenizer_of, out, ignore=shutil.ignore_patterns(*weights))
    model.save_pretrained(out)
    return out


def random_prompts(count: int, vocabulary: int, tokens: int) -> list[Prompt]:
    """Prompts of random token ids, 16 to 32 each, with answers of `tokens`."""
    draw = Random(0)
    return [
        Prompt(
            key=UnitKey("baseline", "random", str(at)),
            case_hash="",
            token_ids=tuple(draw.randrange(vocabulary) for _ in range(draw.randint(*PROMPT_TOKENS))),
            max_new_tokens=tokens,
        )
        for at in range(count)
    ]


def folder_of(ground: Ground, name: str) -> Path:
    """The model of one of SHAPES, written once."""
    out = ground.work / f"random-{name}"
    return out if out.exists() else write_random(SHAPES[name], ground.model, out)


def plain(ground: Ground, id: str) -> Found:
    """Our bfloat16 weights beside transformers' float32 of the same numbers, all rows at once."""
    name = id.removeprefix("plain_")
    folder, shape = folder_of(ground, name), SHAPES[name]
    prompts = {KIND: random_prompts(AT_ONCE, shape.vocabulary, shape.tokens)}
    arm = endless(ours.load(id, folder, ground.work / "cache"))
    peer = peers.Transformers(peers.load_transformers(folder), (), prompts).at("generate", {KIND: AT_ONCE})
    rounds = race(id, {"ours": ours.plain(arm, prompts), "generate": peer}, [KIND], min(MOST_ROUNDS, ground.rounds))
    said = {token for answer in rounds[0][KIND]["ours"].said for token in answer}
    return shown(id, rounds), row(id, standing(rounds, "ours", "generate"), different_tokens=len(said))


def int4(ground: Ground, id: str) -> Found:
    """int4 beside our own bfloat16 of a shape, or of the chat model."""
    if id == "int4_05b":
        folder, shape = folder_of(ground, "05b"), SHAPES["05b"]
        prompts = random_prompts(AT_ONCE, shape.vocabulary, shape.tokens)
    else:
        folder, prompts = ground.model, ground.prompts[KIND]
    arms = {
        "bfloat16": endless(ours.load("baseline", folder, ground.work / "cache")),
        "int4": endless(ours.load("int4", folder, ground.work / "cache", RECIPES["int4"])),
    }
    held = {name: arm.footprint.facts["memory.weights"] for name, arm in arms.items()}
    groups = {"alone": [[one] for one in prompts[: ground.singles]], "at_once": [prompts]}
    rounds = list[dict[str, Any]]()
    for at in told(id, range(ground.rounds), lambda done: f"round {done + 1}"):
        order = [*arms] if at % 2 == 0 else [*reversed(arms)]
        found = {way: {name: step_seconds(arms[name], of) for name in order} for way, of in groups.items()}
        rounds.append({"race": id, "seconds_a_step": found})
    ratios = {
        way: [one["seconds_a_step"][way]["bfloat16"] / one["seconds_a_step"][way]["int4"] for one in rounds]
        for way in groups
    }
    middle = {way: median(mine) for way, mine in ratios.items()}
    met = all(middle[way] >= least for way, least in OF_BFLOAT16.items())
    spread = {way: [min(mine), max(mine)] for way, mine in ratios.items()}
    of_bytes = {"bytes_of_weights": held["bfloat16"] / held["int4"]}
    return rounds, REAL_SIZE.row(id, middle, met=met, spread=spread) | of_bytes


def step_seconds(arm: LoadedArm, groups: Sequence[Sequence[Prompt]]) -> float:
    """Seconds of a pass that decodes, after all prompts of a group are read; the middle group's."""
    return median(_of_step(answered(arm, group, batch=len(group), at_once=True)) for group in groups)


def _of_step(run: Told) -> float:
    return (max(run.last) - max(run.first)) / (max(map(len, run.tokens)) - 1)
