"""Multiple choice: by the likelihood of each choice as lm-evaluation-harness 0.4.13 does it, or by a letter in a text.

By likelihood nothing is written: the model reads `prompt`, a delimiter (the case's `delimiter`, by default one space)
and each choice, as lm-eval's multiple_choice tasks with that `target_delimiter` do, and its answer is JSON: a pair
[log-likelihood in nats, said greedily] for each choice in order, or the number alone.

By likelihood, the choice with the largest sum of log-probabilities is taken (`acc`), or the largest after division by
its length in characters (`acc_norm`) or UTF-8 bytes (`acc_bytes`). The length is of the choice as written, without the
space before it, whatever the tokenizer made of it. Of equal ones the first is taken. An empty choice is divided by 0:
it
loses, unless its sum is 0, which gives NaN, and NaN wins. So does a NaN sum there; here it gives no verdict.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from qualgate.metrics import BY_LIKELIHOOD
from qualgate.records import Score
from qualgate.scoring import strict_json
from qualgate.scoring.outcome import cannot_say, quote, right, too_long, wrong

LIKELIHOOD = "multiple_choice.likelihood/1"
TEXT = "multiple_choice.text/4"
MORE = "it is no choice's letter or text alone; `lenient: [trailing_text]` lets reasons stand around one"
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def pick(values: Sequence[float]) -> int:
    """numpy's argmax: the first NaN, or else the first of the largest."""
    for index, value in enumerate(values):
        if math.isnan(value):
            return index
    return max(range(len(values)), key=values.__getitem__)


def picks(log_likelihoods: Sequence[float], choices: Sequence[str]) -> dict[str, int]:
    """The choice that `acc`, `acc_norm` and `acc_bytes` take. log_likelihoods: nats, one for each choice."""
    lengths = {
        "acc": [1.0] * len(choices),
        "acc_norm": [float(len(choice)) for choice in choices],
        "acc_bytes": [float(len(choice.encode("utf-8", "surrogatepass"))) for choice in choices],
    }
    return {
        name: pick([_over(value, length) for value, length in zip(log_likelihoods, by, strict=True)])
        for name, by in lengths.items()
    }


def _over(value: float, length: float) -> float:
    if length:
        return value / length
    return math.nan if value == 0 or math.isnan(value) else math.copysign(math.inf, value)


def right_choices(body: Mapping[str, Any]) -> frozenset[int]:
    """The places of the case's `answer` among its `choices`: an index, a letter, a choice's text, or a list of them.

    ValueError when one is none of these.
    """
    choices, answer = body["choices"], body["answer"]
    return frozenset(_place(each, choices) for each in (answer if isinstance(answer, list) else [answer]))


def _place(answer: Any, choices: Sequence[str]) -> int:
    if type(answer) is int and 0 <= answer < len(choices):
        return answer
    if isinstance(answer, str) and answer in choices:
        return choices.index(answer)
    if isinstance(answer, str) and len(answer) == 1 and answer in LETTERS[: len(choices)]:
        return LETTERS.index(answer)
    last = len(choices) - 1
    by_letter = f" or letter (A to {LETTERS[last]})" if last < len(LETTERS) else ""
    raise ValueError(
        f"{quote(answer)} is none of {len(choices)} choices: give one's text, place (0 to {last}){by_letter}"
    )


def requests_of(body: Mapping[str, Any]) -> list[list[str]]:
    """What the model is to read of a case: [context, continuation] for each choice."""
    return [[body["prompt"], body.get("delimiter", " ") + choice] for choice in body["choices"]]


def score_weighed(body: Mapping[str, Any], text: str) -> dict[str, Score]:
    """`score_likelihoods` of an answer as the engine gives it. No verdict on a text that is none."""
    try:
        read = strict_json.read(text)
        numbers = [float(_nats(one)) for one in (read if isinstance(read, list) else [read])]
    except (ValueError, OverflowError) as error:
        reason = f"the answer is no list of a log-likelihood for each choice, as [-3.2, -1.5]: {error}"
        return {metric: cannot_say(metric, LIKELIHOOD, "likelihoods", reason[:200]) for metric in BY_LIKELIHOOD}
    return score_likelihoods(body, numbers)


def _nats(one: Any) -> float:
    match one[0] if isinstance(one, list) and one else one:
        case bool():
            pass
        case int() | float() as number:
            return number
    raise ValueError(f"{quote(one)} is no number, nor a pair that begins with one")


def score_likelihoods(body: Mapping[str, Any], log_likelihoods: Sequence[float]) -> dict[str, Score]:
    """multiple_choice.acc, .acc_norm and .acc_bytes."""
    choices, expected = body["choices"], right_choices(body)
    metrics = {name: f"multiple_choice.{name}" for name in ("acc", "acc_norm", "acc_bytes")}
    if len(log_likelihoods) != len(choices) or any(map(math.isnan, log_likelihoods)):
        reason = f"{len(log_likelihoods)} log-likelihoods for {len(choices)} choices, which need one each, in order"
        if len(log_likelihoods) == len(choices):
            reason = "one of the log-likelihoods is not a number"
        return {metric: cannot_say(metric, LIKELIHOOD, "likelihoods", reason) for metric in metrics.values()}
    scores = {}
    for name, taken in picks(log_likelihoods, choices).items():
        if taken in expected:
            scores[metrics[name]] = right(metrics[name], LIKELIHOOD, choices[taken])
        else:
            reason = f"choice {taken + 1} of {len(choices)} is likelier"
            scores[metrics[name]] = wrong(metrics[name], LIKELIHOOD, "different", reason, choices[taken])
    return scores


# A letter as models mark it: `A`, `(A)`, `A)`, `A.`, `A:`, `**A**`, `\boxed{A}`, `\boxed{\text{A}}`, `$A$`.
_LETTER = r"[*$]{0,3}(?:\\boxed\{)?(?:\\(?:text|mathrm|textbf)\{)?\(?([A-Z])[).:]?\}{0,2}[*$]{0,3}[).:]?"
_ANSWER = r"\*{0,2}(?i:(?:the )?(?:correct |final |best )?(?:answer|option|choice)(?:\*{0,2}\s+is)?)\s?:?\*{0,2}:?\s"
_OPTION = r"(?i:option|choice)\s"
_STRICT = re.compile(rf"(?:{_ANSWER})?(?:{_OPTION})?{_LETTER}")
# Of a word that begins with a letter none is named: `I think`, `I'm`, `C++`, `B-tree`; nor by `answer A is wrong`.
_NO_WORD = (
    r"(?!I\s(?:think|believe|would|will|am|have|choose|guess|can|do|say|go|pick|see|know)\b)([A-Z])\b(?![+#'’]|-\w)"
    r"(?!\s(?:is|was|cannot|can't|isn't)\b(?!\s(?:the\s)?(?:correct|right|best|answer)\b))"
    # `A` is an article, but before what says why or what else.
    r"(?<!A(?=[ ](?!(?:because|since|as|for|is|and|or|but|with|which|due|given)\b)[a-z]))"
)
_NAMED = re.compile(
    rf"(?i:\banswer\b(?:\s+(?:is|(?:would|should|must|will|has\sto)\sbe))?)[\s:*($]{{0,6}}(?:(?:either|both)\s)?(?:{_OPTION})?(?:\\boxed\{{)?(?:\\text\{{)?\(?{_NO_WORD}"
)
# As `answer is` is said elsewhere: 答案是A, la respuesta es A, الإجابة هي A.
_NAMED_ABROAD = re.compile(
    r"(?:答案|正解|答え|정답|الإجابة|الجواب|(?i:\b(?:respuesta|resposta|risposta|réponse|antwort|ответ)\b))"
    r"(?:\s(?i:correcta|correta|corretta|correcte|final|الصحيحة|الصحيح))?\s{0,2}"
    r"(?:是|为|為|は|은|는|هي|هو|[:：—–-]|(?i:es|é|è|est|ist|lautet|это)\b)[\s:：*($（「]{0,6}"
    r"(?i:la\s|a\s|il\s)?(?:(?i:opción|opção|opzione|option|вариант|الخيار|选项)\s?)?([A-Z])(?![A-Za-z0-9])"
)
_HINDI = re.compile(r"उत्तर\s{0,2}(?:है\s{0,2})?[:：]?\s{0,2}(?:विकल्प\s{0,2})?[(*]{0,3}([A-Z])(?![A-Za-z0-9])")
_CHINESE = re.compile(
    r"(?:[故应]选|所以选|因此选|不是\s?[A-Z]\s?[,，]\s?而?是)\s?[:：]?\s?[(*]{0,3}([A-Z])(?![A-Za-z0-9])"
)
_AND_ANOTHER = re.compile(
    r"[).*$}]{0,4}\s?(?:[,/&、，和或と]|\b(?:or|and|y|o|e|et|ou|und|oder|и|или|و|أو)\b)\s?(?:or\s|and\s)?[(*$]{0,3}([A-Z])"
    r"(?=\s?(?:[).,;:!?*$}/&\n。，；]|\Z|(?:or|and|but|because|since|as|for|are|both|could|may|might)\b))"
)
_WRONG = r"\s(?:are|is)\s(?:both\s|all\s)?(?:wrong|incorrect|false|impossible|not\b)"
_ARE_WRONG = re.compile(rf"[).*:]{{0,3}}(?:\sand\s[A-Z])?{_WRONG}")
# What is read where nothing else names one: `it is A`, `so C`; and two in one breath, unless as wrong ones.
_CONCLUDED = re.compile(
    r"\b(?i:so|therefore|hence|thus|it\sis|it['’]s|it\smust\sbe|I(?:['’]d|\swould)?\s(?:choose|pick|select|go\swith)),?"
    r"\s(?:either\s|both\s)?(?:option\s)?([A-Z])(?=\s?(?:[.,;!]|\Z|(?:or|and)\s[A-Z]\b))"
)
_CORRECT = re.compile(r"(?<![\w'’])([A-Z])\sis\s(?:the\s)?(?:correct|right|best)\b")
_IS = re.compile(r"(?i:\banswer\b(?:\s+is)?)[\s:*\"']{0,4}")
_ROW = re.compile(r"(?m:^)\s{0,3}([A-Z])[.:)]\s([A-Z])[.:)](?=\s)")  # `A. B. C. all wrong`
_BETWEEN = re.compile(r"[\s$]{0,4}(?:or|and|/|,)[\s$]{0,4}")  # two boxes, as `\boxed{A} or \boxed{B}`
_TWO = re.compile(rf"(?<![\w'’])([A-Z])\s?(?:/|&|\bor\b|\band\b)\s?([A-Z])\b(?![+#'’]|-\w|{_WRONG})")
_BOXED = re.compile(r"\\boxed\{\s?(?:\\(?:text|mathrm|textbf)\{)?\s?\(?([A-Z])\b\)?[^{}]{0,80}\}")
_MARKED = re.compile(
    r"\(([A-Z])\)|\*\*\(?([A-Z])[).:]?\*\*|\b(?i:option|choice)\s\**\(?([A-Z])\b|(?<![\w(])([A-Z])\)(?!\w)"
    r"|(?m:^)\s{0,3}\**([A-Z])[.:](?=[\s*])"
)
# A line that is a letter alone, also quoted; and a letter that the text begins with, where it can be no word.
_ALONE = re.compile(rf"(?m:^)[ \t]{{0,8}}[\"'`\[]?{_LETTER}[\"'`\]]?[ \t]{{0,8}}(?m:$)")
_BEGUN = re.compile(
    rf"\s*(?:(?i:both|either)\s)?(?!I\b)([A-Z])(?!\s?(?:/|&|\bor\b|\band\b)\s?[A-Z]{_WRONG})"
    r"(?=\s?[,–—]\s|\s-\s|\s(?:because|since|as)\s|\s?(?:/|&|\bor\b|\band\b)\s?[A-Z]\b)"
)


class Ambiguous(ValueError):
    """A text names several choices and none of them as its answer."""


def chosen(text: str, choices: Sequence[str], lenient: bool = False) -> int | None:
    """The choice that `text` names; None when it names none.

    Strict: the whole text is a letter as models mark it, alone or behind `Answer:`, `The answer is`, `Option`; or it is
    a choice's own text. lenient: reasons may stand around it. What counts is the last `answer is B` and the last
    `\\boxed{B}`; without either the letter that is marked, as `B)`, `(B)`, `**B**`, `Option B`, or `B:` and `B.` at a
    line's beginning, that is a line by itself, or that the text begins with, as `B because` and `B - Rome`; and without
    any of these the last `so B` or `it is B`. Ambiguous where those name several, as `the answer is A or B`, and where
    all that is said is two together.
    """
    said = text.strip()
    if said in choices:
        return choices.index(said)
    letters = LETTERS[: len(choices)]
    if (whole := _STRICT.fullmatch(said)) and whole[1] in letters:
        return letters.index(whole[1])
    if not lenient:
        return None
    if (named := [one[1] for one in _NAMED.finditer(text)]) and named[-1] not in letters:
        return None  # `the answer is E`, of four choices
    found = _last(text, letters, _NAMED, _NAMED_ABROAD, _HINDI, _CHINESE, _BOXED)
    found = found or {letters[place] for place in _by_text(text, choices[: len(letters)])}
    found = found or set(_unnamed(text, letters)) or _last(text, letters, _CONCLUDED, _CORRECT)
    found = found or {letter for two in _TWO.findall(text) if {*two} <= {*letters} for letter in two}
    if len(found) > 1:
        raise Ambiguous(f"it names {', '.join(sorted(found))}, and none of them as its answer alone")
    return letters.index(found.pop()) if found else None


def _last(text: str, letters: str, *patterns: re.Pattern[str]) -> set[str]:
    """What each pattern finds last, and the letter that is named with it."""
    found: set[str] = set()
    for pattern in patterns:
        if ones := [one for one in pattern.finditer(text) if one[1] in letters]:
            found.add(ones[-1][1])
            another = _AND_ANOTHER.match(text, ones[-1].end(1))
            if another and another[1] in letters and not _ARE_WRONG.match(text, another.end(1)):
                found.add(another[1])
            if pattern is _BOXED and len(ones) > 1 and _BETWEEN.fullmatch(text, ones[-2].end(), ones[-1].start()):
                found.add(ones[-2][1])
    return found


def _by_text(text: str, choices: Sequence[str]) -> Iterator[int]:
    """The choice whose own text follows the last `answer is`; of several the longest."""
    for one in [*_IS.finditer(text)][-1:]:
        said = text[one.end() :].casefold()
        fits = [choice for choice in choices if choice and said.startswith(choice.casefold())]
        whole = [choice for choice in fits if not said[len(choice) : len(choice) + 1].isalnum()]
        if whole:
            yield choices.index(max(whole, key=len))


def _unnamed(text: str, letters: str) -> Iterator[str]:
    """Every letter of a choice that is marked in the text, alone on a line, or its beginning."""
    for one in (*_MARKED.finditer(text), *_ALONE.finditer(text)):
        if (letter := one[one.lastindex or 0]) in letters and not _ARE_WRONG.match(text, one.end(one.lastindex or 0)):
            yield letter
    for one in _ROW.finditer(text):
        yield from (letter for letter in one.groups() if letter in letters)
    if (begun := _BEGUN.match(text)) and begun[1] in letters:
        another = _AND_ANOTHER.match(text, begun.end(1))
        yield from (begun[1], *([another[1]] if another and another[1] in letters else ()))


def score_multiple_choice(body: Mapping[str, Any], text: str, lenient: bool = False) -> dict[str, Score]:
    """The letter in `text`, or the choice it repeats, against the case's `answer`."""
    metric, expected = "multiple_choice", right_choices(body)
    if refusal := too_long(metric, TEXT, text):
        return {metric: refusal}
    try:
        taken = chosen(text, body["choices"], lenient)
    except Ambiguous as several:
        return {metric: cannot_say(metric, TEXT, "ambiguous", str(several))}
    if taken is None:
        if not text.strip():
            return {metric: wrong(metric, TEXT, "empty", "the answer is empty")}
        return {metric: wrong(metric, TEXT, "no_choice", "it names no choice" if lenient else MORE)}
    letter = LETTERS[taken] if taken < len(LETTERS) else str(taken)
    if taken in expected:
        return {metric: right(metric, TEXT, letter)}
    return {metric: wrong(metric, TEXT, "different", f"{letter} is not the right choice", letter)}
