"""Compare the numbers that an answer ends in with the reference's.

These are the numbers of the reference's last line that has any (18 of `#### 18`; 12 and 3 of `Answer: 12 r 3`,
since a quotient without its remainder is another answer). The answer's last line with a number must end in the same
ones in the same order; text between them is ignored. For one number in the reference that is the last number of the
answer. So write a reference as the bare result: `5 and 3 are 8` requires all three.

How a number is read, on both sides, is in `quantities`: thousands, decimals, fractions, powers, signs. Nothing
is rounded: 18, 18.0 and 018 are equal. A number that only continues an expression (`7√2`, `x/4`) is not compared. One
that can be read two ways (`1.234`) is right if the likelier one is the reference, and gets no verdict if the other is.

The tolerance is 0 unless the case declares one: `tolerance: {abs: 0.01}`, `{rel: 1e-3}` of the reference, or both, of
which the wider counts. It is computed exactly, so `0.1` off by `0.1` is within.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

from qualgate.records import Evalset, Score
from qualgate.scoring.outcome import actual, cannot_say, quote, right, too_long, wrong
from qualgate.scoring.quantities import Quantity, quantities
from qualgate.scoring.references import any_of, faults_of_any
from qualgate.scoring.retraction import is_cut, not_meant
from qualgate.scoring.scorer import Scorer, by_body

NUMERIC = "numeric/6"
_BOX = re.compile(r"\\boxed\s?\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}")
_BOUND = re.compile(
    r"\b(?:at\s(?:most|least)|(?:less|more|fewer|greater|smaller|larger)\sthan|no\s(?:less|more|fewer)\sthan|up\sto"
    r"|under|over|above|below)\s[$*({\[\\]{0,4}\Z",
    re.IGNORECASE,
)
_NUMBERS = re.compile(r"[0-9][0-9.,]*")


class NoNumber(ValueError):
    """`str(error)` is the reason, `error_type` its word."""

    def __init__(self, error_type: str, reason: str) -> None:
        super().__init__(reason)
        self.error_type = error_type


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """How far an answer may lie from the reference: `absolute`, or `relative` times that, whichever is more."""

    absolute: Fraction = Fraction(0)
    relative: Fraction = Fraction(0)

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Tolerance:
        """Read a case's `tolerance`; ValueError unless it is {"abs": …, "rel": …} with finite numbers of 0 or more."""
        declared = body.get("tolerance", {})
        if not isinstance(declared, Mapping) or not set(declared) <= {"abs", "rel"}:
            wanted = 'an object with `abs`, `rel` or both, as {"abs": 0.01}'
            raise ValueError(f"tolerance is {quote(declared)}, expected {wanted}")
        return cls(absolute=_bound(declared.get("abs", 0)), relative=_bound(declared.get("rel", 0)))

    def allows(self, answer: Fraction, reference: Fraction) -> bool:
        """Exact arithmetic, whatever the number of digits; without a tolerance, equality of values."""
        if answer == reference or not (self.absolute or self.relative):
            return answer == reference
        return abs(answer - reference) <= max(self.absolute, self.relative * abs(reference))


def _bound(value: Any) -> Fraction:
    try:
        if isinstance(value, bool) or (number := Decimal(str(value))) < 0 or not abs(number.adjusted()) < 1000:
            raise ValueError
        return Fraction(number)
    except (ValueError, OverflowError, InvalidOperation):
        raise ValueError(f"a tolerance of {quote(value)}, expected a number of 0 or more") from None


def last_numbers(text: str, count: int | None = None) -> tuple[Quantity, ...]:
    """The numbers, or the last `count` of them, in the last line of `text` that holds any. NoNumber when no line does,
    or when one of them is too long."""
    for line in reversed(text.splitlines()):
        numbers = tuple(deque(quantities(line), maxlen=count))
        if too_much := next((number for number in numbers if number.too_much), None):
            raise NoNumber(too_much.too_much, too_much.unread)
        if numbers:
            return numbers
    raise NoNumber("no_number", "no number in the answer")


def reference_numbers(answer: Any) -> tuple[Quantity, ...]:
    """Return the numbers that an answer is compared with. NoNumber for a case without one."""
    numbers = last_numbers(str(answer))
    if unread := next((number for number in numbers if number.value is None and not number.parts), None):
        raise NoNumber("unread", f"{quote(unread.text)} has no value here: {unread.unread}; `math` reads expressions")
    return numbers


def score_numeric(body: Mapping[str, Any], text: str) -> dict[str, Score]:
    """The last numbers of the answer against those of the case's `answer`, within its `tolerance`.

    NoNumber or ValueError when the case itself is at fault.
    """
    reference, tolerance = reference_numbers(body["answer"]), Tolerance.of(body)
    if refusal := too_long("numeric", NUMERIC, text):
        return {"numeric": refusal}
    try:
        answer = last_numbers(text, len(reference))
    except NoNumber as error:
        word = error.error_type if text.strip() else "empty"
        return {"numeric": wrong("numeric", NUMERIC, word, str(error))}
    given, expected = (", ".join(number.text for number in numbers) for numbers in (answer, reference))
    verdicts = [_same(*pair, tolerance) for pair in zip(answer, reference, strict=False)]
    if len(answer) == len(reference) and all(verdicts):
        if why := _not_meant(text, len(answer)):
            return {"numeric": cannot_say("numeric", NUMERIC, "not_meant", f"{quote(given)} is not the answer: {why}")}
        return {"numeric": right("numeric", NUMERIC, given)}
    if False in verdicts or len(answer) != len(reference):
        return {"numeric": wrong("numeric", NUMERIC, "different", f"{quote(given)} is not {quote(expected)}", given)}
    unread = answer[verdicts.index(None)]
    why = unread.unread or ("it is a part of something else" if unread.part else "it can be read two ways")
    return {"numeric": cannot_say("numeric", NUMERIC, "unread_number", f"{quote(unread.text)} is not compared: {why}")}


def _not_meant(text: str, count: int) -> str:
    """Return why the last `count` numbers of a text are not its answer; "" if they are."""
    last = deque(_NUMBERS.finditer(text), maxlen=count)
    if not last:
        return ""
    before, after = text[: last[0].start()], text[last[-1].end() :]
    boxes = _BOX.findall(text) if count == 1 else []
    if len({box.strip() for box in boxes}) > 1:
        return "it boxes several answers"
    if boxes and last[0][0].rstrip(".,") not in boxes[0]:
        return "it boxes another answer"
    if _BOUND.search(before[-40:]):
        return "the text gives a bound and no value"
    return "the text is cut off" if is_cut(after) else not_meant(before, after)


def _same(answer: Quantity, reference: Quantity, tolerance: Tolerance) -> bool | None:
    """Return whether two numbers are the same within the tolerance.

    None if that is undecidable: the answer's number is not read, has other readings, or is a part of something else.
    """
    if reference.value is None:
        return answer.parts == reference.parts if answer.parts or answer.value is not None else None
    if answer.value is not None and tolerance.allows(answer.value, reference.value):
        return None if answer.part and not reference.part else True
    numbers = [Fraction(int(part)) for part in answer.parts if part.isdigit()]
    possible = [*answer.others, *numbers]
    if len(numbers) == 2 and ":" in answer.parts and numbers[1]:
        possible.append(numbers[0] / numbers[1])
    if any(tolerance.allows(value, reference.value) for value in possible):
        return None
    return None if answer.value is None and not possible else False


def faults(body: dict[str, Any], evalset: Evalset) -> Iterator[str]:
    """Check that `answer` has a number that can be compared, and `tolerance`."""
    answer = body.get("answer")
    if type(answer) not in (str, int, float):
        yield f"numeric needs `answer`, a number; {actual(body, 'answer')}"
        return
    try:
        reference_numbers(answer)
    except NoNumber as error:
        why = "there is none in it" if error.error_type == "no_number" else str(error)
        yield f"numeric needs a number in `answer`: {why}; {actual(body, 'answer')}"
    try:
        Tolerance.of(body)
    except ValueError as error:
        yield f"`tolerance`: {error}"


SCORERS = (
    Scorer(
        name="numeric",
        version=NUMERIC,
        metrics=("numeric",),
        function=any_of(by_body(score_numeric)),
        faults=faults_of_any(faults),
    ),
)
