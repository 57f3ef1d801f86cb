"""What passes of a target and of its draft take, measured by themselves: with drafts that nobody accepts."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from statistics import linear_regression, median

from qualgate.engine.loaded import LoadedArm
from qualgate.engine.schedule import Limits
from qualgate.engine.speculation.propose import Draft, DraftRequest
from qualgate.engine.speculation.steps import Drafts
from qualgate.records import Prompt, UnitKey
from tests.benchmarks.speculating import Level, answered, drafted
from tests.benchmarks.speedup import PassTimes

PASSES = 16  # timed, of each kind
PROMPT = 96  # tokens


class Wrong:
    """Drafts a token that is never said, so that every pass says one token whatever is drafted."""

    def __init__(self, token: int) -> None:
        self.name, self.runs_model, self.broken, self._token = "wrong", False, 0, token

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """See `Proposer`."""
        return [Draft((self._token,) * request.most, self.name) for request in requests]

    def ended(self, row: int) -> None:
        """See `Proposer`."""


Kind = tuple[bool, int, int]  # with drafts that are made in it, or in vain; sequences; tokens of each draft


def kinds(
    target: LoadedArm, draft: LoadedArm | None, batches: Sequence[int], lengths: Sequence[int]
) -> dict[Kind, Callable[[], float]]:
    """What measures each kind of pass, in seconds: of a target with drafts of such lengths (0: none) and of a model
    that drafts, in batches of such sizes."""
    grid = [(count, length) for count in batches for length in lengths]
    plain: dict[Kind, Callable[[], float]] = {(False, *place): partial(pass_seconds, target, *place) for place in grid}
    return plain | {
        (True, count, length): partial(round_seconds, drafted(target, Level(by=draft, tokens=length)), count, length)
        for count, length in grid
        if draft is not None and length
    }


def times_of(seconds: Mapping[Kind, float]) -> PassTimes:
    """From what each kind took."""
    drafting: dict[int, tuple[float, float]] = {}
    for at in {count for made, count, _ in seconds if made}:
        slope, intercept = linear_regression(*zip(*(
            (length, seconds[True, at, length] - seconds[False, at, length])
            for made, count, length in seconds if made and count == at
        ), strict=True))  # fmt: skip
        drafting[at] = intercept, slope
    target = {(count, length): one for (made, count, length), one in seconds.items() if not made}
    return PassTimes(target=target, draft=drafting)


def pass_times(target: LoadedArm, draft: LoadedArm | None, batches: Sequence[int], lengths: Sequence[int]) -> PassTimes:
    """Each kind measured once."""
    return times_of({kind: measure() for kind, measure in kinds(target, draft, batches, lengths).items()})


def pass_seconds(arm: LoadedArm, sequences: int, tokens: int) -> float:
    """The middle one's, of passes in which each of so many sequences says a token and has so many drafted in vain."""
    drafts = Drafts(Wrong(_never(arm)), tokens) if tokens else None
    return _middle(replace(arm, draft=None), sequences, tokens, drafts)


def round_seconds(arm: LoadedArm, sequences: int, tokens: int) -> float:
    """Likewise with the drafts of who drafts for the arm, which are made in it and accepted or not."""
    return _middle(arm, sequences, tokens, None)


def _middle(arm: LoadedArm, sequences: int, tokens: int, drafts: Drafts | None) -> float:
    passes = PASSES + 2 + -(-sequences * PROMPT // Limits().rows)  # until all go on side by side, with texts read
    prompts = _prompts(arm, sequences, PROMPT, (passes + 1) * (tokens + 1))
    told = answered(replace(arm, stop_ids=()), prompts, batch=sequences, drafts=drafts, most=passes)
    return median(one.seconds - before.seconds for before, one in list(pairwise(told.passes))[-PASSES:])


def _never(arm: LoadedArm) -> int:
    """A token that no answer holds: the padding's."""
    return arm.model.config.pad_token_id or 0


def _prompts(arm: LoadedArm, count: int, length: int, limit: int) -> list[Prompt]:
    """Of random tokens, which mostly do not lead to an end."""
    draw, vocabulary = random.Random(count), arm.model.config.get_text_config().vocab_size
    return [
        Prompt(
            key=UnitKey(arm.spec.name, "random", str(at)),
            case_hash="",
            token_ids=tuple(draw.randrange(vocabulary) for _ in range(length)),
            max_new_tokens=limit,
        )
        for at in range(count)
    ]
