"""The frozen values that pass between rooms. No room hands another anything that a later write can change.

Times are seconds, sizes bytes, divergences nats, rates 0..1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from qualgate.identity import case_hash, content_hash, question_hash

FinishReason = Literal["eos", "stop", "length", "abort"]
# What servers and harnesses call the same. A word that is not here is refused: it may mean that an answer was cut off.
FINISH_WORDS: dict[str, FinishReason] = {
    "eos": "eos", "stop": "stop", "stop_sequence": "stop", "end_turn": "stop", "tool_calls": "stop",
    "function_call": "stop", "length": "length", "max_tokens": "length", "abort": "abort", "content_filter": "abort",
}  # fmt: skip
# Of a row of outputs or scores: what serving the answer took and gave, see `intake.serving_rows`.
SERVING_FIELDS = (
    "token_ids", "tokens_sha256", "text_sha256", "top2_gaps", "tokens", "prompt_tokens", "ttft", "tpot", "e2e",
    "attempts", "batch",
)  # fmt: skip
VerdictWord = Literal["approve", "block", "review", "undecided", "invalid"]
RuleStatus = Literal["proven", "broken", "undecided"]
Tier = Literal["critical", "supporting", "advisory"]
NOISE = "@aa"  # ends the name of the A/A arm: the baseline's own weights in other batches
TWIN = "@torch"  # ends the name of the arm that runs a variant's weights through the torch twin; no variant's can

DEVICE_MEMORY = "device.memory"  # the fact: bytes of the device that the arm ran on
CACHE_TOKEN = "memory.cache_token"  # the fact: bytes of one token's keys and values, in the arm's dtype

# ------------------------------------------------------------------------------------------------ evalsets


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One prompt with what its scorers need. `body` is the case's JSON object as it stands in the file."""

    evalset: str
    body: dict[str, Any]

    @property
    def id(self) -> str:
        return self.body["id"]

    @property
    def task(self) -> str:
        return self.body.get("task", self.evalset)

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(self.body.get("tags", ()))

    @property
    def cluster(self) -> str | None:
        return self.body.get("cluster")

    @property
    def labels(self) -> tuple[str, ...]:
        """By what a rule can choose it: its task and tags."""
        return (f"task:{self.task}", *(f"tag:{tag}" for tag in self.tags))

    @property
    def max_new_tokens(self) -> int:
        return self.body["max_new_tokens"]

    @property
    def hash(self) -> str:
        return case_hash(self.body)

    @property
    def question(self) -> str:
        return question_hash(self.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class LmEvalTask:
    """A gate file's `{lm_eval: TASK}`: lm-eval makes the requests and scores the answers."""

    task: str
    include_path: str = ""  # folder with the task's YAML, absolute; "" = lm-eval's own tasks
    filter: str = ""  # the one whose metrics are gated; "" = the only one
    metric: str = ""  # of the task's own, gated as `lm_eval.score`
    num_fewshot: int | None = None
    limit: int | None = None  # documents, the first ones
    group: str = ""  # the group or tag of lm-eval's that the gate file names, of which this is a task


@dataclass(frozen=True, slots=True, kw_only=True)
class Evalset:
    """A versioned, hashed list of cases. `metrics`: names from `qualgate.metrics` that its cases carry."""

    name: str
    version: str
    sha256: str  # of the JSONL file's bytes; where the YAML adds to its cases, of that too
    metrics: tuple[str, ...]
    lenient: tuple[str, ...] = ()  # declared lenient modes of the JSON reader, e.g. "code_fence"
    normalizers: tuple[str, ...] = ()  # applied to both sides by exact_match, in order
    description: str = ""
    path: str = ""
    cases: tuple[Case, ...] = ()
    lm_eval: LmEvalTask | None = None  # who scores it; what it asks and how it scores is in `sha256`

    @property
    def content(self) -> str:
        """Hash of everything that changes what a score on this set means; the cases are in `sha256`."""
        return content_hash([self.name, self.version, self.sha256, self.metrics, self.lenient, self.normalizers])


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationSet:
    """A versioned, hashed list of cases that quantizers may see. Each is read as its prompt and then its `answer`."""

    name: str
    version: str
    sha256: str  # of the JSONL file's bytes
    description: str = ""
    path: str = ""
    cases: tuple[Case, ...] = ()


# ------------------------------------------------------------------------------------------- arms and work


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizeRecipe:
    """How a variant's weights are made from the baseline's. Every linear but the output head is quantized.

    A field that does not apply to the method, or is left at the method's own choice, keeps its default: then it takes
    no part in `content`, so a recipe that says no more than an older version could say keeps its hashes and caches.
    """

    method: Literal[
        "int8", "int4", "int3", "int2", "fp8", "mxfp4", "mxfp8", "nvfp4", "gptq", "awq", "smoothquant"
    ]  # fmt: skip
    group_size: int  # along in_features; 0 = one scale a row, or as `granularity` says
    bits: int = 0  # gptq, awq; 0 = the method's name says it
    symmetric: bool = True  # integers: zero at the middle code; else a zero point for each scale
    clip: Literal["", "mse", "percentile"] = ""  # integers: how far the range may shrink below the largest weight
    granularity: Literal["", "tensor", "block"] = ""  # one scale a tensor, or for each 128 x 128 weights
    element: Literal["", "e5m2"] = ""  # fp8; "" = e4m3
    exponent: Literal["", "rounded"] = ""  # mxfp4, mxfp8: "" = floor, as OCP's specification has it
    activations: Literal["", "int8", "fp8"] = ""  # what enters a quantized layer is rounded to, one scale a token
    rounding: Literal["", "gptq"] = ""  # smoothquant: of the weights it leaves; to nearest in the first versions
    act_order: Literal["", "group", "static"] = ""  # gptq: columns by falling importance, groups with them or not
    calibration: str = ""  # where the cases lie; `calibration_sha256` says which they are
    calibration_sha256: str = ""
    keep: tuple[tuple[str, str], ...] = ()  # (pattern of module names, precision), the first that fits counts

    def __post_init__(self) -> None:
        object.__setattr__(self, "keep", tuple((pattern, to) for pattern, to in self.keep))  # JSON gives lists

    @property
    def content(self) -> dict[str, Any]:
        """What decides the weights, as plain JSON: fields at their default are left out, and so is where data lie."""
        return {
            item.name: [list(pair) for pair in value] if item.name == "keep" else value
            for item in fields(self)
            if item.name != "calibration"
            and ((value := getattr(self, item.name)) != item.default or item.name in ("method", "group_size"))
        }

    @property
    def label(self) -> str:
        """A name for people and folders: `int4 g32`, `gptq int4 g128 act-order`, `fp8 e5m2 128x128`."""
        words: list[str] = [self.method]
        if self.bits:
            words.append(f"int{self.bits}")
        if self.element:
            words.append(self.element)
        if self.granularity:
            words.append({"tensor": "per tensor", "block": "128x128"}[self.granularity])
        elif self.method not in ("mxfp4", "mxfp8", "nvfp4"):
            words.append(f"g{self.group_size}" if self.group_size else "per row")
        words += ["asym"] if not self.symmetric and self.method != "awq" else []
        words += ["sym"] if self.symmetric and self.method == "awq" else []
        words += [f"clip-{self.clip}"] if self.clip else []
        words += [f"exponent-{self.exponent}"] if self.exponent else []
        words += [{"group": "act-order", "static": "act-order-static"}[self.act_order]] if self.act_order else []
        words += [f"a-{self.activations}"] if self.activations else []
        words += ["calibrated"] if self.calibration_sha256 and self.method == "nvfp4" else []
        words += ["keep"] if self.keep else []
        return " ".join(words)


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmSpec:
    """One arm of a run as planned: which weights, made how."""

    name: str  # "baseline" or the variant's key in the gate file
    model: str  # folder with config.json, tokenizer and safetensors
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"  # of the weights that are not quantized
    quantize: QuantizeRecipe | None = None
    kernels: Literal["fused", "torch"] = "fused"  # "torch": packed weights through the torch twin, for `--blame`
    calibration: str = ""  # of a folder: the cases that it was calibrated with, as the gate file says; "" = not told
    calibration_sha256: str = ""

    @property
    def is_baseline(self) -> bool:
        return self.name == "baseline"

    @property
    def weights_label(self) -> str:
        """How the weights are held: "bfloat16", "int4 g32", …"""
        return self.quantize.label if self.quantize else self.dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmIdentity:
    """What an arm really was, by content. Equal template, tokenizer and sampling make a pair comparable."""

    weights: str  # sha256 over the safetensors files and the recipe
    config: str  # sha256 of config.json
    tokenizer: str  # sha256 of the tokenizer's files
    template: str  # sha256 of the chat template's text ("" hashed when there is none)
    sampling: str  # sha256 of temperature, seed, repeats, stop rules
    engine: str  # version and arithmetic, e.g. "qualgate 0.1.0 torch cpu float32"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmFootprint:
    """Measured sizes of one loaded arm."""

    bytes_on_disk: int  # of its weight files
    bytes_in_memory: int  # parameters and packed buffers after loading
    quantized_bytes: int  # packed codes and scales alone, 0 for the baseline
    effective_bits: float  # 8 * bytes_in_memory / number of weights
    facts: dict[str, float] = field(default_factory=dict)  # see `ArmEvidence.facts`
    unmeasured: dict[str, str] = field(default_factory=dict)  # likewise


@dataclass(frozen=True, slots=True, order=True)
class UnitKey:
    """One expected completion of a run: the smallest thing that is done, missing or failed."""

    arm: str
    evalset: str
    case_id: str
    repeat: int = 0

    @property
    def question(self) -> str:
        """For people: which set's case, and which of several answers to it."""
        return f"{self.evalset}/{self.case_id}" + (f"#{self.repeat}" if self.repeat else "")


TEMPERATURES = 0.01, 100.0  # beyond, an answer is greedy or noise in all but name
NOISE_ID = "gumbel/1"  # how tokens are drawn: engine/sampling.py; a part of what a drawn answer is known by
Window = tuple[tuple[int, ...], tuple[int, ...]]  # a context, and what is read after it; neither is empty


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A case rendered through the chat template and tokenized, ready for the engine.

    One with `requests` generates nothing: for each request its windows are read, and what is read is weighed.
    """

    key: UnitKey
    case_hash: str
    token_ids: tuple[int, ...]
    max_new_tokens: int
    until: tuple[str, ...] | None = None  # texts that end the answer, which they and special tokens are no part of
    temperature: float = 0.0  # 0 says the likeliest token, else one is drawn
    requests: tuple[tuple[Window, ...], ...] = ()

    @property
    def tokens_read(self) -> int:
        """Tokens that go through the model before, or instead of, any that is generated."""
        return len(self.token_ids) + sum(len(a) + len(b) for windows in self.requests for a, b in windows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Units that one worker runs as one batch. The baseline's job k and each variant's job k hold the same cases."""

    index: int
    arm: ArmSpec
    prompts: tuple[Prompt, ...]
    artifact: str  # the baseline writes it (token ids, hidden states before the head); variants read it
    drafted: bool  # a variant starts from the baseline's answer instead of decoding every token
    stage: int = 0  # jobs of an earlier one come first: the look they are for, or the block where times decide
    seed: int = 0  # of the noise by which tokens are drawn; its prompts have one temperature
    timed: bool = False  # its times decide: a worker that has just loaded the arm warms up first


# ------------------------------------------------------------------------------------------------ evidence


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
    draft_proposed: int = 0  # baseline tokens offered to the variant; 0 = plain decoding
    draft_accepted: int = 0  # of those, tokens the variant would have said itself
    kernel: str = ""  # what multiplied the packed weights, e.g. "c avx512"; "" where none are packed

    @property
    def tpot(self) -> float | None:
        """Seconds a token after the first; None for answers of one token or none."""
        return (self.e2e - self.ttft) / (len(self.token_ids) - 1) if len(self.token_ids) > 1 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Teacher forcing on the baseline's own tokens, full vocabulary, one value a position."""

    key: UnitKey  # of the variant's unit
    kl: tuple[float, ...]  # KL(p_baseline || p_variant) in nats, float64 log-softmax, >= 0
    top1_agreement: float  # share of positions where both find the same token likeliest
    first_divergence: int | None  # first position at which the variant would say another token; None = never
    length_ratio: float | None  # variant tokens / baseline tokens
    kl_eta: float = 0.0  # nats the baseline's log-probs may be off by: certifies `kl` (stats/certificate.py); 0 = exact
    top1_differs: tuple[int, ...] | None = None  # positions at which they do not; None: not recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    index: int
    arm: str
    identity: ArmIdentity  # as loaded by the worker, not as planned
    footprint: ArmFootprint
    completions: tuple[Completion, ...]
    drifts: tuple[Drift, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFailure:
    """A job the machinery could not run. Its units are errors, never answers."""

    index: int
    arm: str
    keys: tuple[UnitKey, ...]
    error: str


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


# ---------------------------------------------------------------------------------- what the gate is given


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One line of the policy. Exactly one of `max_drop`, `max_relative_drop`, `max`, `min`, `max_ratio` is set.

    scope: "pooled" over every set that has the metric, or one comparison a set ("evalset"), a task ("task"), or a value
    of a tag ("tag:NAME": each tag that is NAME or begins with `NAME:`); evalset: only that set; where: only cases with
    this label ("tag:x", "task:x"). repeats: what counts of several answers to one case: their mean, whether any is
    right (pass@k), whether all are (pass^k).
    """

    metric: str
    scope: str = "pooled"
    evalset: str | None = None
    tier: Tier = "critical"
    max_drop: float | None = None
    max_relative_drop: float | None = None  # of the baseline's own rate
    max: float | None = None
    min: float | None = None
    max_ratio: float | None = None
    percentile: float | None = None
    where: str | None = None
    repeats: Literal["mean", "any", "all"] = "mean"
    line: int = field(default=0, compare=False)  # in the gate file, for messages alone

    @property
    def id(self) -> str:
        each = {"pooled": "pooled", "evalset": "each set", "task": "each task"}
        where = self.evalset or each.get(self.scope, f"each {self.scope.removeprefix('tag:')}")
        where += f", {self.where}" if self.where else ""
        where += {"mean": "", "any": ", any repeat", "all": ", all repeats"}[self.repeats]
        bound = next(
            f"{name} {value:g}"
            for name, value in (
                ("max_drop", self.max_drop),
                ("max_relative_drop", self.max_relative_drop),
                ("max", self.max),
                ("min", self.min),
                ("max_ratio", self.max_ratio),
            )
            if value is not None
        )
        at = f" p{self.percentile:g}" if self.percentile is not None else ""
        return f"{self.metric}{at} [{where}] {bound}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """The slowest that an answer may be and still count as delivered; None: not asked."""

    ttft: float | None = None
    tpot: float | None = None
    e2e: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What serving costs. A price of 0 is one that is not charged."""

    version: str
    currency: str
    prompt_token: float = 0.0
    output_token: float = 0.0
    device_second: float = 0.0
    concurrency: int = 1  # answers that share the device: a second of one answer is 1/concurrency device seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class FourArms:
    """Which variants are the arms of a four-arm comparison, and how it is judged."""

    quantization: str
    speculation: str
    both: str
    seed: int = 0  # of the blocks' order
    parity: Literal["identical", "sampled", "lossy"] = "identical"  # what speculation promises of its target's answers
    min_saving: float = 0.05  # of the cost per accepted answer: what an arm must surely save to be worth having
    memory_share: float | None = None  # declared: of the device's memory that weights and KV cache fill
    tool_share: float | None = None  # declared: of a request's time that is spent in tools
    blocks: tuple[str, ...] = ()  # order of each block as it was planned, e.g. "BQSX": X is both

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", tuple(self.blocks))  # JSON gives a list


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """A case that does not count until a day, because someone answers for it."""

    case: str  # its id
    owner: str
    expires: str  # the first day on which it counts again, YYYY-MM-DD
    reason: str
    evalset: str | None = None  # None: every evalset that has such an id


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyStop:
    """Generation ends for a variant once its verdict is settled. What the looks rest on is fixed before the first."""

    seed: int  # of the order of cases
    looks: tuple[int, ...] = ()  # questions that are in at each look, as it was planned; the last: all of them
    disagreement: float | None = None  # this and the next: assumed by the test's stakes of every rule; None: by each
    weight: float | None = None  # rule's list, which is how they have been planned since `paired_betting/3`

    def __post_init__(self) -> None:
        object.__setattr__(self, "looks", tuple(self.looks))  # JSON gives a list


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    rules: tuple[Rule, ...]
    alpha: float = 0.05  # one-sided
    review: Literal["never", "always"] = "never"
    slo: Slo | None = None
    prices: Prices | None = None
    feedback: str = ""  # sha256 of the feedback file that is part of the evidence; "" = none asked for
    four_arm: FourArms | None = None  # None: each variant is judged by itself
    quarantine: tuple[Quarantine, ...] = ()
    max_age: int | None = None  # s, of evidence that still decides; None = any
    stop: EarlyStop | None = None  # None: generation ends when every unit is done
    nel: str = ""  # a NeMo Evaluator policy, as JSON: `rules` and `alpha` are then what became of it, or not yet there


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One try at a unit and what it took, whatever came of it. None: not recorded, which is not nothing."""

    outcome: Literal["done", "failed", "cancelled"]
    cause: str = ""  # of what was not done, or done again: "transport", "timeout", "parse", "schema", "guard", …
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    seconds: float | None = None  # that it held its place in the batch


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitEvidence:
    """One terminal unit as the gate sees it. `values` maps metric → value (None: the scorer could not say)."""

    key: UnitKey
    case_hash: str
    status: Literal["done", "error", "missing"]
    values: dict[str, float | None] = field(default_factory=dict)  # scores, and latency.* in seconds
    scorers: dict[str, str] = field(default_factory=dict)  # metric → scorer name and version
    kernel: str = ""  # what multiplied the packed weights; "" where none are, or before that was stored
    truncated: bool = False
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
    top1_differs: tuple[int, ...] | None = None  # see Drift; None: a store from before that was stored
    first_divergence: int | None = None  # None with kl: the variant never would say another token
    error: str = ""
    finished: bool | None = None  # the answer ended by itself; None: not recorded
    attempts: tuple[Attempt, ...] = ()  # every try at this unit, in order; () = not recorded
    answer: bytes | None = None  # token ids, int32 little-endian; None: not read, or not recorded
    margins: bytes | None = None  # top-2 logit gap at each token, float64 little-endian
    tokens_sha256: str = ""  # of what `answer` would hold; "" = not said, or `answer` is there
    text_sha256: str = ""  # of the answer's text, what feedback names it by; "" = not read
    job: int | None = None  # which of its arm's batches it ran in: answers of one share its time; None: not recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """Why a variant's list was not finished: at a planned look its verdict was settled."""

    look: int  # from 1
    seen: int  # questions that were in, the first of the order
    word: VerdictWord
    order: str  # sha256 of the order of cases
    policy: Policy  # by which it was settled


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmEvidence:
    name: str
    identity: ArmIdentity | None  # None: no job of this arm ever finished
    units: tuple[UnitEvidence, ...]  # one for each terminal row found, in any order
    stopped: Stopped | None = None  # variants only
    # What was measured of the arm as a whole: metrics of kind "arm", CACHE_TOKEN, DEVICE_MEMORY; the rest was not.
    facts: Mapping[str, float] = field(default_factory=dict)
    unmeasured: Mapping[str, str] = field(default_factory=dict)  # metric → why it has no number, where that is known


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvidence:
    """Everything a verdict may rest on, read from the store."""

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
    budgets: Mapping[tuple[str, str], int] = field(default_factory=dict)  # → `max_new_tokens`; no entry: not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a run will do, before it does it. The same `key` means the same generation: such a run can be resumed."""

    key: str  # sha256 over evalsets, arm identities, sampling, engine and scorer versions; no threshold is in it
    gate_file: str  # its text, kept with the run
    policy: Policy
    arms: tuple[ArmSpec, ...]  # the baseline first
    identities: dict[str, ArmIdentity]  # planned, by arm name
    evalsets: tuple[Evalset, ...]
    jobs: tuple[Job, ...]  # the baseline's first
    artifacts: str  # folder of the baseline's artifacts

    also: dict[str, tuple[str, ...]] = field(default_factory=dict)  # evalset → metrics that only a rule asks for

    @property
    def expected(self) -> tuple[UnitKey, ...]:
        """The closed list: every unit of every arm."""
        return tuple(prompt.key for job in self.jobs for prompt in job.prompts)

    @property
    def repeats(self) -> int:
        """Answers to each case."""
        return 1 + max((key.repeat for key in self.expected), default=0)


# ------------------------------------------------------------------------------------------------ verdicts


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


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmService:
    """What serving one arm's answers took and gave. None: unavailable, and `unavailable` says why."""

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
    step: Literal["parity", "quality", "slo", "value"]
    status: RuleStatus
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Interaction:
    """What quantization and speculation do together beyond what each does alone."""

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
class Seen:
    """How much of the run an early verdict rests on. It is an anytime-valid test's, so looking has no price."""

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
    cause: str = ""  # recipe, kernel, KV, speculation, parser, template, truncation, infrastructure; "" = not known
    services: tuple[ArmService, ...] = ()  # of the baseline and the variant, where a rule on cost asked for it
    four_arm: FourArm | None = None  # on the verdict about the arm that does both
    seen: Seen | None = None  # where generation may stop early
