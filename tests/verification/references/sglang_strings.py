"""What SGLang's parsers made of the strings that vLLM's were asked, of each dialect that one of them reads, kept beside
this file; and of calls as GLM 4.7's own template writes them, on one line. Taken by

    python -m tests.verification.references.sglang_strings INTERPRETER      # one that has SGLang
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.verification.references.agreement import ask_peer, write_lines
from tests.verification.references.dialect_strings import MADE, MADE_SERVED, SEED, TOOLS, Kept, kept, made, typed

READINGS = Path(__file__).with_name("sglang_readings.jsonl")
ONE_LINE = "on one line"  # how, of strings that vLLM was not asked
# By dialect that one of SGLang's parsers reads: its name there.
PARSERS = {name: name for name in (
    "hermes", "qwen25", "qwen3_coder", "glm45", "glm47", "ling3", "kimi_k2", "kimi_k3", "dots", "step3", "step3p5",
    "minicpm5", "gigachat3", "gemma4", "inkling", "lfm2", "pythonic", "mimo", "poolside_v1", "k2_horizon",
)} | {
    "deepseek_v3": "deepseekv3", "deepseek_v31": "deepseekv31", "deepseek_v32": "deepseekv32",
    "deepseek_v4": "deepseekv4", "deepseek_v41": "deepseekv41", "minimax_m2": "minimax-m2", "minimax_m3": "minimax-m3",
    "apertus": "apertus2509", "llama4_pythonic": "pythonic", "llama3_json": "llama3", "mistral_v11": "mistral",
    "mistral": "mistral", "hunyuan_v3": "hunyuan",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Asked:
    """A string, what SGLang read of it whole and in pieces, and what vLLM's parser did; None: vLLM was not asked."""

    one: Kept
    whole: Any
    pieces: Any
    vllm: Any


def strings() -> Iterator[Kept]:
    """Every string to ask; those that vLLM was not asked have no reading."""
    yield from (one for one in kept()[1] if one.dialect in PARSERS)
    draw = random.Random(f"{SEED} on one line")
    for _, text in (*made(draw, "glm47", MADE_SERVED), *typed(draw, "glm47", MADE)):
        yield Kept(dialect="glm47", how=ONE_LINE, text=text.replace("\n", ""), read=None)


def _key(one: Kept) -> str:
    return hashlib.sha256(f"{one.dialect} {one.text}".encode("utf-8", "surrogatepass")).hexdigest()[:12]


def asked() -> tuple[str, list[Asked]]:
    """SGLang's version, and the strings of which it was asked."""
    first, *lines = map(json.loads, READINGS.read_text(encoding="utf-8").splitlines())
    read = {at: (whole, pieces[0] if pieces else whole) for at, whole, *pieces in lines}
    return first["sglang"], [Asked(one, *read[at], vllm=one.read) for one in strings() if (at := _key(one)) in read]


def keep(interpreter: str) -> None:
    """Ask SGLang, write the file: a line a string, with what it read in pieces where that differs."""
    rows = list({_key(one): one for one in strings()}.values())
    questions = [{"parser": PARSERS[one.dialect], "text": one.text, "tools": TOOLS} for one in rows]
    version, found = ask_peer(interpreter, "sglang_parsers.py", questions)
    lines = [{"sglang": version}, *(
        [_key(one), whole, *([pieces] if pieces != whole else [])]
        for one, (whole, pieces) in zip(rows, found, strict=True)
    )]  # fmt: skip
    write_lines(READINGS, lines)


if __name__ == "__main__":
    keep(sys.argv[1])
