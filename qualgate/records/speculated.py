"""The effect of speculation on one arm, counted and timed, without counts of drafted evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from qualgate.records.speculation import Speculation

# Facts of an arm that speculates (`ArmFootprint.facts`), in units of a plain step of its target over one sequence:
DRAFT_COST = "speculation.draft_cost."  # with a level behind it: of one plain step of who drafts at that level
VERIFY_COST = "speculation.verify_cost."  # with a number behind it: of a pass over so many rows of the sequence
BATCH_COST = "speculation.batch_cost."  # with "4x20" behind it: of a pass over 20 rows in all of 4 sequences
DRAFT_STEP_COST = "speculation.draft_step_cost."  # with "1x4" behind it: of a step of level 1 for 4 sequences
READING_COST = "speculation.reading_cost."  # with a level behind it: of a prompt's token that it reads
PLAIN_STEP = "speculation.plain_step"  # that step of the target, in seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Σ numerator / Σ denominator, with one-sided bounds at 1 − alpha each. None: unknown, with a `reason`."""

    numerator: float
    denominator: float
    value: float | None
    lower: float | None = None
    upper: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftPosition:
    """One place in the drafts, from 1."""

    position: int
    unconditional: Rate  # accepted here / verifications
    conditional: Rate  # accepted here / verifications that tested it, as all before it were accepted


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftLevel:
    """Draft counts of one level; the target verifies level 1. proposed = accepted + rejected + discarded."""

    level: int
    proposer: str
    passes: int
    without_draft: int  # of them: plain steps
    verifications: int  # of them: the others
    proposed: int
    accepted: int
    rejected: int  # tested, and not what the verifier says
    discarded: int  # behind a rejected one, never tested
    unverified: int  # beside `proposed`: drafted and never offered
    acceptance_rate: Rate  # accepted / proposed
    proposed_per_verification: Rate
    accepted_per_verification: Rate  # the bonus left out
    tokens_per_verification_with_bonus: Rate  # τ = 1 + accepted / verifications
    positions: tuple[DraftPosition, ...]
    rejection: dict[str, Rate]  # by task: rejected / tested; None below `LEAST_TESTED`
    # Where a rule accepts by probabilities, of the tokens that it tested: accepted / tested, and Σ min(p, q) / tested.
    accepted_of_tested: Rate | None = None
    overlap: Rate | None = None

    @property
    def in_words(self) -> str:
        """Mean counts per verification: "5 proposed, 1.1 accepted"."""
        proposed, accepted = self.proposed_per_verification.value, self.accepted_per_verification.value
        if proposed is None or accepted is None:
            return "nothing proposed"
        return f"{proposed:.2g} proposed, {accepted:.2g} accepted"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchGain:
    """Predicted speedup for so many concurrent sequences, at the γ of the drafts, or the best one if γ adapts."""

    sequences: int
    predicted: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """Speedup of decoding with drafts. None: unknown, with a `reason`."""

    against: str  # the arm it is held against: the same weights without drafts, where there is one
    same_weights: bool
    measured: Rate  # seconds a token after the first: of that arm / of this one
    predicted: float | None  # from acceptance, c and v as measured
    predicted_reason: str = ""  # why it is not known
    best_tokens: int | None = None  # γ of the largest predicted gain, 0: plain decoding; None: not known
    best: float | None = None  # that gain
    best_by: str = ""  # whose drafts: of who drafted most for the target, whose chances and costs these are
    by_batch: tuple[BatchGain, ...] = ()  # predicted
    crossover: float | None = None  # sequences side by side from which on nothing is gained; None: not known, or never


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculated:
    """The effect of speculation on one arm. memory: purpose → bytes."""

    spec: Speculation | None  # as it was planned
    levels: tuple[DraftLevel, ...]
    passes_saved: Rate  # 1 − passes / (tokens − 1), over answers whose first token came with the prompt
    gain: Gain
    gaps: Rate | None = None  # p95 of the answers' longest waits between tokens, s: the arm's over its target's
    rested: Rate | None = None  # passes without a draft, as none was expected to pay / all; None: not told
    because: str = ""  # why they rested, as found last
    broken_drafts: int = 0  # that ended with logits that are no numbers: the target went on alone
    memory: dict[str, float] = field(default_factory=dict)
    alerts: tuple[str, ...] = ()
    wasted: bool = False  # the target's drafts are hardly accepted, or it surely gains nothing: alerts say why
    alpha: float = 0.05
    seed: int = 0  # of the bootstrap over prompts
    draws: int = 0
    method: str = ""  # formula id


def costs_of(facts: Mapping[str, float], name: str) -> dict[tuple[int, int], float]:
    """Facts whose names begin with `name`, by the two numbers after it, as in BATCH_COST and DRAFT_STEP_COST."""
    costs = {}
    for full, value in facts.items():
        first, _, second = full.removeprefix(name).partition("x")
        if full.startswith(name) and first.isdecimal() and second.isdecimal():
            costs[int(first), int(second)] = value
    return costs
