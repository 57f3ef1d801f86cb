"""Strings in every dialect that a parser of vLLM reads, and what that parser made of each, kept beside this file.

The strings are of our own making: calls as the dialect writes them, and the same with something around them, broken,
cut off, or with characters left out. Their readings are vLLM's own, taken by

    python -m tests.verification.references.dialect_strings INTERPRETER      # one that has vLLM
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qualgate.scoring.tools.dialects import Call
from qualgate.scoring.tools.dialects.registry import dialect
from qualgate.scoring.tools.dialects.stream import Dialect
from tests.verification.references.agreement import ask_peer, write_lines

KEPT = Path(__file__).with_name("dialect_readings.jsonl")
SEED = 23
MADE, MADE_SERVED = 20, 40  # strings of one make in a dialect, and of all that are not typed
PROPERTIES = {
    "city": {"type": "string"},
    "days": {"type": "integer"},
    "metric": {"type": "boolean"},
    "temp": {"type": "number"},
    "near": {"type": "array", "items": {"type": "number"}},
    "opts": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}},
    "maybe": {"type": ["string", "null"]},
}
# What servers type in a way of their own: aliases, unions, what says nothing; and texts to be typed.
UNUSUAL = [
    {"type": "integer"}, {"type": "number"}, {"type": "boolean"}, {"type": "array"}, {"type": "object"}, {"const": 5},
    {"type": "null"}, {"type": ["integer", "null"]}, {"type": ["string", "integer"]}, {"type": "float"}, {},
    {"enum": [1, 2]}, {"anyOf": [{"type": "integer"}, {"type": "null"}]}, {"$ref": "#/$defs/n"}, True,
    {"anyOf": [{"type": "string"}, {"type": "object"}]}, {"type": "array", "items": {"type": "integer"}},
    {"oneOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]}, {"type": "string", "enum": ["5"]},
    {"allOf": [{"type": "integer"}]},
    {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "string"}}},
]  # fmt: skip
TEXTS = ("1", "-0", "01", "+5", "1.0", "1e3", "1e999", "TRUE", "0", "null", "NULL", "None", "NaN", "", "  7 ", "[1,2]",
         '[1, "2"]', '["1","true"]', '{"x": "5", "y": 7}', "[1,", "{a:1}", '"5"', "1_000", "\u0663", "1,5", "9" * 25,
         "1.5.2", "{}", '{"x":null}', '{"x":1,"x":"2"}', "-", ".")  # fmt: skip
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": known}}}
    for name, known in (
        ("get_weather", PROPERTIES), ("ping", {}), ("convert", {f"k{at}": one for at, one in enumerate(UNUSUAL)}),
    )
]  # fmt: skip
TAGGED = {
    "qwen3_coder", "mimo", "seed_oss", "glm47", "ling3", "deepseek_v32", "deepseek_v4", "minimax_m2", "step3",
    "hunyuan_v3", "hy_v4", "dots", "minimax_m3", "minicpm5", "kimi_k3", "k2_horizon", "poolside_v1", "gemma4",
    "functiongemma", "inkling", "granite", "plamo3",
}  # fmt: skip
# What lfm2's parser makes Python of, as a value and as a name.
REPAIRED = (
    "'two\nlines'",
    "'a\tb'",
    "'\x00'",
    "07",
    "007.5",
    "00",
    "1_000",
    "-05",
    "'sed -n '1,9p' f.py'",
    "'it's'",
    '"say "hi" now"',
    "['a','b'c']",
    "{'a': 'x'y'}",
    "f'hi'",
    "{1, 2}",
    "{1: 2}",
    "true",
    "b'x'",
    "1+2",
)
NAMES = ("city", "from", "in", "class")
TYPED = "typed"
WORDS = ("Paris", "São Paulo", 'a "quoted" one', "it's", "5", "true", "null", "two\nlines", "x < y", "[1]", "北京",
         "a, b", "{curly}", "", " padded ")  # fmt: skip
# By dialect that one of vLLM's parsers reads: its name there.
PARSERS = {name: name for name in (
    "hermes", "longcat", "qwen3_coder", "qwen3_xml", "seed_oss", "glm45", "glm47", "ling3", "deepseek_v3",
    "deepseek_v31", "deepseek_v32", "deepseek_v4", "deepseek_v41", "kimi_k2", "kimi_k3", "minimax_m2", "minimax_m3",
    "dots", "step3", "minicpm5", "granite", "granite4", "jamba", "hunyuan_a13b", "functiongemma", "gemma4", "apertus",
    "gigachat3", "inkling", "plamo3", "lfm2", "olmo3", "pythonic", "llama4_pythonic", "llama3_json", "xlam", "ernie45",
    "mimo", "step3p5", "step5", "poolside_v1", "hy_v4", "k2_horizon",
)} | {
    "qwen25": "hermes", "granite_20b_fc": "granite-20b-fc", "hunyuan_v3": "hy_v3", "internlm2": "internlm",
    "phi4_mini": "phi4_mini_json", "mistral": "mistral", "mistral_v11": "mistral", "nemotron_v3": "qwen3_coder",
}  # fmt: skip
WITHOUT = {"mistral": "[ARGS]"}  # by dialect: a token that tells its tokenizer from a later one


@dataclass(frozen=True, slots=True)
class Kept:
    """A text in a dialect, how it was made, and what vLLM's parser read: calls, None, or that it raised."""

    dialect: str
    how: str
    text: str
    read: Any


def made(draw: random.Random, name: str, count: int) -> Iterator[tuple[str, str]]:
    """How, and text; every fourth one is as the dialect has it."""
    one, left = dialect(name), count
    while left:
        try:
            text = one.serialise(_calls(draw))
        except ValueError:  # the dialect cannot say it
            continue
        yield ("clean", text) if left % 4 == 0 else _broken(draw, one, text)
        left -= 1


def typed(draw: random.Random, name: str, count: int) -> Iterator[tuple[str, str]]:
    """Texts under schemas that servers read in a way of their own; of DSML some do not say that they are text."""
    left = count
    while left:
        keys = draw.sample(range(len(UNUSUAL)), 4)
        try:
            text = dialect(name).serialise([Call("convert", {f"k{key}": draw.choice(TEXTS) for key in keys})])
        except ValueError:  # the dialect cannot say it
            continue
        left -= 1
        parts = text.split(' string="true"')
        said = [draw.choice(("", ' string="true"', ' string="false"')) for _ in parts[1:]]
        yield TYPED, parts[0] + "".join(one + part for one, part in zip(said, parts[1:], strict=True))


def repaired(draw: random.Random, name: str, count: int) -> Iterator[tuple[str, str]]:
    """Texts of lfm2 that are Python once they are repaired, or never."""
    for _ in range(count if name == "lfm2" else 0):
        one, other = (f"{draw.choice(NAMES)}={draw.choice(REPAIRED)}" for _ in range(2))
        yield "repaired", f"<|tool_call_start|>[get_weather({one}, is={other.partition('=')[2]})]<|tool_call_end|>"


def _calls(draw: random.Random) -> list[Call]:
    return [
        Call("ping", {})
        if draw.random() < 0.2
        else Call("get_weather", {key: _value(draw, key) for key in draw.sample([*PROPERTIES], draw.randint(0, 3))})
        for _ in range(draw.choice((1, 1, 2)))
    ]


def _value(draw: random.Random, key: str) -> Any:
    return {
        "city": lambda: draw.choice(WORDS),
        "days": lambda: draw.randint(-9, 99),
        "metric": lambda: draw.random() < 0.5,
        "temp": lambda: draw.choice((1.5, -2.25, 3)),
        "near": lambda: [draw.choice((1, 2.5, -3)) for _ in range(draw.randint(0, 3))],
        "opts": lambda: {"a": draw.randint(0, 9), "b": draw.choice(WORDS)},
        "maybe": lambda: draw.choice((None, "yes")),
    }[key]()


def _broken(draw: random.Random, one: Dialect, text: str) -> tuple[str, str]:
    at = draw.randrange(len(text))
    begin, end = one.frame or ("", "")
    ways = {
        "around": lambda: draw.choice(("", "Sure.\n")) + text + draw.choice((" Done.", "\n\nAnything else?")),
        "behind a thought": lambda: f"{one.thinks[0]}hm{one.thinks[1]}{text}",
        "in a thought": lambda: f"{one.thinks[0]}I write {text}{one.thinks[1]}No.",
        "fenced": lambda: f"```json\n{text}\n```",
        "unclosed": lambda: text[: text.rindex(one.close)].rstrip() if one.close else text[:-1],
        "no frame": lambda: text.replace(begin, "").replace(end, "") if begin else f"{text}\n{text}",
        "extra key": lambda: text.replace('"arguments":', '"id": "x1", "arguments":', 1),
        "cut": lambda: text[:at],
        "begun again": lambda: text[:at] + text,
        "left out": lambda: text[:at] + text[at + draw.randint(1, 3) :],
    }
    how = draw.choice([*ways])
    return how, ways[how]()


def kept() -> tuple[str, list[Kept]]:
    """vLLM's version, and the strings."""
    first, *lines = map(json.loads, KEPT.read_text(encoding="utf-8").splitlines())
    assert first["tools"] == TOOLS, "the strings were read with other tools: make them again"
    return first["vllm"], [Kept(*line) for line in lines]


def keep(interpreter: str) -> None:
    """Make the strings, ask vLLM, write the file."""
    rows = [
        (name, how, text)
        for name in PARSERS
        for draw in [random.Random(f"{SEED} {name}")]
        for how, text in (
            *made(draw, name, MADE_SERVED),
            *(typed(draw, name, MADE) if name in TAGGED else ()),
            *repaired(draw, name, MADE_SERVED),
        )
    ]
    asked = [
        {"parser": PARSERS[name], "text": text, "tools": TOOLS, "without": WITHOUT.get(name, "")}
        for name, _, text in rows
    ]
    version, found = ask_peer(interpreter, "vllm_parsers.py", asked)
    lines = ([*row, read] for row, read in zip(rows, found, strict=True))
    write_lines(KEPT, [{"vllm": version, "tools": TOOLS}, *lines])


if __name__ == "__main__":
    keep(sys.argv[1])
