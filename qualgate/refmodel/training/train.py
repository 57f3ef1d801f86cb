"""Train the reference model from nothing on generated tasks, on a CPU, within a time limit.

    python -m qualgate.refmodel.training.train --out FOLDER --minutes 65 --seed 0 --threads 2 --compile --bf16

`--size small` makes one of 25.6 million parameters in place of 4.1, two query heads a key head; it is shipped nowhere.
Run again on the same folder it goes on where it stopped. The data of a step depends on the seed, the step and the
progress alone; with `--steps` in place of `--minutes` progress is step / steps, and the whole run repeats bit by bit.
"""

# transformers and torch type these attributes and calls too loosely for a checker.
# pyrefly: ignore-errors[bad-argument-type, bad-assignment, missing-attribute, unexpected-keyword]
from __future__ import annotations

import argparse
import json
import logging
import os
import random
import shutil
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional
from transformers import AutoTokenizer, GenerationConfig, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from qualgate.refmodel import PATH
from qualgate.refmodel.training.copying import plant
from qualgate.refmodel.training.evaluate import evaluate
from qualgate.refmodel.training.muon import Muon
from qualgate.refmodel.training.tasks import training_case

log = logging.getLogger(__name__)

IGNORED = -100  # the label of a token that is not learned: prompt and padding
SAVE_EVERY = 300.0  # seconds between checkpoints


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Settings that determine the weights, besides the time limit."""

    seed: int = 0
    width: int = 256
    layers: int = 6
    heads: int = 4
    kv_heads: int = 4  # fewer than `heads`: neighbouring query heads share keys and values
    mlp: int = 512
    context: int = 1024
    tokens_per_step: int = 8_000
    tokens_per_batch: int = 3_000  # a step is cut into batches of like length: less padding, less cache traffic
    bf16: bool = False  # products in bfloat16; weights, sums of squares and optimizer states stay float32
    matrix_lr: float = 0.003  # Muon, hidden matrices
    other_lr: float = 0.0015  # AdamW, embedding and norms
    weight_decay: float = 0.05
    warm_up: float = 0.01  # of the run
    decay_from: float = 0.4  # of the run; from there the learning rate falls linearly to zero


SIZES = {
    "tiny": Recipe(),  # what is shipped
    "small": Recipe(width=512, layers=8, heads=8, kv_heads=4, mlp=1536),  # 25.6 million parameters
}


@dataclass
class Progress:
    """Progress of a run."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0


def model_config(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> LlamaConfig:
    """Return the shape that `recipe` asks for, over the tokenizer's vocabulary."""
    return LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=recipe.width,
        intermediate_size=recipe.mlp,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.kv_heads,
        max_position_embeddings=recipe.context,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        attn_implementation="eager",  # for answers of some hundred tokens; the CPU's fused backward is slower
    )


def build(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Return the untrained model: float32, random by the seed, with the planted start of `copying`."""
    torch.manual_seed(recipe.seed)
    model = LlamaForCausalLM(model_config(recipe, tokenizer))
    plant(model, recipe.seed)
    return model


def encode(case: dict[str, Any], tokenizer: PreTrainedTokenizerFast) -> tuple[list[int], int]:
    """Return the token ids of prompt, answer and end token, and how many of them are the prompt."""
    prompt = tokenizer.apply_chat_template(
        case["messages"], tools=case.get("tools"), add_generation_prompt=True, tokenize=False
    )
    encode_text = tokenizer.backend_tokenizer.encode
    prompt_ids = encode_text(prompt, add_special_tokens=False).ids
    answer_ids = encode_text(case["answer"], add_special_tokens=False).ids
    return [*prompt_ids, *answer_ids, tokenizer.eos_token_id], len(prompt_ids)


def step_batches(recipe: Recipe, tokenizer: PreTrainedTokenizerFast, step: int, progress: float) -> list[torch.Tensor]:
    """Return the batches of one step: int64 [2, rows, tokens], ids above labels; padded right, shortest rows first."""
    rng = random.Random(f"{recipe.seed}/{step}")
    rows: list[tuple[list[int], int]] = []
    while sum(len(ids) for ids, _ in rows) < recipe.tokens_per_step:
        rows.append(encode(training_case(rng, progress), tokenizer))
    rows.sort(key=lambda row: len(row[0]))
    batches: list[list[tuple[list[int], int]]] = [[]]
    for row in rows:
        if (len(batches[-1]) + 1) * len(row[0]) > recipe.tokens_per_batch and batches[-1]:
            batches.append([])
        batches[-1].append(row)
    if len(batches[-1]) == 1 and len(batches) > 1:  # one row alone would be compiled once more, for its own shape
        lonely = batches.pop()
        batches[-1] += lonely
    return [pad(batch, tokenizer.pad_token_id) for batch in batches]


def pad(rows: list[tuple[list[int], int]], pad_id: int) -> torch.Tensor:
    """Return int64 [2, rows, tokens], ids above labels, from rows of ids and how many of them are the prompt."""
    longest = max(len(ids) for ids, _ in rows)
    ids = [ids + [pad_id] * (longest - len(ids)) for ids, _ in rows]
    labels = [[IGNORED] * n + ids[n:] + [IGNORED] * (longest - len(ids)) for ids, n in rows]
    return torch.tensor([ids, labels])


def answer_loss(model: LlamaForCausalLM, batch: torch.Tensor, bf16: bool = False) -> torch.Tensor:
    """Return the summed cross-entropy of the answer tokens, in nats. Padding is right of them: causality hides it."""
    ids, labels = batch
    learned = labels[:, 1:] != IGNORED
    with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        hidden = model.model(ids[:, :-1], use_cache=False).last_hidden_state
        logits = model.lm_head(hidden[learned])
    return functional.cross_entropy(logits.float(), labels[:, 1:][learned], reduction="sum")


def learning_rate_factor(recipe: Recipe, progress: float) -> float:
    """Return the share of the full rate: up over `warm_up`, level to `decay_from`, then to 0. progress: 0..1."""
    return min(1.0, progress / recipe.warm_up, (1 - progress) / (1 - recipe.decay_from))


def optimizers(model: LlamaForCausalLM, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """Return Muon for hidden matrices, then AdamW for embedding and norms."""
    matrices = [p for p in model.model.layers.parameters() if p.ndim == 2]
    adam_parameters = [p for p in model.parameters() if p.ndim == 1] + [model.model.embed_tokens.weight]
    return [
        Muon(matrices, lr=recipe.matrix_lr, weight_decay=recipe.weight_decay, bf16=recipe.bf16),
        torch.optim.AdamW(adam_parameters, lr=recipe.other_lr, betas=(0.9, 0.98), weight_decay=0.0),
    ]


def train(
    out: Path,
    recipe: Recipe,
    *,
    minutes: float | None = None,
    steps: int | None = None,
    stop_after: int | None = None,
    tokenizer: PreTrainedTokenizerFast | None = None,
    eval_cases: int = 0,
    compiled: bool = False,
) -> Progress:
    """Train until the time or the steps are used up (or `stop_after` steps of this call) and export to `out`.

    minutes, steps: the whole run's length, one of the two; it sets curriculum and learning rate.
    compiled:       faster by half, after two minutes of compiling; needs a C++ compiler.
    Each checkpoint comes with an export and `eval_cases` scored cases a family.
    """
    tokenizer = tokenizer or AutoTokenizer.from_pretrained(PATH)
    model = build(recipe, tokenizer)
    if compiled:
        model.model.forward = torch.compile(model.model.forward, dynamic=True)
    updates = optimizers(model, recipe)
    checkpoint = out / "checkpoint.pt"
    settings = asdict(recipe) | {"steps": steps}
    state = _resumed(checkpoint, settings, model, updates) if checkpoint.exists() else Progress()
    started, last_save, unlogged_steps, total_loss = time.monotonic() - state.seconds, time.monotonic(), 0, 0.0

    def progress() -> float:
        return state.step / steps if steps else state.seconds / (60 * (minutes or 0.0))

    first = state.step
    while progress() < 1 and (stop_after is None or state.step - first < stop_after):
        batches = step_batches(recipe, tokenizer, state.step, progress())
        total_loss += _step(model, updates, recipe, batches, progress())
        state.tokens += sum(int((batch[0] != tokenizer.pad_token_id).sum()) for batch in batches)
        state.step += 1
        state.seconds = time.monotonic() - started
        unlogged_steps += 1
        if unlogged_steps == 25:
            log.info(
                "step %d  progress %.3f  loss %.4f  tokens/s %.0f",
                state.step, progress(), total_loss / unlogged_steps, state.tokens / state.seconds,
            )  # fmt: skip
            unlogged_steps, total_loss = 0, 0.0
        if time.monotonic() - last_save > SAVE_EVERY:
            save(out, checkpoint, model, tokenizer, updates, state, settings, eval_cases)
            last_save = time.monotonic()
    save(out, checkpoint, model, tokenizer, updates, state, settings, eval_cases)
    return state


def _resumed(
    checkpoint: Path, settings: dict[str, Any], model: LlamaForCausalLM, updates: list[torch.optim.Optimizer]
) -> Progress:
    """Load model and optimizers from a checkpoint and return its progress. SystemExit if it is of another recipe or
    length."""
    saved = torch.load(checkpoint, weights_only=True)
    if asdict(Recipe()) | saved["given"] != settings:  # an older checkpoint lacks keys that had one value then
        raise SystemExit(f"{checkpoint} is of another recipe or length; give its own again, or another --out")
    model.load_state_dict(saved["model"])
    for optimizer, optimizer_state in zip(updates, saved["optimizers"], strict=True):
        optimizer.load_state_dict(optimizer_state)
    return Progress(**saved["progress"])


def _step(
    model: LlamaForCausalLM,
    updates: list[torch.optim.Optimizer],
    recipe: Recipe,
    batches: list[torch.Tensor],
    progress: float,
) -> float:
    """Take one step of both optimizers, and return the loss in nats per answer token."""
    answers = sum(int((batch[1] != IGNORED).sum()) for batch in batches)
    total = 0.0
    for batch in batches:
        loss = answer_loss(model, batch, recipe.bf16) / answers
        loss.backward()
        total += loss.item()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    for optimizer, rate in zip(updates, (recipe.matrix_lr, recipe.other_lr), strict=True):
        for group in optimizer.param_groups:
            group["lr"] = rate * learning_rate_factor(recipe, progress)
        optimizer.step()
        optimizer.zero_grad()
    return total


def save(
    out: Path,
    checkpoint: Path,
    model: LlamaForCausalLM,
    tokenizer: PreTrainedTokenizerFast,
    updates: list[torch.optim.Optimizer],
    state: Progress,
    settings: dict[str, Any],
    eval_cases: int,
) -> None:
    """Export the model and replace the checkpoint as a whole; with `eval_cases`, log scores of that many a family."""
    out.mkdir(parents=True, exist_ok=True)
    export(out / "model", model, tokenizer)
    partial = checkpoint.with_suffix(".partial")
    torch.save(
        {
            "model": model.state_dict(),
            "optimizers": [u.state_dict() for u in updates],
            "progress": vars(state),
            "given": settings,
        },
        partial,
    )
    os.replace(partial, checkpoint)
    if eval_cases:
        scores = evaluate(out / "model", seed=10_000 + state.step, cases=eval_cases)
        log.info("step %d  %s", state.step, json.dumps(scores))


def export(folder: Path, model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast) -> None:
    """Write the model as bf16 safetensors with its tokenizer, all at once: a reader never sees half a folder."""
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    rounded = LlamaForCausalLM(model.config)
    rounded.load_state_dict(model.state_dict())
    rounded.generation_config = GenerationConfig(
        do_sample=False, eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id
    )
    rounded.to(torch.bfloat16).save_pretrained(partial)
    tokenizer.save_pretrained(partial)
    shutil.rmtree(folder, ignore_errors=True)
    os.replace(partial, folder)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Train the reference model.")
    parser.add_argument("--out", type=Path, required=True)
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--minutes", type=float)
    length.add_argument("--steps", type=int)
    parser.add_argument("--size", choices=SIZES, default="tiny", help="tiny: the shipped model's (default)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--eval-cases", type=int, default=40, help="cases a family scored at each checkpoint")
    parser.add_argument("--bf16", action="store_true", help="products in bfloat16: for a CPU with units for it (AMX)")
    parser.add_argument("--compile", action="store_true", help="compile the model first; needs a C++ compiler")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    torch.set_num_threads(arguments.threads)
    train(
        arguments.out,
        replace(SIZES[arguments.size], seed=arguments.seed, bf16=arguments.bf16),
        minutes=arguments.minutes,
        steps=arguments.steps,
        eval_cases=arguments.eval_cases,
        compiled=arguments.compile,
    )


if __name__ == "__main__":
    main()
