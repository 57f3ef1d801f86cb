"""A plan and its forecast as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from qualgate.records import Plan
from qualgate.report.spending import foreseen_as_body

if TYPE_CHECKING:
    from qualgate.gate.evidence.quarantine import Held
    from qualgate.gate.planning.early_stop import UntilSettled
    from qualgate.gate.planning.planner import PlannedPolicy
    from qualgate.pipeline.forecast import ArmForecast, Forecast
    from qualgate.pipeline.foretell import Foretold


def foretold_as_json(forecast: Foretold) -> str:
    """Return the content of `foretold_as_text` as JSON; null where unknown."""
    other_keys: dict[str, Any] = {"memory": asdict(forecast.memory), "servers": foreseen_as_body(forecast.spending)}
    other_keys["uncounted"] = forecast.uncounted or None
    optional = forecast.unforeseen, forecast.early, forecast.after, other_keys
    return plan_as_json(forecast.plan, forecast.takes, forecast.quarantine, forecast.rates, *optional)


def plan_as_json(
    plan: Plan,
    takes: Forecast,
    quarantine: Held,
    policy: PlannedPolicy | None,
    unforeseen: Sequence[str] = (),
    early: UntilSettled | None = None,
    after: Mapping[int, UntilSettled] | None = None,
    other_keys: Mapping[str, Any] | None = None,
) -> str:
    """Return the content of `plan_as_text` as JSON; null where unknown. other_keys: those for memory and servers."""
    cases = ((item.name, case.id) for item in plan.evalsets for case in item.cases)
    quarantined = Counter(name for name, case_id in cases if (name, case_id) in quarantine.cases)
    prices = takes.prices
    body = {
        "key": plan.key,
        "arms": [_arm_body(row, takes.run, plan.repeats) for row in takes.arms],
        "evalsets": [
            {
                "name": item.name, "version": item.version, "cases": len(item.cases),
                "quarantined": quarantined[item.name], "sha256": item.sha256,
            }
            for item in plan.evalsets
        ],
        "rules": [rule.id for rule in plan.policy.rules],
        "units": len(plan.expected),
        "repeats": plan.repeats,
        "seconds": takes.seconds,
        "measured_in": takes.run or None,
        "cost": None if prices is None else {
            "expected": takes.cost, "at_most": takes.most, "currency": prices.currency, "prices": prices.version,
        },
        "quarantine": {"notes": list(quarantine.notes), "faults": list(quarantine.faults)},
        "policy": None if policy is None else policy_as_body(policy, after),
        "not_foretold": list(unforeseen),
        "stop": None if early is None else asdict(early),
        **(other_keys or {"memory": None, "servers": None}),
    }  # fmt: skip
    return json.dumps(body, indent=2)


def _arm_body(row: ArmForecast, run: str, repeats: int) -> dict[str, Any]:
    body = asdict(row) | {"cases": row.cases // repeats, "answers": row.cases}
    return {name: value for name, value in body.items() if name != "measured"} | {
        "measured_in": run if row.measured else None
    }


def policy_as_body(policy: PlannedPolicy, after: Mapping[int, UntilSettled] | None = None) -> dict[str, Any]:
    """Return a policy's rates and changes. after: the effect of `stop: early` after each change, by index."""
    return {
        "approve_identical": policy.approve,
        "block_twice_the_margin": policy.block,
        "decidable": policy.decidable,
        "refused": policy.refused,
        "draws": policy.draws,
        "standard_error": policy.error,
        "assumed": policy.source,
        "rules": [asdict(rule) for rule in policy.rules],
        "changes": [
            {
                "kind": change.kind,
                "lines": list(change.lines),
                "cases": change.cases,
                "approve_identical": change.approve,
                "block_twice_the_margin": change.block,
                **({"stop": asdict(after[index])} if after and index in after else {}),
            }
            for index, change in enumerate(policy.changes)
        ],
    }
