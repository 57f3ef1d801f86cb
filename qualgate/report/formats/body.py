"""The report as JSON and its schema, both derived from the types below."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from qualgate.records import ArmFootprint, ArmIdentity, Policy, Spent, Verdict
from qualgate.report.summary import Report
from qualgate.store.queries import EvalsetLine, Flip, FlipCount, PositionDrift, Readings, Trajectories

SCHEMA = 1  # raised when a key goes or changes its meaning; a reader must allow for new keys


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmBody:
    """One arm of the run."""

    name: str
    weights: str
    identity: ArmIdentity | None
    footprint: ArmFootprint | None
    expected: int
    done: int
    errors: int
    kernels: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """The whole report. `exit` is the true code, even with --warn-only; 13 if nothing is decided yet."""

    schema: int
    run: str
    status: str
    exit: int
    trial: str  # its description if the run is a trial, which decides nothing; else ""
    policy: Policy
    evalsets: tuple[EvalsetLine, ...]
    arms: tuple[ArmBody, ...]
    choice: str | None  # among four arms: "" if not known yet, null if not asked for
    verdicts: tuple[Verdict, ...]
    flips: dict[str, tuple[Flip, ...]]
    flip_counts: dict[str, tuple[FlipCount, ...]]
    drift_by_position: dict[str, tuple[PositionDrift, ...]]
    trajectories: dict[str, tuple[Trajectories, ...]]  # by variant; sets scored by turns.correct, or turns.state alone
    readings: dict[str, tuple[Readings, ...]]  # by variant; sets whose tool calls were scored by two readings or more
    failures: tuple[str, ...]
    judging: Spent | None  # spent on the judge, not included in what arms spent


def report_as_json(report: Report) -> str:
    """Return the whole report as a JSON `Body`, without NaN."""
    run = report.run
    body = Body(
        schema=SCHEMA,
        run=run.run_id,
        status=run.status,
        exit=int(report.exit),
        trial=run.policy.decides_nothing,
        policy=report.policy,
        evalsets=run.evalsets,
        arms=tuple(
            ArmBody(
                name=arm.name,
                weights=arm.weights,
                identity=arm.identity,
                footprint=arm.footprint,
                expected=arm.expected,
                done=arm.done,
                errors=arm.errors,
                kernels=arm.kernels,
            )
            for arm in run.arms
        ),
        choice=None if report.four_arm is None else report.four_arm.choice,
        verdicts=report.verdicts,
        flips=report.flips,
        flip_counts=report.flip_counts,
        drift_by_position=report.drift,
        trajectories=report.trajectories,
        readings=report.readings,
        failures=run.failures,
        judging=run.judging,
    )
    return json.dumps(asdict(body), indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def report_schema() -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of `report_as_json`; `qualgate report --schema` prints it."""
    from pydantic import TypeAdapter

    schema = TypeAdapter(Body).json_schema(mode="serialization")
    schema["properties"]["schema"] = {"const": SCHEMA}
    for node in (schema, *schema["$defs"].values()):
        if "properties" in node:
            node["required"] = sorted(node["properties"])
            for value in node["properties"].values():
                value.pop("default", None)  # every key is always written
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "qualgate report"}
