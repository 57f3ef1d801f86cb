"""Reasons why a stored run no longer decides: changed inputs, another test, or other scorers.

Each such reason makes every verdict undecided.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

from qualgate import evalsets
from qualgate.config import GateFile
from qualgate.engine.device import choose_device
from qualgate.engine.draft_arms import draft_models
from qualgate.engine.identity import engine_version, identify
from qualgate.errors import UsageError
from qualgate.pipeline.arms import with_default_arithmetic
from qualgate.pipeline.named_sets import load_set, set_refs
from qualgate.pipeline.run_key import sampling_settings
from qualgate.pipeline.score_sample import of_today
from qualgate.quant.model_folder import read_folders, read_tokenizer_folder
from qualgate.records import ArmIdentity, ArmSpec, Policy, RunEvidence
from qualgate.scoring import scorer_versions
from qualgate.served.declared import identify_served
from qualgate.served.local_weights import weights_of
from qualgate.store import queries
from qualgate.text.numbers import counted


def changes_since(run: queries.RunSummary, gate: GateFile) -> tuple[str, ...]:
    """Return a line for each input of the gate file that changed since the run."""
    gate = with_default_arithmetic(gate)
    run_arms = {arm.name: arm for arm in run.arms if "@" not in arm.name}
    gate_arms = {arm.name: arm for arm in (gate.baseline, *gate.variants)}
    changes = [
        f"{name} is in the gate file and was not in run {run.run_id}" for name in gate_arms if name not in run_arms
    ]
    changes += [
        f"{name} was in run {run.run_id} and is not in the gate file" for name in run_arms if name not in gate_arms
    ]
    for name in gate_arms.keys() & run_arms.keys():
        try:
            today = _identity_today(gate_arms[name], gate, run_arms[name])
        except UsageError as error:
            changes.append(f"{name} cannot be held against run {run.run_id}: {error}")
            continue
        planned = run_arms[name].planned
        differing = [field for field in today.__dataclass_fields__ if getattr(today, field) != getattr(planned, field)]
        if differing:
            changes.append(f"{name}: {', '.join(differing)} changed since run {run.run_id}")
    repeats = max((item.repeats for item in run.evalsets), default=gate.repeats)
    if repeats != gate.repeats:
        changes.append(f"repeats: {gate.repeats} in the gate file, {repeats} in run {run.run_id}")
    sets = {item.name: item.content for item in run.evalsets}
    for ref in set_refs(gate):
        try:
            item = load_set(ref, gate.path.parent)
        except UsageError as error:
            changes.append(f"evalset {evalsets.name_of(ref)} cannot be held against run {run.run_id}: {error}")
            continue
        if sets.pop(item.name, None) != item.content:
            changes.append(
                f"evalset {item.name} is not the one of run {run.run_id}; where only metrics or references changed: "
                f"qualgate rescore {run.run_id} {gate.path.name}"
            )
    changes += [f"evalset {name} was in run {run.run_id} and is not in the gate file" for name in sets]
    return tuple(sorted(changes))


def _identity_today(arm: ArmSpec, gate: GateFile, run_arm: queries.ArmLine) -> ArmIdentity:
    """Return an arm's current identity. A served arm's server is not asked again: its description is taken from the
    run, and so are the weights of its command's models if they are not on this machine."""
    if arm.served is not None:
        recorded = run_arm.spec.served.weights if run_arm.spec.served else ""
        local_weights = recorded and weights_of(arm.served.command, gate.path.parent)
        folder = read_tokenizer_folder(Path(arm.served.tokenizer)) if arm.served.tokenizer else None
        arm = replace(arm, served=replace(arm.served, weights=local_weights or recorded))
        return identify_served(arm, folder, sampling_settings(gate), run_arm.planned.served)
    folders = read_folders((arm, *draft_models(arm)))
    engine = engine_version(choose_device(gate.devices), gate.baseline.arithmetic)
    return identify(arm, folders[arm.model], sampling_settings(gate), engine, folders)


def tested_otherwise(run_policy: Policy, policy: Policy) -> tuple[str, ...]:
    """Return a reason if a run planned with looks would be judged by another test, which would be a second test.
    run_policy: the run's own policy; policy: the one that judges it now."""
    if run_policy.stop is None:
        return ()
    ways = {"an nel policy": policy.nel, "four arms": policy.four_arm, "no `stop: early`": policy.stop is None}
    how = next((name for name, applies in ways.items() if applies), "")
    if not how:
        return ()
    return (
        f"this run was planned with `stop: early` and looked at on the way; to judge it by {how} now is a second test "
        "of the same cases, and the better of two errs more often than alpha says: decide by a gate file with `stop: "
        "early`",
    )


def scored_otherwise(evidence: RunEvidence) -> tuple[str, ...]:
    """Return a line for each scorer whose version changed since it scored this run, with the number of scores that no
    sample can check (`score_sample`)."""
    stored_scorers = Counter(
        (metric, scorer)
        for arm in (evidence.baseline, *evidence.variants)
        for unit in arm.units
        for metric, scorer in unit.scorers.items()
    )
    versions = scorer_versions()
    return tuple(
        f"{metric} was scored by {scorer}, which this version has no more: run again"
        if not today
        else f"{metric} was scored by {scorer}, which is {today} in this version: qualgate rescore "
        f"({counted(count, 'stored score')} could not be checked)"
        for (metric, scorer), count in sorted(stored_scorers.items())
        if scorer != (today := of_today(metric, scorer, versions))
    )
