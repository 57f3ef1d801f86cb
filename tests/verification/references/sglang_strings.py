"""What SGLang's parsers made of the strings that vLLM's were asked, of each dialect that one of them reads, kept beside
this file. Taken by

    python -m tests.verification.references.sglang_strings INTERPRETER      # one that has SGLang
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.verification.references.dialect_strings import TOOLS, Kept, kept

READINGS = Path(__file__).with_name("sglang_readings.jsonl")
# By dialect that one of SGLang's parsers reads: its name there.
PARSERS = {name: name for name in (
    "hermes", "qwen25", "qwen3_coder", "glm45", "glm47", "ling3", "kimi_k2", "kimi_k3", "dots", "step3", "step3p5",
    "minicpm5", "gigachat3", "gemma4", "inkling", "lfm2", "pythonic", "mimo", "poolside_v1", "k2_horizon",
)} | {
    "deepseek_v3": "deepseekv3", "deepseek_v31": "deepseekv31", "deepseek_v32": "deepseekv32",
    "deepseek_v4": "deepseekv4", "deepseek_v41": "deepseekv41", "minimax_m2": "minimax-m2", "minimax_m3": "minimax-m3",
    "apertus": "apertus2509", "llama4_pythonic": "pythonic", "llama3_json": "llama3", "mistral_v11": "mistral",
    "mistral": "mistral", "internlm2": "interns1", "hunyuan_v3": "hunyuan",
}  # fmt: skip


def key(one: Kept) -> str:
    """Of a string in a dialect, which is kept once, beside vLLM's reading of it."""
    return hashlib.sha256(f"{one.dialect} {one.text}".encode("utf-8", "surrogatepass")).hexdigest()[:12]


def asked() -> tuple[str, list[tuple[Kept, Any]]]:
    """SGLang's version; each string that it was asked as it read that whole, and what it read of it in pieces."""
    first, *lines = map(json.loads, READINGS.read_text(encoding="utf-8").splitlines())
    read = {at: (whole, pieces[0] if pieces else whole) for at, whole, *pieces in lines}
    rows = [(one, read[at]) for one in kept()[1] if (at := key(one)) in read]
    return first["sglang"], [
        (Kept(dialect=one.dialect, how=one.how, text=one.text, read=whole), pieces) for one, (whole, pieces) in rows
    ]


def keep(interpreter: str) -> None:
    """Ask SGLang, write the file: a line a string, with what it read in pieces where that differs."""
    rows = [one for one in kept()[1] if one.dialect in PARSERS]
    questions = [{"parser": PARSERS[one.dialect], "text": one.text, "tools": TOOLS} for one in rows]
    script = Path(__file__).with_name("sglang_parsers.py")
    said = subprocess.run(
        [interpreter, str(script)], input="".join(json.dumps(one) + "\n" for one in questions), text=True, check=True,
        capture_output=True,
    ).stdout  # fmt: skip
    version, *found = map(json.loads, said.splitlines())
    lines = [{"sglang": version}, *(
        [key(one), whole, *([pieces] if pieces != whole else [])]
        for one, (whole, pieces) in zip(rows, found, strict=True)
    )]  # fmt: skip
    text = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines)
    READINGS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    keep(sys.argv[1])
