"""Identities of arms, and everything else that answers and scores of a run depend on: its key is a hash of this."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from qualgate.config import GateFile
from qualgate.engine.device import choose_device
from qualgate.engine.identity import engine_version, identify
from qualgate.harness import tasks
from qualgate.pipeline.batches import JOB_ROWS, JOB_TOKENS, TIMED, least_batches, times_decide
from qualgate.pipeline.check_packages import packages_held
from qualgate.pipeline.few_cases import key_of_few_cases
from qualgate.pipeline.four_arm import key_of_four_arms
from qualgate.pipeline.served_arms import told_of
from qualgate.pipeline.servers_read import servers_held
from qualgate.quant.model_folder import ModelFolder
from qualgate.records import ArmIdentity, Evalset, LmEvalTask, Policy
from qualgate.records.identity import content_hash
from qualgate.scoring import reasoning, scorer_versions
from qualgate.scoring.constraint import library as constraint_library
from qualgate.served.declared import identify_served


def sampling_settings(gate: GateFile) -> dict[str, Any]:
    """Return the settings that `ArmIdentity.sampling` hashes together with the arm's stop tokens.

    The number of repeats is left out: more repeats do not change the earlier ones. So is the seed if nothing is drawn.
    """
    draws = gate.sampling.drawn or any(isinstance(ref, LmEvalTask) for ref in gate.evalset_refs)
    return {**gate.sampling.content, "seed": gate.seed if draws else 0, "repeats": 1}


def identify_arms(
    gate: GateFile, folders: Mapping[str, ModelFolder], planning: Callable[[str], None]
) -> dict[str, ArmIdentity]:
    """Return the identity of each arm: the folder's weights, tokenizer and engine, or a server's own description.

    folders: by `ArmSpec.model` and `ArmSpec.reads`; planning: receives progress lines.
    """
    arms = gate.baseline, *gate.variants
    sampling, engine = sampling_settings(gate), engine_version(choose_device(gate.devices), gate.baseline.arithmetic)
    declarations = told_of(arms, planning)
    return {
        arm.name: identify(arm, folders[arm.model], sampling, engine, folders)
        if arm.served is None
        else identify_served(arm, folders.get(arm.reads), sampling, declarations.get(arm.name, ""))
        for arm in arms
    }


def key_of_run(
    gate: GateFile,
    policy: Policy,
    sets: Sequence[Evalset],
    identities: Mapping[str, ArmIdentity],
    also: Mapping[str, tuple[str, ...]],
) -> str:
    """Return the run's key: a hash of everything that answers and scores depend on. also: evalset → metrics beside its
    own, by `asked_by_rules`."""
    versions, min_batches = scorer_versions(), least_batches(gate.policy)
    calibrations = {
        arm.name: arm.calibration_sha256 for arm in (gate.baseline, *gate.variants) if arm.calibration_sha256
    }
    constrained = any("constraint" in case.body for item in sets for case in item.cases)
    packages, servers = packages_held(sets), servers_held(sets)
    ways = {case.body["reasoning"] for item in sets for case in item.cases if "reasoning" in case.body}
    content = {
        "evalsets": [item.content for item in sets],
        "identities": {name: identity.content for name, identity in identities.items()},
        "scorers": {
            metric: versions.get(metric) or tasks.library()
            for item in sets
            for metric in (*item.metrics, *also[item.name])
        },
        "drafted": not times_decide(policy),
        "job": [JOB_ROWS, JOB_TOKENS],
        **({"timed": [min_batches, TIMED]} if min_batches else {}),
        **({"repeats": gate.repeats} if gate.repeats > 1 else {}),
        **({"drift": gate.drift} if gate.drift < 1 else {}),
        **({"constraints": constraint_library()} if constrained else {}),
        **({"reasoning": [reasoning.VERSION, *sorted(ways)]} if ways else {}),
        **({"packages": packages} if packages else {}),
        **({"served_by": servers} if servers else {}),
        **key_of_four_arms(gate, policy),
        **({"calibrations": calibrations} if calibrations else {}),
        # These policies decide what is generated.
        **({"stop": _as_plain(policy)} if policy.stop else {}),
        **key_of_few_cases(policy),
    }
    return content_hash(content)


def _as_plain(policy: Policy) -> dict[str, Any]:
    """Return the policy without rules' line numbers: a comment in the gate file must not change it."""
    plain = asdict(policy)
    for rule in plain["rules"]:
        del rule["line"]
    for entry in plain["quarantine"]:
        if entry["evalset"] is None:  # a policy without this key keeps its hash
            del entry["evalset"]
    return plain
