"""The scorer `math`: an answer is right where its final answer is the case's, as mathematics."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from qualgate.records import Evalset, Score
from qualgate.sandbox import killable
from qualgate.scoring.mathematics.found import boxed, final_answer, why_not_meant
from qualgate.scoring.mathematics.proof import same
from qualgate.scoring.mathematics.reader import read
from qualgate.scoring.mathematics.tokens import tokens
from qualgate.scoring.mathematics.tree import Undecided, Unread
from qualgate.scoring.numeric import Tolerance
from qualgate.scoring.outcome import actual, cannot_say, quote, right, too_long, wrong
from qualgate.scoring.references import any_of, faults_of_any
from qualgate.scoring.scorer import Scorer, by_body

METRIC, SCORER = "math", "math/3"


def score_math(body: Mapping[str, Any], text: str) -> dict[str, Score]:
    """`math` of an answer.

    Wrong has the error types empty, malformed, different; null has unknown (what is written is not read here), limit
    (it is too long or too deep), not_meant (it is denied, taken back or cut off), undecided (no rule says, or numbers
    are too large), stopped (the child was ended).
    """
    if refusal := too_long(METRIC, SCORER, text):
        return {METRIC: refusal}
    if not text.strip():
        return {METRIC: wrong(METRIC, SCORER, "empty", "the answer is empty")}
    reference, answer = reference_of(body), ""
    try:
        answer = final_answer(text)
        verdict = answer == reference or _agree(answer, reference, body.get("tolerance"))
    except Unread as error:
        if error.kind == "unknown" and _written_alike(answer, reference):
            return {METRIC: _right(answer, text)}
        say = wrong if error.kind == "malformed" else cannot_say
        context = f" in {quote(answer)}" if answer else ""
        return {METRIC: say(METRIC, SCORER, error.kind, f"{error}{context}")}
    except RecursionError:  # whoever asks is deep in calls already
        return {METRIC: cannot_say(METRIC, SCORER, "limit", f"{quote(answer)} is nested too deeply")}
    except Undecided as error:
        return {METRIC: cannot_say(METRIC, SCORER, "undecided", f"{quote(answer)} and {quote(reference)}: {error}")}
    except killable.Killed as error:
        return {METRIC: cannot_say(METRIC, SCORER, "stopped", f"{quote(answer)} took too much to compare: {error}")}
    if verdict:
        return {METRIC: _right(answer, text)}
    return {METRIC: wrong(METRIC, SCORER, "different", f"{quote(answer)} is not {quote(reference)}", answer)}


def _right(answer: str, text: str) -> Score:
    if why := why_not_meant(text):
        return cannot_say(METRIC, SCORER, "not_meant", f"{quote(answer)} is not given as the answer: {why}")
    return right(METRIC, SCORER, answer)


_WRAP = r"\\(?:text|math)(?:bf|rm|it|sf)?\s*\{\s*"
_OPTION = re.compile(rf"{_WRAP}\(?([A-Z])[).:]\s*(?:\}}(.*)|\s([^{{}}]*)\}})", re.DOTALL)
_BARE_OPTION = re.compile(rf"(?:{_WRAP}([A-Z])\s*\}}|\(?([A-Z])[).:])(.*)", re.DOTALL)
_LETTER = re.compile(rf"(?:{_WRAP})?\(?([A-Z])[).:]?\s*\}}?")
_GAP = re.compile(r"(?:[\s~:]|\\[\s,;:!]|\\q?quad(?![a-z]))+")


def _agree(answer: str, reference: str, tolerance: Mapping[str, Any] | None) -> bool:
    r"""Return whether two answers are equal.

    Against a lone letter only the letter of an option such as `\textbf{(B)} 12` counts. Of `a \approx b` either may be
    right.
    """
    (letter, value), (due, due_value) = _option(answer, reference), _option(reference, answer)
    if letter and due and (value or due_value):
        return letter == due and (not value or not due_value or same(value, due_value, tolerance))
    exact, approximately, _ = answer.replace("≈", r"\approx").rpartition(r"\approx")
    if approximately and exact.strip() and same(exact, reference, tolerance):
        return True
    return same(value or answer, due_value or reference, tolerance)


def _option(text: str, other_text: str) -> tuple[str, str]:
    """Return letter and value of an option; "" for each that it lacks.

    `(B) 12` is an option only if `other_text` is a lone letter.
    """
    if lone := _LETTER.fullmatch(text):
        return lone[1], ""
    match = _OPTION.fullmatch(text) or (_BARE_OPTION.fullmatch(text) if _LETTER.fullmatch(other_text) else None)
    if match is None:
        return "", ""
    letter, *contents = (group for group in match.groups() if group is not None)
    return letter, _GAP.sub("", contents[0], count=1) if _GAP.match(contents[0]) else contents[0]


def _written_alike(answer: str, reference: str) -> bool:
    """Return whether two answers, one of them unread, have the same signs in any layout."""
    try:
        return tokens(answer) == tokens(reference)
    except Unread:
        return False


def reference_of(body: Mapping[str, Any]) -> str:
    """Return a case's answer: the content of its last box if it is a whole solution."""
    written = str(body["answer"]).strip()
    return boxed(written) if "\\boxed" in written or "\\fbox" in written else written.strip("$ ")


def faults(body: Mapping[str, Any], evalset: Evalset) -> Iterator[str]:
    """Yield why a case cannot be scored: no `answer`, or one that cannot be read."""
    if type(body.get("answer")) not in (str, int, float):
        yield f"math needs `answer`, a text as {quote('x = 3')} or a number; {actual(body, 'answer')}"
        return
    try:
        read(reference_of(body))
    except Unread as error:
        if error.kind == "unknown":  # an answer that is written alike is right all the same
            return
        form = r"LaTeX or plain, as \frac{1}{2}, (1, 2] or x = 3"
        yield f"math cannot read `answer`: {error}. It is written in {form}; {actual(body, 'answer')}"
    try:
        Tolerance.of(body)
    except ValueError as error:
        yield f"`tolerance`: {error}"


SCORERS = (
    Scorer(
        name="math",
        version=SCORER,
        metrics=(METRIC,),
        function=any_of(by_body(score_math)),
        faults=faults_of_any(faults),
    ),
)
