"""Answers as a careful person reads them, written down by one who had not seen our scorers, beside what these say.

`readings/choices.jsonl`: text, choices, the letter that the text gives as its answer (`none`, or `ambiguous`, where it
gives none), kind. `readings/numbers.jsonl`: text, reference, `right`, `wrong` or `null`, kind. Where lm-eval, inspect
and simple-evals disagree with each other, the person's word counts.

A wrong approval is an answer that is right here and not for the reader; no verdict in place of `wrong` is none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qualgate.scoring.match import score_numeric
from qualgate.scoring.multiple_choice import score_multiple_choice
from qualgate.scoring.stated_choice import LETTERS

FOLDER = Path(__file__).with_suffix("")
LISTED = {  # text and reference on which we say otherwise → why
    ("The train leaves at 10:30.", "10.5"): "wrong, not null: a time is no number of hours",
    ("1 h 20 min", "80"): "wrong, not null: 80 is not said",
    ("e^2", "7.389"): "wrong, not null: no number is said",
}


@dataclass(slots=True)
class Readings:
    """What came of one kind of answers."""

    asked: int = 0
    agreed: int = 0
    approved: list[str] = field(default_factory=list)  # wrong approvals: there must be none
    different: list[str] = field(default_factory=list)  # all other differences that are not listed

    @property
    def held(self) -> bool:
        return not self.approved and self.agreed >= 0.99 * self.asked

    def take(self, wanted: str, given: str, about: str, listed: bool) -> None:
        """wanted, given: right, wrong or null."""
        self.asked += 1
        if wanted == given or listed or (wanted, given) == ("wrong", "null"):
            self.agreed += 1
        else:
            (self.approved if given == "right" else self.different).append(f"{about}: {given}, not {wanted}")


def _rows(name: str) -> Iterator[list[Any]]:
    for line in (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
        yield json.loads(line)


def _verdict(value: bool | None) -> str:
    return {True: "right", False: "wrong", None: "null"}[value]


def choices() -> Readings:
    """Each text is asked whether it gives each letter."""
    found = Readings()
    for text, options, wanted, kind in _rows("choices"):
        for letter in LETTERS[: len(options)]:
            body = {"choices": options, "answer": LETTERS.index(letter)}
            given = score_multiple_choice(body, text, lenient=True)["multiple_choice"].verdict
            said = "right" if wanted == letter else "wrong"
            found.take(said, _verdict(given), f"{kind}: {text!r} for {letter}", listed=False)
    return found


def numbers() -> Readings:
    """Each text against its reference."""
    found = Readings()
    for text, reference, wanted, kind in _rows("numbers"):
        given = score_numeric({"answer": reference}, text)["numeric"].verdict
        listed = (text, reference) in LISTED
        found.take(wanted, _verdict(given), f"{kind}: {text!r} for {reference}", listed)
    return found
