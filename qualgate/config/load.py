"""The gate file's `load:` section: how `qualgate load` loads served arms to time them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field, model_validator

from qualgate.config.paths import PlainFile, expanded
from qualgate.documents import ABSENT, Written, nearest, quote, stated
from qualgate.records import Load, LoadRule
from qualgate.records.load import HIGHER, LOAD_METRICS, RELATIVE

MOST_AT_ONCE = 4_096
LEAST_RATE, MOST_RATE = 0.001, 100_000.0
_USUAL = Load()


def _at_once(count: int) -> int:
    if not 1 <= count <= MOST_AT_ONCE:
        raise stated(f"`load.concurrency` is a list of whole numbers from 1 to {MOST_AT_ONCE:,}; found {count}")
    return count


def _a_second(rate: float) -> float:
    if not LEAST_RATE <= rate <= MOST_RATE:
        raise stated(
            f"`load.rate` is a list of requests a second, from {LEAST_RATE} to {MOST_RATE:,.0f}; found {rate:g}"
        )
    return rate


_AtOnce = Annotated[int, AfterValidator(_at_once), Field(json_schema_extra={"minimum": 1, "maximum": MOST_AT_ONCE})]
_Rate = Annotated[
    float, AfterValidator(_a_second), Field(json_schema_extra={"minimum": LEAST_RATE, "maximum": MOST_RATE})
]


class LoadRuleEntry(Written):
    """A limit on what a variant may be under load, held in each round against the baseline's of the same round."""

    model_config = {
        "json_schema_extra": {"oneOf": [{"required": [name]} for name in ("max_drop", "max_increase", "min", "max")]}
    }
    example: ClassVar = "{metric: throughput.answers, max_drop: 0.05}"
    metric: Annotated[str, Field(json_schema_extra={"enum": list(LOAD_METRICS)})]
    """What is measured. Example: `metric: ttft.p95`"""
    max_drop: Annotated[float, Field(ge=0, lt=1)] = ABSENT
    """Of `throughput.*`: share of the baseline's by which it may be lower. Example: `max_drop: 0.05`"""
    max_increase: Annotated[float, Field(ge=0, le=100)] = ABSENT
    """Of times: share of the baseline's by which they may be longer. Example: `max_increase: 0.1`"""
    min: Annotated[float, Field(ge=0)] = ABSENT
    """Of `throughput.*`: at least so many a second. Example: `min: 20`"""
    max: Annotated[float, Field(ge=0)] = ABSENT
    """Of times in seconds, shares and tokens: at most so much. Example: `max: 0.01`"""

    @model_validator(mode="after")
    def _a_limit_that_is_one(self) -> LoadRuleEntry:
        """Check that a rule on a load has exactly one limit, of a kind that its metric may have."""
        if self.metric not in LOAD_METRICS:
            raise stated(f"unknown load metric {quote(self.metric)}{nearest(self.metric, list(LOAD_METRICS))}")
        allowed = ("max_drop", "min") if self.metric in HIGHER else ("max_increase", "max")
        allowed = allowed if self.metric in RELATIVE else ("max",)
        limits = [name for name in ("max_drop", "max_increase", "min", "max") if getattr(self, name) is not None]
        if len(limits) != 1 or limits[0] not in allowed:
            raise stated(f"a rule on {self.metric} needs one limit: {' or '.join(f'`{name}`' for name in allowed)}")
        return self


class LoadEntry(Written):
    """How `qualgate load` asks served arms: in a closed loop, in an open loop, by a trace, or in several of them."""

    model_config = {"json_schema_extra": {"dependencies": {"burstiness": ["rate"], "speed": ["trace"]}}}
    example: ClassVar = "{concurrency: [1, 4, 16]}"
    concurrency: list[_AtOnce] = Field(
        default=ABSENT, min_length=1, max_length=50, json_schema_extra={"uniqueItems": True}
    )
    """Levels of a closed loop: so many requests are under way at once, and one that ends is followed by the next.
    `[1, 4, 16]` where nothing else is said either. Example: `concurrency: [1, 4, 16]`
    """
    rate: list[_Rate] = Field(default=ABSENT, min_length=1, max_length=50, json_schema_extra={"uniqueItems": True})
    """Levels of an open loop: so many requests come a second, whether or not those before them are answered. Example:
    `rate: [2, 8]`
    """
    burstiness: Annotated[float, Field(ge=0.01, le=1_000)] = _USUAL.burstiness
    """Of `rate`: the shape of the gaps' gamma distribution. 1 is Poisson, below it requests come in bursts, above it
    more evenly. Example: `burstiness: 0.25`
    """
    trace: PlainFile = ABSENT
    """JSON lines with when each request comes, which are played in an open loop. Example: `trace: traffic.jsonl`"""
    speed: Annotated[float, Field(ge=0.001, le=1_000)] = _USUAL.speed
    """How many times as fast as it says a trace is played. Example: `speed: 2`"""
    seconds: Annotated[float, Field(ge=1, le=86_400)] = _USUAL.seconds
    """In which new requests are sent, for each arm, level and round; a trace lasts as long as it says. Example:
    `seconds: 60`
    """
    warmup: Annotated[float, Field(ge=0, le=86_400)] = _USUAL.warmup
    """Of these, at their beginning: what comes in them is asked and not counted. Example: `warmup: 10`"""
    cooldown: Annotated[float, Field(ge=0, le=86_400)] = _USUAL.cooldown
    """Of these, at their end: as `warmup`. As long as an answer takes, or the last that are counted meet a server that
    has less to do. Example: `cooldown: 10`
    """
    rounds: Annotated[int, Field(ge=1, le=1_000)] = _USUAL.rounds
    """How many times each arm is measured at each level, the arms in turns. Example: `rounds: 5`"""
    retries: Annotated[int, Field(ge=0, le=5)] = _USUAL.retries
    """How often a request that failed is sent again; its times go on from when it came. Example: `retries: 2`"""
    cancel: Annotated[float, Field(ge=0, le=0.9)] = _USUAL.cancel
    """Share of the requests that are closed after the first piece of their answer, as users do who leave. Example:
    `cancel: 0.1`
    """

    rules: list[LoadRuleEntry] = Field(default=ABSENT, min_length=1, max_length=50)
    """By which `qualgate load` judges each variant, at every level; five rounds or more can show one at `alpha: 0.05`.
    Example: `rules: [{metric: throughput.answers, max_drop: 0.05}]`
    """

    @model_validator(mode="after")
    def _fits_together(self) -> LoadEntry:
        """Check that the settings of a load fit each other, and that it measures anything."""
        given = self.model_fields_set
        if "burstiness" in given and self.rate is None:
            raise stated("`load.burstiness` needs a `rate`; add for example `rate: [2, 8]`")
        if "speed" in given and self.trace is None:
            raise stated("`load.speed` needs a `trace`, which it plays faster or slower; add `trace: FILE`")
        for name, levels in (("concurrency", self.concurrency), ("rate", self.rate)):
            if levels is not None and len(set(levels)) < len(levels):
                raise stated(f"`load.{name}` names a level twice; to measure each level more often, set `rounds`")
        if "seconds" in given and self.concurrency is None and self.rate is None and self.trace is not None:
            raise stated("`load.seconds` does not go with `trace`: a trace sets its own duration; leave `seconds` out")
        named = [rule.metric for rule in self.rules or ()]
        if "cancel.tokens" in named and not self.cancel:
            raise stated("a rule on cancel.tokens, but no request is closed early; add for example `cancel: 0.1`")
        if "retry.share" in named and not self.retries:
            raise stated("a rule on retry.share, but no request is sent again; add for example `retries: 2`")
        if self.warmup + self.cooldown >= self.seconds and (self.trace is None or self.concurrency or self.rate):
            raise stated(
                f"`load` measures nothing: of {self.seconds:g} seconds, {self.warmup:g} are warm-up and "
                f"{self.cooldown:g} cool-down; make `seconds` longer than both together"
            )
        return self


def as_load(entry: LoadEntry | None, folder: Path) -> Load:
    """The load as a record. folder: the gate file's."""
    if entry is None:
        return _USUAL
    alone = entry.rate is not None or entry.trace is not None
    return Load(
        concurrency=tuple(entry.concurrency or (() if alone else _USUAL.concurrency)),
        rate=tuple(entry.rate or ()),
        rules=tuple(
            LoadRule(**{name: getattr(rule, name) for name in ("metric", "max_drop", "max_increase", "min", "max")})
            for rule in entry.rules or ()
        ),
        trace=str(folder / expanded(entry.trace)) if entry.trace else "",
        **{
            name: getattr(entry, name)
            for name in ("burstiness", "speed", "seconds", "warmup", "cooldown", "rounds", "retries", "cancel")
        },
    )
