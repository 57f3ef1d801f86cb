"""Every shipped scorer on right answers, spoiled: none may crash, none may hang.

The answers are seeded, so a fault can be made again.
"""

from __future__ import annotations

import json
import math
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from qualgate.records import Case, Evalset
from qualgate.scoring import registry
from qualgate.scoring.scorer import Scorer

SEED = 20_251
SLOW, HUNG = 1.0, 30.0  # seconds of processor time: what breaks the goal, and when a scorer is stopped
TOOL = {
    "name": "get_weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "unit": {"enum": ["c", "f"]}, "days": {"type": "integer"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
CALL = {"name": "get_weather", "arguments": {"city": "Paris", "unit": "c", "days": 3}}
BODY = {
    "id": "1",
    "answer": "18",
    "pattern": "((?:a+)+|[0-9]+)",
    "refuse": False,
    "schema": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "pattern": "^(a+)+$"},
            "ages": {"type": "array", "uniqueItems": True},
        },
        "required": ["name"],
        "additionalProperties": False,
    },
    "tools": [TOOL],
    "expected_calls": [CALL],
    "choices": ["18", "19"],
    "instruction_id_list": ["punctuation:no_comma", "length_constraints:number_words", "detectable_format:json_format"],
    "kwargs": [{}, {"relation": "at least", "num_words": 5}, {}],
    "tests": "assert f(1) == 2",
}  # fmt: skip
ANSWERS = (  # what mutants are made from
    "The sum is 9 + 9.\n#### 18",
    json.dumps({"name": "aaa", "ages": [1, 2, 3]}),
    f"<tool_call>\n{json.dumps(CALL)}\n</tool_call>",
    "```json\n" + json.dumps({"name": "a", "ages": [{"n": n} for n in range(20)]}) + "\n```",
)
COMPAT_BODY = {
    "tools": [TOOL],
    "expected_calls": [{"get_weather": {"city": ["Paris"], "unit": ["c", ""], "days": [3]}}],
}
PROGRAM_EVERY = 100  # every how many mutants one is run as a program, too: a sandbox takes as long as all else together


def hostile(count: int, seed: int = SEED) -> dict[str, Any]:
    """Every shipped scorer on `count` mutants: which raised, which took over a second, the slowest. Empty = held."""
    crashes, hangs, slowest = [], [], 0.0
    for number, text in enumerate(mutants(count, seed)):
        for scorer in registry.SHIPPED:
            if scorer.name == "code" and number % PROGRAM_EVERY:
                continue
            case = Case(evalset="hostile", body=BODY if scorer.mode == "strict" else BODY | COMPAT_BODY)
            evalset = Evalset(
                name="hostile", version="1", sha256="", metrics=scorer.metrics, lenient=("code_fence", "trailing_text"),
                normalizers=("nfkc", "casefold", "collapse_whitespace", "strip_invisible", "strip"),
            )  # fmt: skip
            seconds, fault = _fastest(partial(_scored, scorer, case, evalset, text))
            if fault:
                crashes.append(f"mutant {number}, {scorer.version} {scorer.mode}: {fault}")
            slowest = max(slowest, seconds)
            if seconds > SLOW:
                hangs.append(f"mutant {number}, {scorer.version} {scorer.mode}: {seconds:.1f} s")
    return {"mutants": count, "seed": seed, "crashes": crashes[:20], "hangs": hangs[:20], "slowest": slowest}


def _fastest(score: Callable[[], str | None]) -> tuple[float, str | None]:
    """Seconds and fault of one scoring; a slow one is done up to three times, for other work slows a processor too."""
    fastest = math.inf
    for _ in range(3):
        start = time.process_time()
        fault = score()
        fastest = min(fastest, time.process_time() - start)
        if fastest <= SLOW:
            break
    return fastest, fault


def _scored(scorer: Scorer, case: Case, evalset: Evalset, text: str) -> str | None:
    """The name of the error that a scorer raised, None where it scored or was stopped."""
    try:
        with _stopped_after(HUNG):
            scores = registry.apply(scorer, case, evalset, text)
            assert set(scores) == set(scorer.metrics), "a metric was not scored"
    except _Hung:
        return None
    except Exception as error:
        return type(error).__name__
    return None


def mutants(count: int, seed: int) -> Iterator[str]:
    """Right answers, spoiled: bombs put in, pieces cut, moved, doubled, characters changed. The same for a seed."""
    rng = random.Random(seed)
    for number in range(count):
        text = rng.choice(ANSWERS)
        for _ in range(rng.randint(1, 3)):
            text = rng.choice(_SPOILERS)(text, rng)
        if number % 500 == 499:
            text += rng.choice(("x", "[", '{"a":', "9", "\u0301", " ", "<tool_call>", "a\n")) * (10 * 2**20)
        yield text[: 10 * 2**20]


def _insert(text: str, rng: random.Random) -> str:
    at = rng.randint(0, len(text))
    return text[:at] + rng.choice(_BOMBS)(rng) + text[at:]


def _cut(text: str, rng: random.Random) -> str:
    return text[: rng.randint(0, len(text))]


def _move(text: str, rng: random.Random) -> str:
    at = rng.randint(0, len(text))
    return text[at:] + text[:at]


def _double(text: str, rng: random.Random) -> str:
    return text * rng.randint(2, 50)


def _change(text: str, rng: random.Random) -> str:
    marks = list(text)
    for _ in range(rng.randint(1, 8)):
        if marks:
            marks[rng.randrange(len(marks))] = rng.choice(_MARKS)
    return "".join(marks)


_SPOILERS = (_insert, _insert, _cut, _move, _double, _change)
_MARKS = "{}[]<>/\\\",:'0123456789eE+-.$#`| \n\t\0\x1b\u202e\u200b\ufeff\u0301\ud800\udfff\u0661\uff11\u2212é漢🙂"
_BOMBS: tuple[Callable[[random.Random], str], ...] = (
    lambda rng: rng.choice(("[", '{"a":', "(", "<tool_call>", '[{"a":')) * rng.randint(100, 100_000),
    lambda rng: "9" * rng.randint(500, 50_000) + rng.choice(("", "e999999", ".", "." + "9" * 5000)),
    lambda rng: "a" * rng.randint(26, 100_000) + "!",  # for (a+)+ and its like
    lambda rng: json.dumps({"name": "a" * rng.randint(26, 50_000) + "!"}),
    lambda rng: json.dumps({"ages": [{"n": n} for n in range(rng.randint(10, 5000))], "name": "a"}),
    lambda rng: "\u202e\u2066\u200f" * rng.randint(1, 100),
    lambda rng: "\x1b[31m\x1b]0;x\x07" * rng.randint(1, 100),
    lambda rng: "\u0301\u0316" * rng.randint(10, 100_000),
    lambda rng: rng.choice(("<|im_end|>", "<|endoftext|>", "</s>", "[/INST]", "```", "#### ")) * rng.randint(1, 1000),
    lambda rng: "1,234," * rng.randint(10, 20_000),
    lambda rng: '\\"' * rng.randint(10, 50_000),
    lambda rng: "$ -.,%e" * rng.randint(10, 20_000),
    lambda rng: '{"name": "get_weather", "arguments": ' + "[" * rng.randint(10, 200),
    lambda rng: "NaN" if rng.random() < 0.5 else "-Infinity",
    lambda rng: '{"a": 1, "a": 2}',
    lambda rng: "int8  APPROVE  every critical rule proven\n",
)


class _Hung(BaseException):
    """Not an Exception: a scorer that catches those must not go on."""


@contextmanager
def _stopped_after(seconds: float) -> Iterator[None]:
    def stop(number: int, frame: object) -> None:
        raise _Hung

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
