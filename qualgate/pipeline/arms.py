"""Complete a gate file with every arm and policy that it implies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from qualgate.config import GateFile
from qualgate.engine.arithmetic import default_arithmetic
from qualgate.engine.device import choose_device
from qualgate.engine.own_cache import with_own_cache
from qualgate.errors import UsageError
from qualgate.gate.peers.nel_policy import as_text
from qualgate.intake.nel_policy import read_nel_policy
from qualgate.pipeline.four_arm import as_four_arms
from qualgate.pipeline.judging import with_sample
from qualgate.quant.formats import recognise
from qualgate.quant.model_files import CONFIG_FILES, ModelFiles, read_files
from qualgate.records import NOISE, PLAIN, TWIN, WIDE, ArmSpec


def as_run(gate: GateFile, *, blame: bool = False) -> GateFile:
    """Return the gate file with every arm and policy that `run` adds to it.

    Raises UsageError for options that exclude each other.
    """
    gate = with_default_arithmetic(gate)
    if gate.four_arm is not None:
        gate = as_four_arms(gate)
        if blame:
            raise UsageError("--blame adds arms to four that are compared: use it with a gate file that names none.")
    gate = with_nel_policy(gate)
    gate = replace(gate, policy=with_sample(gate.policy, gate.labels))
    if blame and gate.policy.stop is not None:
        raise UsageError(
            "--blame needs every case of a blocked variant, and `stop: early` may end before. Remove one of them."
        )
    gate = with_witnesses(gate) if blame else gate
    return with_noise_arm(gate) if gate.noise_floor else gate


def with_nel_policy(gate: GateFile) -> GateFile:
    """Return the gate file with the nel policy that it names read into its own policy."""
    if gate.nel_policy is None:
        return gate
    return replace(gate, policy=replace(gate.policy, nel=as_text(read_nel_policy(gate.nel_policy))))


def with_own_caches(gate: GateFile, files_of: Callable[[ArmSpec], ModelFiles]) -> GateFile:
    """Return the gate file with each arm's KV cache as its folder declares it, unless the gate file sets one."""
    arms = (gate.baseline, *gate.variants)
    baseline, *variants = (arm if arm.served else with_own_cache(arm, files_of(arm)) for arm in arms)
    return replace(gate, baseline=baseline, variants=tuple(variants))


def with_default_arithmetic(gate: GateFile) -> GateFile:
    """Return the gate file with the device's default arithmetic, unless it sets one. A folder that cannot be read is
    passed over: a later check reports it."""
    if gate.arithmetic_said:
        return gate
    arms = (gate.baseline, *gate.variants)
    try:
        files = [(arm, read_files(Path(arm.model), CONFIG_FILES)) for arm in arms if arm.served is None]
    except UsageError:
        return gate
    arithmetic = default_arithmetic(choose_device(gate.devices), files)
    baseline, *variants = (arm if arm.served else replace(arm, arithmetic=arithmetic) for arm in arms)
    return replace(gate, baseline=baseline, variants=tuple(variants))


def with_witnesses(gate: GateFile) -> GateFile:
    """Add witness arms for `--blame`: each is a variant with one part left out.
    The parts are kernels for packed weights (replaced by their torch twins), the draft, and a KV cache that differs
    from the baseline's. A twin runs in padded batches, so it neither drafts nor packs its KV cache. It is left out if
    the arithmetic is a server's, or if neither variant nor baseline has a float32 cache: two parts would change at
    once. Raises UsageError if no variant has such a part."""
    gate = with_own_caches(gate, lambda arm: read_files(Path(arm.model), CONFIG_FILES))
    judged = [arm for arm in gate.variants if arm.name not in gate.policy.references]
    own_arms = [arm for arm in judged if arm.served is None]  # what a server leaves out, it is started without
    packed = [arm for arm in own_arms if arm.quantize or recognise(Path(arm.model)) is not None]
    packed = packed if gate.baseline.arithmetic == "float32" else []
    packed = [arm for arm in packed if "float32" in (arm.kv_cache, gate.baseline.kv_cache)]  # else two parts at once
    drafting = [arm for arm in judged if arm.speculation is not None]
    baseline_cache = gate.baseline.kv_cache
    rounding = [arm for arm in own_arms if arm.kv_cache != baseline_cache]
    if not packed and not drafting and not rounding:
        raise UsageError(
            "--blame runs variants without their kernels, drafts or rounded KV cache, and no variant of this gate file "
            "has any of these. With `arithmetic: served` the kernels stay."
        )
    float32_cache: dict[str, Any] = {"kv_cache": "float32", "kv_said": True}  # padded batches hold nothing else
    twins = [
        replace(arm, name=f"{arm.name}{TWIN}", kernels="torch", speculation=None, **float32_cache) for arm in packed
    ]
    plain = [replace(arm, name=f"{arm.name}{PLAIN}", speculation=None) for arm in drafting]
    wide = [replace(arm, name=f"{arm.name}{WIDE}", kv_cache=baseline_cache, kv_said=True) for arm in rounding]
    return replace(gate, variants=(*gate.variants, *twins, *plain, *wide))


def with_noise_arm(gate: GateFile) -> GateFile:
    """Add an A/A arm: the baseline's own weights, which the plan runs in other batches."""
    return replace(gate, variants=(*gate.variants, replace(gate.baseline, name=f"{gate.baseline.name}{NOISE}")))
