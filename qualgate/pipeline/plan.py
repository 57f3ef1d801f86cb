"""Turn a gate file into a plan, the closed list of all answers of a run. Nothing is generated here.

Torch is loaded only to check the weights of quantized folders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from qualgate.config import GateFile
from qualgate.engine.draft_arms import draft_models
from qualgate.gate.early import Question, lay_out
from qualgate.pipeline.arms import with_own_caches
from qualgate.pipeline.batches import in_turns, least_batches, times_decide
from qualgate.pipeline.check_drafts import check_drafts
from qualgate.pipeline.check_packages import packages_held
from qualgate.pipeline.checks import check_arms, check_rules, with_config_differences
from qualgate.pipeline.few_cases import choose_cases
from qualgate.pipeline.four_arm import check_drafted, check_served_alike, check_targets, in_blocks
from qualgate.pipeline.judging import too_few_labels
from qualgate.pipeline.memory import check_memory, memory_for
from qualgate.pipeline.named_sets import asked_by_rules, load_set, set_refs
from qualgate.pipeline.plan_jobs import jobs_of_plan
from qualgate.pipeline.residency import fit_together, weight_counts
from qualgate.pipeline.resolved_sets import resolved_sets
from qualgate.pipeline.run_key import identify_arms, key_of_run
from qualgate.pipeline.served_arms import check_served, tokenizers_of, with_weights
from qualgate.quant.model_folder import ModelFolder, read_folders
from qualgate.records import ArmIdentity, ArmSpec, Evalset, ModelFacts, Plan, Policy
from qualgate.store.address import artifacts_folder
from qualgate.text.numbers import counted, size_text, time_text

READ_SPEED = 500e6  # bytes per second of reading and hashing, by the slower of the two


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSoFar:
    """A plan in the making: each of the STEPS of `make_plan` checks it or adds to it."""

    gate: GateFile
    planning: Callable[[str], None]  # receives progress lines
    tell: Callable[[str], None]  # receives notes
    sets: tuple[Evalset, ...] = ()
    chosen: tuple[Evalset, ...] = ()  # the sets with the cases that are asked: some, or all
    folders: Mapping[str, ModelFolder] = field(default_factory=dict)  # by `ArmSpec.model` and `ArmSpec.reads`
    facts: dict[str, ModelFacts] = field(default_factory=dict)  # by `ArmSpec.model`
    policy: Policy | None = None  # the gate file's, with its looks and cases laid out
    stages: tuple[frozenset[Question], ...] = ()
    identities: dict[str, ArmIdentity] = field(default_factory=dict)
    plan: Plan | None = None

    @property
    def arms(self) -> tuple[ArmSpec, ...]:
        """The gate file's arms, the baseline first."""
        return self.gate.baseline, *self.gate.variants

    @property
    def whole(self) -> Plan:
        """The plan, once it is laid out."""
        assert self.plan is not None, "`_lay_out_jobs` makes it"
        return self.plan


def make_plan(
    gate: GateFile,
    planning: Callable[[str], None] = lambda line: None,
    tell: Callable[[str], None] | None = None,
) -> Plan:
    """Check every model and evalset that the gate file names, and lay out the run.

    Each model folder and evalset is read once, and served arms' servers are asked for their identity. Raises UsageError
    for a model, evalset or prompt that cannot be run, and InfrastructureError if a server does not answer. planning:
    receives progress lines; tell (default: planning): notes, such as the resolved value of `auto`.
    """
    so_far = PlanSoFar(gate=gate, planning=planning, tell=tell or (lambda line: planning(f"planning: {line}")))
    for step in STEPS:
        so_far = step(so_far) or so_far
    return so_far.whole


def _read_sets(so_far: PlanSoFar) -> PlanSoFar:
    """Load the gate file's evalsets, check its rules against them, and install their packages."""
    so_far.planning(f"planning: reading {counted(len(so_far.gate.evalset_refs), 'evalset')}")
    sets = tuple(load_set(ref, so_far.gate.path.parent) for ref in set_refs(so_far.gate))
    check_rules(so_far.gate, sets)
    for line in too_few_labels(so_far.gate.policy, so_far.gate.labels):
        so_far.tell(line)
    packages_held(sets, so_far.planning)
    return replace(so_far, sets=sets)


def read_arm_folders(so_far: PlanSoFar) -> PlanSoFar:
    """Read the folders of models, drafts and tokenizers, and complete the arms' KV caches."""
    own_specs = [spec for arm in so_far.arms if arm.served is None for spec in (arm, *draft_models(arm))]
    models = tuple(dict.fromkeys(spec.model for spec in own_specs))
    so_far.planning(f"planning: reading {counted(len(models), 'model folder')}{_reading(models)}")
    folders = read_folders(own_specs)
    gate = with_own_caches(so_far.gate, lambda arm: folders[arm.model].files)
    facts = {model: _facts(folder) for model, folder in folders.items()}
    return replace(so_far, gate=gate, facts=facts, folders={**tokenizers_of(so_far.arms), **folders})


def _lay_out_cases(so_far: PlanSoFar) -> PlanSoFar:
    """Lay out the looks of `stop: early`, with the questions that each adds, and choose the cases to ask."""
    policy, stages = so_far.gate.policy, ()
    if policy.stop is not None:
        stop, stages = lay_out(policy, (case for item in so_far.sets for case in item.cases), so_far.gate.repeats)
        policy = replace(policy, stop=stop)
    policy, chosen = choose_cases(policy, so_far.sets, so_far.gate.seed)
    return replace(so_far, policy=policy, stages=stages, chosen=chosen)


def _lay_out_jobs(so_far: PlanSoFar) -> PlanSoFar:
    """Add the plan: the run's key, and its jobs in the order that the policy needs. Four arms run in blocks; where
    times decide, the arms take turns; else they run one after the other."""
    gate, policy, stages = so_far.gate, so_far.policy, so_far.stages
    assert policy is not None, "`_lay_out_cases` sets it"
    also = asked_by_rules(gate, so_far.sets)
    key = key_of_run(gate, policy, so_far.sets, so_far.identities, also)
    artifacts = artifacts_folder(gate.store_url, gate.path.parent) / key[:16]
    prompts = gate.repeats * sum(len(item.cases) for item in so_far.chosen)
    so_far.planning(f"planning: rendering {counted(prompts, 'prompt')}")
    jobs = list(jobs_of_plan(gate, so_far.chosen, so_far.folders, so_far.identities, stages, artifacts))
    if policy.chooses:
        jobs, policy = in_blocks(jobs, policy, gate.baseline.name)
    elif times_decide(policy):
        parameters = {model: folder.parameters for model, folder in so_far.folders.items()}
        fit = fit_together(weight_counts(so_far.arms, parameters), gate.devices)
        jobs = in_turns(jobs, gate.seed, looks=bool(stages), turns=None if fit or stages else least_batches(policy))
    plan = Plan(
        key=key,
        gate_file=gate.text,
        gate_name=gate.path.name,
        policy=policy,
        arms=so_far.arms,
        identities=so_far.identities,
        evalsets=so_far.sets,
        jobs=tuple(jobs),
        artifacts=str(artifacts),
        also=also,
        models=so_far.facts,
    )
    return replace(so_far, plan=plan)


STEPS: tuple[Callable[[PlanSoFar], PlanSoFar | None], ...] = (
    lambda so_far: check_drafted(so_far.gate),
    _read_sets,
    lambda so_far: check_served_alike(so_far.gate),
    lambda so_far: check_served(so_far.gate, so_far.sets),
    lambda so_far: replace(so_far, gate=with_weights(so_far.gate)),
    read_arm_folders,
    lambda so_far: replace(so_far, sets=resolved_sets(so_far.sets, so_far.gate, so_far.folders, so_far.tell)),
    lambda so_far: replace(so_far, gate=with_config_differences(so_far.gate, so_far.folders)),
    lambda so_far: check_arms(so_far.gate, so_far.folders, so_far.sets, so_far.tell),
    lambda so_far: check_drafts(so_far.gate, so_far.folders, so_far.sets),
    _lay_out_cases,
    lambda so_far: replace(so_far, identities=identify_arms(so_far.gate, so_far.folders, so_far.planning)),
    lambda so_far: check_targets(so_far.gate, so_far.identities),
    _lay_out_jobs,
    lambda so_far: check_memory(memory_for(so_far.gate, so_far.whole)),
)


def _reading(models: Iterable[str]) -> str:
    """Describe the bytes to read and hash, and about how long that takes; "" if that is short."""
    size = sum(file.stat().st_size for model in models for file in weight_files(Path(model)))
    return f" ({size_text(size)}, about {time_text(size / READ_SPEED)})" if size > READ_SPEED else ""


def weight_files(folder: Path) -> list[Path]:
    """Return the files that may hold weights, whether a loader reads them or not."""
    return [file for kind in ("*.safetensors", "*.gguf") for file in folder.glob(kind) if file.is_file()]


def _facts(folder: ModelFolder) -> ModelFacts:
    """Return the facts of a model's folder that a plan keeps; method "" for weights that are not quantized,
    vocabulary 0 if unknown."""
    method = folder.format.method if folder.format else ""
    return ModelFacts(
        method=method,
        parameters=folder.parameters,
        nbytes=folder.shards.nbytes,
        kept=folder.cache_numbers,
        vocabulary=folder.vocabulary or 0,
        template=folder.template_sha256,
    )
