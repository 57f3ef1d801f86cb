"""Fields of score rows about serving: for parity, cost, service levels and advice.

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

All may be left out; what is not said is not known, which is never 0. A case with several rows says it in one or in all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from hashlib import sha256
from math import inf
from typing import Any

import numpy as np

from qualgate.records import SERVING_FIELDS, Attempt, UnitEvidence

TIMES = ("ttft", "tpot", "e2e", "max_gap")
FIELDS = frozenset(SERVING_FIELDS)
OUTCOMES = ("done", "failed", "cancelled")


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """See above. None: not said."""

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


def served(body: Mapping[str, Any]) -> Served:
    """What a row says. ValueError names the field, what was found and what was expected."""
    if FIELDS.isdisjoint(body):
        return NOT_SAID
    ids = _numbers(body, "token_ids", "whole numbers from 0 to 2147483647", int, 2**31 - 1)
    gaps = _numbers(body, "top2_gaps", "numbers from 0", (int, float), inf)
    count = _whole(body, "tokens")
    if ids is not None and count not in (None, len(ids)):
        raise ValueError(f"`tokens` is {count} and `token_ids` has {len(ids)}")
    if gaps is not None and (ids is None or len(gaps) != len(ids)):
        raise ValueError(f"`top2_gaps` has {len(gaps)} numbers; one is needed for each of the `token_ids`")
    answer = None if ids is None else np.array(ids, "<i4").tobytes()
    digest = _digest(body, "tokens_sha256")
    if answer is not None and digest not in (None, own := sha256(answer).hexdigest()):
        raise ValueError(f"`tokens_sha256` is {digest} and that of `token_ids` is {own}")
    proposed, accepted = _whole(body, "draft_proposed"), _whole(body, "draft_accepted")
    if accepted is not None and (proposed is None or accepted > proposed):
        given = "is not given" if proposed is None else f"is {proposed}"
        raise ValueError(f"`draft_accepted` is {accepted} and `draft_proposed`, of which these are a part, {given}")
    attempts = _attempts(body.get("attempts"))
    last = attempts[-1].output_tokens if attempts and attempts[-1].outcome == "done" else None
    return Served(
        answer=answer,
        tokens_sha256=sha256(answer).hexdigest() if answer is not None else digest,
        text_sha256=_digest(body, "text_sha256"),
        margins=None if gaps is None else np.array(gaps, "<f8").tobytes(),
        tokens=len(ids) if ids is not None else count if count is not None else last,
        prompt_tokens=_whole(body, "prompt_tokens"),
        attempts=attempts,
        job=_whole(body, "batch"),
        draft_proposed=proposed,
        draft_accepted=accepted,
        began=_seconds(body, "started"),
        **{name: _seconds(body, name) for name in TIMES},
    )


def with_serving(unit: UnitEvidence, said: Iterable[Served]) -> UnitEvidence:
    """The unit with what its rows say. ValueError where two rows, or a row and a time that is a row itself, differ."""
    values: dict[str, Any] = {}
    for one in said:
        if one is NOT_SAID:
            continue
        for field in fields(one):
            value = getattr(one, field.name)
            if value is not None and values.setdefault(field.name, value) != value:
                raise ValueError(f"the score rows of {unit.key.case_id!r:.80} differ in what they say of its serving "
                                 f"({field.name}): {values[field.name]!r:.40} and {value!r:.40}")  # fmt: skip
    times = {f"latency.{name}": values.pop(name) for name in TIMES if name in values}
    if differing := [name for name, value in times.items() if unit.values.get(name, value) != value]:
        raise ValueError(f"{unit.key.case_id!r:.80} has two values of {differing[0]}: a field's and a row's")
    return UnitEvidence(
        **{field.name: getattr(unit, field.name) for field in fields(unit)}
        | {"tokens": None, "values": unit.values | times}
        | values
    )


def _attempts(found: Any) -> tuple[Attempt, ...] | None:
    if found is None:
        return None
    if not isinstance(found, list) or not found or not all(isinstance(one, dict) for one in found):
        raise ValueError(f"`attempts` must be a list of objects, one a try and one at least, found {found!r:.60}")
    tries = []
    for one in found:
        if one.get("outcome") not in OUTCOMES:
            raise ValueError(f"an attempt's `outcome` must be {', '.join(OUTCOMES)}, found {one.get('outcome')!r:.60}")
        if not isinstance(cause := one.get("cause", ""), str):
            raise ValueError(f"an attempt's `cause` must be a text, found {cause!r:.60}")
        tries.append(
            Attempt(
                outcome=one["outcome"],
                cause=cause,
                prompt_tokens=_whole(one, "prompt_tokens"),
                output_tokens=_whole(one, "output_tokens"),
                seconds=_seconds(one, "seconds"),
            )
        )
    return tuple(tries)


def _numbers(body: Mapping[str, Any], name: str, what: str, kind: Any, most: float) -> list[Any] | None:
    found = body.get(name)
    if found is None:
        return None
    if not isinstance(found, list) or not all(
        isinstance(one, kind) and not isinstance(one, bool) and 0 <= one <= most and one < inf for one in found
    ):
        raise ValueError(f"`{name}` must be a list of {what}, found {found!r:.60}")
    return found


def _whole(body: Mapping[str, Any], name: str) -> int | None:
    found = body.get(name)
    if found is not None and (type(found) is not int or not 0 <= found < 2**31):
        raise ValueError(f"`{name}` must be a whole number from 0, found {found!r:.60}")
    return found


def _seconds(body: Mapping[str, Any], name: str) -> float | None:
    found = body.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 <= found < 1e12:
        raise ValueError(f"`{name}` must be a number of seconds from 0, found {found!r:.60}")
    return float(found)


def _digest(body: Mapping[str, Any], name: str) -> str | None:
    found = body.get(name)
    if found is not None and not (
        isinstance(found, str) and len(found) == 64 and set(found) <= set("0123456789abcdef")
    ):
        raise ValueError(f"`{name}` must be 64 hexadecimal digits in lower case, found {found!r:.60}")
    return found
