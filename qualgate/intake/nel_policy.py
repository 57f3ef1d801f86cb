"""Reads a NeMo Evaluator gate policy, version 1, unchanged. Unknown keys are faults; every fault has its line."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from qualgate.documents import Written, as_model, quote, read_yaml, refuse, stated
from qualgate.gate.peers.nel_policy import NelBenchmark, NelPolicy, check

Tier = Literal["critical", "supporting", "advisory"]
Direction = Literal["higher_is_better", "lower_is_better"]
Drop = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]


def _number(value: Any) -> Any:
    if isinstance(value, bool):  # which equals 1
        raise stated(f"`version` must be 1, found {quote(value)}")
    return value


class Entry(Written):
    """What a benchmark leaves out, or writes as null, it takes from the defaults."""

    tier: Tier | None = None
    max_drop: Drop | None = None
    max_relative_drop: Drop | None = None
    relative_guard_below: Share | None = None
    metric: str | None = None
    direction: Direction | None = None


class Defaults(Written):
    tier: Tier = "supporting"
    max_drop: Drop = 0.015
    max_relative_drop: Drop | None = None
    relative_guard_below: Share | None = None
    metric: str | None = None
    direction: Direction = "higher_is_better"


class PolicyFile(Written):
    version: Annotated[Literal[1], BeforeValidator(_number)] = 1
    defaults: Defaults = Defaults()
    benchmarks: dict[str, Entry] = {}


def read_nel_policy(path: Path) -> NelPolicy:
    """The policy at `path`. UsageError names every fault with its line, and what nel itself would refuse."""
    document = read_yaml(path)
    model, faults = as_model(PolicyFile, document)
    if model is None or faults:
        refuse(faults)
    defaults = model.defaults.model_dump()
    policy = NelPolicy(
        defaults=NelBenchmark(**defaults),
        benchmarks={
            name: NelBenchmark(**defaults | entry.model_dump(exclude_none=True))
            for name, entry in model.benchmarks.items()
        },
    )
    check(policy)
    return policy
