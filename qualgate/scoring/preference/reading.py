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
    """ "A", "B" or "tie", as a JSON object says it, in a fence or not, or the word alone (`Tie`, `**a**`, `B.`).
    Unread for everything else: what a reply means is not guessed."""
    said = reply.strip(" \t\r\n")
    if len(said) > MOST_REPLY:
        raise Unread(f"{len(said):,} characters, where one JSON object is asked")
    if fenced := _FENCE.fullmatch(said):
        said = fenced[1].strip(" \t\r\n")
    if word := _word(said):
        return word
    try:
        found = strict_json.read(said)
    except strict_json.NotStrictJson as error:
        raise Unread(f"no JSON object ({error}): {quote(said)}") from None
    if not isinstance(found, dict) or set(found) - {"reason", "verdict"} or "verdict" not in found:
        raise Unread(f"not an object of `verdict` and `reason`: {quote(said)}")
    if word := _word(found["verdict"]):
        return word
    raise Unread(f"the verdict is {quote(found['verdict'])}, not one of {', '.join(VERDICTS.values())}")


def _word(written: Any) -> str:
    return VERDICTS.get(written.strip(_AROUND).lower(), "") if isinstance(written, str) else ""


def judged(first: str, second: str, replies: Sequence[str | None] = (), errors: Sequence[str] = ("", "")) -> Judged:
    """What a judge says of `second` against `first`.

    replies: to (first, second) and to (second, first); none where the texts are equal, which is a tie that nobody is
    asked about. Orders that contradict each other are a tie.
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
            asked = ("the first order", "the second order")[order]
            return Judged(win=None, why=f"outside its form in {asked}: {outside}", style=how, steers=swayed)
    one = {"A": 0.0, "B": 1.0, "tie": 0.5}[places[0]]
    other = {"A": 1.0, "B": 0.0, "tie": 0.5}[places[1]]
    return Judged(win=one if one == other else 0.5, places=tuple(places), style=how, steers=swayed)


def style(first: str, second: str) -> tuple[int, int]:
    """Whether `second` is longer (1), alike (0) or shorter (-1), and whether it has more marks of format (headings,
    lists, bold, code, tables). Swapped texts have the opposite style."""
    lengths = len(first), len(second)
    near = abs(lengths[1] - lengths[0]) <= max(LEAST, ALIKE * max(lengths))
    marks = tuple(len(MARKS.findall(text[:READ_FOR_STYLE])) for text in (first, second))
    return 0 if near else _sign(lengths[1] - lengths[0]), _sign(marks[1] - marks[0])


def _sign(number: int) -> int:
    return (number > 0) - (number < 0)
