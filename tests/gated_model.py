"""A user's folder: a tiny model, an evalset that the model answers rightly, and a gate file. Made in seconds.

One worker, as each imports torch for seconds: a test of the pool asks for two.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

from tests.tiny_models import END, save_tiny_model

GATE_FILE = """\
version: 1
baseline: {model: ./model, dtype: float32}
variants:
  same: {model: ./model, dtype: float32}
  int2: {quantize: {method: int2, group_size: 32}}
evalsets: [./echo.yaml]
gate:
  rules:
    - {metric: exact_match, max_drop: 0.10}
    - {metric: drift.kl_mean, max: 0.05, tier: advisory}
store: sqlite:///qualgate.db
workers: {backend: local, count: 1}
"""


def make_workspace(folder: Path, cases: int = 60, tokens: int = 16) -> Path:
    """Write model, evalset and gate file into `folder`; returns the gate file's path.

    The references are what transformers' own `generate` says, one prompt at a time: the baseline is right on all.
    """
    model_folder = save_tiny_model(folder / "model", seed=1, dtype="float32", eos_token_ids=[END, *range(0, 256, 5)])
    rows = []
    for number, (prompt, answer) in enumerate(_answered(model_folder, cases, tokens)):
        rows.append(
            {"id": f"echo-{number:03d}", "task": "echo", "prompt": prompt, "max_new_tokens": tokens, "answer": answer}
        )
    write_evalset(folder, rows)
    gate_file = folder / "gate.yaml"
    gate_file.write_text(GATE_FILE, encoding="utf-8")
    return gate_file


def write_evalset(folder: Path, rows: list[dict], name: str = "echo") -> None:
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (folder / f"{name}.yaml").write_text(f"name: {name}\nversion: '1'\nmetrics: [exact_match]\n", encoding="utf-8")


def _answered(model_folder: Path, cases: int, tokens: int) -> list[tuple[str, str]]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32, local_files_only=True)
    tokenizer = AutoTokenizer.from_pretrained(model_folder, local_files_only=True)
    rng = random.Random(0)
    found: dict[str, str] = {}
    while len(found) < cases:
        prompt = "".join(rng.choice("abcdefghijklmnopqrstuvwxyz ") for _ in range(rng.randint(5, 40)))
        ids = tokenizer(prompt, return_tensors="pt", add_special_tokens=False)
        with torch.inference_mode():
            said = model.generate(**ids, max_new_tokens=tokens, do_sample=False)[0, ids["input_ids"].shape[1] :]
        ended = int(said[-1]) in model.generation_config.eos_token_id
        answer = tokenizer.decode(said[:-1], skip_special_tokens=False)
        if ended and answer.isprintable() and answer.strip():  # a baseline that is cut off proves nothing
            found[prompt] = answer
    return list(found.items())
