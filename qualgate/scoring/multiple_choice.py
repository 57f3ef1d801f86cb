"""Multiple choice: by the likelihood of each choice as lm-evaluation-harness 0.4.13 does it, or by a letter in a text.

By likelihood nothing is generated: the model reads `prompt`, a delimiter (the case's `delimiter`, by default one space)
and each choice, as in lm-eval's multiple_choice tasks with that `target_delimiter`, and its answer is JSON: a pair
[log-likelihood in nats, whether greedy] for each choice in order, or the number alone.

By likelihood, the choice with the largest sum of log-probabilities is taken (`acc`), or the largest after division by
its length in characters (`acc_norm`) or UTF-8 bytes (`acc_bytes`). The length is of the choice as written, without the
space before it, whatever the tokenizer made of it. The first of equal ones is taken. An empty choice is divided by 0:
it loses, unless its sum is 0, which gives NaN, and NaN wins. So does a NaN sum there; here it gives no verdict.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from qualgate.records import Evalset, Score
from qualgate.records.metrics import BY_LIKELIHOOD
from qualgate.scoring import strict_json
from qualgate.scoring.outcome import actual, cannot_say, quote, right, too_long, wrong
from qualgate.scoring.scorer import Scorer, by_body
from qualgate.scoring.stated_choice import LETTERS, Ambiguous, Stated, stated

LIKELIHOOD = "multiple_choice.likelihood/1"
TEXT = "multiple_choice.text/5"
GUESSED = "no sentence gives it as the answer outright"
MORE = "it is no choice's letter or text alone; `lenient: [trailing_text]` lets reasons stand around one"


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
    """Return the index of the right choice, given by index, text or letter.

    ValueError for an answer that is none of these.
    """
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
    """Return [context, continuation] for each choice: what the model reads of a case."""
    return [[body["prompt"], body.get("delimiter", " ") + choice] for choice in body["choices"]]


def score_weighed(body: Mapping[str, Any], text: str) -> dict[str, Score]:
    """Score an answer of the engine by `score_likelihoods`. No verdict on a text that holds no likelihoods."""
    try:
        read = strict_json.read(text)
        numbers = [float(_nats(entry)) for entry in (read if isinstance(read, list) else [read])]
    except (ValueError, OverflowError) as error:
        reason = f"the answer is no list of a log-likelihood for each choice, as [-3.2, -1.5]: {error}"
        return {metric: cannot_say(metric, LIKELIHOOD, "likelihoods", reason[:200]) for metric in BY_LIKELIHOOD}
    return score_likelihoods(body, numbers)


def _nats(entry: Any) -> float:
    match entry[0] if isinstance(entry, list) and entry else entry:
        case bool():
            pass
        case int() | float() as number:
            return number
    raise ValueError(f"{quote(entry)} is no number, nor a pair that begins with one")


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
_STRICT = re.compile(rf"(?:{_ANSWER})?(?:(?i:option|choice)\s)?{_LETTER}")
_SMALL = re.compile(r"\(?([a-z])(?:[).:]+|\Z)(.{0,200})", re.DOTALL)


def chosen(text: str, choices: Sequence[str], lenient: bool = False) -> Stated | None:
    """The choice that `text` names; None when it names none.

    Strict: the whole text is a letter as models mark it, alone or behind `Answer:`, `The answer is`, `Option`; or it is
    a choice's own text. lenient: reasons may stand around it, see `stated_choice`, which raises Ambiguous.
    """
    stripped = text.strip()
    if stripped in choices:
        return Stated(choices.index(stripped))
    if match := _STRICT.fullmatch(stripped):
        index = LETTERS.index(match[1])
        return Stated(index) if index < len(choices) else None
    if not lenient:
        return None
    if (index := _by_whole_text(stripped, choices)) is not None:
        return Stated(index)
    return stated(text, choices)


def _by_whole_text(stripped: str, choices: Sequence[str]) -> int | None:
    """Return the choice that the text repeats but for case and marks, or names by a small letter; else None."""
    folded = [choice.strip().strip(".").casefold() for choice in choices]
    unmarked = stripped.strip("*_`\"' .").casefold()
    if folded.count(unmarked) == 1:
        return folded.index(unmarked)
    if (small := _SMALL.fullmatch(stripped)) and (index := LETTERS.index(small[1].upper())) < len(choices):
        remainder = small[2].strip().strip("*_`\"' .").casefold()
        return index if remainder in ("", folded[index]) else None
    return None


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
    letter = LETTERS[taken.place] if taken.place < len(LETTERS) else str(taken.place)
    if taken.place in expected:
        score = right(metric, TEXT, letter)
        return {metric: replace(score, reason=GUESSED) if taken.guess else score}
    return {metric: wrong(metric, TEXT, "different", f"{letter} is not the right choice", letter)}


def cut(score: Score) -> Score:
    """The score of an answer that was cut at its limit: a letter that is no statement may be denied behind the cut."""
    if score.metric != "multiple_choice" or score.reason != GUESSED:
        return score
    return cannot_say(score.metric, score.scorer, "ambiguous", f"{GUESSED}; the answer was cut at its limit")


def choice_faults(body: dict[str, Any], evalset: Evalset) -> Iterator[str]:
    """Check `choices`, and `answer` among them, for multiple_choice."""
    choices = body["choices"]
    if (
        not isinstance(choices, list)
        or len(choices) < 2
        or not all(isinstance(choice, str) and choice for choice in choices)
    ):
        yield f"multiple_choice needs `choices`, a list of two texts or more, none empty; {actual(body, 'choices')}"
    elif len(set(choices)) < len(choices):
        twice = next(choice for choice in choices if choices.count(choice) > 1)
        yield f"two of `choices` are equal, {quote(twice)}: no answer could tell them apart"
    else:
        try:
            if not right_choices(body):
                yield "multiple_choice needs `answer`, one of the choices; found []"
        except ValueError as error:
            yield f"`answer`: {error}"


def weighed_faults(body: dict[str, Any], evalset: Evalset) -> Iterator[str]:
    """Check `choices`, `answer` among them, and `delimiter` before each choice, for multiple_choice.likelihood."""
    yield from choice_faults(body, evalset)
    if not isinstance(body.get("delimiter", ""), str):
        yield f"`delimiter` must be a text, which may be empty; {actual(body, 'delimiter')}"


SCORERS = (
    Scorer(
        name="multiple_choice",
        version=TEXT,
        metrics=("multiple_choice",),
        function=lambda case, evalset, text: score_multiple_choice(case.body, text, "trailing_text" in evalset.lenient),
        needs=("choices", "answer"),
        faults=choice_faults,
        lenient=("trailing_text",),
    ),
    Scorer(
        name="multiple_choice.likelihood",
        version=LIKELIHOOD,
        metrics=BY_LIKELIHOOD,
        function=by_body(score_weighed),
        needs=("choices", "answer"),
        faults=weighed_faults,
    ),
)
