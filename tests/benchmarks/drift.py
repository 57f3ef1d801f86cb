"""Benchmark `drift`: two models' distributions compared in one pass, against full logits through transformers.

Models without layers (random weights in real shapes), so that what is timed is the head and what follows.
transformers: logits of both models, log_softmax, KL, the labels' log-probs, the top tokens; ours: all that, a few rows
at a time. Memory: what a process peaks at above the weights and the hidden states it holds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

from tests.benchmarks.goals import DRIFT
from tests.benchmarks.shape import told

if TYPE_CHECKING:
    import torch

ROWS, THREADS = 4096, 2
CPU = {  # goal id: vocabulary, width, dtype of weights and hidden states
    "cpu_32k_float32": (32_000, 512, "float32"),
    "cpu_32k_bfloat16": (32_000, 512, "bfloat16"),
    "cpu_150k_float32": (151_936, 896, "float32"),
    "cpu_150k_bfloat16": (151_936, 896, "bfloat16"),
}


def run(quick: bool) -> dict[str, Any]:
    """3 rounds of 4096 rows (quick: 2 of 1024, the small vocabulary alone), each shape in a process of its own."""
    rows, rounds = (1024, 2) if quick else (ROWS, 3)
    every, goals = [], []
    for id in told("drift", tuple(CPU)):
        shape = CPU[id]
        if quick and shape[0] > 2**16:
            found = None
        else:
            found = _in_a_process(*shape, rows, rounds)
            every.append({"shape": id, **found})
        goals += _rows(id, found, f"{rows:,} rows of the small vocabulary" if quick else None)
    return DRIFT.result(rounds=every, rows=goals)


def _rows(id: str, found: dict[str, Any] | None, few: str | None) -> list[dict[str, Any]]:
    if found is None:
        return [DRIFT.row(f"{id}_{what}", None, met=None, few=few) for what in ("time", "memory")]
    ratios = [round["transformers_s"] / round["ours_s"] for round in found["rounds"]]
    memory = found["transformers_bytes"] / found["ours_bytes"]
    return [
        DRIFT.row(f"{id}_time", median(ratios), met=median(ratios) >= 2 and found["equal"],
             spread=[min(ratios), max(ratios)], few=few, by_chance=True),
        DRIFT.row(f"{id}_memory", memory, met=memory >= 20, few=few, by_chance=True),
    ]  # fmt: skip


def _in_a_process(*arguments: Any) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.drift", *map(str, arguments)],
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def on_cpu(vocabulary: int, width: int, dtype: str, rows: int, rounds: int) -> dict[str, Any]:
    """Seconds of each round, interleaved, the bytes each way peaks at, and whether both say the same KL."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from qualgate.engine.choice import threads_of_kernels
    from qualgate.engine.dense import head_of
    from qualgate.engine.drift import LOGITS_AT_ONCE
    from qualgate_kernels.cpu.kl import missing
    from qualgate_kernels.dispatch import kl

    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=width, intermediate_size=width, num_hidden_layers=0,
        num_attention_heads=width // 64, tie_word_embeddings=True,
    )  # fmt: skip
    p, q = (LlamaForCausalLM(config).to(getattr(torch, dtype)).eval() for _ in range(2))
    with torch.no_grad():
        p.lm_head.weight.normal_(std=2 / width**0.5)  # logits of a trained model's size
        q.lm_head.weight.copy_(p.lm_head.weight).mul_(1.02)
    states = torch.randn(1, rows, width).to(p.dtype)
    labels = torch.randint(vocabulary, (rows,))

    @torch.inference_mode()
    def transformers() -> torch.Tensor:
        log_p = p(inputs_embeds=states).logits[0].float().log_softmax(-1)
        log_q = q(inputs_embeds=states).logits[0].float().log_softmax(-1)
        for logs in (log_p, log_q):
            logs.gather(-1, labels[:, None])
            logs.argmax(-1)
        return (log_p.exp() * (log_p - log_q)).sum(-1)

    heads = [head_of({"weight": model.lm_head.weight.detach()}) for model in (p, q)]

    @torch.inference_mode()
    def ours() -> torch.Tensor:
        with threads_of_kernels():
            chunks = [model.model(inputs_embeds=states).last_hidden_state[0].float() for model in (p, q)]
            parts = zip(*(side.split(LOGITS_AT_ONCE // vocabulary) for side in (*chunks, labels)), strict=True)
            return torch.cat([kl(heads[0](one), heads[1](other), tokens).kl for one, other, tokens in parts])

    ours_bytes = _peak(ours)
    transformers_bytes = _peak(transformers)
    # bfloat16 logits, as transformers has them, are rounded to 8 bits: KL of about 2e-2 then.
    near = torch.allclose(ours().float(), transformers(), rtol=1e-2, atol=1e-5 if dtype == "float32" else 5e-3)
    seconds = [{"ours_s": _seconds(ours), "transformers_s": _seconds(transformers)} for _ in range(rounds)]
    return {
        "twin": missing(), "equal": near, "rows": rows, "rounds": seconds,
        "ours_bytes": ours_bytes, "transformers_bytes": transformers_bytes,
    }  # fmt: skip


def _seconds(task: Callable[[], Any]) -> float:
    start = perf_counter()
    task()
    return perf_counter() - start


def _peak(task: Callable[[], Any]) -> int:
    """Bytes the process's memory rises above what it held before; at least one page."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # forget the peak so far
    before = _status("VmRSS")
    task()
    return max(_status("VmHWM") - before, os.sysconf("SC_PAGE_SIZE"))


def _status(name: str) -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(f"{name}:"))


if __name__ == "__main__":
    vocabulary, width, dtype, rows, rounds = sys.argv[1:]
    print(json.dumps(on_cpu(int(vocabulary), int(width), dtype, int(rows), int(rounds))))
