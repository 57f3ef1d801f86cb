"""Results of a job: answers, drift from the baseline, failures, and the scores of an answer."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from qualgate.records.arms import UNTOLD, ArmFootprint, ArmIdentity, Generation, Overflow
from qualgate.records.work import UnitKey

FinishReason = Literal["eos", "stop", "length", "abort", "dead_end"]
# "dead_end": after the answer its case's constraint allows no token of the vocabulary.
# Words of servers and harnesses → ours. An unknown word is refused: it may mean that an answer was cut off.
FINISH_WORDS: dict[str, FinishReason] = {
    "eos": "eos", "eos_token": "eos", "stop": "stop", "stop_sequence": "stop", "end_turn": "stop", "complete": "stop",
    "tool_calls": "stop", "tool_use": "stop", "function_call": "stop", "length": "length", "max_tokens": "length",
    "max_length": "length", "model_length": "length", "abort": "abort", "content_filter": "abort", "safety": "abort",
    "recitation": "abort",
}  # fmt: skip


Calls = tuple[tuple[str, str], ...]  # tool calls: name, and arguments as JSON's text
UNCOUNTED = -1  # tokens of a thought that were not counted


def calls_text(calls: Iterable[Iterable[str]] | None) -> str:
    """Return tool calls as JSON in which equal calls are equal texts; "" without any. Arguments that are no JSON stay
    the text that they are."""
    if not (read := [[name, _arguments(text)] for name, text in calls or ()]):
        return ""
    text = json.dumps(read, sort_keys=True, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _arguments(text: str) -> Any:
    try:
        value = json.loads(text)
        json.dumps(value)
    except (ValueError, RecursionError):
        return text
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One arm's answer to one case. The text is decoded without the end-of-turn token."""

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
    baseline_accepted: int = 0  # of those, tokens that the variant would have chosen itself
    draft_proposed: int | None = None  # tokens that the arm's own draft proposed; None: not counted
    draft_accepted: int | None = None  # of those, tokens that the arm kept
    kernel: str = ""  # kernel for the packed weights, e.g. "c avx512"; "" without packed weights
    began: float | None = None  # s since the epoch, start of its batch; None: unknown
    max_gap: float | None = None  # s, longest wait between two deliveries of tokens; None: unknown
    masked: float | None = None  # probability excluded by a constraint, mean over the answer; None: no constraint
    thought: int | None = (
        None  # tokens of its thought, without markers, or UNCOUNTED; None: the case has no `reasoning`
    )
    calls: Calls | None = None  # calls that the server's parser read; None: none were requested
    counted: int | None = None  # tokens as counted by the server, if it does not send them
    # Hashes of a server's reply: of its id (8 hexadecimal digits), of id and text (12); "" for a reply without an id. A
    # short id is hashed with its time (SHORT_ID), a long one without, as caches write a new time.
    reply: str = ""

    @property
    def tokens(self) -> int:
        """Number of tokens of the answer."""
        return len(self.token_ids) if self.counted is None else self.counted

    @property
    def tpot(self) -> float | None:
        """Seconds per token after the first; None for answers of one token or none."""
        return (self.e2e - self.ttft) / (self.tokens - 1) if self.tokens > 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Drift from teacher forcing on the baseline's own tokens, one value per position.

    kl_upper: None if `kl` was computed over the whole vocabulary; else `kl` is the lower and this the upper bound, inf
    if nothing bounds it (`stats.kl_bounds`).
    """

    key: UnitKey  # of the variant's unit
    kl: tuple[float, ...]  # KL(p_baseline || p_variant) in nats, float64 log-softmax, >= 0; or its lower bound
    top1_agreement: float  # share of positions with the same likeliest token
    # First position at which the variant would choose another token, or, if its drafts influence the draws, at which
    # its answer has one; None = never.
    first_divergence: int | None
    length_ratio: float | None  # variant tokens / baseline tokens
    kl_eta: float = (
        0.0  # nats the baseline's log-probs may be off by: certifies `kl` (stats/kl_error_bound.py); 0 = exact
    )
    top1_differs: tuple[int, ...] | None = None  # positions at which they do not; None: not recorded
    kl_upper: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftStep:
    """One pass over one answer's draft, at one level. The target verifies level 1, level 1's draft verifies level 2.

    position: of the first proposed token in the answer. proposed = accepted + rejected + discarded: rejected (0 or 1)
    is the first token that the verifier contradicts, discarded are those after it. unverified: tokens that were drafted
    and never offered, because the answer ended or had no room; not part of proposed. A step without a draft has 0
    proposed.

    pass_number: index among its level's passes in the job, None for a pass without a draft by choice. sequences: batch
    size of the pass. overlap: Σ min(p, q) over the tested tokens, p the verifier's distribution and q the draft's
    (one-hot: 1 at its token), the mean number that speculative sampling accepts; None if acceptance does not use
    probabilities.
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
        """Tokens after the rejected one."""
        return self.proposed - self.accepted - self.rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """A worker's result of one job: one completion per prompt, in the job's order."""

    index: int
    arm: str
    identity: ArmIdentity  # as loaded by the worker, not as planned
    footprint: ArmFootprint
    completions: tuple[Completion, ...]
    drifts: tuple[Drift, ...] = ()
    overflow: tuple[Overflow, ...] = ()  # finite values beyond what the declared dtype holds, see `engine.overflow`
    generation: Generation = UNTOLD
    draft_steps: tuple[DraftStep, ...] = ()  # of an arm that speculates
    part: bool = False  # the worker continues the job: servers' answers are returned as they come

    @property
    def keys(self) -> tuple[UnitKey, ...]:
        """Keys of the answered units."""
        return tuple(completion.key for completion in self.completions)

    def joined(self, later: JobResult) -> JobResult:
        """Join two parts of one job."""
        return replace(
            later,
            footprint=self.footprint,
            completions=self.completions + later.completions,
            drifts=self.drifts + later.drifts,
            generation=self.generation + later.generation,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFailure:
    """A job that failed, or (part) some of its units. They are errors, never answers."""

    index: int
    arm: str
    keys: tuple[UnitKey, ...]
    error: str
    unpaid: bool = False  # a request could not be paid any more
    limited: bool = False  # a limit of its server lasts too long: its other jobs would not be answered either
    part: bool = False  # the worker continues the job
    refused: bool = False  # by the server, which would refuse it again
    void: bool = False  # returned answers to these units do not count: the server changed meanwhile


# Reason for a null score: the declared dialect reads no call where one is expected, and another dialect does. The model
# is wrong if it was told to write the declared dialect, else the parser is.
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
