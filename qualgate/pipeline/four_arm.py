"""Four arms compared (baseline, quantization, speculation, both): checks before a run, and the order of their jobs."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from qualgate.config import GateFile
from qualgate.errors import NotInThisVersion, UsageError
from qualgate.pipeline.batches import after_turns, split_noise_arm
from qualgate.records import ArmIdentity, ArmSpec, FourArms, Job, Policy
from qualgate.records.metrics import METRICS
from qualgate.store.queries import RunSummary


def as_four_arms(gate: GateFile) -> GateFile:
    """Return the gate file with its four arms in the policy. Raises UsageError if it does not name them."""
    if gate.four_arm is None:
        raise UsageError(
            f"{gate.path.name} names no four arms. Add for example: "
            "four_arm: {quantization: int4, speculation: drafted, both: int4+drafted}"
        )
    if gate.policy.stop is not None:
        raise UsageError(
            f"{gate.path.name}: four arms are judged on the whole traffic sample, and `stop: early` may end before. "
            "Remove one of the two."
        )
    if gate.nel_policy is not None:
        raise UsageError(
            f"{gate.path.name} has four arms, which an nel policy cannot judge. Decide by rules, or name no arms."
        )
    return replace(gate, policy=replace(gate.policy, four_arm=gate.four_arm))


def speculates(arm: ArmSpec) -> bool:
    """Whether our own engine drafts for this arm."""
    return arm.speculation is not None


def check_drafted(gate: GateFile) -> None:
    """Raise UsageError if a speculative arm of four has no draft: it would be a second copy of its target."""
    arms = gate.policy.four_arm
    if arms is None:
        return
    speculative_names = arms.speculation, arms.both
    served = [arm.name for arm in gate.variants if arm.served is not None]
    undrafted = [
        arm.name for arm in gate.variants if arm.name in speculative_names and not (speculates(arm) or arm.served)
    ]
    files = " ".join(f"--arm {name}={name}.jsonl" for name in (arms.quantization, *speculative_names))
    if undrafted:
        raise UsageError(
            f"{gate.path.name}: {' and '.join(undrafted)} should speculate by `four_arm` and "
            f"{'have' if len(undrafted) > 1 else 'has'} no draft, so the comparison would be with a copy of itself. "
            "Name a draft: `speculation: {draft: {quantize: mxfp4}}`. Or serve the four arms elsewhere and judge "
            f"their answers: qualgate gate {gate.path.name} --baseline-scores baseline.jsonl {files}"
        )
    if own_arms := [declared.arm for declared in arms.drafting if declared.arm not in served]:
        raise UsageError(
            f"{gate.path.name}: `four_arm.drafting` declares what a server counted, and {' and '.join(own_arms)} runs "
            "here, where qualgate counts the drafts of every answer. Remove that declaration."
        )


def check_targets(gate: GateFile, identities: Mapping[str, ArmIdentity]) -> None:
    """Raise UsageError if a speculative arm of four differs from its target in weights or KV cache."""
    arms = gate.policy.four_arm
    if arms is None:
        return
    drafting = [arm.name for arm in gate.variants if arm.speculation is not None]
    for name, target in ((arms.speculation, gate.baseline.name), (arms.both, arms.quantization)):
        if name not in drafting:
            continue
        if identities[name].weights != identities[target].weights:
            raise UsageError(
                f"{gate.path.name}: {name} is compared with {target} token by token, but has other weights. Give it "
                f"the weights of {target} and a draft."
            )
        if identities[name].kv_cache != identities[target].kv_cache:
            caches = [identities[arm_name].kv_cache or "float32" for arm_name in (name, target)]
            raise UsageError(
                f"{gate.path.name}: {name} is compared with {target} token by token, but has its KV cache in "
                f"{caches[0]}, {target} in {caches[1]}. Give both the same `kv_cache`."
            )


def check_served_alike(gate: GateFile) -> None:
    """Raise an error unless all or none of the four arms are served, and served alike: they are compared by cost."""
    served = [arm for arm in (gate.baseline, *gate.variants) if arm.served is not None]
    if gate.policy.four_arm is None or not served:
        return
    if own_arms := [arm.name for arm in (gate.baseline, *gate.variants) if arm not in served]:
        raise UsageError(
            f"{gate.path.name}: of the four arms {', '.join(own_arms)} would be generated here and "
            f"{', '.join(arm.name for arm in served)} served, so their costs cannot be compared. Serve all four."
        )
    for setting, values in _asked_by(served).items():
        if len(set(values)) > 1:
            listed = ", ".join(f"{arm.name} {value}" for arm, value in zip(served, values, strict=True))
            raise UsageError(
                f"{gate.path.name}: four arms are compared by the time of their answers, but `{setting}` differs "
                f"between them ({listed}). Give all the same."
            )
    if gate.policy.slo is not None:
        raise NotInThisVersion(
            f"{gate.path.name}: `slo` of four served arms is not judged in this version, because nothing states the "
            "load of the servers. Remove it. Parity, quality and value are still judged."
        )
    for rule in gate.policy.rules:
        if METRICS[rule.metric].kind == "drift":
            raise NotInThisVersion(
                f"{gate.path}:{rule.line}: a rule on {rule.metric} with four served arms. They take turns, so an arm "
                "may run before the baseline's answers exist, and this version measures no drift between them. Remove "
                "the rule, or measure drift by a gate file without `four_arm`."
            )


def _asked_by(served: Sequence[ArmSpec]) -> dict[str, list[str]]:
    """Return each request setting that affects times, with the value of each arm."""
    servers = [arm.served for arm in served if arm.served is not None]
    return {
        "concurrency": [str(server.concurrency) for server in servers],
        "stream": [str(server.stream).lower() for server in servers],
    }


def in_blocks(jobs: Sequence[Job], policy: Policy, baseline: str) -> tuple[list[Job], Policy]:
    """Return the jobs in turns of four arms, ordered by Williams squares, and the policy with these orders.

    An A/A arm is not compared: its jobs, in batches of their own, come after all turns. Raises UsageError if the run
    does not have exactly the four arms.
    """
    jobs, noise_jobs = split_noise_arm(jobs)
    arms = policy.four_arm
    assert arms is not None
    letters = {baseline: "B", arms.quantization: "Q", arms.speculation: "S", arms.both: "X"}
    if set(letters) != {job.arm.name for job in jobs} or len(letters) != 4:
        raise UsageError(
            f"four arms are the baseline and three variants, {', '.join(list(letters)[1:])}; the gate file has "
            f"{', '.join(dict.fromkeys(job.arm.name for job in jobs if not job.arm.is_baseline))}. Judge the others "
            "by a gate file that names no arms."
        )
    orders = williams_blocks(1 + max(job.index for job in jobs), arms.seed)
    ordered = sorted(jobs, key=lambda job: (job.index, orders[job.index].index(letters[job.arm.name])))
    turns = [replace(job, stage=job.index) for job in ordered]
    return [*turns, *after_turns(noise_jobs, len(orders))], replace(policy, four_arm=replace(arms, blocks=orders))


def williams_blocks(count: int, seed: int) -> tuple[str, ...]:
    """Return an order of the four arms B, Q, S, X (both) for each of `count` blocks.

    Every four blocks are a Williams square (each arm once in each place, and once after each other arm) with shuffled
    arms and rows, so that neither place nor predecessor favours an arm. Biometrics 5 (1949).
    """
    square = ((0, 1, 3, 2), (1, 2, 0, 3), (2, 3, 1, 0), (3, 0, 2, 1))
    generator = random.Random(seed)
    orders: list[str] = []
    while len(orders) < count:
        arms, rows = list("BQSX"), list(square)
        generator.shuffle(arms)
        generator.shuffle(rows)
        orders += ["".join(arms[position] for position in row) for row in rows]
    return tuple(orders[:count])


def key_of_four_arms(gate: GateFile, policy: Policy) -> dict[str, Any]:
    """Return the part of a run's key that a comparison of four arms adds."""
    if policy.four_arm is None:
        return {}
    at_once = [arm.served.concurrency for arm in (gate.baseline, *gate.variants) if arm.served is not None]
    return {"four_arm": policy.four_arm.seed, **({"at_once": at_once} if at_once else {})}  # times depend on these


def as_recorded(gate: GateFile, recorded: Policy, run: RunSummary) -> GateFile:
    """Return the gate file with the four arms that a stored run is judged as in its policy, see `arms_compared`.

    recorded: the run's own policy. Raises UsageError for declared drafts of arms that our own engine ran.
    """
    gate = replace(gate, four_arm=arms_compared(gate.four_arm, recorded.four_arm, {arm.name for arm in run.arms}))
    if gate.four_arm is None:
        return gate
    served = {arm.name for arm in run.arms if arm.spec.served is not None}
    if any(declared.arm not in served for declared in gate.four_arm.drafting):
        raise UsageError(
            f"{gate.path.name}: `four_arm.drafting` declares what a server counted, and run {run.run_id} was made by "
            "qualgate's own engine, which counts by itself. Take it out of the gate file, or judge score files."
        )
    return as_four_arms(gate)


def arms_compared(stated: FourArms | None, recorded: FourArms | None, run_arms: Collection[str]) -> FourArms | None:
    """Return the four arms that a stored run is judged as, regardless of flags: arm by arm, without parity and value,
    it could be judged again until it approves. stated: the current gate file's, which take precedence if the run has
    those arms. recorded: the run's own. None if neither applies: each variant is judged by itself."""
    if stated is None or not {stated.quantization, stated.speculation, stated.both} <= set(run_arms):
        return recorded
    if recorded is None or (stated.quantization, stated.speculation, stated.both) != (
        recorded.quantization, recorded.speculation, recorded.both,
    ):  # fmt: skip
        return stated
    return replace(stated, seed=recorded.seed, blocks=recorded.blocks)
