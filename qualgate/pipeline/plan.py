"""Turn a gate file into a plan, the closed list of all answers of a run. Nothing is generated here.

Torch is loaded only to check the weights of quantized folders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from qualgate import evalsets
from qualgate.config import GateFile
from qualgate.engine.device import choose_device
from qualgate.engine.draft_arms import draft_models
from qualgate.engine.identity import engine_version, identify
from qualgate.engine.prompts import Renderer
from qualgate.errors import UsageError
from qualgate.formatting import counted, size_text, time_text
from qualgate.gate.early import Question, lay_out, seeded_order
from qualgate.harness import tasks
from qualgate.identity import content_hash
from qualgate.metrics import METRICS
from qualgate.pipeline.arms import with_own_caches
from qualgate.pipeline.batches import (
    JOB_ROWS,
    JOB_TOKENS,
    TIMED,
    batches,
    in_turns,
    least_batches,
    most_rows,
    regrouped,
    staged,
    times_decide,
)
from qualgate.pipeline.check_drafts import (
    check_drafted_prompts,
    check_drafts,
)
from qualgate.pipeline.check_packages import packages_held
from qualgate.pipeline.checks import check_arms, check_lengths, check_rules, check_same_head, with_config_differences
from qualgate.pipeline.few_cases import choose_cases, key_of_few_cases
from qualgate.pipeline.four_arm import check_drafted, check_served_alike, check_targets, in_blocks, key_of_four_arms
from qualgate.pipeline.judging import too_few_labels
from qualgate.pipeline.memory import check_memory, memory_for
from qualgate.pipeline.prompts import prompts_of
from qualgate.pipeline.reasoning_ways import with_ways
from qualgate.pipeline.residency import fit_together, weight_counts
from qualgate.pipeline.served_arms import check_served, drift_is_read, of_server, tokenizers_of, told_of, with_weights
from qualgate.pipeline.servers_read import servers_held, with_servers
from qualgate.pipeline.taught_dialects import with_dialects
from qualgate.quant.model_folder import ModelFolder, read_folders
from qualgate.records import (
    NOISE,
    ArmIdentity,
    ArmSpec,
    Case,
    Evalset,
    ExternalCases,
    Job,
    LmEvalTask,
    ModelFacts,
    Plan,
    Policy,
    Prompt,
    SetRef,
    UnitKey,
)  # fmt: skip
from qualgate.scoring import reasoning, scorer_versions
from qualgate.scoring.constraint import library as constraint_library
from qualgate.served.declared import identify_served
from qualgate.store.address import artifacts_folder

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


def _read_folders(so_far: PlanSoFar) -> PlanSoFar:
    """Read the folders of models, drafts and tokenizers, and complete the arms' KV caches."""
    own_specs = [spec for arm in so_far.arms if arm.served is None for spec in (arm, *draft_models(arm))]
    models = tuple(dict.fromkeys(spec.model for spec in own_specs))
    so_far.planning(f"planning: reading {counted(len(models), 'model folder')}{_reading(models)}")
    folders = read_folders(own_specs)
    gate = with_own_caches(so_far.gate, lambda arm: folders[arm.model].files)
    facts = {model: _facts(folder) for model, folder in folders.items()}
    return replace(so_far, gate=gate, facts=facts, folders={**tokenizers_of(so_far.arms), **folders})


def _resolve_auto(so_far: PlanSoFar) -> PlanSoFar:
    """Resolve `reasoning: auto` and `dialect: auto` by the baseline's chat template, and add the parsers of calls."""
    folder = so_far.folders.get(so_far.gate.baseline.reads)
    sets = with_dialects(with_ways(so_far.sets, folder, so_far.tell), folder, so_far.tell)
    return replace(so_far, sets=with_servers(sets, so_far.arms, so_far.gate, so_far.tell))


def _lay_out_cases(so_far: PlanSoFar) -> PlanSoFar:
    """Lay out the looks of `stop: early`, with the questions that each adds, and choose the cases to ask."""
    policy, stages = so_far.gate.policy, ()
    if policy.stop is not None:
        stop, stages = lay_out(policy, (case for item in so_far.sets for case in item.cases), so_far.gate.repeats)
        policy = replace(policy, stop=stop)
    policy, chosen = choose_cases(policy, so_far.sets, so_far.gate.seed)
    return replace(so_far, policy=policy, stages=stages, chosen=chosen)


def _identify_arms(so_far: PlanSoFar) -> PlanSoFar:
    """Add the identity of each arm: the folder's weights, tokenizer and engine, or a server's own description."""
    gate, folders = so_far.gate, so_far.folders
    sampling, engine = sampling_settings(gate), engine_version(choose_device(gate.devices), gate.baseline.arithmetic)
    declarations = told_of(so_far.arms, so_far.planning)
    identities = {
        arm.name: identify(arm, folders[arm.model], sampling, engine, folders)
        if arm.served is None
        else identify_served(arm, folders.get(arm.reads), sampling, declarations.get(arm.name, ""))
        for arm in so_far.arms
    }
    return replace(so_far, identities=identities)


def _lay_out_jobs(so_far: PlanSoFar) -> PlanSoFar:
    """Add the plan: the run's key, and its jobs in the order that the policy needs. Four arms run in blocks; where
    times decide, the arms take turns; else they run one after the other."""
    gate, policy, stages = so_far.gate, so_far.policy, so_far.stages
    assert policy is not None, "`_lay_out_cases` sets it"
    also = asked_by_rules(gate, so_far.sets)
    key = content_hash(_key_content(gate, policy, so_far.sets, so_far.identities, also))
    artifacts = artifacts_folder(gate.store_url, gate.path.parent) / key[:16]
    prompts = gate.repeats * sum(len(item.cases) for item in so_far.chosen)
    so_far.planning(f"planning: rendering {counted(prompts, 'prompt')}")
    jobs = list(_jobs(gate, so_far.chosen, so_far.folders, so_far.identities, stages, artifacts))
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
    _read_folders,
    _resolve_auto,
    lambda so_far: replace(so_far, gate=with_config_differences(so_far.gate, so_far.folders)),
    lambda so_far: check_arms(so_far.gate, so_far.folders, so_far.sets, so_far.tell),
    lambda so_far: check_drafts(so_far.gate, so_far.folders, so_far.sets),
    _lay_out_cases,
    _identify_arms,
    lambda so_far: check_targets(so_far.gate, so_far.identities),
    _lay_out_jobs,
    lambda so_far: check_memory(memory_for(so_far.gate, so_far.whole)),
)


def sampling_settings(gate: GateFile) -> dict[str, Any]:
    """Return the settings that `ArmIdentity.sampling` hashes together with the arm's stop tokens.

    The number of repeats is left out: more repeats do not change the earlier ones. So is the seed if nothing is drawn.
    """
    draws = gate.sampling.drawn or any(isinstance(ref, LmEvalTask) for ref in gate.evalset_refs)
    return {**gate.sampling.content, "seed": gate.seed if draws else 0, "repeats": 1}


def load_set(ref: SetRef, relative_to: Path) -> Evalset:
    """Load an evalset: a file, a shipped one, or an lm-eval task. Raises UsageError for its faults and for external
    cases."""
    if isinstance(ref, ExternalCases):
        raise UsageError(
            f"evalset {ref.name}: `cases: external` has no questions to generate answers for; it serves score files "
            f"only. To generate answers, name the set's own file: ./{ref.name}.yaml"
        )
    return tasks.load(ref) if isinstance(ref, LmEvalTask) else evalsets.load(ref, relative_to)


def set_refs(gate: GateFile) -> tuple[SetRef, ...]:
    """Return the gate file's evalsets, lm-eval groups expanded to tasks. Raises UsageError for one named twice."""
    refs: dict[str, SetRef] = {}
    for entry in gate.evalset_refs:
        for ref in tasks.members(entry) if isinstance(entry, LmEvalTask) else (entry,):
            name = evalsets.name_of(ref)
            if name in refs:
                raise UsageError(f"{gate.path}: the evalset {name!r} is named twice, once as a task of a group")
            refs[name] = ref
    return tuple(refs.values())


def asked_in_two_sets(plan: Plan) -> tuple[str, ...]:
    """Return a note if evalsets share questions: the planner treats cases of two sets as independent."""
    shared = [cases for cases in evalsets.asked_again(plan.evalsets) if len({case.evalset for case in cases}) > 1]
    if not shared:
        return ()
    examples = "; ".join(" = ".join(f"{case.evalset}/{case.id}" for case in cases[:3]) for cases in shared[:3])
    return (
        f"{counted(len(shared), 'question stands', 'questions stand')} in more than one evalset ({examples}"
        f"{'; …' if len(shared) > 3 else ''}): a rule over both counts each as one cluster, and the rates that "
        "`qualgate plan` foretells of such a rule take them for several",
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


def _key_content(
    gate: GateFile,
    policy: Policy,
    sets: Sequence[Evalset],
    identities: Mapping[str, ArmIdentity],
    also: Mapping[str, tuple[str, ...]],
) -> dict[str, Any]:
    """Return everything that answers and scores depend on: if any of it changes, it is another run."""
    versions, min_batches = scorer_versions(), least_batches(gate.policy)
    calibrations = {
        arm.name: arm.calibration_sha256 for arm in (gate.baseline, *gate.variants) if arm.calibration_sha256
    }
    constrained = any("constraint" in case.body for item in sets for case in item.cases)
    packages, servers = packages_held(sets), servers_held(sets)
    ways = {case.body["reasoning"] for item in sets for case in item.cases if "reasoning" in case.body}
    return {
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


def _as_plain(policy: Policy) -> dict[str, Any]:
    """Return the policy without rules' line numbers: a comment in the gate file must not change it."""
    plain = asdict(policy)
    for rule in plain["rules"]:
        del rule["line"]
    for entry in plain["quarantine"]:
        if entry["evalset"] is None:  # a policy without this key keeps its hash
            del entry["evalset"]
    return plain


def asked_by_rules(gate: GateFile, sets: tuple[Evalset, ...]) -> dict[str, tuple[str, ...]]:
    """Return evalset → metrics that rules ask for and the set does not declare."""
    return {
        item.name: tuple(
            dict.fromkeys(
                rule.metric
                for rule in gate.policy.rules
                if METRICS[rule.metric].everywhere
                and rule.evalset in (None, item.name)
                and rule.metric not in item.metrics
                and not any("requests" in case.body for case in item.cases)  # read, not answered
            )
        )
        for item in sets
    }


def _jobs(
    gate: GateFile,
    sets: Sequence[Evalset],
    folders: Mapping[str, ModelFolder],
    identities: Mapping[str, ArmIdentity],
    stages: Sequence[frozenset[Question]],
    artifacts: Path,
) -> Iterator[Job]:
    """Yield each arm's jobs, the baseline's first. Job k of arms that read the same tokens holds the same cases.

    Such an arm uses the baseline's answers as drafts, unless it has a draft of its own or times decide: then every
    token is decoded.
    """
    timed = times_decide(gate.policy)
    # Where one arm is chosen, any may come first in a block, so artifacts are recorded only if a drift rule needs them.
    recorded = not gate.policy.chooses or any(METRICS[rule.metric].kind == "drift" for rule in gate.policy.rules)
    arms = (gate.baseline, *gate.variants)
    renderers = {name: Renderer(folders[name].files) for name in dict.fromkeys(arm.reads for arm in arms) if name}
    cases = {(item.name, case.id): case for item in sets for case in item.cases}
    baseline_folder = folders.get(gate.baseline.reads)
    baseline = prompts_of(gate, baseline_folder, renderers.get(gate.baseline.reads), sets)
    layout = _batches(gate, baseline, sets, stages)
    for arm in arms:
        is_noise, folder = arm.name.endswith(NOISE), folders.get(arm.reads)
        same_tokens = _same_tokens(identities[arm.name], identities[gate.baseline.name])
        comparable = same_tokens and not is_noise and drift_is_read(arm, gate.baseline)
        prompts = baseline
        if same_tokens and folder is not None and baseline_folder is not None:
            check_lengths(folder, prompts)
        if comparable and arm.served is None and folder is not None and baseline_folder is not None:
            check_same_head(folder, baseline_folder)
        if not same_tokens:
            prompts = prompts_of(gate, folder, renderers.get(arm.reads), sets)
        check_drafted_prompts(arm, folders, prompts)
        for index, (stage, batch) in enumerate(_noise_batches(baseline) if is_noise and not stages else layout):
            yield Job(
                index=index,
                arm=arm,
                prompts=tuple(_of_arm(prompts[position], arm, cases) for position in batch),
                artifact=str(artifacts / f"job-{index:05d}.safetensors") if comparable and recorded else "",
                drafted=comparable and not arm.is_baseline and not timed and not arm.drafts,
                stage=stage,
                seed=gate.seed,
                timed=timed,
            )


def _batches(
    gate: GateFile, prompts: Sequence[Prompt], sets: Sequence[Evalset], stages: Sequence[frozenset[Question]]
) -> list[tuple[int, list[int]]]:
    """Return (stage, prompt positions) of each batch; without `stages` all are of stage 0. Clusters stay together,
    and the number of batches has a minimum, only where times decide."""
    min_batches = least_batches(gate.policy)
    max_rows, clusters = most_rows(len(prompts), min_batches), _clusters(sets, gate.repeats) if min_batches else None
    if stages:
        return staged(prompts, stages, max_rows, clusters)
    return [(0, batch) for batch in batches(prompts, max_rows, clusters)]


def _noise_batches(prompts: Sequence[Prompt]) -> list[tuple[int, list[int]]]:
    """Return the batches of an A/A arm, whose prompts have other neighbours."""
    return [(0, batch) for batch in regrouped(prompts)]


def _clusters(sets: Sequence[Evalset], repeats: int) -> dict[Question, int]:
    """Return question → number of its cluster, which the gate counts as one observation."""
    order = seeded_order((case for item in sets for case in item.cases), seed=0, repeats=repeats)
    return {question: number for number, cluster in enumerate(order) for question in cluster}


def _same_tokens(first: ArmIdentity, second: ArmIdentity) -> bool:
    return (first.tokenizer, first.template) == (second.tokenizer, second.template)


def _of_arm(prompt: Prompt, arm: ArmSpec, cases: Mapping[tuple[str, str], Case]) -> Prompt:
    name, case_id = prompt.key.evalset, prompt.key.case_id
    key = UnitKey(arm.name, name, case_id, prompt.key.repeat)
    return replace(prompt, key=key, asked=of_server(cases[name, case_id], arm))
