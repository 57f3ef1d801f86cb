"""How a judge's replies are read: by its form alone, and what both orders of a pair come to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from qualgate.records import Judged
from qualgate.scoring import strict_json
from qualgate.scoring.outcome import quote
from qualgate.scoring.preference.asking import steers

VERDICTS = {"a": "A", "b": "B", "tie": "tie"}
_AROUND = " \t\r\n*`\"'."  # marks of emphasis, quotes and a full stop around a verdict that is a word alone
MOST_REPLY = 20_000  # characters
ALIKE, LEAST = 0.10, 10  # lengths within a tenth, or within so many characters, are alike
MARKS = re.compile(
    r"^\s{0,3}(?:#{1,6}\s|[-*+]\s|\d{1,3}[.)]\s|\||>|```)|\*\*[^*\n]{1,200}\*\*|`[^`\n]{1,200}`", re.MULTILINE
)
_FENCE = re.compile(r"```(?:json|JSON)?[ \t]*\r?\n(.*?)\n[ \t]*```", re.DOTALL)
READ_FOR_STYLE = 200_000  # characters


class Unread(ValueError):
    """A reply outside the form; the message says what is wrong with it."""


def verdict(reply: str) -> str:
    """Return "A", "B" or "tie" from a JSON object (perhaps in a fence), or the word alone (`Tie`, `**a**`, `B.`).
    Unread for everything else: the meaning of a reply is not guessed."""
    text = reply.strip(" \t\r\n")
    if len(text) > MOST_REPLY:
        raise Unread(f"{len(text):,} characters, where one JSON object is asked")
    if fenced := _FENCE.fullmatch(text):
        text = fenced[1].strip(" \t\r\n")
    if word := _word(text):
        return word
    try:
        parsed = strict_json.read(text)
    except strict_json.NotStrictJson as error:
        raise Unread(f"no JSON object ({error}): {quote(text)}") from None
    if not isinstance(parsed, dict) or set(parsed) - {"reason", "verdict"} or "verdict" not in parsed:
        raise Unread(f"not an object of `verdict` and `reason`: {quote(text)}")
    if word := _word(parsed["verdict"]):
        return word
    raise Unread(f"the verdict is {quote(parsed['verdict'])}, not one of {', '.join(VERDICTS.values())}")


def _word(written: Any) -> str:
    return VERDICTS.get(written.strip(_AROUND).lower(), "") if isinstance(written, str) else ""


def judged(first: str, second: str, replies: Sequence[str | None] = (), errors: Sequence[str] = ("", "")) -> Judged:
    """Return a judge's verdict on `second` against `first`.

    replies: to (first, second) and to (second, first); none for equal texts, which are a tie without a question.
    Orders that contradict each other are a tie.
    """
    swayed = tuple(dict.fromkeys((*steers(first), *steers(second))))
    how = style(first, second)
    if first == second:
        return Judged(win=0.5, steers=swayed)
    places = []
    for order, (reply, error) in enumerate(zip(replies, errors, strict=True)):
        if reply is None:
            return Judged(win=None, why=f"no reply: {error}", style=how, steers=swayed)
        try:
            places.append(verdict(reply))
        except Unread as outside:
            order_name = ("the first order", "the second order")[order]
            return Judged(win=None, why=f"outside its form in {order_name}: {outside}", style=how, steers=swayed)
    forward = {"A": 0.0, "B": 1.0, "tie": 0.5}[places[0]]
    swapped = {"A": 1.0, "B": 0.0, "tie": 0.5}[places[1]]
    return Judged(win=forward if forward == swapped else 0.5, places=tuple(places), style=how, steers=swayed)


def style(first: str, second: str) -> tuple[int, int]:
    """Return whether `second` is longer (1), alike (0) or shorter (-1), and likewise whether it has more formatting
    (headings, lists, bold, code, tables). Swapped texts have the opposite style."""
    lengths = len(first), len(second)
    near = abs(lengths[1] - lengths[0]) <= max(LEAST, ALIKE * max(lengths))
    marks = tuple(len(MARKS.findall(text[:READ_FOR_STYLE])) for text in (first, second))
    return 0 if near else _sign(lengths[1] - lengths[0]), _sign(marks[1] - marks[0])


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)
