"""The rules of `numeric` and of SQuAD's F1 once more, from their description in prose and without regular expressions,
held against the scorers on made answers; and DROP's F1 as lm-eval's own task computes it.

The reference script of SQuAD 2.0 leaves out references without a token, where another has one; so do these rules.
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import groupby
from typing import Any

from qualgate.scoring.numeric import NoNumber, last_numbers, score_numeric
from qualgate.scoring.overlap import score_f1
from tests.verification.references.agreement import NoReference, Tally, made

DIGITS = "0123456789"
LETTERS = string.ascii_letters
TOLERANCES: tuple[dict[str, Any], ...] = ({}, {}, {"abs": 0.5}, {"rel": "0.01"}, {"abs": 0.001, "rel": 0.1})
Number = Fraction | None  # None: it has too many digits to be one


# ------------------------------------------------------------------------------------------------- numeric


def numbers(line: str) -> list[Number]:
    """Every number of a line, read from left to right."""
    found, place = [], 0
    while place < len(line):
        length, number = _number_at(line, place)
        if length:
            found.append(number)
        place += length or 1
    return found


def _run(text: str, place: int) -> str:
    end = place
    while end < len(text) and text[end] in DIGITS:
        end += 1
    return text[place:end]


def _number_at(line: str, start: int) -> tuple[int, Number]:
    """(characters, value) of the number that starts there, without its sign; (0, None) where none does."""
    before = line[max(0, start - 2) : start]
    if before[-1:] and before[-1] in LETTERS + DIGITS + "_":
        return 0, None
    whole = _run(line, start)
    if whole and before[-1:] == "." and before[:1] in tuple(DIGITS):
        return 0, None
    place, decimals, grouped = start + len(whole), "", 1 <= len(whole) <= 3
    while grouped and line[place : place + 1] == "," and len(group := _run(line, place + 1)) == 3:
        whole, place = whole + group, place + 4
    if line[place : place + 1] == "." and (whole or before[-1:] != "."):
        decimals = _run(line, place + 1)
        place += 1 + len(decimals) if decimals else 0
    if not whole and not decimals:
        return 0, None
    power = ""
    if line[place : place + 1] in ("e", "E"):
        sign = line[place + 1 : place + 2] if line[place + 1 : place + 2] in ("-", "+") else ""
        digits = _run(line, place + 1 + len(sign))
        end = place + 1 + len(sign) + len(digits)
        if digits and (end == len(line) or line[end] not in LETTERS):
            power, place = sign + digits, end
    if len(whole + decimals) > 400 or len(power.lstrip("+-")) > 3:
        return place - start, None
    value = Fraction(int(whole + decimals), 10 ** len(decimals)) * Fraction(10) ** int(power or 0)
    return place - start, -value if _negative(line, start) else value


def _negative(line: str, start: int) -> bool:
    at = start - 1
    if at >= 0 and line[at] in "$€£¥":
        at -= 1
    if at < 0 or line[at] not in "-−":
        return False
    return at == 0 or not (line[at - 1].isalnum() or line[at - 1] in "_)]")


def ending(text: str, count: int | None) -> list[Number] | None:
    """The last `count` numbers of the last line that holds any; None without one."""
    for line in reversed(text.splitlines()):
        if found := numbers(line):
            return found[-count:] if count else found
    return None


def _within(answer: Number, expected: Number, tolerance: dict[str, Any]) -> bool:
    if answer is None or expected is None:
        return False
    allowed = max(Fraction(str(tolerance.get("abs", 0))), Fraction(str(tolerance.get("rel", 0))) * abs(expected))
    return abs(answer - expected) <= allowed


# ------------------------------------------------------------------------------------------------- SQuAD's F1


def tokens(text: str) -> list[str]:
    kept = [letter for letter in text.lower() if letter not in string.punctuation]
    runs = ("".join(run) for _, run in groupby(kept, key=str.isalnum))
    return "".join(" " if run in ("a", "an", "the") else run for run in runs).split()


def f1(answer: list[str], reference: list[str]) -> Fraction:
    if not answer or not reference:
        return Fraction(answer == reference)
    left, shared = list(reference), 0
    for token in answer:
        if token in left:
            left.remove(token)
            shared += 1
    return Fraction(2 * shared, len(answer) + len(reference))


def best_f1(text: str, references: list[str]) -> float:
    spoken = [each for each in map(tokens, references) if each] or [[]]
    return float(max(f1(tokens(text), each) for each in spoken))


# ------------------------------------------------------------------------------------------------- both, compared


def differential(count: int, seed: int) -> Tally:
    """`count` made answers to made cases of each of the three. NoReference where lm-eval's DROP is not here."""
    try:
        from lm_eval.tasks.drop.utils import process_results
    except ImportError as error:
        raise NoReference(f"lm-eval's DROP cannot be imported: {error}") from None
    tally, draw = Tally(), random.Random(seed)
    for _ in range(count):
        _compare_numeric(tally, draw)
        _compare_f1(tally, draw, process_results)
    return tally


# Numbers that stand alone; what else a number may be part of is in `readings`.
ALONE = ("18", "7", "0", "-3", "+5", "\u22125", "1,234", "-1,234.50", "18.", "18.0", "018", ".5", "1e5", "1E-3",
         "2e9999", "$18", "-$5", "\u20ac7", "60%", "x2", "nan", "...", "Paris", "so it is", "(7)",
         "#### 18")  # fmt: skip
BETWEEN = (" and ", "; ", ", ", " is ", "\n", "\r\n", "\x85", "\u2028", " = ")


def _compare_numeric(tally: Tally, draw: random.Random) -> None:
    reference = draw.choice(("", "Answer: ", "x\n")) + " r ".join(draw.choices(ALONE, k=draw.choice((1, 1, 1, 2))))
    expected = ending(reference, None)
    if expected is None or None in expected:
        return  # no case: it is refused before an answer is looked at
    near = draw.choice(("", reference, reference.replace(",", ""), reference + "."))
    text = _joined(draw) + near
    tolerance = draw.choice(TOLERANCES)
    found = ending(text, len(expected))
    try:
        ours = [one.value for one in last_numbers(text, len(expected))]
    except NoNumber:
        ours = None
    tally.take("numeric", None if found is None or None in found else found, ours, text)
    verdict: bool | None = found is not None and len(found) == len(expected) and all(
        _within(one, other, tolerance) for one, other in zip(found, expected, strict=True)
    )  # fmt: skip
    if verdict and _cut(text):
        verdict = None
    said = score_numeric({"answer": reference, "tolerance": tolerance}, text)["numeric"].verdict
    tally.take("numeric: verdict", verdict, said, text, reference, tolerance)


def _cut(text: str) -> bool:
    """Whether the line of the last number is the last one, and ends within a sentence."""
    place = max(at for at, letter in enumerate(text) if letter in DIGITS)
    return len(text[place:].strip().splitlines()) == 1 and text[place + 1 :].split()[-1:] in (["and"], ["is"], ["="])


def _joined(draw: random.Random) -> str:
    return "".join(draw.choice(ALONE) + draw.choice(BETWEEN) for _ in range(draw.choice((0, 1, 2, 3, 6))))


def _spans(draw: random.Random, text: str) -> Iterator[str]:
    for _ in range(draw.choice((1, 1, 2, 3))):
        yield draw.choice((text, text.upper(), draw.choice(text.split() or ["the"]), made(draw), "the", "a 3.0"))


def _compare_f1(tally: Tally, draw: random.Random, drop: Callable[..., dict[str, Any]]) -> None:
    text = made(draw)
    references = [one for one in _spans(draw, text) if one.strip()]
    if references:
        score = score_f1({"answer": references}, text)["f1"]
        value = best_f1(text, references)
        tally.take("f1", round(value, 12), round(score.value or 0.0, 12), text, references)
        tally.take("f1: verdict", value == 1, score.verdict, text, references)
    answers = [tuple(one for one in _spans(draw, text) if one.strip()) or ("x",) for _ in range(draw.choice((1, 2)))]
    said = score_f1({"answer": [list(one) for one in answers]}, text, "drop")["f1.drop"]
    value = float(drop({"answers": answers}, [text])["f1"])
    tally.take("f1.drop", value, said.value, text, answers)
    tally.take("f1.drop: verdict", value == 1, said.verdict, text, answers)
