"""Score a model folder on freshly generated eval cases: exact match a family, greedy, float32 arithmetic.

python -m qualgate.refmodel.training.evaluate FOLDER --seeds 101 102 103 --cases 400
"""

# transformers and torch type these attributes and calls too loosely for a checker.
# pyrefly: ignore-errors[bad-argument-type, missing-attribute, unsupported-operation]
from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache, PreTrainedModel, PreTrainedTokenizerFast

from qualgate.scoring import strict_json
from qualgate_evalsets.families import FAMILIES
from qualgate_evalsets.making.generate import eval_cases

BATCH = 80


@torch.inference_mode()
def answers(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, cases: list[dict[str, Any]]) -> list[str]:
    """Return the model's greedy answer to each case, cut at the end token or at the case's `max_new_tokens`."""
    prompts = [
        tokenizer.apply_chat_template(
            case["messages"], tools=case.get("tools"), add_generation_prompt=True, tokenize=True, return_dict=False
        )
        for case in cases
    ]
    order = sorted(range(len(cases)), key=lambda index: cases[index]["max_new_tokens"])
    texts = [""] * len(cases)
    for start in range(0, len(order), BATCH):
        batch = order[start : start + BATCH]
        rows = decode(model, tokenizer, [prompts[i] for i in batch], [cases[i]["max_new_tokens"] for i in batch])
        for index, row in zip(batch, rows, strict=True):
            texts[index] = tokenizer.decode(row)
    return texts


def decode(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, prompts: list[list[int]], limits: list[int]
) -> list[list[int]]:
    """Return the greedy tokens of each prompt without the end token. limits: most tokens of each.

    Prompts are padded left; a finished row runs on unread.
    """
    longest = max(map(len, prompts))
    ids = torch.tensor([[tokenizer.pad_token_id] * (longest - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    positions = (mask.cumsum(1) - 1).clamp(min=0)
    cache = DynamicCache()
    rows: list[list[int]] = [[] for _ in prompts]
    open_rows = set(range(len(prompts)))
    while open_rows:
        logits = model(
            input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache, logits_to_keep=1
        ).logits[:, -1]
        ids = logits.argmax(-1, keepdim=True)
        for row in list(open_rows):
            token = int(ids[row])
            if token == tokenizer.eos_token_id:
                open_rows.remove(row)
                continue
            rows[row].append(token)
            if len(rows[row]) == limits[row]:
                open_rows.remove(row)
        mask = torch.cat([mask, mask.new_ones(len(prompts), 1)], 1)
        positions = positions[:, -1:] + 1
    return rows


def is_json(text: str) -> bool:
    """Return whether the gate reads the text as JSON: strictly."""
    try:
        strict_json.read(text)
    except strict_json.NotStrictJson:
        return False
    return True


def evaluate(folder: Path, *, seed: int, cases: int) -> dict[str, float]:
    """Return the exact match of each family, their mean, and the share of extraction answers that parse as JSON."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    scores: dict[str, float] = {}
    for name in FAMILIES:
        family_cases = eval_cases(name, seed, cases, tokenizer.backend_tokenizer)
        texts = answers(model, tokenizer, family_cases)
        scores[name] = sum(text == case["answer"] for text, case in zip(texts, family_cases, strict=True)) / cases
        if name == "json_extract":
            scores["json_valid"] = sum(map(is_json, texts)) / cases
    scores["mean"] = sum(scores[name] for name in FAMILIES) / len(FAMILIES)
    return {name: round(score, 4) for name, score in scores.items()}


def main() -> None:
    """Run the command line: print a line of JSON for each seed."""
    parser = argparse.ArgumentParser(description="Score a model on generated eval cases.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[101])
    parser.add_argument("--cases", type=int, default=400, help="cases a family")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    for seed in arguments.seeds:
        print(json.dumps({"seed": seed, **evaluate(arguments.folder, seed=seed, cases=arguments.cases)}), flush=True)


if __name__ == "__main__":
    main()
