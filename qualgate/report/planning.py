"""What a run would do and take, and what the planner predicts of its policy: as text and as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from qualgate.escaping import visible_line
from qualgate.formatting import counted, version_text
from qualgate.records import Plan
from qualgate.report.screen import fit, indented, table_lines, width

if TYPE_CHECKING:
    from qualgate.gate.evidence.quarantine import Held
    from qualgate.gate.planning.change import Change
    from qualgate.gate.planning.early_stop import UntilSettled
    from qualgate.gate.planning.planner import PlannedPolicy
    from qualgate.pipeline.forecast import ArmForecast, Forecast
    from qualgate.pipeline.foretell import Foretold

WIDEST = 120  # columns that a plan's tables take
NOTES_SHOWN = 5


def foretold_as_text(found: Foretold) -> str:
    """All of it: what would run, how surely the policy would decide, what stopping early saves, what is not known."""
    lines = [plan_as_text(found.plan, found.takes, found.workers, found.held)]
    lines += ["", *policy_as_lines(found.rates, found.takes, found.after)] if found.rates is not None else []
    lines += early_as_lines(found.early) if found.early is not None else []
    return "\n".join([*lines, *unforeseen_as_lines(found.unforeseen)])


def foretold_as_json(found: Foretold) -> str:
    """All that the text says. What is not known is null."""
    return plan_as_json(found.plan, found.takes, found.held, found.rates, found.unforeseen, found.early, found.after)


def plan_as_text(plan: Plan, takes: Forecast, workers: int, held: Held) -> str:
    """What would run, how long it would take and what it would cost."""
    lines = ["evalsets"]
    wide = max(len(item.name) for item in plan.evalsets)
    for item in plan.evalsets:
        out = sum((item.name, case.id) in held.cases for case in item.cases)
        lines.append(
            f"  {visible_line(item.name):<{wide}}  {version_text(item.version):<6} "
            f"{counted(len(item.cases), 'case'):>12}{f', {out:,} of them quarantined' if out else ''}"
        )
    if plan.repeats > 1:
        lines.append(f"  {plan.repeats} answers to each case; they are one cluster")
    lines += [fit(f"  {visible_line(note)}") for note in held.notes[:NOTES_SHOWN]]
    if (more := len(held.notes) - NOTES_SHOWN) > 0:
        lines.append(f"  and {counted(more, 'more note')} on the quarantine (--json has all)")
    lines += [fit(f"  nothing could be decided: {visible_line(fault)}") for fault in held.faults]
    lines += ["", *table_lines(_arms(takes, workers, plan.repeats), min(width() or WIDEST, WIDEST)), ""]
    said = f"{counted(len(plan.expected), 'answer')} in all, "
    said += "for a time that is unknown" if takes.seconds is None else f"roughly {time_text(takes.seconds)}"
    return "\n".join([*lines, fit(f"{said}. {_time_source(takes)}"), *map(fit, _money(takes))])


def _arms(takes: Forecast, workers: int, repeats: int) -> Table:
    priced = takes.prices is not None
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    heads = ["arms", "weights", "cases", "prompt\ntokens", "answers,\nat most", f"about ({counted(workers, 'worker')})"]
    for index, head in enumerate([*heads, f"cost,\n{takes.prices.currency}"] if takes.prices else heads):
        table.add_column(head, justify="left" if index < 2 else "right", overflow="fold")
    for row in takes.arms:
        cells = [f"{row.cases // repeats:,}", f"{row.prompt_tokens:,}", f"{row.answer_tokens:,}", _time_or(row.seconds)]
        cells += [_money_text(row.cost)] if priced else []
        table.add_row(indented(visible_line(row.name)), Text(visible_line(row.weights)), *cells)
    return table


def _time_source(takes: Forecast) -> str:
    """Where the times and the lengths of answers come from, arm by arm if they differ."""
    kinds = {
        f"as measured in run {takes.run}": [row for row in takes.arms if row.measured],
        "guessed from a probe of this machine's speed, with answers half as long as their limits; a run measures it":
            [row for row in takes.arms if not row.measured and row.seconds is not None],
        "unknown until a run has measured it, as the probe is of the CPU":
            [row for row in takes.arms if row.seconds is None],
    }  # fmt: skip
    said = [
        (what, ", ".join(row.name for row in rows) if len(rows) < len(takes.arms) else "")
        for what, rows in kinds.items()
        if rows
    ]
    return visible_line("Time: " + "; ".join(f"{names}: {what}" if names else what for what, names in said) + ".")


def _money(takes: Forecast) -> list[str]:
    if takes.prices is None:
        return []
    table = f"{takes.prices.currency}, prices version {takes.prices.version}"
    if takes.cost is None:
        unknown = ", ".join(row.name for row in takes.arms if row.cost is None)
        return [
            visible_line(
                f"Cost: unknown until a run has measured the seconds that these prices charge, of {unknown} ({table})."
            )
        ]
    most = f", at most {_money_text(takes.most)} with every answer as long as its limit" if takes.most else ""
    return [visible_line(f"Cost: about {_money_text(takes.cost)} {table}{most}.")]


def policy_as_lines(
    policy: PlannedPolicy, takes: Forecast, early: Mapping[int, UntilSettled] | None = None
) -> list[str]:
    """takes: the run as it stands; a change of cases scales it. early: what `stop: early` would do after each of the
    policy's changes, by number."""
    lines = [*table_lines(_rules(policy), min(width() or WIDEST, WIDEST)), ""]
    said = [
        f"The whole policy approves an identical variant in {_rate(policy.approve)} of runs, and blocks in "
        f"{_rate(policy.block)} one that loses twice the smallest margin everywhere.",
        f"Disagreement {_range(policy)} ({policy.source}). Rates are drawn: {policy.draws:,} times, so within "
        f"{300 * policy.error:.1f} points (3 standard errors).",
    ]
    if policy.refused:
        said.append("This policy cannot decide, and no change of cases or margins was found that would let it.")
    elif not policy.decidable:
        said.append(
            "This policy can hardly decide. What would change that for all rules at once, approving and blocking (a "
            'rule\'s own "cases that would do" are for proving that one):'
        )
    lines += map(fit, said)
    for index, change in enumerate(policy.changes):
        lines += ["", *_change(change, policy.answers, takes, (early or {}).get(index))]
    return lines


def _change(change: Change, before: int, takes: Forecast, early: UntilSettled | None) -> list[str]:
    lines = [
        fit(
            f"  {change.kind}: approves an identical variant in {_rate(change.approve)}, blocks twice the margin in "
            f"{_rate(change.block)}{_dearer(takes, change.answers / before)}"
        )
    ]
    if change.kind not in ("more cases", "repeats"):
        lines.append("    in the gate file, under `gate:`, `rules:`")
        lines += [f"    {line}" for line in change.lines]  # as they stand: what is pasted must not be wrapped
    else:
        lines += [fit(f"    {visible_line(line)}") for line in change.lines]
    if early is not None and not early.decidable:
        lines.append(fit(f"    and `stop: end`: with `stop: early` it would approve in {_rate(early.approve)} only"))
    return lines


def _dearer(takes: Forecast, times: float) -> str:
    if times <= 1:
        return ""
    said = f", about {time_text(takes.seconds * times)} instead of {time_text(takes.seconds)}" if takes.seconds else ""
    if takes.cost is not None and takes.prices is not None:
        money = f"{_money_text(takes.cost * times)} instead of {_money_text(takes.cost)} {takes.prices.currency}"
        said += f" and {money}" if said else f", about {money}"
    return said


def _rules(policy: PlannedPolicy) -> Table:
    needed = any(rule.needed for rule in policy.rules)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    heads = ["will it decide?", "cases", "proven if\nidentical", "broken at twice\nthe margin", "cases that\nwould do"]
    for index, head in enumerate(heads if needed else heads[:-1]):
        table.add_column(head, justify="right" if index else "left", overflow="fold")
    for rule in policy.rules:
        name = visible_line(rule.name) + ("" if rule.tier == "critical" else f" ({rule.tier})")
        cells = [_rate(rule.approve), _rate(rule.block), f"{rule.needed:,}" if rule.needed else ""]
        cells = ["–", "–", ""] if rule.approve is None else cells
        table.add_row(
            Group(*(indented(text, by) for text, by in ((name, 2), (rule.note, 4)) if text)),
            f"{rule.n:,}",
            *(cells if needed else cells[:2]),
        )
    return table


def early_as_lines(early: UntilSettled) -> list[str]:
    """What `stop: early` is foretold to save."""
    unit = "case" if early.repeats == 1 else "answer"
    lines = [
        "",
        f"stop: early looks at each variant {counted(early.looks, 'time')} at most and stops once it is settled. An "
        f"identical one takes about {early.identical:,.0f} of {counted(early.of, unit)} and is approved in "
        f"{_rate(early.approve)} of runs; one that loses twice the smallest margin everywhere takes about "
        f"{early.twice:,.0f} and is blocked in {_rate(early.block)}. Tests that may be asked at any time need more "
        "cases than one at the end: the rates above are that one's.",
    ]
    if early.waiting:
        lines.append(
            f"These rules are tested once every case is in, so only a block can come early: {', '.join(early.waiting)}."
        )
    if not early.decidable:
        lines.append("Too rarely: with `stop: end` or more cases it is approved more often.")
    return list(map(fit, lines))


def unforeseen_as_lines(unforeseen: Sequence[str]) -> list[str]:
    if not unforeseen:
        return []
    return ["", "Not foretold, decided on what is measured:", *(fit(f"  {visible_line(one)}") for one in unforeseen)]


# ------------------------------------------------------------------------------------------------------------ JSON


def plan_as_json(
    plan: Plan,
    takes: Forecast,
    held: Held,
    policy: PlannedPolicy | None,
    unforeseen: Sequence[str] = (),
    early: UntilSettled | None = None,
    after: Mapping[int, UntilSettled] | None = None,
) -> str:
    """All that the text says. What is not known is null."""
    out = Counter(item.name for item in plan.evalsets for case in item.cases if (item.name, case.id) in held.cases)
    prices = takes.prices
    body = {
        "key": plan.key,
        "arms": [_arm_body(row, takes.run, plan.repeats) for row in takes.arms],
        "evalsets": [
            {
                "name": item.name, "version": item.version, "cases": len(item.cases), "quarantined": out[item.name],
                "sha256": item.sha256,
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
        "quarantine": {"notes": list(held.notes), "faults": list(held.faults)},
        "policy": None if policy is None else policy_as_body(policy, after),
        "not_foretold": list(unforeseen),
        "stop": None if early is None else asdict(early),
    }  # fmt: skip
    return json.dumps(body, indent=2)


def _arm_body(row: ArmForecast, run: str, repeats: int) -> dict[str, Any]:
    body = asdict(row) | {"cases": row.cases // repeats, "answers": row.cases}
    return {name: value for name, value in body.items() if name != "measured"} | {
        "measured_in": run if row.measured else None
    }


def policy_as_body(policy: PlannedPolicy, after: Mapping[int, UntilSettled] | None = None) -> dict[str, Any]:
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


def time_text(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _time_or(seconds: float | None) -> str:
    return "unknown" if seconds is None else time_text(seconds)


def _money_text(amount: float | None) -> str:
    if amount is None:
        return "unknown"
    return f"{amount:,.2f}" if amount >= 1 else f"{amount:.3g}"


def _rate(rate: float | None) -> str:
    return "–" if rate is None else f"{100 * rate:.1f} %"


def _range(policy: PlannedPolicy) -> str:
    rates = [rule.disagreement for rule in policy.rules if rule.disagreement is not None]
    low, high = min(rates), max(rates)
    return f"{100 * low:.1f} %" if high - low < 5e-4 else f"{100 * low:.1f} to {100 * high:.1f} %"
