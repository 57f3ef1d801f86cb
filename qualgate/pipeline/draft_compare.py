"""Measure drafts on a user's model and prompts: acceptance and gain, one sequence at a time.

Every prompt is answered plainly, with the draft, and plainly again, in a rotating order: machine noise then falls on
all three alike, and shows in the comparison of plain decoding with itself.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from qualgate import evalsets
from qualgate.config import GateFile
from qualgate.engine.job import run_job, warm_up
from qualgate.engine.load import load_arm
from qualgate.engine.loaded import LoadedArm
from qualgate.errors import UsageError
from qualgate.gate.comparisons.chunk_gaps import METRIC
from qualgate.gate.comparisons.draft_gain import gain_of
from qualgate.gate.comparisons.speculation import speculated
from qualgate.gate.evidence.checks import paired
from qualgate.pipeline.few_cases import with_few_cases
from qualgate.pipeline.first_look import margins
from qualgate.pipeline.plan import make_plan
from qualgate.records import (
    ArmEvidence,
    ArmFootprint,
    ArmSpec,
    Generation,
    Job,
    JobResult,
    Plan,
    Prompt,
    Rate,
    RunEvidence,
    Speculated,
    UnitEvidence,
)
from qualgate.store.bulk import uncollected

PLAIN, DRAFTED, AGAIN = "plain", "drafted", "again"
DRAFTS = ("{quantize: mxfp4}", "{quantize: int8}", "ngram", "{quantize: mxfp4, under: {draft: ngram}}")
WRITTEN = "# Written by `qualgate draft compare`"  # first words of its gate file
ALPHA = 0.025  # error probability of each bound
Progress = Callable[[str, int, int], None]
"""Called with a label, the number done and the total; a total of 0 means that the label is a line to print."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """Measurements of one draft. name: of its variant in the gate file; again: speed ratio of plain decoding to itself;
    accepted: acceptance rate by task; unlike: number of prompts answered differently; drawn: whether any answer is
    sampled at a temperature above 0."""

    name: str
    found: Speculated
    again: Rate
    accepted: Mapping[str, float]
    prompts: int
    unlike: int
    drawn: bool = False

    def as_json(self) -> dict[str, Any]:
        """Return the fields as plain JSON values."""
        return asdict(self)


def drafts_file(model: str, drafts: Sequence[str], sets: Sequence[str], quantize: str | None, folder: Path) -> str:
    """Return the text of a gate file with a variant for each draft. model: an absolute path, or `reference`; drafts:
    values of `draft:` or of a whole `speculation:`; folder: the folder that evalset paths are relative to."""
    quantize_entry = f"quantize: {quantize}, " if quantize else ""
    set_paths = [str((folder / Path(ref).expanduser()).absolute()) if evalsets.is_path(ref) else ref for ref in sets]
    rules = margins([evalsets.load(ref, folder) for ref in sets])
    lines = [
        f"{WRITTEN}, and anew by the next: copy it, say what you accept, `qualgate run` it.",
        "# Every key: docs/reference/gate-file.md",
        "version: 1",
        f"baseline: {{model: {json.dumps(model)}}}",
        "variants:",
        *(
            f"  draft-{number}: {{{quantize_entry}speculation: {_whole(draft)}}}"
            for number, draft in enumerate(drafts or DRAFTS, start=1)
        ),
        f"evalsets: [{', '.join(map(json.dumps, set_paths))}]",
        "gate:",
        "  rules:",
        *(f"    - {rule}" for rule in rules),
        "store: sqlite:///qualgate.db",
    ]
    return "\n".join(lines) + "\n"


def _whole(draft: str) -> str:
    """Return the value of `speculation:` for a draft."""
    return draft if draft.replace(" ", "").startswith("{draft:") else f"{{draft: {draft}}}"


def try_drafts(gate: GateFile, cases: int, cache: Path, progress: Progress) -> Iterator[Tried]:
    """Compare each speculative variant with itself without a draft. cases: per evalset; cache: folder of packed
    weights. Raises UsageError and NotInThisVersion as a run of the gate file does."""
    plan = make_plan(with_few_cases(gate, cases), lambda line: progress(line, 0, 0))
    prompts = {
        arm.name: [prompt for job in plan.jobs if job.arm.name == arm.name for prompt in job.prompts]
        for arm in plan.arms
    }
    alone: dict[ArmSpec, ArmFootprint] = {}
    for arm in plan.arms:
        if arm.speculation is not None:
            if any(prompt.requests for prompt in prompts[arm.name]):
                raise UsageError(
                    f"{gate.path}: no case is answered (all are scored by likelihood), and drafts need answers."
                )
            progress(f"{arm.name}: {arm.speculation.label}", 0, 0)
            target = replace(arm, name=PLAIN, speculation=None)
            if target not in alone:  # its footprint without a draft; the answers come from the drafted arm's target
                alone[target] = load_arm(target, cache, {}, device="cpu").footprint
            drafted = load_arm(arm, cache, {}, device="cpu")
            plain = replace(drafted, draft=None, spec=target, footprint=alone[target])
            yield _try_draft(plan, plain, drafted, prompts[arm.name], gate.seed, progress)


def _try_draft(
    plan: Plan, plain: LoadedArm, drafted: LoadedArm, prompts: Sequence[Prompt], seed: int, progress: Progress
) -> Tried:
    """Answer every prompt in three ways and return the measurements. plain: the arm's target without a draft;
    drafted: the same with it; seed: for sampled answers; progress: called after each prompt."""
    ways = {PLAIN: plain, DRAFTED: drafted, AGAIN: plain}
    units: dict[str, list[UnitEvidence]] = {way: [] for way in ways}
    generation = Generation()  # counters of the drafted answers
    gc.collect()  # with models loaded one collection delays an answer by a quarter of a second
    with uncollected():
        for arm in (plain, drafted):
            warm_up(arm, _job(arm.spec, prompts[0], 0, seed))
        for index, prompt in enumerate(prompts):
            order = [*ways][index % len(ways) :] + [*ways][: index % len(ways)]
            for way in order:
                result = run_job(ways[way], _job(ways[way].spec, prompt, index, seed))
                units[way].append(_answer(way, index, result))
                generation += result.generation if way == DRAFTED else Generation()
            progress(drafted.spec.name, index + 1, len(prompts))
    tasks = {(case.evalset, case.id): case.task for item in plan.evalsets for case in item.cases}
    sampled = any(prompt.sampling.temperature > 0 for prompt in prompts)
    return replace(_measurements(ways, units, tasks, generation), drawn=sampled)


def _job(spec: ArmSpec, prompt: Prompt, index: int, seed: int) -> Job:
    return Job(index=index, arm=spec, prompts=(prompt,), artifact="", drafted=False, seed=seed, timed=True)


def _answer(way: str, job: int, result: JobResult) -> UnitEvidence:
    """Return one job's answer as evidence, under the way that produced it. job: the prompt's number, which pairs the
    three ways."""
    [completion] = result.completions
    return UnitEvidence(
        key=replace(completion.key, arm=way),
        case_hash=completion.case_hash,
        status="done",
        values={"latency.ttft": completion.ttft, "latency.e2e": completion.e2e, METRIC: completion.max_gap},
        tokens=completion.tokens,
        prompt_tokens=completion.prompt_tokens,
        answer=b"".join(token.to_bytes(4, "little") for token in completion.token_ids),
        job=job,
        began=completion.began,
        draft_steps=result.draft_steps,
    )


def _measurements(
    ways: Mapping[str, LoadedArm],
    units: Mapping[str, Sequence[UnitEvidence]],
    tasks: Mapping[tuple[str, str], str],
    generation: Generation,
) -> Tried:
    """Compare the drafted answers, and plain decoding with itself, to plain decoding. ways, units: by PLAIN, DRAFTED
    and AGAIN; tasks: (evalset, case id) → task; generation: counters of the drafted answers. `drawn` of the result
    keeps its default."""
    evidence = {
        way: ArmEvidence(
            name=way,
            identity=arm.identity,
            units=tuple(units[way]),
            facts=arm.footprint.facts,
            speculation=arm.spec.speculation,
            generation=generation if way == DRAFTED else Generation(),
        )
        for way, arm in ways.items()
    }
    run = RunEvidence(
        run_id="", expected=(), metrics={}, baseline=evidence[PLAIN], variants=(evidence[DRAFTED],), tasks=tasks
    )
    self_gain = gain_of(paired(run, evidence[AGAIN]), (evidence[PLAIN], True), (), {}, ALPHA)
    pairs = paired(run, evidence[DRAFTED])
    return Tried(
        name=ways[DRAFTED].spec.name,
        found=speculated(run, evidence[DRAFTED], ALPHA),
        again=self_gain.measured,
        accepted=_accepted(evidence[DRAFTED].units, tasks),
        prompts=len(pairs),
        unlike=sum(pair.baseline.answer != pair.variant.answer for pair in pairs),
    )


def _accepted(units: Sequence[UnitEvidence], tasks: Mapping[tuple[str, str], str]) -> dict[str, float]:
    """Return the acceptance rate by task; tasks without proposed tokens are left out."""
    tallies: dict[str, list[int]] = {}
    for unit in units:
        tally = tallies.setdefault(tasks[unit.key.evalset, unit.key.case_id], [0, 0])
        for step in unit.draft_steps:
            if step.level == 1:
                tally[0] += step.accepted
                tally[1] += step.proposed
    return {task: accepted / proposed for task, (accepted, proposed) in sorted(tallies.items()) if proposed}
