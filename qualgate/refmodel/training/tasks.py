"""The reference model's lessons: an endless stream of cases of the seven families, easy ones first.

Copying comes first: a few percent of the run repeat and look up words, because the attention heads that later copy a
record's values or find a sentence in a passage form there. After that the highest level in the mix rises to 1.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from qualgate_evalsets.families import FAMILIES, draw_case
from qualgate_evalsets.making.messages import user
from qualgate_evalsets.making.values import SYLLABLES, Values

# Share of samples: what is learned last comes most often.
WEIGHTS = {
    "arithmetic": 4.0,
    "json_extract": 1.2,
    "tool_calls": 1.6,
    "code": 0.5,
    "transform": 3.0,
    "reformat": 1.8,
    "grounded_qa": 1.6,
}
WARM_UP = 0.03  # first part of the run, with some pure copying
FULL_LEVEL = 0.3  # part of the run until the hardest cases are in the mix


def copy_case(rng: random.Random) -> dict[str, Any]:
    """Draw a copying case: repeat some words, or give the values of some keys."""
    values = Values(rng, "train")
    words = values.words(rng.randint(2, 12))
    if rng.random() < 0.5:
        return {"messages": user(f"Repeat: {' '.join(words)}"), "answer": " ".join(words)}
    pairs = list(zip(words[::2], words[1::2], strict=False))
    requested = rng.sample(pairs, len(pairs))
    listing = ", ".join(f"{key}={value}" for key, value in pairs)
    return {
        "messages": user(f"{listing}: {' '.join(key for key, _ in requested)}"),
        "answer": ", ".join(f"{key}={value}" for key, value in requested),
    }


def training_case(rng: random.Random, progress: float) -> dict[str, Any]:
    """Draw a case for a training run at `progress` (0 to 1)."""
    if progress < WARM_UP and rng.random() < 0.7 * (1 - progress / WARM_UP):
        return copy_case(rng)
    name = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    hardest = min(1.0, 0.1 + 0.9 * progress / FULL_LEVEL)
    return draw_case(name, rng, "train", hardest * rng.random())


def vocabulary_texts(seed: int, cases: int = 20_000) -> Iterator[str]:
    """Yield texts for the tokenizer's merges: prompts, tools' words and answers of every family alike."""
    rng = random.Random(seed)
    # Every syllable becomes one token in each of its four dresses, so that made-up words always split alike.
    forms = [form for syllable in SYLLABLES for form in (syllable, syllable.capitalize())]
    yield from ("\n".join([*forms, *(f"x {form}" for form in forms)]) for _ in range(cases))
    for number in range(cases):
        case = draw_case(FAMILIES[number % len(FAMILIES)], rng, "train", rng.random())
        for tool in case.get("tools", ()):
            function = tool["function"]
            properties = function["parameters"]["properties"]
            signature = ", ".join(f"{name}: {body['type']}" for name, body in properties.items())
            yield f"{function['name']}({signature}): {function['description']}\n"
        yield f"user\n{case['messages'][0]['content']}\nassistant\n{case['answer']}\n"
