"""What the planner prints, pasted into the gate file: it loads, and what it makes decides."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from qualgate import evalsets
from qualgate.config import load_gate_file
from qualgate.gate.early import lay_out
from qualgate.gate.evidence.quarantine import hold
from qualgate.gate.planning.change import Change
from qualgate.gate.planning.early_stop import until_settled, until_settled_after
from qualgate.gate.planning.planned_sets import PlannedSet
from qualgate.gate.planning.planner import PlannedPolicy, foreseeable, plan_policy
from qualgate.records import UnitKey
from tests.depth import with_proofs

ARMS = "baseline: {model: reference}\nvariants: {a: {quantize: int8}, b: {quantize: int8}, c: {quantize: mxfp4}}\n"
QUARANTINE = "  quarantine: [{case: a-1, owner: ana, expires: 2099-01-01, reason: wrong}]\n"
FOUR = "four_arm: {quantization: a, speculation: b, both: c}\n"
EACH = "{metric: exact_match, per: evalset, max_drop: 0.03}"
POLICIES: dict[str, tuple[dict[str, tuple[int, int]], list[str], str, str]] = {
    # cases and cases a cluster by evalset; rules; further lines under `gate`; further sections
    "one small set": ({"a": (60, 1)}, ["{metric: exact_match, max_drop: 0.05}"], "", ""),
    "each set, and one of them as advice": (
        {"a": (300, 1), "b": (20, 1)}, [EACH, "{metric: exact_match, evalset: b, max_drop: 0.1, tier: advisory}"], "",
        "",
    ),
    "clusters": ({"a": (240, 4), "b": (160, 4)}, [EACH], "", ""),
    "too few clusters": ({"a": (57, 3)}, ["{metric: exact_match, max_drop: 0.1}"], "", ""),
    "tags": (
        {"a": (120, 1), "b": (80, 1)},
        ["{metric: exact_match, per: 'tag:half', max_drop: 0.15, tier: supporting}",
         "{metric: exact_match, where: {tag: 'half:odd'}, max_drop: 0.15, tier: advisory}", EACH], "", "",
    ),
    "each tag by relative drops": (
        {"a": (120, 1)},
        ["{metric: exact_match, per: 'tag:half', max_relative_drop: 0.1}", "{metric: numeric, max_drop: 0.08}"], "",
        "",
    ),
    "repeats of every kind": (
        {"a": (450, 1)},
        ["{metric: exact_match, max_drop: 0.025}", "{metric: exact_match, max_drop: 0.025, repeats: all}",
         "{metric: exact_match, where: {task: a}, max_relative_drop: 0.03, repeats: any}"], "",
        "generation: {temperature: 0.7, seed: 1, repeats: 3}\n",
    ),
    "a tag, stopping early": (
        {"a": (150, 1)},
        ["{metric: exact_match, max_drop: 0.1}", "{metric: exact_match, where: {tag: 'half:odd'}, max_drop: 0.06}"],
        "  stop: early\n", "",
    ),
    "two metrics in three tiers": (
        {"a": (200, 1), "b": (90, 1)},
        [EACH, "{metric: numeric, per: evalset, max_drop: 0.04}",
         "{metric: numeric, max_drop: 0.1, tier: supporting}"], "", "",
    ),
    "quarantine": ({"a": (120, 1), "b": (60, 1)}, [EACH], QUARANTINE, ""),
    "four arms": ({"a": (90, 1)}, ["{metric: exact_match, max_drop: 0.04}"], "", FOUR),
    "stopping early": ({"a": (150, 1)}, ["{metric: exact_match, max_drop: 0.04}"], "  stop: early\n", ""),
}  # fmt: skip


LONG = (
    "repeats of every kind", "each tag by relative drops", "two metrics in three tiers", "clusters", "tags",
    "each set, and one of them as advice", "a tag, stopping early", "quarantine", "four arms",
)  # fmt: skip


def write_sets(folder: Path, sizes: dict[str, tuple[int, int]], odd: dict[str, int] | None = None) -> None:
    """odd: of each set, how many cases have that tag; every other one where it is not said."""
    for name, (cases, cluster) in sizes.items():
        many = (odd or {}).get(name, cases // 2)
        rows = [
            {"id": f"{name}-{index}", "prompt": f"{index}", "answer": "7", "max_new_tokens": 4,
             "tags": [f"half:{'odd' if index < many else 'even'}"]}
            | ({"cluster": f"{index // cluster}"} if cluster > 1 else {})
            for index in range(cases)
        ]  # fmt: skip
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        (folder / f"{name}.yaml").write_text(f"name: {name}\nversion: 1\nmetrics: [exact_match, numeric]\n")


def planned(gate_file: Path) -> tuple[PlannedPolicy, dict[int, float], float]:
    """The plan of a gate file; P(approve) by early stopping after each of its changes, and before any."""
    gate = load_gate_file(gate_file)
    sets = [evalsets.load(str(ref), gate_file.parent) for ref in gate.evalset_refs]
    keys = [UnitKey("baseline", one.name, case.id) for one in sets for case in one.cases]
    held = hold(gate.policy, keys, "2026-11-21")
    counted = [PlannedSet.of(one, held.of(one.name), gate.repeats) for one in sets]
    policy = gate.policy
    if policy.stop is not None:
        policy = replace(policy, stop=lay_out(policy, (case for one in sets for case in one.cases))[0])
    policy, _ = foreseeable(counted, policy)
    assert policy is not None
    found = plan_policy(counted, policy, draws=1_500)
    if policy.stop is None:
        return found, {}, 1.0
    after = {number: until_settled_after(change) for number, change in enumerate(found.changes)}
    return found, {at: one.approve for at, one in after.items()}, until_settled(counted, policy).approve


def pasted(text: str, change: Change, *, early: bool) -> str:
    """The gate file with the printed lines in it, as its reader would put them."""
    rules, place = text.split("\n"), 0
    for line in change.lines:
        if line.startswith("evalset "):
            continue
        if line.startswith("generation: "):
            there = [at for at, known in enumerate(rules) if known.startswith("generation: ")]
            known = yaml.safe_load(rules.pop(there[0]))["generation"] if there else {}
            rules.insert(1, f"generation: {json.dumps(known | yaml.safe_load(line)['generation'])}")
            continue
        if line.startswith("# instead of - "):
            place = next(
                at
                for at, rule in enumerate(rules)
                if rule.strip().startswith("- ")
                and yaml.safe_load(rule.strip()[2:]) == yaml.safe_load(line.removeprefix("# instead of - "))
            )
            del rules[place]
        else:
            rules.insert(place if not line.endswith("# new") else text.split("\n").index("  rules:") + 1, f"    {line}")
    made = "\n".join(rules)
    return made if early else made.replace("stop: early", "stop: end")


@pytest.mark.parametrize("name", with_proofs(POLICIES, LONG))
def test_every_change_that_is_printed_loads_and_decides(tmp_path: Path, name: str) -> None:
    sizes, rules, under, sections = POLICIES[name]
    write_sets(tmp_path, sizes)
    listed = "".join(f"    - {rule}\n" for rule in rules)
    sets = ", ".join(f"./{one}.yaml" for one in sizes)
    text = f"version: 1\n{ARMS}evalsets: [{sets}]\ngate:\n  rules:\n{listed}{under}{sections}"
    gate_file = tmp_path / "gate.yaml"
    gate_file.write_text(text)
    before, early, _ = planned(gate_file)
    assert not before.decidable, "a policy of this test can hardly decide as it stands"
    assert before.changes
    for number, change in enumerate(before.changes):
        stays = early.get(number, 0.0) >= 0.8
        gate_file.write_text(pasted(text, change, early=stays))
        grown = {line.split()[1].rstrip(":"): int(line.split()[2].replace(",", "")) for line in change.lines
                 if line.startswith("evalset ")}  # fmt: skip
        odd = {line.split()[1].rstrip(":"): int(said[1].replace(",", "")) for line in change.lines
               if (said := re.search(r"([0-9,]+) with tag:half:odd", line))}  # fmt: skip
        write_sets(tmp_path, {one: (grown.get(one, cases), cluster) for one, (cases, cluster) in sizes.items()}, odd)
        after, _, stopped = planned(gate_file)
        assert after.decidable, (change.kind, change.lines, after.approve)
        assert after.approve == pytest.approx(change.approve, abs=0.05)
        assert stopped >= 0.75 or not stays, "200 draws of each"
