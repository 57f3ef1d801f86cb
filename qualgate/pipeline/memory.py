"""Compare the least memory that a run needs with the machine before anything is loaded.

The least memory is the sum of weights in the arm's dtype (a model is read so before it is quantized) or as stored in a
quantized checkpoint, its drafts' weights, the KV cache of its longest answer, and the workspace of drafting. Libraries,
other workspace and other answers need more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from qualgate.config import GateFile
from qualgate.engine.device import choose_device
from qualgate.engine.draft_arms import draft_arms, draft_models
from qualgate.engine.draft_workspace import draft_workspace
from qualgate.errors import UsageError
from qualgate.pipeline.batches import times_decide
from qualgate.pipeline.check_drafts import BYTES
from qualgate.pipeline.residency import memory
from qualgate.records import ArmSpec, Plan
from qualgate.text.numbers import counted, size_text

KEPT_BITS = {"float32": 32, "bf16": 16, "fp8": 8, "int8": 8, "int4": 4}  # bits per element of keys and values


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryNeed:
    """Least memory by arm, in bytes. drafts: `draft_workspace` of speculative arms; limit: of all workers together,
    0 = unknown; workers: processes that hold an arm each; gpus: number of GPUs that the gate file names."""

    weights: Mapping[str, int]
    cache: Mapping[str, int]
    drafts: Mapping[str, int] = field(default_factory=dict)
    workers: int
    limit: int
    gpus: int = 1

    @property
    def largest(self) -> str:
        """The arm that needs the most memory."""
        return max(self.weights, key=self.of)

    def of(self, arm: str) -> int:
        """Return the bytes of one arm in one worker."""
        return self.weights[arm] + self.cache[arm] + self.drafts.get(arm, 0)


def workers_for(gate: GateFile, plan: Plan) -> int:
    """Return the number of generating processes: one where times decide, since two would slow each other down, and at
    most the `concurrency` of a served arm, which they share."""
    served = [arm.served.concurrency for arm in plan.arms if arm.served is not None]
    return 1 if times_decide(plan.policy) else min([gate.workers, *served])


def memory_for(gate: GateFile, plan: Plan) -> MemoryNeed:
    """Return the plan's least memory and this machine's limit; a cluster's limit is unknown until it is reached."""
    gpus = sum(map(len, gate.devices)) if isinstance(gate.devices, tuple) else 1
    limit = 0 if gate.ray is not None else memory(choose_device(gate.devices)) * gpus
    return replace(memory_need(plan, workers_for(gate, plan), limit), gpus=gpus)


def memory_need(plan: Plan, workers: int, limit: int) -> MemoryNeed:
    """Return a plan's least memory with this number of workers and a limit in bytes."""
    own_arms = [arm for arm in plan.arms if arm.served is None]  # a server has memory of its own
    longest = {arm.name: 0 for arm in plan.arms}
    for job in plan.jobs:
        tokens = max(len(prompt.token_ids) + prompt.max_new_tokens for prompt in job.prompts)
        longest[job.arm.name] = max(longest[job.arm.name], tokens)
    return MemoryNeed(
        weights={arm.name: sum(_weights(plan, arm)) for arm in own_arms},
        cache={arm.name: longest[arm.name] * sum(_kept(plan, arm)) * _bits(arm) // 8 for arm in own_arms},
        drafts={arm.name: _drafting(plan, arm) for arm in own_arms if arm.speculation is not None},
        workers=workers,
        limit=limit,
    )


def check_memory(need: MemoryNeed) -> None:
    """Raise UsageError, with remedies, for a run that cannot fit; a limit of 0 is unknown and passes."""
    if not need.weights:
        return
    arm = need.largest
    total, weights, cache, drafts = need.of(arm), need.weights[arm], need.cache[arm], need.drafts.get(arm, 0)
    if not need.limit or total * need.workers <= need.limit:
        return
    fit, help_ = need.limit // total, list[str]()
    if fit and need.gpus > 1:
        help_.append("GPUs that hold it together, as in `workers: {devices: [[0, 1]]}`")
    elif fit:
        help_.append(f"fewer workers (`workers: {{count: {fit}}}`)")
    if cache > weights // 8:
        help_ += ["keys and values in fewer bits (`kv_cache: int8`)", "shorter prompts or a smaller `max_new_tokens`"]
    if not fit and weights > need.limit:
        help_.append("a checkpoint that is quantized already (`model: FOLDER`)")
    help_.append("a machine, or a container, with more memory")
    beside = f", {size_text(drafts)} to draft for it" if drafts else ""
    raise UsageError(
        f"This run does not fit into memory: {arm} needs {size_text(total)} at least ({size_text(weights)} of weights, "
        f"{size_text(cache)} of keys and values of its longest answer{beside}) in each of "
        f"{counted(need.workers, 'worker')}, "
        f"and this machine gives {size_text(need.limit)}. What would help: {', or '.join(help_)}."
    )


def _bits(arm: ArmSpec) -> int:
    """Return the bits per element of keys and values; with `arithmetic: served` a bfloat16 model caches bfloat16."""
    halved = arm.arithmetic == "served" and arm.dtype == "bfloat16" and arm.kv_cache == "float32"
    return KEPT_BITS["bf16" if halved else arm.kv_cache]


def _kept(plan: Plan, arm: ArmSpec) -> Iterator[int]:
    """Yield the KV elements per position of the arm and its draft models; a draft made of the arm shares its cache."""
    yield plan.models[arm.model].kept
    for draft in draft_models(arm):
        if draft.model != arm.model:
            yield plan.models[draft.model].kept


def _drafting(plan: Plan, arm: ArmSpec) -> int:
    if arm.speculation is None:
        return 0
    holders = [arm, *draft_arms(arm)]
    return draft_workspace(arm.speculation, [plan.models[spec.model].vocabulary if spec else 0 for spec in holders])


def _weights(plan: Plan, arm: ArmSpec) -> Iterator[int]:
    for spec in (arm, *draft_models(arm)):
        facts = plan.models[spec.model]
        yield facts.nbytes if facts.method else facts.parameters * BYTES[spec.dtype]
