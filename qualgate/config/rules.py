"""The policy of a gate file: rules, quarantine, objectives and the other keys of `gate`."""

from __future__ import annotations

import re
from datetime import date
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    Field,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    field_validator,
    model_validator,
)

from qualgate.config.arms import VARIANT_NAME, VariantName
from qualgate.config.paths import PlainFile
from qualgate.documents import ABSENT, Written, nearest, percent, plain_number, planned, quote, stated
from qualgate.records.load import LOAD_METRICS
from qualgate.records.metrics import DROP_BELOW, DROP_TOO_LARGE, DROPS, HARNESS, METRICS, PLANNED

BOUNDS = ("max_drop", "max_relative_drop", "max", "min", "max_ratio")
PER = "evalset|task|tag:.{1,100}"
REPEATS = "mean|any|all|pass\\^[1-9][0-9]{0,3}"
AGE = "([0-9]{1,5})(h|d)"
LEAST, MOST = 1e-9, 1e15  # of a bound; beyond, it limits nothing, and dividing by it overflows
MOST_RATIO = 10.0  # times the baseline's: a larger number is a percentage, or no limit at all
LEAST_ALPHA = 1e-6


def _metric(name: str) -> str:
    """Check the name of a rule's metric. Metrics of later versions and of loads are refused with their own advice."""
    if name in PLANNED:
        raise planned(f"the metric {name!r}")
    if name in LOAD_METRICS:
        raise stated(
            f"{name} is measured under load: write the rule as `load: {{rules: [{{metric: {name}, …}}]}}` and judge it "
            "with `qualgate load`"
        )
    if name not in METRICS:
        raise stated(f"unknown metric {quote(name)}{nearest(name, METRICS)}")
    return name


def _per(value: str) -> str:
    if not re.fullmatch(PER, value):
        raise stated(f"`per` is 'evalset', 'task' or 'tag:NAME', not {quote(value)}")
    return value


def _repeats(value: str) -> str:
    if not re.fullmatch(REPEATS, value):
        raise stated(f"`repeats` is 'mean', 'any', 'all' or 'pass^K' with a number from 1, not {quote(value)}")
    return value


class Where(Written):
    """Only the cases with this tag, or of this task."""

    model_config = {"json_schema_extra": {"minProperties": 1, "maxProperties": 1}}
    example: ClassVar = "{tag: NAME}"
    tag: str = Field(default=ABSENT, min_length=1)
    """Only the cases that carry this tag. Example: `tag: german`"""
    task: str = Field(default=ABSENT, min_length=1)
    """Only the cases of this task. Example: `task: extract`"""

    @model_validator(mode="after")
    def _is_one(self) -> Where:
        if (self.tag is None) == (self.task is None):
            raise stated("`where` needs exactly one of `tag` and `task`")
        return self


def _most(unit: str, bound: str) -> float:
    """The largest bound that still limits a metric in this unit."""
    if unit in ("rate", "share") or (unit == "ratio" and bound == "min"):
        return 1.0
    return MOST_RATIO if unit == "ratio" else MOST


class Per(Written):
    """One comparison for each; with `skip`, none where the baseline has next to nothing to lose."""

    example: ClassVar = "{by: task, skip: below_floor}"
    by: Annotated[str, AfterValidator(_per), Field(json_schema_extra={"pattern": f"^({PER})$"})]
    """Each evalset, task, or value of a tag `NAME:VALUE`. Example: `by: task`"""
    skip: Literal["below_floor"] = ABSENT
    """Leave out, and list in the verdict, each on which the baseline is right on 20 % of the cases or less (or five
    times `max_drop`), unless the variant is worse there by more than the rule allows. Example: `skip: below_floor`
    """


def _named_or_mapped(value: Any, read: ValidatorFunctionWrapHandler) -> Any:
    return Per.model_construct(by=_per(value), skip=ABSENT) if isinstance(value, str) else read(value)


def _or_a_name(schema: dict[str, Any]) -> None:
    schema["anyOf"] = [{"type": "string", "pattern": f"^({PER})$"}, {"$ref": schema.pop("$ref")}]


_NO_SKIP = {"not": {"type": "object", "required": ["skip"]}}


class RuleEntry(Written):
    """One bound on one metric, and of which cases it is taken."""

    example: ClassVar = "{metric: exact_match, max_drop: 0.02}"
    metric: Annotated[
        str,
        AfterValidator(_metric),
        Field(json_schema_extra={"anyOf": [{"enum": list(METRICS)}, {"pattern": f"^{re.escape(HARNESS)}."}]}),
    ]
    """What the rule is about, from the closed list of metrics. Example: `metric: exact_match`"""
    per: Annotated[Per, WrapValidator(_named_or_mapped), Field(json_schema_extra=_or_a_name)] = ABSENT
    """One comparison for each evalset, each task, or each value of a tag `NAME:VALUE`; left out, all are pooled.
    Example: `per: evalset`
    """
    evalset: str = ABSENT
    """Only the cases of this evalset. Example: `evalset: tool_calls`"""
    tier: Literal["critical", "supporting", "advisory"] = "critical"
    """Critical rules approve and block, a broken supporting rule asks for a person, an advisory one is only shown.
    Example: `tier: advisory`
    """
    max_drop: float = Field(default=ABSENT, ge=LEAST, json_schema_extra={"exclusiveMaximum": DROP_BELOW})
    """The largest loss allowed, as a share: 0.02 is two points. Example: `max_drop: 0.02`"""
    max_relative_drop: float = Field(default=ABSENT, ge=LEAST, json_schema_extra={"exclusiveMaximum": DROP_BELOW})
    """The largest loss allowed, as a share of the baseline's own rate. Example: `max_relative_drop: 0.03`"""
    max: float = Field(default=ABSENT, ge=LEAST, le=MOST)
    """The largest value of the variant allowed, in the metric's unit. Example: `max: 0.05`"""
    min: float = Field(default=ABSENT, ge=LEAST, le=MOST)
    """The smallest value of the variant allowed, in the metric's unit. Example: `min: 0.98`"""
    max_ratio: float = Field(default=ABSENT, ge=LEAST, le=MOST_RATIO)
    """The largest ratio allowed of the variant to the baseline. Example: `max_ratio: 1.10`"""
    percentile: float = Field(default=ABSENT, ge=1, lt=100)
    """Of a latency: compare this percentile; left out, the ratio of total seconds. Example: `percentile: 95`"""
    where: Where = ABSENT
    """Only the cases with a tag, or of a task. Example: `where: {tag: german}`"""
    repeats: Annotated[str, AfterValidator(_repeats), Field(json_schema_extra={"pattern": f"^({REPEATS})$"})] = "mean"
    """What counts of several answers to a case: their `mean`, whether `any` is right (pass@k), whether `all` are, or
    `pass^3`: the chance that three of them all are, estimated without bias from as many as there are. Example:
    `repeats: any`
    """

    model_config = {
        "json_schema_extra": {
            "not": {"required": ["per", "evalset"]},
            "allOf": [
                {
                    "if": {"properties": {"metric": {"const": metric.name}}, "required": ["metric"]},
                    "then": {
                        "oneOf": [{"required": [bound]} for bound in metric.bounds],
                        "properties": {  # pyrefly: ignore[bad-assignment]
                            key: False
                            for key in (*BOUNDS, *(() if metric.kind == "latency" else ("percentile",)))
                            if key not in metric.bounds
                        }
                        | ({} if metric.kind == "quality" else {"repeats": {"const": "mean"}, "per": _NO_SKIP})
                        | ({} if metric.kind != "arm" else dict.fromkeys(("per", "evalset", "where"), False))
                        | {
                            bound: {"maximum": _most(metric.unit, bound)}
                            for bound in ("min", "max")
                            if bound in metric.bounds and _most(metric.unit, bound) < MOST
                        }
                        | ({} if metric.kind != "likelihood" else {"max_ratio": {"exclusiveMinimum": 1}}),
                    },
                }
                for metric in METRICS.values()
            ],
        }
    }

    @field_validator("max_drop", "max_relative_drop")
    @classmethod
    def _can_be_proven(cls, value: float, info: ValidationInfo) -> float:
        if value >= 1 and value / 100 < DROP_BELOW:
            unit = "% is" if info.field_name != "max_drop" else "point is" if value == 1 else "points are"
            raise stated(f"`{info.field_name}: {value:g}` must be a share: {value:g} {unit} {value / 100:g}")
        if value >= DROP_BELOW:
            raise stated(f"`{info.field_name}: {value:g}` {DROP_TOO_LARGE}")
        return value

    @model_validator(mode="after")
    def _fits_its_metric(self) -> RuleEntry:
        """Check that a rule has one bound, in its metric's range, and only options that fit the metric."""
        metric = METRICS[self.metric]
        given = [bound for bound in BOUNDS if getattr(self, bound) is not None]
        if len(given) != 1 or given[0] not in metric.bounds:
            fitting = "` or `".join(metric.bounds)
            raise stated(
                f"a rule on {self.metric} needs one bound, `{fitting}`; found {', '.join(given) if given else 'none'}"
            )
        largest = _most(metric.unit, given[0])
        if self.bound > largest:
            raise stated(
                f"`{given[0]}: {self.bound:g}` of {self.metric} should be from {plain_number(LEAST)} to {largest:g}"
                f"{percent(self.bound, largest)}"
            )
        if metric.kind == "likelihood" and self.bound <= 1:
            raise stated(
                f"`max_ratio: {self.bound:g}` of {self.metric} must be above 1 (an unchanged variant); 1.02 allows 2 %"
            )
        if metric.kind == "arm" and not self.per is self.evalset is self.where is None:
            raise stated(f"{self.metric} is one number for the whole variant: leave `per`, `evalset` and `where` out")
        if self.repeats != "mean" and metric.kind != "quality":
            raise stated(f"`repeats` goes with quality metrics, not with {self.metric}")
        if self.percentile is not None and metric.kind != "latency":
            raise stated(f"`percentile` goes with latency metrics, not with {self.metric}")
        if self.per and self.per.skip and (metric.kind != "quality" or given[0] not in DROPS):
            raise stated("`skip: below_floor` goes with a `max_drop` or `max_relative_drop` of a quality metric")
        if self.per is not None and self.evalset is not None:
            raise stated("`per: evalset` means every set, `evalset: NAME` a single one; write only one of the two")
        return self

    @property
    def bound(self) -> float:
        """The value of the rule's only bound, in the metric's unit."""
        return next(value for bound in BOUNDS if (value := getattr(self, bound)) is not None)

    @property
    def scope(self) -> str:
        """The scope of each comparison, as in `Rule.scope`."""
        return self.per.by if self.per else "evalset" if self.evalset else "pooled"

    @property
    def label(self) -> str | None:
        """The label that `where` selects, as in `Case.labels`."""
        return None if self.where is None else f"tag:{self.where.tag}" if self.where.tag else f"task:{self.where.task}"


def _day(value: Any) -> str:
    """Check a day, YYYY-MM-DD, and return it as text. YAML reads an unquoted one as a date."""
    text = value.isoformat() if isinstance(value, date) else value
    try:
        if isinstance(text, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", text):
            return date.fromisoformat(text).isoformat()
    except ValueError:
        pass
    raise stated(f"`expires` is a day, YYYY-MM-DD, not {quote(value)}")


def _age(value: str) -> int:
    if not (match := re.fullmatch(AGE, value)) or not int(match[1]):
        raise stated(f"`max_age` is a number of hours or days such as 36h or 7d, not {quote(value)}")
    return int(match[1]) * {"h": 3600, "d": 86400}[match[2]]


def _in_words(value: str) -> str:
    if not value.strip():
        raise stated(f"expected a text that is not empty, found {quote(value)}")
    return value


Words = Annotated[str, Field(min_length=1), AfterValidator(_in_words)]


class QuarantineEntry(Written):
    """A case that does not count until the day on which this ends by itself, in one evalset or in every one."""

    example: ClassVar = "{case: ID, owner: WHO, expires: 2026-12-31, reason: WHY}"
    case: str = Field(min_length=1)
    """The case's id. Example: `case: c-17`"""
    evalset: str = Field(default=ABSENT, min_length=1)
    """The evalset it is in; left out, every set that has the id. Example: `evalset: support`"""
    owner: Words
    """Who will mend the case. Example: `owner: ana`"""
    expires: Annotated[Any, AfterValidator(_day), WithJsonSchema({"type": "string", "pattern": r"^\d{4}-\d\d-\d\d$"})]
    """The day on which the case counts again. Example: `expires: 2026-12-31`"""
    reason: Words
    """Why it is held out. Example: `reason: two references are right`"""


class AgainstEntry(Written):
    """Rules against one more baseline, which is an arm of this file."""

    example: ClassVar = "{rules: [{metric: exact_match, max_drop: 0.01}]}"
    rules: list[RuleEntry] = Field(min_length=1)
    """What must hold against this arm; every critical rule, as those against the baseline. Example: `rules: [{metric:
    exact_match, max_drop: 0.01}]`
    """


class Gate(Written):
    """By what the verdict is reached: rules, or a NeMo Evaluator policy in their place."""

    alpha: float = Field(default=0.05, ge=LEAST_ALPHA, lt=0.5)
    """One-sided error of each bound: 0.05 is a 95 % bound. Example: `alpha: 0.05`"""
    rules: list[RuleEntry] = Field(
        default=ABSENT,
        min_length=1,
        json_schema_extra={  # one that is critical, by word or by default, and on quality
            "contains": {
                "properties": {
                    "metric": {
                        "anyOf": [
                            {"enum": [name for name, metric in METRICS.items() if metric.approves]},
                            {"pattern": f"^{re.escape(HARNESS)}."},
                        ]
                    },
                    "tier": {"const": "critical"},
                },
                "required": ["metric"],
            }
        },
    )
    """What must hold. At least one rule is critical and on quality. Example: `rules: [{metric: exact_match, max_drop:
    0.02}]`
    """
    against: dict[VariantName, AgainstEntry] = Field(
        default=ABSENT, min_length=1, json_schema_extra={"propertyNames": {"pattern": VARIANT_NAME}}
    )
    """Further baselines: variants of this file, such as what is served today. The other variants are held against each
    of them too, and they get no verdict of their own. Example: `against: {yesterday: {rules: [{metric: exact_match,
    max_drop: 0.01}]}}`
    """
    nel_policy: PlainFile = ABSENT
    """A NeMo Evaluator policy, version 1, that decides in place of `rules`. Example: `nel_policy: gate_policy.yaml`"""
    review: Literal["never", "always"] = "never"
    """`always` asks for a person where all rules are proven. Example: `review: always`"""
    approvals: Annotated[int, Field(ge=1, le=9)] = 1
    """How many people must sign in and approve a verdict until it counts as approved; with `review: always`. Example:
    `approvals: 2`"""
    reviewers: Annotated[int, Field(ge=1, le=9)] = 1
    """How many people must compare each pair for rules on `people.win`: the first so many count, by majority. Several
    must sign in. Example: `reviewers: 2`"""
    stop: Literal["end", "early"] = "end"
    """`early` stops generating for a variant once its verdict is settled. Example: `stop: early`"""
    noise_floor: bool = ABSENT
    """Run the baseline a second time in other batches, and show what it changes by itself; a baseline that is served is
    asked twice unless you write `false`. Example: `noise_floor: true`
    """
    quarantine: list[QuarantineEntry] = []
    """Cases that do not count until a day, at most 2 % of all. Example: `quarantine: [{case: c-17, owner: ana,
    expires: 2026-12-31, reason: flaky}]`
    """
    max_age: Annotated[str, AfterValidator(_age), WithJsonSchema({"type": "string", "pattern": f"^{AGE}$"})] = ABSENT
    """Evidence older than this decides nothing; hours or days. Example: `max_age: 7d`"""
    uncounted: Literal["refuse", "allow"] = "refuse"
    """`allow` lets a verdict pass although no critical rule counts some of the cases. Example: `uncounted: allow`"""
    max_unfinished: float = Field(default=0.05, ge=0, le=1)
    """The largest share of an evalset's answers, of each side, that may be cut off, empty or not found by their filter.
    Example: `max_unfinished: 0.1`
    """
    model_config = {
        "json_schema_extra": {
            "oneOf": [
                {"required": ["rules"], "properties": {"nel_policy": False}},
                {
                    "required": ["nel_policy"],
                    "properties": {"rules": False, "alpha": False, "stop": {"const": "end"}},
                },
            ],
            "dependencies": {"subset": ["expected"]},
            "not": {
                "required": ["stop", "noise_floor"],
                "properties": {"stop": {"const": "early"}, "noise_floor": {"const": True}},
            },
        }
    }
    identity: Literal["hash", "ids"] = "hash"
    """Of score files: what pairs two rows, the hash of the case or its id alone. Example: `identity: ids`"""
    expected: str = Field(default=ABSENT, min_length=1)
    """Of score files: JSON lines with the `id` (and `evalset`) of every case that they must hold. Example: `expected:
    ids.jsonl`
    """
    error_texts: list[Annotated[str, Field(min_length=3, max_length=200)]] = ABSENT
    """Of score files and logs: how texts begin that are an endpoint's error and no answer, beside those that are known;
    `[]` takes no text for an error. Example: `error_texts: ["upstream timeout"]`
    """
    subset: Words = ABSENT
    """Of score files: why `expected` names fewer cases than the evalset beside the gate file has; the verdict says it.
    Example: `subset: the German cases alone`
    """

    @model_validator(mode="after")
    def _has_one_policy(self) -> Gate:
        """Check that rules or an nel policy decide, not both, and that no option contradicts the latter."""
        if self.subset is not None and self.expected is None:
            raise stated("`subset` says why `expected` names fewer cases than its evalset; add `expected: FILE`")
        if self.rules is None and self.nel_policy is None:
            raise stated("`gate.rules` is missing; write it, or name a NeMo Evaluator policy: `nel_policy: FILE`")
        if self.nel_policy is not None and self.rules is not None:
            raise stated("`rules` and `nel_policy` are two ways to decide; write only one of them")
        if self.nel_policy is not None and self.stop == "early":
            raise stated("an nel policy is applied once, to all cases; leave `stop: early` out")
        if self.nel_policy is not None and "alpha" in self.model_fields_set:
            raise stated("an nel policy has its own confidence level (95 %, two-sided); leave `alpha` out")
        return self


class SloEntry(Written):
    """Service level objective, in seconds: what is slower was not delivered."""

    example: ClassVar = "{e2e: 10}"
    ttft: float = Field(default=ABSENT, ge=LEAST, le=MOST)
    """Longest time to the first token, in seconds. Example: `ttft: 0.5`"""
    tpot: float = Field(default=ABSENT, ge=LEAST, le=MOST)
    """Longest time per further token, in seconds. Example: `tpot: 0.05`"""
    e2e: float = Field(default=ABSENT, ge=LEAST, le=MOST)
    """Longest time of the whole answer, in seconds. Example: `e2e: 10`"""
    model_config = {"json_schema_extra": {"minProperties": 1}}

    @model_validator(mode="after")
    def _asks_for_something(self) -> SloEntry:
        if self.ttft is None and self.tpot is None and self.e2e is None:
            raise stated("`slo` is empty; write for example {ttft: 0.5, tpot: 0.05, e2e: 10} (seconds)")
        return self
