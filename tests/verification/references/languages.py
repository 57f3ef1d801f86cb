"""Answers in 30 languages: in that of their question, in another, half and half, and with words of two scripts.

The sentences (`language_texts.json`) were written for this row; each says the same in every language. Thresholds were
chosen on the first three of each language, the row is measured on the last three.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from qualgate.records import Case
from qualgate.scoring.answer_format import same_language
from tests.verification.references.language_texts import TEXTS

CHOSEN_ON, MEASURED_ON = slice(0, 3), slice(3, 6)
GLUED = {"en": "很好", "de": "привет", "ru": "hello", "hi": "weather", "zh": "", "ar": "house"}


def answers(part: slice) -> Iterator[tuple[str, dict[str, Any], str, bool]]:
    """(kind, body, answer, whether it is in the right language)."""
    for code, sentences in TEXTS.items():
        asked, *rest = sentences[part]
        plain = " ".join(rest)
        for body in ({"prompt": asked}, {"prompt": "12 + 30 =", "language": code}):
            yield "own", body, plain, True
            yield "own, one sentence", body, rest[0], True
            yield "own, with code", body, f"{plain}\n```python\nfor one in the_list: print('hello', one)\n```", True
            yield "own, with a foreign name", body, f"{plain} (Toronto, Berlin)", True
        for other, theirs in TEXTS.items():
            if other == code:
                continue
            foreign = theirs[part]
            for body in ({"prompt": asked}, {"prompt": "12 + 30 =", "language": code}):
                yield "other", body, " ".join(foreign[1:]), False
                yield "other, one sentence", body, foreign[1], False
                yield "half", body, f"{plain} {' '.join(foreign[1:])}", False
    for code, strange in GLUED.items():
        asked, *rest = TEXTS[code][part]
        words = " ".join(rest).split()
        if strange:
            yield "glued", {"prompt": asked}, " ".join([*words[:3], words[3] + strange, *words[4:]]), False


def measured(part: slice = MEASURED_ON) -> dict[str, Any]:
    """By kind: answers, those judged as they are, and those without a verdict; `alarms` are right and were called
    wrong, `missed` are wrong and were called right."""
    asked, right, silent = Counter[str](), Counter[str](), Counter[str]()
    alarms, missed = [], []
    for kind, body, text, same in answers(part):
        score = same_language(Case(evalset="languages", body={"id": "1", **body}), text)
        asked[kind] += 1
        silent[kind] += score.verdict is None
        right[kind] += score.verdict is same
        if score.verdict is not same and score.verdict is not None:
            (alarms if same else missed).append(f"{kind}, {body}: {text[:60]!r} {score.reason}")
    return {"asked": dict(asked), "right": dict(right), "silent": dict(silent), "alarms": alarms, "missed": missed}
