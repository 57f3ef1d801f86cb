"""Say whether two servers' answers differ, and which differences the same evidence would have shown.

A fault of a server (no answers, copies, another model's name) leaves the statement open: it is no difference of models.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal

from qualgate.gate.evidence.answered_by import is_alike
from qualgate.pipeline.endpoints import SIDES, Asked
from qualgate.records import FINISH_WORDS
from qualgate.records.arms import MARKS, SHORT_ID
from qualgate.served.answer import Answer
from qualgate.served.gateways import known_names
from qualgate.stats.endpoints import Apart, Drawn, compare_endpoints
from qualgate.stats.planted import Shift, chances
from qualgate.text.escaping import visible_line

# What changes of the reference model are worth in these terms, by `python -m tests.benchmarks served`, row `endpoints`:
# the logit noise, and the temperature, whose stated chances are the measured ones. `nats`: its log-probs beside the
# baseline's, root mean square.
ANCHORS: Mapping[str, Shift] = {
    "4-bit weights": Shift(noise=1.5, nats=0.42),
    "8-bit weights": Shift(noise=0.1, nats=0.04),
    "8-bit KV cache": Shift(noise=0.1, nats=0.027),
    "temperature 1.02": Shift(temperature=1.038),
    "another chat template": Shift(swapped=True, nats=0.4),
}
NOISES = (0.25, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0)  # nats: of logits, planted until one is found
NATS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)  # of log-probs
SURE = 0.8  # chance at which a difference counts as one that would have been found
MOST_EMPTY = 0.05  # share of a server's answers
MOST_UNSPELLED = 0.1  # share of a server's answers whose tokens do not spell their text
MOST_STUCK = 0.25  # share of prompts that one server always answers alike, and the other does not
Outcome = Literal["different", "no difference found", "cannot tell"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """What can be said. faults: why nothing can; notes: what else was seen. chances: by anchor. limit: the smallest
    planted noise, in nats, that is found with `SURE`; None: none of them."""

    outcome: Outcome
    alpha: float
    apart: Apart | None
    faults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    chances: Mapping[str, float] = field(default_factory=dict)
    limit: float | None = None


def state(asked: Asked, alpha: float, anchors: Mapping[str, Shift] = ANCHORS) -> Statement:
    """Judge what was answered. alpha: how often two servers of one law may be called different."""
    sides = [
        [*first, *chain(*chain(*(stage[side] for stage in asked.stages)))] for side, first in enumerate(asked.first)
    ]
    faults = [fault for side, answers in enumerate(sides) for fault in _faults(asked, side, answers)]
    faults += _copies(sides) + ([asked.ended] if asked.ended else [])
    notes = tuple(_notes(asked, sides))
    if faults:
        return Statement(outcome="cannot tell", alpha=alpha, apart=None, faults=tuple(faults), notes=notes)
    drawn = _drawn(asked, with_tokens=all(_spells(answers) for answers in sides))
    forest = compare_endpoints(drawn, alpha)
    rates = chances(drawn, forest, alpha, {name: anchors[name] for name in anchors if _plantable(asked, anchors[name])})
    limit = None
    if anchors:
        sizes = NATS if forest.apart.p_logprobs is not None else NOISES
        shifts = (Shift(nats=size) if sizes is NATS else Shift(noise=size) for size in sizes)
        pairs = zip(sizes, shifts, strict=True)
        limit = next((size for size, shift in pairs if chances(drawn, forest, alpha, {"": shift})[""] >= SURE), None)
    outcome: Outcome = "different" if forest.apart.different else "no difference found"
    if anchors and limit is None and not forest.apart.different:
        outcome, notes = (
            "cannot tell",
            (*notes, "no planted difference is found with these answers: ask more"),
        )
    return Statement(outcome=outcome, alpha=alpha, apart=forest.apart, notes=notes, chances=rates, limit=limit)


def _plantable(asked: Asked, shift: Shift) -> bool:
    """Whether there is another prompt to swap with."""
    return asked.prompts > 1 or not shift.swapped


def _of_text(answer: Answer) -> tuple[tuple[str, float], ...] | None:
    """Return tokens and log-probs of the answer's text; None if they spell another one. Some servers add the token that
    ends an answer."""
    for spelled in (answer.spelled, answer.spelled[:-1]):
        if "".join(token for token, _ in spelled).strip() == answer.text.strip():
            return spelled
    return None


def _spells(answers: Sequence[Answer]) -> bool:
    """Whether a server gives log-probs with its texts; a few may hold characters that no token spells alone."""
    spelled = [_of_text(answer) for answer in answers]
    return spelled.count(None) <= MOST_UNSPELLED * len(spelled) and any(spelled)


def _drawn(asked: Asked, *, with_tokens: bool) -> list[Drawn]:
    """Return the tested answers, by stage and prompt, as tokens or characters behind which their end is told."""

    def tokens(answer: Answer) -> tuple[object, ...]:
        end = FINISH_WORDS.get(answer.finish, "stop") == "length"  # eos or stop: servers call one end by either
        if with_tokens:
            spelled = _of_text(answer)
            return (*((answer.text,) if spelled is None else (token for token, _ in spelled)), (end,))
        return (*f"{answer.thought}\0{answer.text}\0{answer.calls or ''}", (end,))

    def logprobs(answers: Sequence[Answer]) -> list[tuple[float, ...]]:
        return [tuple(nats for _, nats in _of_text(answer) or ()) for answer in answers] if with_tokens else []

    return [
        Drawn([*map(tokens, a)], [*map(tokens, b)], logprobs(a), logprobs(b))
        for stage in asked.stages
        for a, b in zip(*stage, strict=True)
    ]


def _faults(asked: Asked, side: int, answers: Sequence[Answer]) -> Iterator[str]:
    """Yield what is wrong with one server's answers."""
    name, model = SIDES[side], asked.models[side]
    empty = [answer for answer in answers if not (answer.text.strip() or answer.thought.strip() or answer.calls)]
    if len(empty) > MOST_EMPTY * len(answers):
        hidden = sum((answer.completion_tokens or 0) > 1 for answer in empty)
        cause = f"; for {hidden} it counts tokens, so its reasoning parser or a filter took the text" if hidden else ""
        yield f"{name}: {len(empty)} of {len(answers)} answers are empty{cause}"
    if long := sum((answer.completion_tokens or 0) > asked.most for answer in answers):
        yield f"{name}: {long} answers are longer than the {asked.most} tokens requested: it ignores `max_tokens`"
    names = list(dict.fromkeys(known for answer in answers for known in known_names(answer.models)))
    shown = ", ".join(visible_line(known)[:80] for known in names[:5])
    if len(names) > 1 or any(mark.partition("{")[0] in known for known in names for mark in MARKS):
        yield f"{name}: its answers come from {shown}: a cache, a fallback or several models"
    elif names and not is_alike(model, names[0]):
        yield f"{name}: {visible_line(model)[:80]} is requested, and {shown} answers"
    if aborted := sum(FINISH_WORDS.get(answer.finish) == "abort" for answer in answers):
        yield f"{name}: {aborted} of {len(answers)} answers were ended by the server or its filter"
    own, other = _alike(asked, side), _alike(asked, 1 - side)
    pairs = list(zip(own, other, strict=True))
    stuck, back = pairs.count((True, False)), pairs.count((False, True))
    if own and (all(own) or (stuck > max(2, MOST_STUCK * len(own)) and stuck > 3 * back)):
        yield (
            f"{name}: all its answers to one prompt are alike, for {sum(own)} of {len(own)} prompts: it ignores "
            "temperature or seed, or a cache answers"
        )


def _alike(asked: Asked, side: int) -> list[bool]:
    """Whether a server's answers to each prompt of each stage are one and the same."""
    same = (stage[side][row] for stage in asked.stages for row in range(asked.prompts))
    return [len({answer.content[1:] for answer in answers}) == 1 for answers in same]


def _copies(sides: Sequence[Sequence[Answer]]) -> list[str]:
    """Return the fault of replies that came twice: their ids are the servers' own and differ for each answer."""
    replies = [answer.reply for answer in chain(*sides) if answer.reply and not answer.reply.endswith(SHORT_ID)]
    copies = len(replies) - len(set(replies))
    return [f"{copies} replies came a second time, with the same id: a cache answers"] if copies else []


def _notes(asked: Asked, sides: Sequence[Sequence[Answer]]) -> Iterator[str]:
    counts = [[answer.prompt_tokens for answer in first] for first in asked.first]
    pairs = [pair for pair in zip(*counts, strict=True) if None not in pair]
    if differ := [pair for pair in pairs if pair[0] != pair[1]]:
        yield (
            f"prompt tokens differ for {len(differ)} of {len(pairs)} prompts (first: {differ[0][0]:,} at A, "
            f"{differ[0][1]:,} at B): another chat template or tokenizer"
        )
    for name, spent in zip(SIDES, asked.spent, strict=True):
        if spent.estimated:
            yield f"{name} does not count all its tokens: {spent.estimated:,} are counted here, at their most"
    if any(answer.spelled for answer in chain(*sides)) and not all(map(_spells, sides)):
        yield "log-probs of the text are not given with every answer of both, so only the answers are compared"
