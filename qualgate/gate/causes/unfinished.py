"""Classify unfinished answers, and decide whether they explain the lost answers.

A choice by likelihood is read, not written, so it is never unfinished. Where calls are scored, an answer without text
and call may be right, so it is not counted as empty.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from qualgate.records import UnitEvidence
from qualgate.records.metrics import BY_LIKELIHOOD
from qualgate.text.numbers import counted

CALLS = ("tool_call.", "turns.")
MANY_TOKENS = 8  # an empty answer with more was written, and something took its text
# Way → (its wording in a line, the cause that it gives a block). A short empty answer is the model's own.
WAYS = {
    "cut": ("cut off", "truncation"),
    "cut early": ("cut off early", "truncation"),
    "no end": ("without an end of their own", "truncation"),
    "swallowed": ("empty beside many tokens", "parser"),
    "no text": ("empty", "harness"),
    "empty": ("empty", ""),
    "unfiltered": ("right, and not found by the filter", "filter"),
}


def way_unfinished(unit: UnitEvidence, budget: int | None = None) -> str:
    """A key of `WAYS`; "" where the answer is finished. budget: its `max_new_tokens`; None: not known."""
    if any(name in unit.values for name in BY_LIKELIHOOD):
        return ""
    if unit.truncated:
        return "cut early" if 0 < (unit.tokens or 0) < (budget or 0) else "cut"
    if unit.unanswered == "empty" and any(name.startswith(CALLS) for name in unit.values):
        return ""
    if unit.unanswered == "empty":
        return "no text" if unit.tokens is None else "swallowed" if unit.tokens > MANY_TOKENS else "empty"
    return unit.unanswered or ("no end" if unit.finished is False else "")


def cause_of_gaps(lost: Sequence[tuple[UnitEvidence, UnitEvidence]], most_share: float) -> tuple[str, str]:
    """(cause, why) where more than the share `most` of the lost answers are unfinished of the variant alone, else
    ("", "")."""
    ways = Counter(way_unfinished(after) for before, after in lost if not way_unfinished(before))
    causes: Counter[str] = Counter()
    for way, (_, cause) in WAYS.items():
        causes[cause] += ways[way] if cause else 0
    ((cause, number),) = causes.most_common(1)
    if number <= most_share * len(lost):
        return "", ""
    ways_in_words = " or ".join(
        dict.fromkeys(words for way, (words, way_cause) in WAYS.items() if way_cause == cause and ways[way])
    )
    return cause, f"{number:,} of {counted(len(lost), 'lost answer')} are {ways_in_words}"
