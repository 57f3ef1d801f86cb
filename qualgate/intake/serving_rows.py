"""Read the fields of score rows about serving: for parity, cost, service levels and advice.

    token_ids      the answer's tokens, a list of whole numbers; or, for parity alone, one of
    tokens_sha256  sha256 of the tokens as little-endian int32
    text_sha256    sha256 of the answer's text in UTF-8, which is also what feedback names an answer by
    top2_gaps      the gap between the two largest logits at each token, in the same order
    tokens         how many there are, where the list is not given
    prompt_tokens  of the prompt
    ttft, tpot, e2e  seconds to the first token, for each further one, in all
    max_gap        the longest wait between two successive deliveries of tokens, in seconds
    attempts       every try at the case, in order: `outcome` (done, failed, cancelled), and where they are known
                   `cause`, `prompt_tokens`, `output_tokens`, `seconds` that it held its place in the batch
    draft_proposed, draft_accepted  tokens that speculation proposed for this answer, and how many of them it kept
    batch          a number that answers share which were served at the same time, and so share its stalls; a server
                   without batches counts, say, minutes
    started        when the answer's batch began, in seconds by one clock of both sides, such as the epoch's: arms whose
                   batches take turns can be told from a machine that is slow for a while

All may be left out; a missing field is unknown, never 0. A case with several rows has them in one row or in all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from hashlib import sha256
from math import inf
from operator import attrgetter
from typing import Any

import numpy as np

from qualgate.records import SERVING_FIELDS, Attempt

TIMES = ("ttft", "tpot", "e2e", "max_gap")
FIELDS = frozenset(SERVING_FIELDS)
OUTCOMES = ("done", "failed", "cancelled")


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """Serving fields of a row, see above. None: not given."""

    answer: bytes | None = None  # token ids, int32 little-endian
    tokens_sha256: str | None = None
    text_sha256: str | None = None
    margins: bytes | None = None  # float64 little-endian
    tokens: int | None = None
    prompt_tokens: int | None = None
    ttft: float | None = None
    tpot: float | None = None
    e2e: float | None = None
    max_gap: float | None = None
    attempts: tuple[Attempt, ...] | None = None
    job: int | None = None
    draft_proposed: int | None = None
    draft_accepted: int | None = None
    began: float | None = None


NOT_SAID = Served()
_NAMES = tuple(field.name for field in fields(Served))
_values = attrgetter(*_NAMES)


def served(body: Mapping[str, Any]) -> Served:
    """Parse the serving fields of a row. ValueError names the field, what was found and what was expected."""
    if FIELDS.isdisjoint(body):
        return NOT_SAID
    ids = _numbers(body, "token_ids", "whole numbers from 0 to 2147483647", int, 2**31 - 1)
    gaps = _numbers(body, "top2_gaps", "numbers from 0", (int, float), inf)
    count = _whole_number(body, "tokens")
    if ids is not None and count not in (None, len(ids)):
        raise ValueError(f"`tokens` is {count}, but `token_ids` has {len(ids)}")
    if gaps is not None and (ids is None or len(gaps) != len(ids)):
        raise ValueError(f"`top2_gaps` has {len(gaps)} numbers; it needs one for each of the `token_ids`")
    answer = None if ids is None else np.array(ids, "<i4").tobytes()
    digest = _digest(body, "tokens_sha256")
    if answer is not None and digest not in (None, own := sha256(answer).hexdigest()):
        raise ValueError(f"`tokens_sha256` is {digest}, but the hash of `token_ids` is {own}")
    proposed, accepted = _whole_number(body, "draft_proposed"), _whole_number(body, "draft_accepted")
    if accepted is not None and (proposed is None or accepted > proposed):
        given = "is not given" if proposed is None else f"is {proposed}"
        raise ValueError(f"`draft_accepted` is {accepted}, and `draft_proposed` {given}: it cannot be less")
    attempts = _attempts(body.get("attempts"))
    last = attempts[-1].output_tokens if attempts and attempts[-1].outcome == "done" else None
    return Served(
        answer=answer,
        tokens_sha256=sha256(answer).hexdigest() if answer is not None else digest,
        text_sha256=_digest(body, "text_sha256"),
        margins=None if gaps is None else np.array(gaps, "<f8").tobytes(),
        tokens=len(ids) if ids is not None else count if count is not None else last,
        prompt_tokens=_whole_number(body, "prompt_tokens"),
        attempts=attempts,
        job=_whole_number(body, "batch"),
        draft_proposed=proposed,
        draft_accepted=accepted,
        began=_seconds(body, "started"),
        **{name: _seconds(body, name) for name in TIMES},
    )


def serving_fields(case: str, scores: Mapping[str, float | None], rows: Iterable[Served]) -> dict[str, Any]:
    """The fields of a unit that the serving fields of its rows say, its values with the times among them.

    ValueError if two rows, or a field and a row of a time, differ. scores: the unit's other values.
    """
    values: dict[str, Any] = {}
    for row in rows:
        if row is NOT_SAID:
            continue
        for name, value in zip(_NAMES, _values(row), strict=True):
            if value is not None and values.setdefault(name, value) != value:
                raise ValueError(f"the score rows of {case!r:.80} have different values of `{name}`: "
                                 f"{values[name]!r:.40} and {value!r:.40}")  # fmt: skip
    times = {f"latency.{name}": values.pop(name) for name in TIMES if name in values}
    if differing := [name for name, value in times.items() if scores.get(name, value) != value]:
        raise ValueError(f"{case!r:.80} has two values of {differing[0]}, one in a field and one in a row")
    return {"tokens": None, "values": {**scores, **times}, **values}


def _attempts(value: Any) -> tuple[Attempt, ...] | None:
    """Read `attempts`, the tries of one answer, or None if there are none. ValueError for an invalid one."""
    if value is None:
        return None
    if not isinstance(value, list) or not value or not all(isinstance(entry, dict) for entry in value):
        raise ValueError(f"`attempts` must be a list of at least one object, one for each try, found {value!r:.60}")
    tries = []
    for entry in value:
        if entry.get("outcome") not in OUTCOMES:
            raise ValueError(
                f"an attempt's `outcome` must be {', '.join(OUTCOMES)}, found {entry.get('outcome')!r:.60}"
            )
        if not isinstance(cause := entry.get("cause", ""), str):
            raise ValueError(f"an attempt's `cause` must be a text, found {cause!r:.60}")
        tries.append(
            Attempt(
                outcome=entry["outcome"],
                cause=cause,
                prompt_tokens=_whole_number(entry, "prompt_tokens"),
                output_tokens=_whole_number(entry, "output_tokens"),
                seconds=_seconds(entry, "seconds"),
            )
        )
    return tuple(tries)


def _numbers(body: Mapping[str, Any], name: str, what: str, kind: Any, most: float) -> list[Any] | None:
    """Read a list of numbers of type `kind` from 0 to `most`; None if the row has none. ValueError for an invalid one.

    what: the numbers' name in the message.
    """
    numbers = body.get(name)
    if numbers is None:
        return None
    if not isinstance(numbers, list) or not all(
        isinstance(number, kind) and not isinstance(number, bool) and 0 <= number <= most and number < inf
        for number in numbers
    ):
        raise ValueError(f"`{name}` must be a list of {what}, found {numbers!r:.60}")
    return numbers


def _whole_number(body: Mapping[str, Any], name: str) -> int | None:
    count = body.get(name)
    if count is not None and (type(count) is not int or not 0 <= count < 2**31):
        raise ValueError(f"`{name}` must be a whole number from 0, found {count!r:.60}")
    return count


def _seconds(body: Mapping[str, Any], name: str) -> float | None:
    seconds = body.get(name)
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 1e12:
        raise ValueError(f"`{name}` must be a number of seconds from 0, found {seconds!r:.60}")
    return float(seconds)


def _digest(body: Mapping[str, Any], name: str) -> str | None:
    digest = body.get(name)
    if digest is not None and not (
        isinstance(digest, str) and len(digest) == 64 and set(digest) <= set("0123456789abcdef")
    ):
        raise ValueError(f"`{name}` must be 64 hexadecimal digits in lower case, found {digest!r:.60}")
    return digest
