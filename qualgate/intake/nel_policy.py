"""Read a NeMo Evaluator gate policy, version 1, just as nel reads it.

That is YAML 1.1 by `safe_load`, then pydantic's conversions: `12e-2`, which YAML 1.1 reads as a text, and "0.12" are
numbers. Unknown keys are faults, as in nel; every fault has its line.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field

from qualgate.documents import Written, as_model, quote, read_safe_yaml, refuse, stated
from qualgate.errors import UsageError
from qualgate.gate.peers.nel_policy import NelBenchmark, NelPolicy, check

Tier = Literal["critical", "supporting", "advisory"]
Direction = Literal["higher_is_better", "lower_is_better"]
Drop = Annotated[float, Field(ge=0, allow_inf_nan=True)]  # no NaN, which is not 0 or more
Share = Annotated[float, Field(ge=0, le=1)]


def _first(value: int) -> int:
    if value != 1:
        raise stated(f"`version` must be 1, found {quote(value)}")
    return value


class Converted(Written):
    """Base of models that convert values as nel does: a number in a text is a number."""

    model_config = ConfigDict(strict=False)


class Entry(Converted):
    """A benchmark; keys that are missing or null take the defaults."""

    tier: Tier | None = None
    max_drop: Drop | None = None
    max_relative_drop: Drop | None = None
    relative_guard_below: Share | None = None
    metric: str | None = None
    direction: Direction | None = None


class Defaults(Converted):
    """Defaults of the policy; nel's own where the file omits them."""

    tier: Tier = "supporting"
    max_drop: Drop = 0.015
    max_relative_drop: Drop | None = None
    relative_guard_below: Share | None = None
    metric: str | None = None
    direction: Direction = "higher_is_better"


class PolicyFile(Converted):
    """A policy file, version 1."""

    version: Annotated[int, AfterValidator(_first)] = 1
    defaults: Defaults = Defaults()
    benchmarks: dict[str, Entry] = {}


def read_nel_policy(path: Path) -> NelPolicy:
    """Read the policy at `path`. UsageError names every fault with its line, including what nel itself refuses."""
    document = read_safe_yaml(path)
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
    refused = []
    for name in policy.benchmarks:
        try:
            check(replace(policy, benchmarks={name: policy.benchmarks[name]}))
        except UsageError as error:
            refused.append(document.fault(("benchmarks", name, "metric"), str(error)))
    if refused:
        refuse(refused)
    return policy
