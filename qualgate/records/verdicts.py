"""Verdicts of the gate: comparisons, a variant's verdict, and the answer of a four-arm comparison."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from qualgate.records.policy import Tier
from qualgate.records.speculated import Speculated

VerdictWord = Literal["approve", "block", "review", "undecided", "invalid"]
RuleStatus = Literal["proven", "broken", "undecided"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One metric, one slice, variant against baseline, paired. Differences are variant − baseline."""

    rule: str  # Rule.id
    metric: str
    slice: str  # "pooled" or the evalset's name
    tier: Tier
    status: RuleStatus
    n: int  # pairs
    clusters: int | None = None  # when cases share a cluster
    baseline: float | None = None  # mean over the pairs
    variant: float | None = None
    difference: float | None = None
    lower: float | None = None  # one-sided bounds at confidence 1 − alpha each: of the difference (quality),
    upper: float | None = None  # of the variant's value (drift), of variant / baseline (latency)
    lost: int | None = None  # baseline right, variant wrong
    gained: int | None = None
    p_broken: float | None = None  # one-sided p-value of "the loss exceeds the margin", before Holm
    needed: int | None = None  # pairs at which this rule would probably decide; None = decided or unknowable
    method: str = ""  # formula id, e.g. "paired_exact_unconditional/4"
    reason: str = ""
    against: str = ""  # the arm in the baseline's place, of which `baseline` is the mean then; "": the baseline

    @property
    def head(self) -> str:
        """How lines for a user begin."""
        return f"{f'against {self.against}: ' if self.against else ''}{self.metric} [{self.slice}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmService:
    """Service figures of one arm's answers. None: unavailable, with the reason in `unavailable`."""

    arm: str
    units: int
    attempts: int | None
    accepted: int | None
    refused: dict[str, int]  # first reason for which an answer was not accepted → answers
    cost: float | None  # of all attempts
    per_accepted: float | None  # None also where nothing was accepted: it has no finite cost
    prices: str  # "EUR, version 2026-11"
    retries: dict[str, float] | None  # cause → attempts beyond the first / units
    within_slo: float | None  # None also where no objective was asked for: see `slo_asked`
    correction_rate: float | None  # corrected / answers with feedback
    feedback: int | None  # answers with feedback
    unavailable: tuple[str, ...] = ()
    slo_asked: bool = True
    feedback_asked: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmStep:
    """One step of the four-arm rule for one arm; the first that is not proven ends it."""

    arm: str
    step: Literal["drafting", "parity", "quality", "slo", "value"]
    status: RuleStatus
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Interaction:
    """Interaction of two changes: their joint effect beyond each alone."""

    metric: str  # a quality metric, or "cost_per_accepted_answer" (then the logarithm of a ratio)
    slice: str
    estimate: float
    lower: float | None
    upper: float | None
    found: bool  # together they are proven worse than apart, after Holm over the metrics
    n: int
    clusters: int
    method: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FourArm:
    """The answer of a four-arm comparison: which arm to serve, step by step, and what to try first."""

    choice: str  # an arm's name, "baseline" where none of the three is to replace it, "" where it is not known
    why: str
    exit: int
    steps: tuple[ArmStep, ...]
    interactions: tuple[Interaction, ...]
    first: Literal["quantize", "speculate", "neither", "unknown"]
    first_why: str
    services: tuple[ArmService, ...]
    seed: int
    blocks: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """Effect of one variant's changes on a score: the difference of its comparison, with one-sided bounds."""

    metric: str
    slice: str
    variant: str
    difference: float | None
    lower: float | None
    upper: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsAndCache:
    """Quantized weights and a quantized cache, apart and together: four arms of one run."""

    weights: str  # the variant with the other weights alone
    cache: str  # that which holds keys and values otherwise, and has the baseline's weights
    both: str
    effects: tuple[Effect, ...]  # of the three, for each critical quality metric and slice
    interactions: tuple[Interaction, ...]  # of these metrics and slices


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """How much of the run an early verdict rests on. Its test is anytime-valid, so looks cost nothing."""

    look: int  # from 1
    looks: int  # that were planned
    questions: int  # a case, or one repeat of it
    of: int
    settled: bool  # False: every case is in, and not every rule is decided


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The gate's answer for one variant."""

    variant: str
    word: VerdictWord
    exit: int
    reasons: tuple[str, ...]  # most important first; the first is the one-line reason
    comparisons: tuple[Comparison, ...] = ()
    drift: dict[str, float | None] = field(default_factory=dict)  # shown, ranks and warns; decides by a rule alone
    stop_reasons: dict[str, int] = field(default_factory=dict)  # "eos → length" and how many pairs; {} = not known
    cause: str = ""  # see `gate.causes.cause.Cause`; "" = not known
    services: tuple[ArmService, ...] = ()  # of the baseline and the variant, where a rule on cost asked for it
    four_arm: FourArm | None = None  # on the verdict about the arm that does both
    seen: Seen | None = None  # where generation may stop early
    speculated: Speculated | None = None  # of an arm that our own engine drafted for
    weights_and_cache: WeightsAndCache | None = None  # on the verdict about the arm in which both are changed
    votes: str = ""  # digest of people's votes on which a rule rests; "" where no rule asks people
