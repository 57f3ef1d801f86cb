"""Extraction pipelines as lm-evaluation-harness 0.4.13 names and runs them.

A step turns a case's list of responses into another; `take_first` ends a pipeline with one answer. Surprising
behaviour is kept:

- `regex` takes the match that `group_select` counts, strips it, and of several groups the first that is not empty
- a step after `take_first` sees one text where it expects a list, and works on its characters
- `regex_pos` reads no pattern but its own, and answers with a list
- `multi_choice_regex` looks for its pattern, then for a choice's text anywhere, then for `: A`; it gives `(A)`. Of two
  choices with one text the later letter counts; more than 26 choices fail
- `take_first_k` wants k responses; `majority_vote` breaks a tie for the response that came first
- `mmlu_pro` is no filter of lm-eval's but MMLU-Pro's own reading, the three patterns of its evaluate_from_local.py in
  turn. Where none finds a letter that script draws one; here the answer is `[invalid]`. (Its script for APIs takes `**`
  out of an answer first.)
- nor are `minerva`, lm-eval's minerva_math's own reading, and `aime`, the final answer where it is a whole number from
  000 to 999
- gsm8k's `strict-match` wants `#### ` with one space and then a digit, point, comma or minus: `####18`, `#### $18`
  and `**18**` give `[invalid]`. `flexible-extract` takes the last run of two or more of `$ 0-9 . ,` or the last
  integer, so `18.` of `is 18.` keeps its point, `...` is found too, and a U+2212 minus is not seen

Left out: `custom` (runs a task's own code) and `decontaminate` (has no effect there either).
Users' patterns run by `regexes`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from qualgate.scoring import regexes
from qualgate.scoring.mathematics.minerva import aime_answer, minerva_answer
from qualgate.scoring.text import NORMALIZERS

INVALID = "[invalid]"

Responses = Any  # a list of responses; after `take_first` one of them
Step = Callable[[Responses, Mapping[str, Any]], Responses]


class FilterFault(ValueError):
    """A pipeline cannot be built, or cannot be applied to what the step before it gave. lm-eval raises there too."""


def regex(regex_pattern: str = r"#### (\-?[0-9\.\,]+)", group_select: int = 0, fallback: str = INVALID) -> Step:
    """Take match number `group_select` of each response; of several groups the first that is not empty."""
    regexes.compiled(regex_pattern)

    def select(response: Any) -> str:
        matches = regexes.findall(regex_pattern, response if isinstance(response, str) else "")
        return _selected(matches, group_select, fallback) if matches else fallback

    return lambda responses, case: [select(response) for response in responses]


def _selected(matches: list[Any], group_select: int, if_empty: str) -> str:
    """Return the match at `group_select`, stripped; of several groups the first that is not empty.

    matches: of a pattern. if_empty: the answer if all groups are empty. FilterFault if there are too few matches.
    """
    try:
        match = matches[group_select]
    except IndexError:
        raise FilterFault(f"group_select {group_select} of {len(matches)} matches") from None
    if isinstance(match, tuple):
        match = next((group for group in match if group), if_empty)
    return match.strip()


def regex_pos(regex_pattern: str = "", group_select: int = 0, fallback: Sequence[str] | None = None) -> Step:
    """Take the tags of `('word', 'TAG')` pairs. As in lm-eval, only the parameter `fallback` has an effect."""

    def tags(response: Any) -> Any:
        pairs = regexes.findall(r"\('([^']*)', '([^']*)'\)", response) if isinstance(response, str) else response
        return [tag for _, tag in pairs] or (fallback if fallback is not None else ["invalid"])

    return lambda responses, case: [tags(response) for response in responses]


def multi_choice_regex(
    regex_pattern: str = r"#### (\-?[0-9\.\,]+)",
    group_select: int = 0,
    fallback: str = INVALID,
    ignore_case: bool = False,
    ignore_punctuation: bool = False,
    regexes_to_ignore: Sequence[str] | None = None,
) -> Step:
    """`(A)` for the choice an answer names. The case holds `choices`."""
    regexes.compiled(regex_pattern)

    def plain(text: str) -> str:
        for pattern in regexes_to_ignore or ():
            text = regexes.remove(pattern, text)
        text = text.lower() if ignore_case else text
        return NORMALIZERS["strip_punctuation"](text) if ignore_punctuation else text

    def find(pattern: str, text: str, letters: Mapping[str, str]) -> str:
        matches = regexes.findall(pattern, text)
        match = _selected(matches, group_select, "") if matches else ""
        return letters.get(match, match) if match else ""

    def step(responses: Responses, case: Mapping[str, Any]) -> Responses:
        choices = [plain(choice.strip()) for choice in case["choices"]]
        letters = [chr(ord("A") + index) for index in range(len(choices))]
        texts = "|".join(sorted(map(re.escape, choices), key=len, reverse=True))
        after_colon = rf":[\s]*({'|'.join(letters)})"
        by_text = {choice: f"({letter})" for choice, letter in zip(choices, letters, strict=True)}
        by_letter = {letter: f"({letter})" for letter in letters}
        regexes.compiled(after_colon)

        def pick(response: Any) -> str:
            """Return the choice of one response as "(A)", or the fallback."""
            text = response if isinstance(response, str) else ""
            return (
                find(regex_pattern, text, {})
                or find(texts, plain(text), by_text)
                or find(after_colon, text, by_letter)
                or fallback
            )

        return [pick(response) for response in responses]

    return step


def take_first() -> Step:
    """One response instead of a list of them: the first."""
    return lambda responses, case: responses[0]


def take_first_k(k: int) -> Step:
    """The first `k`; FilterFault where there are fewer."""

    def step(responses: Responses, case: Mapping[str, Any]) -> Responses:
        if len(responses) < k:
            raise FilterFault(f"take_first_k needs {k} responses, there are {len(responses)}")
        return responses[:k]

    return step


def majority_vote() -> Step:
    """Keep only the most frequent response, as a list; ties go to the earliest."""
    return lambda responses, case: [Counter(responses).most_common(1)[0][0]]


def mapped(mapping_dict: Mapping[Any, Any] | None = None, default_value: Any = None) -> Step:
    """Each response looked up in `mapping_dict`."""
    mapping = dict(mapping_dict or {})
    return lambda responses, case: [mapping.get(response, default_value) for response in responses]


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


def _or_invalid(answer: str | None) -> str:
    return INVALID if answer is None else answer


def _each(change: Callable[[str], str]) -> Callable[[], Step]:
    return lambda: lambda responses, case: [change(response) for response in responses]


STEPS: dict[str, Callable[..., Step]] = {
    "regex": regex,
    "regex_pos": regex_pos,
    "multi_choice_regex": multi_choice_regex,
    "take_first": take_first,
    "take_first_k": take_first_k,
    "majority_vote": majority_vote,
    "map": mapped,
    "remove_whitespace": _each(str.strip),
    "lowercase": _each(str.lower),
    "uppercase": _each(str.upper),
    "format_span": _each(_spans),
    "mmlu_pro": _each(_mmlu_pro),
    "minerva": _each(lambda response: _or_invalid(minerva_answer(response))),
    "aime": _each(lambda response: _or_invalid(aime_answer(response))),
}

# A pipeline as a task file writes it: each step's `function` with its parameters.
Pipeline = Sequence[Mapping[str, Any]]
PIPELINES: dict[str, Pipeline] = {
    "none": ({"function": "take_first"},),
    "strict-match": ({"function": "regex", "regex_pattern": r"#### (\-?[0-9\.\,]+)"}, {"function": "take_first"}),
    "flexible-extract": (
        {"function": "regex", "regex_pattern": r"(-?[$0-9.,]{2,})|(-?[0-9]+)", "group_select": -1},
        {"function": "take_first"},
    ),
    # Of lm-eval's mmlu_pro; and of its mmlu_flan_cot_zeroshot and gpqa, where it is called flexible-extract: the last
    # `(A)`, else the last text of a choice, else the last `: A`.
    "custom-extract": (
        {"function": "regex", "regex_pattern": r"answer is \(?([ABCDEFGHIJ])\)?"},
        {"function": "take_first"},
    ),
    "choice-extract": (
        {"function": "multi_choice_regex", "regex_pattern": r"(\([A-Z]\))", "group_select": -1, "ignore_case": True,
         "ignore_punctuation": True},
        {"function": "take_first"},
    ),
}  # fmt: skip


def named(name: str) -> Pipeline:
    """The pipeline of that name; a step's own name is that step with its defaults, and the first response."""
    if name in PIPELINES:
        return PIPELINES[name]
    if name in STEPS:
        return ({"function": name}, *(() if name == "take_first" else ({"function": "take_first"},)))
    raise FilterFault(f"no filter {name!r}; there are {', '.join([*PIPELINES, *STEPS])}")


def build(pipeline: str | Pipeline) -> Step:
    """Build a pipeline. FilterFault or regexes.BadPattern if a step is unknown or has a wrong parameter."""
    return _by_name(pipeline) if isinstance(pipeline, str) else _built(pipeline)


@lru_cache(maxsize=64)
def _by_name(name: str) -> Step:
    return _built(named(name))


def _built(pipeline: Pipeline) -> Step:
    """Return a pipeline as one function: the steps in turn. FilterFault for an unknown step or wrong parameters."""
    steps: list[Step] = []
    for description in pipeline:
        parameters = {key: value for key, value in description.items() if key != "function"}
        make = STEPS.get(description.get("function", ""))
        if make is None:
            raise FilterFault(f"no filter step {description.get('function')!r}; there are {', '.join(STEPS)}")
        try:
            steps.append(make(**parameters))
        except TypeError as error:
            raise FilterFault(f"{description['function']}: {error}") from None

    def run(responses: Responses, case: Mapping[str, Any]) -> Responses:
        for step in steps:
            try:
                responses = step(responses, case)
            except (TypeError, AttributeError, KeyError, IndexError, regexes.BadPattern) as error:
                raise FilterFault(f"the pipeline cannot be applied: {type(error).__name__}: {error}") from None
        return responses

    return run
