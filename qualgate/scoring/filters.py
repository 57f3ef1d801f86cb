"""Extract the text to compare from an answer, as the filters of lm-evaluation-harness 0.4.13 do, by their names.

Surprising behaviour is kept:

- a pattern's match is stripped; of several groups the first that is not empty counts
- `multi_choice_regex` looks for its pattern, then for a choice's text anywhere, then for `: A`; it gives `(A)`. Of two
  choices with one text the later letter counts
- `take_first` and `majority_vote` are of several responses, so they leave the one as it is
- `mmlu_pro` is no filter of lm-eval's but MMLU-Pro's own reading, the three patterns of its evaluate_from_local.py in
  turn. Where none finds a letter that script draws one; here the answer is `[invalid]`. (Its script for APIs takes `**`
  out of an answer first.)
- nor are `minerva`, lm-eval's minerva_math's own reading, and `aime`, the final answer where it is a whole number from
  000 to 999
- gsm8k's `strict-match` wants `#### ` with one space and then a digit, point, comma or minus: `####18`, `#### $18`
  and `**18**` give `[invalid]`. `flexible-extract` takes the last run of two or more of `$ 0-9 . ,` or the last
  integer, so `18.` of `is 18.` keeps its point, `...` is found too, and a U+2212 minus is not seen

Patterns run by `regexes`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from string import ascii_uppercase
from typing import Any

from qualgate.scoring import regexes
from qualgate.scoring.mathematics.minerva import aime_answer, minerva_answer
from qualgate.scoring.outcome import actual
from qualgate.scoring.text import NORMALIZERS

INVALID = "[invalid]"
STRICT = r"#### (\-?[0-9\.\,]+)"

Filter = Callable[[str, Mapping[str, Any]], str]  # an answer and the case's body → what is compared


def _match(pattern: str, text: str, place: int = 0) -> str:
    """Return one match of a pattern, or the first of its groups that is not empty; "" for none."""
    matches = regexes.findall(pattern, text)
    match = matches[place] if matches else ""
    return next((group for group in match if group), "") if isinstance(match, tuple) else match


def _regex(pattern: str, place: int = 0) -> Filter:
    return lambda answer, case: _match(pattern, answer, place).strip() or INVALID


def _multiple_choice(pattern: str, place: int = 0, *, folded: bool = False) -> Filter:
    """Return the filter that gives `(A)` for the choice that an answer names. The case has `choices`.

    place: of the match that counts. folded: a choice's text counts in any case and without punctuation.
    """

    def plain(text: str) -> str:
        return NORMALIZERS["strip_punctuation"](text.lower()) if folded else text

    def named(answer: str, case: Mapping[str, Any]) -> str:
        choices = [plain(choice.strip()) for choice in case["choices"]]
        letters = ascii_uppercase[: len(choices)]
        by_text = {choice: f"({letter})" for choice, letter in zip(choices, letters, strict=True)}
        texts = "|".join(sorted(map(re.escape, choices), key=len, reverse=True))
        if match := _match(pattern, answer, place).strip():
            return match
        if match := _match(texts, plain(answer), place).strip():
            return by_text.get(match, match)
        match = _match(rf":[\s]*({'|'.join(letters)})", answer, place)
        return f"({match})" if match else INVALID

    return named


_ENTITY = {"person": "PER", "location": "LOC", "organization": "ORG", "counties": "LOC", "places": "LOC",
           "people": "PER", "persons": "PER", "company": "ORG", "country": "LOC", "continent": "LOC", "time": "DATE",
           "date": "DATE", "per": "PER", "loc": "LOC", "org": "ORG"}  # fmt: skip


def _spans(response: str) -> str:
    """Return a list of entities, "PERSON: Ann, Bo", as "per: ann $ per: bo". Entities "none" are left out."""
    text = response.lower()
    for word, label in _ENTITY.items():
        text = re.sub(rf"\b{word}\s*:", f"{label}:", text)
    text = text.replace("$$", "$").rstrip("$").replace("\n", "$").strip()
    spans = [
        f"{label.lower()}: {entity}"
        for label, values in re.findall(r"\b(PER|LOC|ORG|DATE):\s*([^$]+)", text)
        for entity in (value.strip() for value in values.split(","))
        if entity.lower() != "none"
    ]
    return " $ ".join(spans)


_IN_MMLU_PRO = (
    re.compile(r"answer is \(?([A-J])\)?"),
    re.compile(r"[aA]nswer:(?=\s*([A-J]))"),
    re.compile(r"\b[A-J]\b"),
)


def _mmlu_pro(response: str) -> str:
    """Read an answer as MMLU-Pro's own script does; return the letter, or INVALID.

    It is the first `answer is A`; else the last `Answer: A` of the first line with one; else the last letter A to J
    that stands alone.
    """
    first, after, alone = _IN_MMLU_PRO
    if match := first.search(response):
        return match[1]
    letter, line_end = "", -1
    for match in after.finditer(response):
        if line_end < 0:
            line_end = response.find("\n", match.start()) % (len(response) + 1)
        if match.start() > line_end:
            break
        letter = match[1]
    return letter or next(iter(alone.findall(response)[-1:]), INVALID)


def _by(change: Callable[[str], str | None]) -> Filter:
    def changed(answer: str, case: Mapping[str, Any]) -> str:
        extracted = change(answer)
        return INVALID if extracted is None else extracted

    return changed


FILTERS: dict[str, Filter] = {
    "none": _by(str),
    "strict-match": _regex(STRICT),
    "flexible-extract": _regex(r"(-?[$0-9.,]{2,})|(-?[0-9]+)", -1),
    # Of lm-eval's mmlu_pro; and of its mmlu_flan_cot_zeroshot and gpqa, where it is called flexible-extract: the last
    # `(A)`, else the last text of a choice, else the last `: A`.
    "custom-extract": _regex(r"answer is \(?([ABCDEFGHIJ])\)?"),
    "choice-extract": _multiple_choice(r"(\([A-Z]\))", -1, folded=True),
    "regex": _regex(STRICT),
    "multi_choice_regex": _multiple_choice(STRICT),
    "take_first": _by(str),
    "majority_vote": _by(str),
    "remove_whitespace": _by(str.strip),
    "lowercase": _by(str.lower),
    "uppercase": _by(str.upper),
    "format_span": _by(_spans),
    "mmlu_pro": _by(_mmlu_pro),
    "minerva": _by(minerva_answer),
    "aime": _by(aime_answer),
}
BY_LETTER = ("multi_choice_regex", "choice-extract")
NO_TEXT = ("regex_pos", "take_first_k", "map")  # lm-eval's others, which give a list, need a k, need a mapping


def lettered_faults(body: dict[str, Any]) -> Iterator[str]:
    """Check `choices` for the filters of `BY_LETTER`, which have a letter for each."""
    choices = body.get("choices")
    if (
        not isinstance(choices, list)
        or not 1 <= len(choices) <= 26
        or not all(isinstance(choice, str) for choice in choices)
    ):
        yield f"the filter multi_choice_regex needs `choices`, a list of 1 to 26 texts; {actual(body, 'choices')}"
