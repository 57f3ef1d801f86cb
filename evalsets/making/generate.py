"""Writes the shipped evalsets, NAME.yaml and NAME.jsonl of each family, and the calibration set beside them.

    python -m qualgate_evalsets.making.generate [--seed N] [--out DIR] [--cases N]

Same seed, same bytes. Another seed gives sets of the same make with other values: that is how a gate is tried on
twenty draws of one exam.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from hashlib import sha256
from importlib.resources import files
from math import ceil
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from qualgate.records.identity import case_hash
from qualgate_evalsets.families import FAMILIES, draw_case, family

SEED = 20260
CALIBRATION = "calibration"
CALIBRATION_SEED = 20261
CALIBRATION_CASES = 266  # 38 a family, so that every template of each is among them
CALIBRATION_VERSION = 3
CASES = 400
VERSION = 2
OVERLAP = 0.9  # no two cases of a set share more of their five-grams

# The range of difficulty levels of each set, chosen on the full-precision reference model alone so that it is neither
# lost nor without a mistake: a set that nothing fails shows no loss.
LEVELS = {
    "arithmetic": (0.3, 1.0),
    "json_extract": (0.0, 0.7),
    "tool_calls": (0.4, 1.0),
    "code": (0.3, 1.0),
    "transform": (0.2, 0.8),
    "reformat": (0.7, 1.0),
    "grounded_qa": (0.2, 1.0),
}
REFORMAT_TOKENS = range(100, 201)  # the longest answers of all sets: a small error per token has room to show

ABOUT = {
    "arithmetic": ("Arithmetic with its steps written out", ["exact_match", "numeric"]),
    "json_extract": ("JSON extraction against a schema", ["exact_match", "json.valid", "json.schema"]),
    "tool_calls": (
        "Tool calls: one, a choice, several at once, or none",
        ["exact_match", "tool_call.parses", "tool_call.valid", "tool_call.function", "tool_call.correct"],
    ),
    "code": ("Short Python functions from a specification", ["exact_match"]),
    "transform": ("Word and list transformations", ["exact_match"]),
    "reformat": ("Records rewritten in another notation, answers of 100 to 200 tokens", ["exact_match"]),
    "grounded_qa": ("Questions about a passage, answered with the sentence that says so", ["exact_match"]),
}


def five_grams(case: dict[str, Any]) -> set[tuple[str, ...]]:
    """All runs of five words or signs in the conversation; of a shorter one the whole."""
    words = re.findall(r"\w+|[^\w\s]", " ".join(message["content"] for message in case["messages"]))
    return {tuple(words[start : start + 5]) for start in range(max(1, len(words) - 4))}


def overlap(left: set[tuple[str, ...]], right: set[tuple[str, ...]]) -> float:
    """Jaccard index of two sets of five-grams."""
    return len(left & right) / len(left | right)


def eval_cases(name: str, seed: int, count: int, tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """`count` cases of one family over all its templates in turn, no two of them near copies."""
    rng = random.Random(f"{name}/{seed}")
    templates = list(family(name).TEMPLATES)
    cases: list[dict[str, Any]] = []
    grams: list[set[tuple[str, ...]]] = []
    misses = 0
    while len(cases) < count:
        template = templates[len(cases) % len(templates)]
        misses += 1
        assert misses < 2_000, f"{name}: no further case of {template} at levels {LEVELS[name]}"
        case = draw_case(name, rng, "eval", rng.uniform(*LEVELS[name]), template)
        tokens = len(tokenizer.encode(case["answer"], add_special_tokens=False).ids)
        if name == "reformat" and tokens not in REFORMAT_TOKENS:
            continue
        new = five_grams(case)
        if any(overlap(new, old) > OVERLAP for old in grams):
            continue
        grams.append(new)
        misses = 0
        cases.append({"id": f"{name}-{len(cases) + 1:04}", "max_new_tokens": ceil(1.5 * tokens) + 16, **case})
    return cases


def words(case: dict[str, Any]) -> list[str]:
    """The words of what is said in a case, question and answer, without signs and letter case."""
    texts = [*(message["content"] for message in case["messages"]), case["answer"]]
    return re.findall(r"\w+", " ".join(texts).lower())


def thirteen_grams(case: dict[str, Any]) -> set[tuple[str, ...]]:
    """All runs of 13 words of a case; of a shorter one the whole."""
    case_words = words(case)
    return {tuple(case_words[start : start + 13]) for start in range(max(1, len(case_words) - 12))}


def calibration_cases(seed: int, count: int, exam: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """`count` cases of the families in turn, each over all its templates, drawn from the training side at the exam's
    levels. Fewer cases than templates are spread evenly over them.

    None shares 13 words in a row with a case of `exam`, so that no quantizer sees what it is judged by.
    """
    rng = random.Random(f"{CALIBRATION}/{seed}")
    seen = {gram for case in exam for gram in thirteen_grams(case)}
    turns = ceil(count / len(FAMILIES))
    cases: list[dict[str, Any]] = []
    while len(cases) < count:
        turn, which = divmod(len(cases), len(FAMILIES))
        name = FAMILIES[which]
        templates = list(family(name).TEMPLATES)
        template = templates[turn * len(templates) // turns]
        case = draw_case(name, rng, "train", rng.uniform(*LEVELS[name]), template)
        grams = thirteen_grams(case)
        if not grams & seen:
            seen |= grams
            cases.append({"id": f"{CALIBRATION}-{len(cases) + 1:04}", **case})
    return cases


def calibration_manifest(seed: int, jsonl: bytes) -> str:
    """The YAML beside the calibration set's JSONL."""
    return "\n".join(
        [
            f"name: {CALIBRATION}",
            "kind: calibration",
            f"version: {CALIBRATION_VERSION}",
            'description: "What quantizers may see: all seven families, no case or value of an evalset"',
            "generator: qualgate_evalsets.making.generate",
            f"seed: {seed}",
            f"sha256: {sha256(jsonl).hexdigest()}",
            "",
        ]
    )


def manifest(name: str, seed: int, jsonl: bytes) -> str:
    """The NAME.yaml beside NAME.jsonl."""
    description, metrics = ABOUT[name]
    return "\n".join(
        [
            f"name: {name}",
            f"version: {VERSION}",
            f"description: {json.dumps(description)}",
            f"metrics: [{', '.join(metrics)}]",
            "normalizers: []",
            "lenient: []",
            f"generator: qualgate_evalsets.families.{name}",
            f"seed: {seed}",
            f"sha256: {sha256(jsonl).hexdigest()}",
            "",
        ]
    )


def write(name: str, seed: int, count: int, out: Path, tokenizer: Tokenizer) -> None:
    """Write one family's NAME.jsonl and NAME.yaml to `out`, an existing folder."""
    cases = eval_cases(name, seed, count, tokenizer)
    assert len({case_hash(case) for case in cases}) == count
    jsonl = as_lines(cases)
    (out / f"{name}.jsonl").write_bytes(jsonl)
    (out / f"{name}.yaml").write_text(manifest(name, seed, jsonl), encoding="utf-8")


def write_calibration(seed: int, count: int, out: Path) -> None:
    """Write the calibration set that belongs to the evalsets in `out`."""
    exam = [json.loads(line) for name in FAMILIES for line in (out / f"{name}.jsonl").open(encoding="utf-8")]
    jsonl = as_lines(calibration_cases(seed, count, exam))
    (out / f"{CALIBRATION}.jsonl").write_bytes(jsonl)
    (out / f"{CALIBRATION}.yaml").write_text(calibration_manifest(seed, jsonl), encoding="utf-8")


def as_lines(cases: list[dict[str, Any]]) -> bytes:
    """JSON lines as UTF-8; keys in the order in which they were given."""
    return "".join(json.dumps(case, ensure_ascii=False) + "\n" for case in cases).encode()


def main() -> None:
    """The command line: every set, then the calibration set, which depends on them."""
    parser = argparse.ArgumentParser(description="Write the shipped evalsets.")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument("--cases", type=int, default=CASES, help="cases a set")
    parser.add_argument("--calibration-seed", type=int, default=CALIBRATION_SEED)
    parser.add_argument("--calibration-cases", type=int, default=CALIBRATION_CASES)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    # The shipped vocabulary, as a file: the reference model's training imports the families, and they nothing of it.
    vocabulary = files("qualgate") / "refmodel" / "weights" / "tokenizer.json"
    tokenizer = Tokenizer.from_str(vocabulary.read_text(encoding="utf-8"))
    for name in FAMILIES:
        write(name, arguments.seed, arguments.cases, arguments.out, tokenizer)
        print(f"{name}: {arguments.cases} cases in {arguments.out}")
    write_calibration(arguments.calibration_seed, arguments.calibration_cases, arguments.out)
    print(f"{CALIBRATION}: {arguments.calibration_cases} cases in {arguments.out}")


if __name__ == "__main__":
    main()
