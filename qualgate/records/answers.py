"""Results of a job: answers, drift from the baseline, failures, and the scores of an answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from qualgate.records.arms import UNTOLD, ArmFootprint, ArmIdentity, Generation, Overflow
from qualgate.records.work import UnitKey

FinishReason = Literal["eos", "stop", "length", "abort", "dead_end"]
# "dead_end": behind the answer its case's constraint admits no token of the vocabulary.
# What servers and harnesses call the same. A word that is not here is refused: it may mean that an answer was cut off.
FINISH_WORDS: dict[str, FinishReason] = {
    "eos": "eos", "eos_token": "eos", "stop": "stop", "stop_sequence": "stop", "end_turn": "stop", "complete": "stop",
    "tool_calls": "stop", "tool_use": "stop", "function_call": "stop", "length": "length", "max_tokens": "length",
    "max_length": "length", "model_length": "length", "abort": "abort", "content_filter": "abort", "safety": "abort",
    "recitation": "abort",
}  # fmt: skip


Calls = tuple[tuple[str, str], ...]  # tool calls: name, and arguments as JSON's text
UNCOUNTED = -1  # tokens of a thought that nobody counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What one arm answered for one case. The text is decoded without the end-of-turn token."""

    key: UnitKey
    case_hash: str
    token_ids: tuple[int, ...]  # end-of-turn token included when finish_reason is "eos"
    text: str
    finish_reason: FinishReason
    prompt_tokens: int
    logprobs: tuple[float, ...]  # nats, of each token under the arm itself
    margins: tuple[float, ...]  # logit of the chosen token minus the runner-up's, >= 0; drawn tokens: noise included
    ttft: float  # s from the batch's start to this row's first token
    e2e: float  # s from the batch's start to this row's last token
    baseline_proposed: int = 0  # tokens of the baseline's answer offered to the variant; 0 = every token was decoded
    baseline_accepted: int = 0  # of those, tokens the variant would have said itself
    draft_proposed: int | None = None  # tokens that the arm's own draft proposed; None: not counted
    draft_accepted: int | None = None  # of those, tokens that the arm kept
    kernel: str = ""  # what multiplied the packed weights, e.g. "c avx512"; "" where none are packed
    began: float | None = None  # s since the epoch, when its batch began; None: not told
    max_gap: float | None = None  # s, longest between two of its tokens, which come pass by pass; None: not told
    masked: float | None = None  # probability that a constraint left out, mean over the answer; None: it has none
    thought: int | None = (
        None  # tokens of its thought, without markers, or UNCOUNTED; None: its case has no `reasoning`
    )
    calls: Calls | None = None  # that the parser of an arm's server read; None: it was asked for none
    counted: int | None = None  # tokens of the answer as its server counts them, where it does not tell them
    # Hashes of a server's reply: of its id (8 hexadecimal digits), of id and text (12); "" of a reply without an id. An
    # id that is short counts with its time alone (SHORT_ID): of a long one that is left out, as caches write a new one.
    reply: str = ""

    @property
    def tokens(self) -> int:
        """How many the answer has."""
        return len(self.token_ids) if self.counted is None else self.counted

    @property
    def tpot(self) -> float | None:
        """Seconds a token after the first; None for answers of one token or none."""
        return (self.e2e - self.ttft) / (self.tokens - 1) if self.tokens > 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Teacher forcing on the baseline's own tokens, one value a position.

    kl_upper: None where `kl` was computed over the whole vocabulary; else `kl` is what is proven at least and this what
    is at most, inf where nothing bounds it (`stats.kl_bounds`).
    """

    key: UnitKey  # of the variant's unit
    kl: tuple[float, ...]  # KL(p_baseline || p_variant) in nats, float64 log-softmax, >= 0; or its lower bound
    top1_agreement: float  # share of positions where both find the same token likeliest
    # First position at which the variant would say another token, or, where its drafts have a say in what is drawn, at
    # which its answer does; None = never.
    first_divergence: int | None
    length_ratio: float | None  # variant tokens / baseline tokens
    kl_eta: float = (
        0.0  # nats the baseline's log-probs may be off by: certifies `kl` (stats/kl_error_bound.py); 0 = exact
    )
    top1_differs: tuple[int, ...] | None = None  # positions at which they do not; None: not recorded
    kl_upper: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftStep:
    """What one pass made of one answer's draft, at one level. The target verifies level 1, level 1's draft level 2.

    position: in the answer, of the first token proposed; proposed = accepted + rejected + discarded, where rejected (0
    or 1) is the first that the verifier says otherwise and discarded are those behind it; unverified: that were
    proposed and never offered, for the answer was over or had no room; proposed does not count them. A step without a
    draft is one, with 0 proposed.

    pass_number: of its level's passes in the job, from 0, None of those that rested; sequences: that shared it, its
    batch size; overlap: Σ min(p, q) over the tokens tested, p being what the verifier would draw from and q what the
    draft was drawn from (one-hot: 1 at its token), so what speculative sampling accepts of them in the mean; None where
    tokens are not accepted by probabilities.
    """

    key: UnitKey
    level: int
    position: int
    proposed: int
    accepted: int
    rejected: int
    unverified: int = 0
    proposer: str = ""
    pass_number: int | None = None
    sequences: int | None = None
    overlap: float | None = None

    @property
    def discarded(self) -> int:
        """Behind the first that was rejected."""
        return self.proposed - self.accepted - self.rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """What a worker hands back of one job: one completion a prompt, in the job's order."""

    index: int
    arm: str
    identity: ArmIdentity  # as loaded by the worker, not as planned
    footprint: ArmFootprint
    completions: tuple[Completion, ...]
    drifts: tuple[Drift, ...] = ()
    overflow: tuple[Overflow, ...] = ()  # finite values beyond what the declared dtype holds, see `engine.overflow`
    generation: Generation = UNTOLD
    draft_steps: tuple[DraftStep, ...] = ()  # of an arm that speculates
    part: bool = False  # its worker goes on with the job: answers of servers are handed back as they come

    @property
    def keys(self) -> tuple[UnitKey, ...]:
        """The units that it answers."""
        return tuple(completion.key for completion in self.completions)

    def joined(self, later: JobResult) -> JobResult:
        """Return both parts of one job as one."""
        return replace(
            later,
            footprint=self.footprint,
            completions=self.completions + later.completions,
            drifts=self.drifts + later.drifts,
            generation=self.generation + later.generation,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFailure:
    """A job the machinery could not run, or (part) some units of one. They are errors, never answers."""

    index: int
    arm: str
    keys: tuple[UnitKey, ...]
    error: str
    unpaid: bool = False  # what the run may still spend did not reach for it
    part: bool = False  # its worker goes on with the job
    refused: bool = False  # by the server, which would refuse it again
    void: bool = False  # answers to these units were handed back, and do not count: the server changed meanwhile


# Why a scorer cannot say: the declared dialect reads no call where one was asked for, and another dialect does. So the
# model is wrong where the declared one is what it was asked to write, and the parser is where it is not.
CALL_UNREAD = "call_unread"


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """One scorer's result for one completion."""

    metric: str
    value: float | None  # None with verdict None: this scorer cannot say, e.g. nothing expected
    verdict: bool | None
    error_type: str = ""
    extracted: str | None = None
    reason: str = ""
    scorer: str = ""  # name and version, e.g. "exact_match/1"
