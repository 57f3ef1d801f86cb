"""What llama.cpp's KL tool prints for seven seeded sets of logits.

`llama_lines.json` was made so: the reference's `kl_divergence` and the functions it calls (ggml-org/llama.cpp at commit
050fc7f32de16858ac667d775b43a51ed8976e6f, tools/perplexity/perplexity.cpp) were taken over into a program that reads
logits from a file, compiled with g++ -O2 on x86-64 and glibc, one thread, and given the logits below. No model was
involved.

Logits are made from integers alone, so that every numpy gives the same bits.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Seeded:
    seed: int
    vocabulary: int
    chunks: int
    tokens: int  # a chunk
    step: float  # logits are multiples of it: a coarse one makes ties
    spread: int  # logits lie within ± 2 spread
    noise: int  # of the variant, in steps


SETS = {
    "small": Seeded(1, 50, 3, 64, 2**-9, 2, 200),
    "large": Seeded(2, 5000, 2, 60, 2**-9, 4, 100),
    "odd": Seeded(3, 1001, 2, 77, 2**-9, 4, 50),
    "ties": Seeded(4, 300, 4, 40, 0.25, 2, 1),
    "extreme": Seeded(5, 400, 2, 90, 2**-7, 40, 800),
    "equal": Seeded(6, 130, 2, 60, 2**-9, 3, 0),
    "flat": Seeded(7, 64, 2, 75, 0.5, 1, 1),
}


def chunks_of(name: str) -> list[tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.int32]]]:
    """For each chunk: the base model's logits, the variant's, the tokens that follow."""
    made = SETS[name]
    random = np.random.RandomState(made.seed)  # its streams are frozen
    found = []
    for _ in range(made.chunks):
        shape = (made.tokens, made.vocabulary)
        width = int(made.spread / made.step)
        whole = random.randint(-width, width + 1, shape) + random.randint(-width, width + 1, shape)
        base = whole.astype(np.float64) * made.step
        if name == "flat":
            base[::3] = 1.5  # every token equally likely: the codes have no scale
        variant = base + made.step * random.randint(-made.noise, made.noise + 1, shape)
        following = np.where(
            random.randint(0, 2, made.tokens) == 0, base.argmax(-1), random.randint(0, made.vocabulary, made.tokens)
        )
        found.append((base.astype(np.float32), variant.astype(np.float32), following.astype(np.int32)))
    return found


def printed(name: str) -> list[str]:
    """The reference's 34 lines. It prints the sign of a nan, which says nothing; here it is a blank."""
    lines = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))[name]
    return [line.replace("-nan", " nan") for line in lines]
