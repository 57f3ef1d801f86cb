"""Writes the shipped sets in other languages, FAMILY_LANGUAGE.yaml and .jsonl (`qualgate_evalsets.languages`).

    python -m qualgate_evalsets.making.in_languages

Same seed, same bytes.
"""

from __future__ import annotations

import json
import random
from hashlib import sha256
from pathlib import Path
from typing import Any

from qualgate_evalsets.languages import FAMILIES, LANGUAGES, TEMPLATES, make_case

SEED = 20262
CASES = 96
VERSION = 1
NAMES = {"es": "Spanish", "zh": "Chinese", "ar": "Arabic", "hi": "Hindi"}
ABOUT = {
    "tool_calls": ("Tool calls asked in %s: one, a choice, two at once, or none",
                   "tool_call.parses, tool_call.valid, tool_call.function, tool_call.correct"),
    "json_extract": ("JSON extraction from notes in %s; json.schema accepts the right record alone",
                     "json.valid, json.schema"),
}  # fmt: skip


def cases(family: str, code: str) -> list[dict[str, Any]]:
    """The cases of one set, over its templates in turn, no question twice.

    The limit is the most tokens that any tokenizer makes of the answer, one a byte, and 16.
    """
    rng, drawn, questions = random.Random(f"{family}/{code}/{SEED}"), [], set()
    while len(drawn) < CASES:
        case = make_case(code, family, TEMPLATES[family][len(drawn) % len(TEMPLATES[family])], rng)
        if (question := case["messages"][0]["content"]) in questions:
            continue
        questions.add(question)
        limit = len(case["answer"].encode()) + 16
        drawn.append({"id": f"{family}_{code}-{len(drawn) + 1:03}", "max_new_tokens": limit, **case})
    return drawn


def write(family: str, code: str, out: Path) -> None:
    """Write one set to `out`, an existing folder."""
    jsonl = "".join(json.dumps(case, ensure_ascii=False) + "\n" for case in cases(family, code)).encode()
    about, metrics = ABOUT[family]
    (out / f"{family}_{code}.jsonl").write_bytes(jsonl)
    (out / f"{family}_{code}.yaml").write_text(
        f"name: {family}_{code}\nversion: {VERSION}\ndescription: {json.dumps(about % NAMES[code])}\n"
        f"metrics: [{metrics}]\ngenerator: qualgate_evalsets.making.in_languages\nseed: {SEED}\n"
        f"sha256: {sha256(jsonl).hexdigest()}\n",
        encoding="utf-8",
    )


def main() -> None:
    """Every set, beside the others."""
    for family in FAMILIES:
        for code in LANGUAGES:
            write(family, code, Path(__file__).resolve().parents[1])


if __name__ == "__main__":
    main()
