"""A plan as text, and writing a file so that no half of it is ever seen."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from qualgate.errors import UsageError
from qualgate.records import Plan
from qualgate.report.planning import policy_as_body, time_text

if TYPE_CHECKING:
    from qualgate.gate.early_plan import EarlyRates
    from qualgate.gate.planner import PlannedPolicy
    from qualgate.plan import ArmForecast


def write_atomically(path: Path, content: str | bytes) -> None:
    """Write a file whole or not at all (temporary file beside it, then rename). Text ends with a new line."""
    if isinstance(content, str):
        content = (content if content.endswith("\n") else content + "\n").encode("utf-8", "backslashreplace")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror}); choose a folder you may write to.") from None


def plan_as_json(
    plan: Plan,
    rows: Sequence[ArmForecast],
    policy: PlannedPolicy | None,
    unforeseen: Sequence[str] = (),
    early: EarlyRates | None = None,
) -> str:
    body = {
        "key": plan.key,
        "arms": [asdict(row) for row in rows],
        "evalsets": [
            {"name": item.name, "version": item.version, "cases": len(item.cases), "sha256": item.sha256}
            for item in plan.evalsets
        ],
        "rules": [rule.id for rule in plan.policy.rules],
        "units": len(plan.expected),
        "repeats": plan.repeats,
        "seconds": sum(row.seconds for row in rows),
        "policy": None if policy is None else policy_as_body(policy),
        "not_foretold": list(unforeseen),
        "stop": None if early is None else asdict(early),
    }  # fmt: skip
    return json.dumps(body, indent=2)


def plan_as_text(plan: Plan, rows: Sequence[ArmForecast], workers: int) -> str:
    lines = ["evalsets"]
    lines += [f"  {item.name:<16} v{item.version:<6} {len(item.cases):>6} cases" for item in plan.evalsets]
    if plan.repeats > 1:
        lines.append(f"  {plan.repeats} answers to each: below, a case counts as often, and they are one cluster")
    lines += [
        "",
        f"arms                 weights          cases   prompt tokens   answers, at most   about ({workers} workers)",
    ]
    lines += [
        f"  {row.name:<18} {row.weights:<14} {row.cases:>7} {row.prompt_tokens:>15,} {row.answer_tokens:>18,}   "
        f"{time_text(row.seconds)}"
        for row in rows
    ]
    lines += ["", "rules"]
    lines += [f"  {rule.tier:<11} {rule.id}" for rule in plan.policy.rules]
    total = sum(row.seconds for row in rows)
    lines += [
        "",
        f"{len(plan.expected):,} answers in all, roughly {time_text(total)} (from a probe of this machine's speed).",
    ]
    return "\n".join(lines)
