"""From a gate file to the closed list of what a run will do. Nothing is generated here.

Torch is loaded only to check the weights of quantized folders.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from qualgate import evalsets
from qualgate.config import GateFile
from qualgate.engine.load import (
    check_fits,
    check_model,
    check_weights,
    choose_device,
    identify,
    vocabulary,
)
from qualgate.engine.prompts import Renderer, context_length
from qualgate.errors import UsageError
from qualgate.formatting import counted
from qualgate.gate.early import Question, lay_out, seeded_order
from qualgate.gate.evidence.time_groups import groups_for
from qualgate.harness import tasks
from qualgate.identity import content_hash
from qualgate.metrics import METRICS
from qualgate.pipeline.batches import (
    JOB_ROWS,
    JOB_TOKENS,
    LEAST_BATCHES,
    LEAST_FOR_TAILS,
    TIMED,
    batches,
    in_blocks,
    interleaved,
    most_rows,
    regrouped,
    staged,
)
from qualgate.quantize.calibration_sets import check_leaks
from qualgate.records import (
    NOISE,
    NOISE_ID,
    ArmIdentity,
    ArmSpec,
    Case,
    Evalset,
    Job,
    LmEvalTask,
    Plan,
    Policy,
    Prompt,
    UnitKey,
)  # fmt: skip
from qualgate.scoring import scorer_versions


def sampling_settings(gate: GateFile) -> dict[str, Any]:
    """What `ArmIdentity.sampling` is the hash of, together with the arm's own stop tokens."""
    drawn = {"temperature": gate.temperature, "noise": NOISE_ID} if gate.temperature else {"temperature": 0}
    return {**drawn, "seed": gate.seed, "repeats": gate.repeats}


def load_set(ref: str | LmEvalTask, relative_to: Path) -> Evalset:
    """The evalset a gate file names: a file, a shipped one, or a task of lm-eval's. UsageError lists its faults."""
    return tasks.load(ref) if isinstance(ref, LmEvalTask) else evalsets.load(ref, relative_to)


def set_refs(gate: GateFile) -> tuple[str | LmEvalTask, ...]:
    """What the gate file names as evalsets, groups of lm-eval's as their tasks. UsageError for one named twice."""
    refs: dict[str, str | LmEvalTask] = {}
    for named in gate.evalset_refs:
        for ref in tasks.members(named) if isinstance(named, LmEvalTask) else (named,):
            name = evalsets.name_of(ref)
            if name in refs:
                raise UsageError(f"{gate.path}: the evalset {name!r} is named twice, once as a task of a group")
            refs[name] = ref
    return tuple(refs.values())


def make_plan(gate: GateFile) -> Plan:
    """Check every model and evalset the gate file names and lay out the run.

    Raises UsageError for a model, evalset or prompt that cannot be run as it stands.
    """
    sets = tuple(load_set(ref, gate.path.parent) for ref in set_refs(gate))
    _refuse_unknown_metrics(gate, sets)
    arms = (gate.baseline, *gate.variants)
    for folder in dict.fromkeys(arm.model for arm in arms):
        check_model(Path(folder))
    for arm in arms:
        check_weights(arm, quantized_baseline=gate.quantized_baseline)
        if arm.quantize:
            check_fits(Path(arm.model), arm.quantize)
        check_leaks(arm.quantize or arm, sets)
    policy, stages = gate.policy, None
    if policy.stop is not None:
        stop, stages = lay_out(policy, (case for item in sets for case in item.cases), gate.repeats)
        policy = replace(policy, stop=stop)
    sampling, device = sampling_settings(gate), choose_device(gate.devices)
    identities = {arm.name: identify(arm, sampling, device) for arm in arms}
    versions, also = scorer_versions(), _asked_by_rules(gate, sets)
    least = _least_batches(gate)
    learned = {arm.name: arm.calibration_sha256 for arm in arms if arm.calibration_sha256}
    key = content_hash(
        {
            "evalsets": [item.content for item in sets],
            "identities": {name: _as_dict(identity) for name, identity in identities.items()},
            "scorers": {
                metric: versions.get(metric) or tasks.library()
                for item in sets
                for metric in (*item.metrics, *also[item.name])
            },
            "drafted": _drafted(gate),
            "job": [JOB_ROWS, JOB_TOKENS],
            **({"timed": [least, TIMED]} if least else {}),
            **({"four_arm": gate.policy.four_arm.seed} if gate.policy.four_arm else {}),
            **({"calibrations": learned} if learned else {}),
            # The policy decides what is generated, so another one is another run.
            **({"stop": _as_plain(policy)} if policy.stop else {}),
        }
    )
    artifacts = artifacts_folder(gate.store_url) / key[:16]
    rendered = {folder: Renderer(Path(folder)) for folder in dict.fromkeys(arm.model for arm in arms)}
    baseline = _prompts(gate, gate.baseline, rendered[gate.baseline.model], sets)
    jobs: list[Job] = []
    # In a four-arm run any arm may come first in a block: none waits for what the baseline leaves, unless a rule asks.
    recorded = gate.policy.four_arm is None or any(METRICS[rule.metric].kind == "drift" for rule in gate.policy.rules)
    most, clusters = most_rows(len(baseline), least), _clusters(sets, gate.repeats) if least else None
    laid = staged(baseline, stages, most, clusters) if stages else [(0, b) for b in batches(baseline, most, clusters)]
    for arm in arms:
        again = arm.name.endswith(NOISE)
        comparable = not again and _same_tokens(identities[arm.name], identities[gate.baseline.name])
        if comparable:
            prompts = baseline
            _refuse_too_long(arm, prompts)
            _refuse_other_vocabulary(arm, gate.baseline)
        else:
            prompts = _prompts(gate, arm, rendered[arm.model], sets)
        theirs = [(0, batch) for batch in regrouped(baseline)] if again and not stages else laid
        for index, (stage, batch) in enumerate(theirs):
            jobs.append(
                Job(
                    index=index,
                    arm=arm,
                    prompts=tuple(_of_arm(prompts[position], arm) for position in batch),
                    artifact=str(artifacts / f"job-{index:05d}.safetensors") if comparable and recorded else "",
                    drafted=comparable and not arm.is_baseline and _drafted(gate),
                    stage=stage,
                    seed=gate.seed,
                    timed=bool(least),
                )
            )
    if policy.four_arm is not None:
        jobs, policy = in_blocks(jobs, policy, gate.baseline.name)
    elif least and not stages:  # looks take turns already
        jobs = interleaved(jobs)
    return Plan(
        key=key,
        gate_file=gate.text,
        policy=policy,
        arms=arms,
        identities=identities,
        evalsets=sets,
        jobs=tuple(jobs),
        artifacts=str(artifacts),
        also=also,
    )


def asked_in_two_sets(plan: Plan) -> tuple[str, ...]:
    """A line for the user where evalsets share questions: the planner takes cases of two sets for independent."""
    shared = [cases for cases in evalsets.asked_again(plan.evalsets) if len({case.evalset for case in cases}) > 1]
    if not shared:
        return ()
    few = "; ".join(" = ".join(f"{case.evalset}/{case.id}" for case in cases[:3]) for cases in shared[:3])
    return (
        f"{counted(len(shared), 'question stands', 'questions stand')} in more than one evalset ({few}"
        f"{'; …' if len(shared) > 3 else ''}): a rule over both counts each as one cluster, and the rates that "
        "`qualgate plan` foretells of such a rule take them for several",
    )


def artifacts_folder(store_url: str) -> Path:
    """Beside the store's file: packed checkpoints, and the baseline's artifacts while a run is under way."""
    return Path(store_url.removeprefix("sqlite:///") + ".artifacts")


def _refuse_unknown_metrics(gate: GateFile, sets: tuple[Evalset, ...]) -> None:
    names = {item.name for item in sets}
    carried = {metric for item in sets for metric in item.metrics}
    for rule in gate.policy.rules:
        where = f"{gate.path}:{rule.line}"
        if rule.evalset is not None and rule.evalset not in names:
            raise UsageError(f"{where}: rule on evalset {rule.evalset!r}, which this gate file does not run. It runs: "
                             f"{', '.join(sorted(names))}.")  # fmt: skip
        found = carried if rule.evalset is None else set(next(s.metrics for s in sets if s.name == rule.evalset))
        wanted = [rule.where] if rule.where else []
        wanted += [rule.scope] if rule.scope.startswith("tag:") else []
        marks = {m for s in sets if rule.evalset in (None, s.name) for case in s.cases for m in case.labels}
        for label in wanted:
            if not any(mark == label or (label == rule.scope and mark.startswith(f"{label}:")) for mark in marks):
                raise UsageError(f"{where}: no case of {rule.evalset or 'any evalset here'} has the {label!r} that the "
                                 "rule names.")  # fmt: skip
        metric = METRICS[rule.metric]
        if metric.kind == "quality" and not metric.everywhere and rule.metric not in found:
            raise UsageError(
                f"{where}: no case of {rule.evalset or 'any evalset here'} is scored by {rule.metric!r}. "
                f"Scored here: {', '.join(sorted(found))}."
            )


def _asked_by_rules(gate: GateFile, sets: tuple[Evalset, ...]) -> dict[str, tuple[str, ...]]:
    """Evalset → what its answers are scored by because a rule says so, though the set does not declare it."""
    return {
        item.name: tuple(
            dict.fromkeys(
                rule.metric
                for rule in gate.policy.rules
                if METRICS[rule.metric].everywhere
                and rule.evalset in (None, item.name)
                and rule.metric not in item.metrics
                and not any("requests" in case.body for case in item.cases)  # read, not answered: nothing has a form
            )
        )
        for item in sets
    }


def _drafted(gate: GateFile) -> bool:
    """A variant's answer may start from the baseline's, unless something asked for needs every token decoded."""
    return not _timed(gate)


def _timed(gate: GateFile) -> bool:
    """Whether times decide: a rule on latency, cost or goodput, a service level objective, or four arms, which are
    served side by side."""
    if gate.policy.slo is not None or gate.policy.four_arm is not None:
        return True
    return any(METRICS[rule.metric].kind in ("latency", "cost", "service") for rule in gate.policy.rules)


def _least_batches(gate: GateFile) -> int:
    """Where times decide, how many batches there are to be at least; 0 where they do not."""
    if not _timed(gate):
        return 0
    return max(LEAST_BATCHES, LEAST_FOR_TAILS if gate.policy.slo is not None else 0, groups_for(gate.policy))


def _clusters(sets: tuple[Evalset, ...], repeats: int) -> dict[Question, int]:
    """A number for each question, equal for those of one cluster: what the gate counts as one observation."""
    order = seeded_order((case for item in sets for case in item.cases), seed=0, repeats=repeats)
    return {question: number for number, cluster in enumerate(order) for question in cluster}


def _same_tokens(one: ArmIdentity, other: ArmIdentity) -> bool:
    return (one.tokenizer, one.template) == (other.tokenizer, other.template)


def _prompts(gate: GateFile, arm: ArmSpec, renderer: Renderer, sets: tuple[Evalset, ...]) -> list[Prompt]:
    cases: list[Case] = [case for item in sets for case in item.cases]
    theirs = {item.name for item in sets if item.lm_eval is not None}
    answered = [case for case in cases if "requests" not in case.body]
    rendered = dict(zip(map(id, answered), renderer.render(answered), strict=True))
    prompts = [
        Prompt(
            key=UnitKey("baseline", case.evalset, case.id),
            case_hash=case.hash,
            token_ids=rendered.get(id(case), ()),
            max_new_tokens=case.max_new_tokens,
            until=tuple(case.body["until"]) if "until" in case.body else None,
            requests=renderer.requests(case) if "requests" in case.body else (),
            temperature=_temperature(gate, case, case.evalset in theirs),
        )
        for case in cases
    ]
    _refuse_too_long(arm, prompts)
    _refuse_equal_repeats(gate, prompts)
    return [
        replace(prompt, key=replace(prompt.key, repeat=repeat)) for prompt in prompts for repeat in range(gate.repeats)
    ]


def _temperature(gate: GateFile, case: Case, theirs: bool) -> float:
    """A task of lm-eval's says itself how it is answered (theirs); what is only read is not drawn."""
    if "requests" in case.body:
        return 0.0
    return case.body.get("temperature", 0.0) if theirs else gate.temperature


def _refuse_equal_repeats(gate: GateFile, prompts: list[Prompt]) -> None:
    greedy = sorted({prompt.key.evalset for prompt in prompts if not prompt.temperature})
    if gate.repeats > 1 and greedy:
        raise UsageError(
            f"{gate.path}: `repeats: {gate.repeats}` asks for several answers to a case, and those of "
            f"{', '.join(greedy)} are all equal: nothing is drawn where choices or texts are read, or where lm-eval's "
            "task does not sample. Judge them by a gate file without `repeats`."
        )


def _refuse_too_long(arm: ArmSpec, prompts: list[Prompt]) -> None:
    """Also for a variant that shares the baseline's tokens: its own context may be shorter."""
    limit = context_length(Path(arm.model))
    too_long = [
        f"{prompt.key.evalset}/{prompt.key.case_id} ({before} + {after})"
        for prompt in prompts
        for before, after in _lengths(prompt)
        if limit is not None and before + after > limit
    ]
    if too_long:
        more = f" and {len(too_long) - 10} more" if len(too_long) > 10 else ""
        raise UsageError(
            f"{counted(len(too_long), 'prompt with its max_new_tokens does', 'prompts with their max_new_tokens do')} "
            f"not fit the {limit} tokens of context of "
            f"{arm.model}: {', '.join(too_long[:10])}{more}. Shorten or remove these cases, or use a model with "
            "a longer context."
        )


def _lengths(prompt: Prompt) -> Iterator[tuple[int, int]]:
    """Tokens of the context and of what follows it that the model has to read or write."""
    if not prompt.requests:
        yield len(prompt.token_ids), prompt.max_new_tokens
    for windows in prompt.requests:
        for before, after in windows:
            yield len(before), len(after) - 1  # the last token is weighed and never read


def _refuse_other_vocabulary(arm: ArmSpec, baseline: ArmSpec) -> None:
    ours, theirs = vocabulary(Path(arm.model)), vocabulary(Path(baseline.model))
    if ours is not None and theirs is not None and ours != theirs:
        raise UsageError(
            f"{arm.model}: its output head has {ours} entries, that of the baseline {baseline.model} has {theirs}, so "
            "their distributions cannot be compared. Use checkpoints with the same output head."
        )


def _of_arm(prompt: Prompt, arm: ArmSpec) -> Prompt:
    return replace(prompt, key=UnitKey(arm.name, prompt.key.evalset, prompt.key.case_id, prompt.key.repeat))


def _as_plain(policy: Policy) -> dict[str, Any]:
    """Without the rules' lines: a comment in the gate file is not another policy."""
    plain = asdict(policy)
    for rule in plain["rules"]:
        del rule["line"]
    for entry in plain["quarantine"]:
        if entry["evalset"] is None:  # a policy that says no more than it could before is the same
            del entry["evalset"]
    return plain


def _as_dict(identity: ArmIdentity) -> dict[str, str]:
    return {name: getattr(identity, name) for name in identity.__dataclass_fields__}
