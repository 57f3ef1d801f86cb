"""The policy of a gate file: rules, prices, objectives, quarantine, four arms, early stopping."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from qualgate.records.judged import Judge

Tier = Literal["critical", "supporting", "advisory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule of the policy. Exactly one of `max_drop`, `max_relative_drop`, `max`, `min`, `max_ratio` is set.

    scope: "pooled" over every set that has the metric, or one comparison per set ("evalset"), task ("task"), or value
    of a tag ("tag:NAME": each tag that is NAME or begins with `NAME:`). evalset: only that set. where: only cases with
    this label ("tag:x", "task:x"). repeats: how several answers to one case count: their "mean", whether "any" is right
    (pass@k), whether "all" are, or "pass^3", the chance that three are. skip: "below_floor" leaves out slices on which
    the baseline is right too rarely to lose anything.
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
    repeats: str = "mean"
    skip: str = ""
    against: str = ""  # the arm of the run that stands in the baseline's place; "": the baseline
    line: int = field(default=0, compare=False)  # in the gate file, for messages alone

    @property
    def id(self) -> str:
        """The rule in words, "json.valid [each set] max_drop 0.02", by which comparisons name it."""
        scope_texts = {"pooled": "pooled", "evalset": "each set", "task": "each task"}
        where = self.evalset or scope_texts.get(self.scope, f"each {self.scope.removeprefix('tag:')}")
        where += f", {self.where}" if self.where else ""
        repeats_text = {"mean": "", "any": ", any repeat", "all": ", all repeats"}
        where += repeats_text.get(self.repeats, f", {self.repeats}")
        where += ", none below the floor" if self.skip else ""
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
        percentile = f" p{self.percentile:g}" if self.percentile is not None else ""
        against = f" against {self.against}" if self.against else ""
        return f"{self.metric}{percentile} [{where}] {bound}{against}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Slo:
    """Time limits within which an answer counts as delivered; None: no limit."""

    ttft: float | None = None
    tpot: float | None = None
    e2e: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices of serving; 0 is not charged."""

    version: str
    currency: str
    prompt_token: float = 0.0
    output_token: float = 0.0
    device_second: float = 0.0
    concurrency: int = 1  # answers that share the device: a second of one answer is 1/concurrency device seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Drafted:
    """Declared counts of an arm's draft tokens, proposed and accepted, over all of its answers."""

    arm: str
    proposed: int
    accepted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FourArms:
    """The variants of a four-arm comparison, and its settings."""

    quantization: str
    speculation: str
    both: str
    seed: int = 0  # of the blocks' order
    parity: Literal["identical", "sampled", "lossy"] = "identical"  # what speculation promises of its target's answers
    min_saving: float = 0.05  # of the cost per accepted answer: what an arm must surely save to be worth having
    memory_share: float | None = None  # declared: of the device's memory that weights and KV cache fill
    tool_share: float | None = None  # declared: of a request's time that is spent in tools
    blocks: tuple[str, ...] = ()  # order of each block as it was planned, e.g. "BQSX": X is both
    drafting: tuple[Drafted, ...] = ()  # declared, of arms whose answers do not say it
    temperature: float | None = None  # at which `sampled` answers are drawn; None: nobody says

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", tuple(self.blocks))  # JSON gives lists and mappings
        drafting = (entry if isinstance(entry, Drafted) else Drafted(**entry) for entry in self.drafting)
        object.__setattr__(self, "drafting", tuple(drafting))


@dataclass(frozen=True, slots=True, kw_only=True)
class Quarantine:
    """A case that does not count until a day; it has an owner."""

    case: str  # its id
    owner: str
    expires: str  # the first day on which it counts again, YYYY-MM-DD
    reason: str
    evalset: str | None = None  # None: every evalset that has such an id


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlyStop:
    """Stops generation for a variant once its verdict is settled. The looks are planned before the first."""

    seed: int  # of the order of cases
    looks: tuple[int, ...] = ()  # questions that are in at each look, as it was planned; the last: all of them

    def __post_init__(self) -> None:
        object.__setattr__(self, "looks", tuple(self.looks))  # JSON gives a list


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """A run of a few cases or variants, to see whether everything works. It decides nothing."""

    limit: int | None  # cases of each evalset; None: all
    only: tuple[str, ...] = ()  # variants; (): all
    asked: tuple[int, int] = (0, 0)  # cases in the trial, and all cases
    variants: tuple[int, int] = (0, 0)  # variants in the trial, and all of the gate file
    first_look: bool = False  # without accepted losses: `qualgate compare`

    def __post_init__(self) -> None:
        for name in ("only", "asked", "variants"):  # JSON gives lists
            object.__setattr__(self, name, tuple(getattr(self, name)))

    @property
    def label(self) -> str:
        """For people: "trial: 40 of 2,800 cases, 1 of 4 variants"; "first look: 40 of 2,800 cases"."""
        counts = (f"{self.asked[0]:,} of {self.asked[1]:,} cases", f"{self.variants[0]} of {self.variants[1]} variants")
        return ("first look: " if self.first_look else "trial: ") + ", ".join(counts[: 2 if self.only else 1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Rules and settings for a verdict. Nothing in it affects generation."""

    rules: tuple[Rule, ...]
    alpha: float = 0.05  # one-sided
    review: Literal["never", "always"] = "never"
    approvals: int = 1  # people who must approve one verdict until it counts as approved
    slo: Slo | None = None
    prices: Prices | None = None
    feedback: str = ""  # sha256 of the feedback file that is part of the evidence; "" = none asked for
    four_arm: FourArms | None = None  # None: each variant is judged by itself
    quarantine: tuple[Quarantine, ...] = ()
    max_age: int | None = None  # s, of evidence that still decides; None = any
    uncounted: Literal["refuse", "allow"] = "refuse"  # cases that no critical rule counts
    max_unfinished: float = 0.05  # of a set's answers on one side: cut off, empty, or not found by a filter
    stop: EarlyStop | None = None  # None: generation ends when every unit is done
    nel: str = ""  # a NeMo Evaluator policy, as JSON: `rules` and `alpha` are then what became of it, or not yet there
    trial: Trial | None = None  # of a run that decides nothing
    judge: Judge | None = None  # who compares answers, for rules on `judge.win`
    reviewers: int = 1  # people who must compare a pair, for rules on `people.win`; the first so many count

    @property
    def test(self) -> str:
        """Name of the test. Looks at a growing list with `stop: early` by one test are one test together."""
        if self.stop is None or self.four_arm is not None or self.nel:
            return "fixed"
        return f"early, seed {self.stop.seed}"

    @property
    def references(self) -> tuple[str, ...]:
        """Arms of the run that variants are held against beside the baseline. They get no verdict of their own."""
        return tuple(dict.fromkeys(rule.against for rule in self.rules if rule.against))

    def against(self, arm: str = "") -> Policy:
        """The policy with the rules against one arm alone; "": the baseline."""
        return replace(self, rules=tuple(rule for rule in self.rules if rule.against == arm))

    @property
    def chooses(self) -> bool:
        """Whether one arm is chosen among all; else each variant is judged by itself."""
        return self.four_arm is not None

    @property
    def decides_nothing(self) -> str:
        """Why a run by this policy decides nothing, such as "trial: 40 of 2,800 cases"; "" for a run that decides."""
        return self.trial.label if self.trial is not None else ""

    @property
    def first_look(self) -> bool:
        """Whether nobody has accepted any loss, so that no rule can decide: `qualgate compare`."""
        return self.trial is not None and self.trial.first_look
