"""What benchmark `speculation` measures of this engine: a target that answers alone, or with who drafts for it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Literal

from qualgate.engine.answers import Answers
from qualgate.engine.batch_costs import batch_costs
from qualgate.engine.choice import open_engine
from qualgate.engine.draft_arms import lending
from qualgate.engine.loaded import LoadedArm, LoadedDraft
from qualgate.engine.packed import PackedEngine
from qualgate.engine.proposers import open_proposers
from qualgate.engine.request import Event, Request, Spoken
from qualgate.engine.schedule import Limits
from qualgate.engine.speculation.steps import Drafts, Step
from qualgate.records import DraftSource, Prompt, Speculation


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Who drafts: a model, or what was said before; tokens: γ, 0 as many as pay."""

    by: LoadedArm | Literal["ngram", "suffix"]
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """What a pass said. seconds: from the run's beginning to its end; rows: of which answers the tokens are."""

    seconds: float
    rows: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """Of one run. tokens: of each answer; first, last: seconds from the run's beginning to each answer's first and last
    token; levels: what became of each draft, those that the target verifies first."""

    tokens: Sequence[tuple[int, ...]]
    first: Sequence[float]
    last: Sequence[float]
    passes: Sequence[Pass]
    levels: Sequence[Sequence[Step]]


def drafted(target: LoadedArm, *levels: Level) -> LoadedArm:
    """The target with a cascade: what it verifies first, what drafts for that, and so on; it learns from run to run."""
    found: Speculation | None = None
    for level in reversed(levels):
        if isinstance(level.by, str):
            source = DraftSource(kind=level.by, under=found)
        else:
            spec = level.by.spec
            kind, model = ("quantize", "") if spec.model == target.spec.model else ("model", spec.model)
            source = DraftSource(kind=kind, model=model, quantize=spec.quantize, under=found)
        found = Speculation(draft=source, tokens=level.tokens)
    if found is None:
        raise ValueError("levels: expected one or more")
    arms = tuple(None if isinstance(level.by, str) else level.by for level in levels)
    runs = [(one.model, one.choice) if one else None for one in arms]
    lent = lending(target.choice, found, [one.choice if one else None for one in arms])
    costs = {} if found.tokens else batch_costs((target.model, target.choice), 0, runs, lent)
    return replace(
        target,
        footprint=replace(target.footprint, facts=target.footprint.facts | costs),
        draft=LoadedDraft(spec=found, arms=arms),
    )


def answered(
    arm: LoadedArm,
    prompts: Sequence[Prompt],
    *,
    batch: int = 1,
    drafts: Drafts | None = None,
    most: int = 0,
    at_once: bool = False,
) -> Told:
    """All prompts, at most `batch` of them side by side. drafts: instead of the arm's own; most: passes that say
    something, after which no more is said, 0 as many as it takes; at_once: prompts are read in one pass, so that
    nobody is drafted for while others wait for their first token."""
    stop_ids = frozenset(arm.stop_ids)
    requests = [Request(prompt=one.token_ids, max_new_tokens=one.max_new_tokens, stop_ids=stop_ids) for one in prompts]
    answers, passes = Answers(len(requests)), list[Pass]()

    def take(event: Event) -> None:
        answers(event)
        if isinstance(event, Spoken):
            passes.append(Pass(seconds=event.seconds, rows=event.requests))
            for row in range(len(requests)) if len(passes) == most else ():
                engine.abort(row)

    with ExitStack() as stack:
        limits = Limits(sequences=batch)
        if at_once:
            limits = replace(limits, rows=max(limits.rows, sum(len(one.token_ids) for one in prompts)))
        engine = stack.enter_context(open_engine(arm.model, arm.choice, limits=limits))
        assert isinstance(engine, PackedEngine), "loading refuses others for who is drafted for"
        levels: tuple[Drafts, ...] = ()
        if drafts is not None:
            levels = (drafts,)
        elif arm.draft is not None:
            levels = stack.enter_context(open_proposers(arm, engine, requests, stop_ids))
        engine.run(requests, levels[0] if levels else None, take)
    return Told(
        tokens=[tuple(tokens) for tokens in answers.tokens],
        first=answers.first,
        last=answers.last,
        passes=passes,
        levels=[one.steps or () for one in levels],
    )


def short(prompts: Sequence[Prompt], most: int) -> list[Prompt]:
    """The same prompts, with answers of at most so many tokens."""
    return [replace(one, max_new_tokens=min(most, one.max_new_tokens)) for one in prompts]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What became of one level's drafts. verified: passes that could verify one, those that read the prompt apart;
    proposed, accepted: tokens; a token behind one that was not accepted was proposed too."""

    verified: int
    proposed: int
    accepted: int

    @property
    def shown(self) -> dict[str, float]:
        """With the share that was accepted, and the tokens of a pass, its own one included."""
        share = self.accepted / self.proposed if self.proposed else 0.0
        told = 1 + self.accepted / self.verified if self.verified else 1.0
        return {"proposed": self.proposed, "accepted": self.accepted, "share": share, "tokens_a_pass": told}


def fates(runs: Sequence[Told]) -> list[Fate]:
    """Of each level, over all runs."""
    levels = zip(*(one.levels for one in runs), strict=True)
    return [_fate([step for steps in level for step in steps]) for level in levels]


def _fate(steps: Sequence[Step]) -> Fate:
    return Fate(
        verified=sum(one.position > 0 for one in steps),
        proposed=sum(one.proposed for one in steps),
        accepted=sum(one.accepted for one in steps),
    )
