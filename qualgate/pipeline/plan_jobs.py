"""Lay out the jobs of a plan: which prompts of which arm are generated together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil
from pathlib import Path

from qualgate.config import GateFile
from qualgate.engine.prompts import Renderer
from qualgate.gate.early import Question, seeded_order
from qualgate.pipeline.batches import batches, least_batches, most_rows, regrouped, staged, times_decide
from qualgate.pipeline.check_drafts import check_drafted_prompts
from qualgate.pipeline.checks import check_lengths, check_same_head
from qualgate.pipeline.prompts import prompts_of
from qualgate.pipeline.served_arms import drift_is_read, of_server
from qualgate.quant.model_folder import ModelFolder
from qualgate.records import NOISE, ArmIdentity, ArmSpec, Case, Evalset, Job, Prompt, UnitKey
from qualgate.records.metrics import METRICS


def jobs_of_plan(
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
    layout, weighed = _batches(gate, baseline, sets, stages), _drawn(sets, gate.drift)
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
                prompts=tuple(_of_arm(prompts[position], arm, cases, weighed) for position in batch),
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


def _drawn(sets: Sequence[Evalset], share: float) -> frozenset[tuple[str, str]]:
    """Return this share of each evalset's cases, rounded up, by their content: every run draws the same."""
    by_hash = {item.name: sorted(item.cases, key=lambda case: (case.hash, case.id)) for item in sets}
    return frozenset(
        (name, case.id) for name, cases in by_hash.items() for case in cases[: ceil(share * len(cases) - 1e-9)]
    )


def _of_arm(
    prompt: Prompt, arm: ArmSpec, cases: Mapping[tuple[str, str], Case], weighed: frozenset[tuple[str, str]]
) -> Prompt:
    """Return the arm's own prompt of a case. weighed: the cases whose drift is measured; what is only read, always."""
    name, case_id = prompt.key.evalset, prompt.key.case_id
    return replace(
        prompt,
        key=UnitKey(arm.name, name, case_id, prompt.key.repeat),
        asked=of_server(cases[name, case_id], arm),
        weighed=bool(prompt.requests) or (name, case_id) in weighed,
    )
