"""Drafts tried on a model and prompts of one's own: what each is accepted and gains, one sequence at a time.

Every prompt is answered in turns: plainly, with the draft, and plainly again, in an order that goes round, so that what
a machine does meanwhile falls on each alike, and shows in plain decoding against itself.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from qualgate import evalsets
from qualgate.config import GateFile
from qualgate.engine.job import run_job, warm_up
from qualgate.engine.load import LoadedArm, load_arm
from qualgate.errors import UsageError
from qualgate.gate.comparisons.chunk_gaps import METRIC
from qualgate.gate.comparisons.draft_gain import gain_of
from qualgate.gate.comparisons.speculation import speculated
from qualgate.gate.evidence.checks import paired
from qualgate.pipeline.first_look import margins
from qualgate.pipeline.plan import make_plan
from qualgate.pipeline.trial import as_trial
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

PLAIN, DRAFTED, AGAIN = "plain", "drafted", "again"
DRAFTS = ("{quantize: mxfp4}", "{quantize: int8}", "ngram", "{quantize: mxfp4, under: {draft: ngram}}")
WRITTEN = "# Written by `qualgate draft compare`"  # begins its gate file
ALPHA = 0.025  # of each bound
Progress = Callable[[str, int, int], None]
"""Called with what is done, how much of it, and how much there is; 0: a line to say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """One draft. name: of its variant in the gate file; found: what it came to; again: how many times as fast plain
    decoding was as itself; accepted: of what was proposed, by task; unlike: prompts that it answered otherwise;
    drawn: whether any answer is drawn, which some rules do otherwise."""

    name: str
    found: Speculated
    again: Rate
    accepted: Mapping[str, float]
    prompts: int
    unlike: int
    drawn: bool = False

    def as_json(self) -> dict[str, Any]:
        """As plain JSON."""
        return asdict(self)


def trial_file(model: str, drafts: Sequence[str], sets: Sequence[str], quantize: str | None, here: Path) -> str:
    """A gate file with a variant for each draft. model: an absolute path, or `reference`; drafts: as under `draft:` of
    a gate file, or a whole `speculation:`; here: what paths of evalsets are relative to."""
    made = f"quantize: {quantize}, " if quantize else ""
    named = [str((here / Path(ref).expanduser()).absolute()) if evalsets.is_path(ref) else ref for ref in sets]
    rules = margins([evalsets.load(ref, here) for ref in sets])
    lines = [
        f"{WRITTEN}, and anew by the next: copy it, say what you accept, `qualgate run` it.",
        "# Every key: docs/reference/gate-file.md",
        "version: 1",
        f"baseline: {{model: {json.dumps(model)}}}",
        "variants:",
        *(f"  draft-{at}: {{{made}speculation: {_whole(one)}}}" for at, one in enumerate(drafts or DRAFTS, start=1)),
        f"evalsets: [{', '.join(map(json.dumps, named))}]",
        "gate:",
        "  rules:",
        *(f"    - {one}" for one in rules),
        "store: sqlite:///qualgate.db",
    ]
    return "\n".join(lines) + "\n"


def _whole(draft: str) -> str:
    """What stands behind `speculation:`."""
    return draft if draft.replace(" ", "").startswith("{draft:") else f"{{draft: {draft}}}"


def try_drafts(gate: GateFile, cases: int, cache: Path, progress: Progress) -> Iterator[Tried]:
    """Each variant that speculates, held against itself without a draft. cases: of each evalset; cache: where packed
    weights lie. Raises UsageError and NotInThisVersion as a run of the gate file does."""
    plan = make_plan(as_trial(gate, cases, ()), lambda line: progress(line, 0, 0))
    prompts = {
        arm.name: [prompt for job in plan.jobs if job.arm.name == arm.name for prompt in job.prompts]
        for arm in plan.arms
    }
    alone: dict[ArmSpec, ArmFootprint] = {}
    for arm in plan.arms:
        if arm.speculation is not None:
            if any(prompt.requests for prompt in prompts[arm.name]):
                raise UsageError(f"{gate.path}: its cases are only read, never answered: drafts are tried on answers.")
            progress(f"{arm.name}: {arm.speculation.label}", 0, 0)
            target = replace(arm, name=PLAIN, speculation=None)
            if target not in alone:  # what it is without a draft; the one that answers is the draft's own
                alone[target] = load_arm(target, cache, {}, device="cpu").footprint
            drafted = load_arm(arm, cache, {}, device="cpu")
            plain = replace(drafted, draft=None, spec=target, footprint=alone[target])
            yield _tried(plan, plain, drafted, prompts[arm.name], gate.seed, progress)


def _tried(
    plan: Plan, plain: LoadedArm, drafted: LoadedArm, prompts: Sequence[Prompt], seed: int, progress: Progress
) -> Tried:
    ways = {PLAIN: plain, DRAFTED: drafted, AGAIN: plain}
    units: dict[str, list[UnitEvidence]] = {way: [] for way in ways}
    came = Generation()  # of the drafted answers: why drafts rested, and how many were no numbers
    with uncollected():
        for arm in (plain, drafted):
            warm_up(arm, _job(arm.spec, prompts[0], 0, seed))
        for at, prompt in enumerate(prompts):
            order = [*ways][at % len(ways) :] + [*ways][: at % len(ways)]
            for way in order:
                told = run_job(ways[way], _job(ways[way].spec, prompt, at, seed))
                units[way].append(_answer(way, at, told))
                came += told.generation if way == DRAFTED else Generation()
            progress(drafted.spec.name, at + 1, len(prompts))
    tasks = {(case.evalset, case.id): case.task for item in plan.evalsets for case in item.cases}
    drawn = any(prompt.sampling.temperature > 0 for prompt in prompts)
    return replace(_said(ways, units, tasks, came), drawn=drawn)


def _job(spec: ArmSpec, prompt: Prompt, index: int, seed: int) -> Job:
    return Job(index=index, arm=spec, prompts=(prompt,), artifact="", drafted=False, seed=seed, timed=True)


def _answer(way: str, job: int, told: JobResult) -> UnitEvidence:
    [said] = told.completions
    return UnitEvidence(
        key=replace(said.key, arm=way),
        case_hash=said.case_hash,
        status="done",
        values={"latency.ttft": said.ttft, "latency.e2e": said.e2e, METRIC: said.max_gap},
        tokens=said.tokens,
        prompt_tokens=said.prompt_tokens,
        answer=b"".join(token.to_bytes(4, "little") for token in said.token_ids),
        job=job,
        began=said.began,
        draft_steps=told.draft_steps,
    )


def _said(
    ways: Mapping[str, LoadedArm],
    units: Mapping[str, Sequence[UnitEvidence]],
    tasks: Mapping[tuple[str, str], str],
    came: Generation,
) -> Tried:
    evidence = {
        way: ArmEvidence(
            name=way,
            identity=arm.identity,
            units=tuple(units[way]),
            facts=arm.footprint.facts,
            speculation=arm.spec.speculation,
            generation=came if way == DRAFTED else Generation(),
        )
        for way, arm in ways.items()
    }
    run = RunEvidence(
        run_id="", expected=(), metrics={}, baseline=evidence[PLAIN], variants=(evidence[DRAFTED],), tasks=tasks
    )
    again = gain_of(paired(run, evidence[AGAIN]), (evidence[PLAIN], True), (), {}, ALPHA)
    pairs = paired(run, evidence[DRAFTED])
    return Tried(
        name=ways[DRAFTED].spec.name,
        found=speculated(run, evidence[DRAFTED], ALPHA),
        again=again.measured,
        accepted=_accepted(evidence[DRAFTED].units, tasks),
        prompts=len(pairs),
        unlike=sum(pair.baseline.answer != pair.variant.answer for pair in pairs),
    )


def _accepted(units: Sequence[UnitEvidence], tasks: Mapping[tuple[str, str], str]) -> dict[str, float]:
    """Of what the target was offered, by task; those where nothing was offered are left out."""
    counts: dict[str, list[int]] = {}
    for unit in units:
        of = counts.setdefault(tasks[unit.key.evalset, unit.key.case_id], [0, 0])
        for step in unit.draft_steps:
            if step.level == 1:
                of[0] += step.accepted
                of[1] += step.proposed
    return {task: accepted / proposed for task, (accepted, proposed) in sorted(counts.items()) if proposed}


@contextmanager
def uncollected() -> Iterator[None]:
    """Python collects no garbage meanwhile, which with models loaded takes a quarter of a second from who answers."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
