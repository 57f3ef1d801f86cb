"""Evidence for a verdict, read from a store or from score files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from qualgate.records.answers import DraftStep
from qualgate.records.arms import UNTOLD, ArmIdentity, Generation, Overflow
from qualgate.records.judged import JudgedArm
from qualgate.records.policy import Policy
from qualgate.records.speculation import Speculation
from qualgate.records.verdicts import VerdictWord
from qualgate.records.work import UnitKey

# Fields of rows of outputs or scores about serving, see `intake.serving_rows`.
SERVING_FIELDS = (
    "token_ids", "tokens_sha256", "text_sha256", "top2_gaps", "tokens", "prompt_tokens", "ttft", "tpot", "e2e",
    "max_gap", "attempts", "batch", "started", "draft_proposed", "draft_accepted",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt at a unit and what it took, whatever its outcome. None: not recorded, which is not 0."""

    outcome: Literal["done", "failed", "cancelled"]
    cause: str = ""  # of what was not done, or done again: "transport", "timeout", "parse", "schema", "guard", …
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    seconds: float | None = None  # time in the batch


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitEvidence:
    """One terminal unit as the gate sees it. `values` maps metric → value (None: the scorer could not score it)."""

    key: UnitKey
    case_hash: str
    status: Literal["done", "error", "missing"]
    values: dict[str, float | None] = field(default_factory=dict)  # scores, and latency.* in seconds
    scorers: dict[str, str] = field(default_factory=dict)  # metric → scorer name and version
    weights: Mapping[str, float] = field(default_factory=dict)  # perplexity → words or bytes that its value is of
    unsaid: Mapping[str, str] = field(default_factory=dict)  # metric without a value → the scorer's reason
    kernel: str = ""  # kernel for the packed weights; "" without any
    truncated: bool = False
    unanswered: Literal["", "empty", "unfiltered"] = ""  # no text, call or thought; right, and not found by the filter
    finish_reason: str = ""  # this and the next four tell a cause; empty where they are not known
    prompt_tokens: int | None = None
    token_ids: bytes = b""  # of the answer, little-endian int32
    raw: str = ""  # the answer, where no tool call or no JSON could be read in it
    misread: str = ""  # how else it can be read: the dialect of the calls in `raw`, or "JSON in a code fence"
    tokens: int | None = 0  # of the answer; None: not counted
    cluster: str | None = None
    kl: tuple[float, ...] = ()  # variants only: one value a position of the baseline's answer
    top1_agreement: float | None = None
    kl_eta: float = 0.0  # certifies `kl`: see Drift
    top1_differs: tuple[int, ...] | None = None  # see Drift; None: not recorded
    kl_upper: tuple[float, ...] | None = None  # see Drift; None: `kl` is no bound but the KL
    first_divergence: int | None = None  # None with kl: the variant never would say another token
    error: str = ""
    finished: bool | None = None  # the answer ended by itself; None: not recorded
    attempts: tuple[Attempt, ...] = ()  # every try at this unit, in order; () = not recorded
    answer: bytes | None = None  # token ids, int32 little-endian; None: not read, or not recorded
    margins: bytes | None = None  # top-2 logit gap at each token, float64 little-endian
    tokens_sha256: str = ""  # of what `answer` would hold; "" = not said, or `answer` is there
    text_sha256: str = ""  # of the answer's text, what feedback names it by; "" = not read
    job: int | None = None  # which of its arm's batches it ran in: answers of one share its time; None: not recorded
    draft_proposed: int | None = None  # tokens that a draft proposed for the answer; None: not recorded
    draft_accepted: int | None = None  # of those, tokens that the arm kept
    began: float | None = None  # s, by a clock of both arms: when that batch began; None: not recorded
    masked: float | None = None  # probability that its constraint left out, mean over the answer; None: it has none
    thought: int | None = None  # tokens of its thought, or UNCOUNTED; None: its case has none
    draft_steps: tuple[DraftStep, ...] = ()  # of an arm that our own engine drafted for
    reply: str = ""  # of a server's, see Completion


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """Record of a variant that stopped early: its verdict was settled at a planned look."""

    look: int  # from 1
    seen: int  # questions that were in, the first of the order
    word: VerdictWord
    order: str  # sha256 of the order of cases
    policy: Policy  # by which it was settled


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """One look at a list that may grow: the questions that it added, and the tests that judged it."""

    questions: frozenset[tuple[str, str, int]]  # evalset, case, repeat
    answers: str  # sha256 of what both sides answered to them
    tests: tuple[str, ...]  # see `Policy.test`


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmEvidence:
    """The answers of one arm, and measurements of the arm as a whole."""

    name: str
    identity: ArmIdentity | None  # None: no job of this arm ever finished
    units: tuple[UnitEvidence, ...]  # one for each terminal row found, in any order
    stopped: Stopped | None = None  # variants only
    # What was measured of the arm as a whole: metrics of kind "arm", CACHE_TOKEN, DEVICE_MEMORY; the rest was not.
    facts: Mapping[str, float] = field(default_factory=dict)
    unmeasured: Mapping[str, str] = field(default_factory=dict)  # metric → why it has no number, where that is known
    overflow: tuple[Overflow, ...] = ()  # see `ArmFootprint`
    generation: Generation = UNTOLD  # likewise
    speculation: Speculation | None = None  # as it was planned; None: none, or an arm of files
    to_draft: bool = False  # served, and said to speculate
    asked_for: str = ""  # of a served arm, the name of its model as its server is asked for it
    address: str = ""  # and its server's host and port; "" of one that a run starts
    answered_by: tuple[str, ...] = ()  # names of models that may answer for it, by the gate file
    answered_probes: tuple[str, ...] = ()  # and of those that answered its probes
    another_model: bool = False  # on purpose, see `ArmSpec`
    config_differences: tuple[str, ...] = ()  # likewise
    judged: JudgedArm | None = None  # variants only; None: no judge was asked for
    preferred: JudgedArm | None = None  # likewise, by people


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredAgain:
    """Differences of the newest scoring of stored answers from the recorded one."""

    at: str  # UTC, ISO 8601
    metrics: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]  # evalset → recorded and newest, where they differ
    corrected: tuple[tuple[str, str], ...]  # (evalset, case) with other references
    forgiving: tuple[str, ...]  # evalsets with other `lenient` or `normalizers`
    retagged: tuple[str, ...] = ()  # evalsets of which cases have other tags, by which rules choose them


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvidence:
    """All evidence of a run."""

    run_id: str
    expected: tuple[UnitKey, ...]  # the closed list written before generation, both arms and all variants
    metrics: dict[str, tuple[str, ...]]  # evalset → metrics its cases carry
    baseline: ArmEvidence
    variants: tuple[ArmEvidence, ...]
    integrity: tuple[str, ...] = ()  # what was found broken (hashes, duplicates); empty = intact
    made_at: str = ""  # UTC, ISO 8601: when the run began; "" = not known
    labels: Mapping[tuple[str, str], tuple[str, ...]] | None = (
        None  # (evalset, case) → "task:x", "tag:y"; None = not known
    )
    stale: tuple[str, ...] = ()  # what changed since the run (weights, evalsets, variants): every verdict undecided
    corrected: dict[UnitKey, bool] | None = None  # by users, where known; None: no feedback was read
    clusters: Mapping[tuple[str, str], str] = field(default_factory=dict)  # (evalset, case) → cluster, where it has one
    questions: Mapping[tuple[str, str], str] = field(default_factory=dict)  # → `question_hash`; no entry: not known
    max_new_tokens: Mapping[tuple[str, str], int] = field(default_factory=dict)  # of its answer; no entry: not known
    tasks: Mapping[tuple[str, str], str] = field(default_factory=dict)  # → its task; no entry: as its evalset is called
    # → keys of `metrics.READERS` that the case holds; no entry: not known, and its set's metrics say it
    references: Mapping[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    looks: tuple[Looked, ...] | None = None  # at this list as it grew, this one last; None: nobody kept them
    # Of a run: variant → answers of this list that it was judged on before, see `queries.judged_before`.
    judged_before: Mapping[str, int] = field(default_factory=dict)
    decides_nothing: str = ""  # of its run's policy, see there
    scored_again: ScoredAgain | None = None  # None: as it was recorded, but perhaps by newer scorers
