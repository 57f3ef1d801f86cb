"""Runs made up from a seed, with what a real one has: sets, answers, flips, drift, times. No model is involved."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from zlib import crc32

from qualgate.gate.verdict import decide_plain
from qualgate.records import (
    ArmFootprint,
    ArmIdentity,
    ArmSpec,
    Case,
    Completion,
    Drift,
    Evalset,
    Job,
    JobResult,
    Plan,
    Policy,
    Prompt,
    QuantizeRecipe,
    Rule,
    Score,
    UnitKey,
)
from qualgate.records.identity import content_hash, sha256_text
from qualgate.store import runs
from qualgate.store.database import Store
from qualgate.store.decisions import Action, Said, overruled
from qualgate.store.queries import StoredVerdict

NAMES = ("Libe", "Keni", "Ramede", "Nena", "Orsu", "Tamil", "Bekka", "Sorin", "Mavi", "Ilona")
WRONG = {"int8": 0.0, "int4-g32": 0.012, "mxfp4": 0.03, "int2-g32": 0.22}  # share of answers each variant spoils
RULES = (
    Rule(metric="exact_match", max_drop=0.02),
    Rule(metric="exact_match", scope="evalset", max_drop=0.05),
    Rule(metric="tool_call.valid", evalset="tool_calls", max_drop=0.05),
    Rule(metric="drift.kl_mean", max=0.05, tier="advisory"),
)


def make_plan(
    cases: int = 12,
    wrong: dict[str, float] = WRONG,
    families: tuple[str, ...] = ("tool_calls", "json_extract", "arithmetic"),
    job_rows: int = 96,
    seed: int = 0,
    policy: Policy | None = None,
) -> Plan:
    """`wrong`: variant → share of the baseline's right answers that it spoils. `cases`: in each set."""
    rng = random.Random(seed)
    sets = tuple(_evalset(name, cases, rng) for name in families)
    arms = (
        ArmSpec(name="baseline", model="models/support"),
        *(
            ArmSpec(name=name, model="models/support", quantize=QuantizeRecipe(method="int4", group_size=32))
            for name in wrong
        ),
    )
    every = [case for item in sets for case in item.cases]
    jobs = tuple(
        Job(
            index=index,
            arm=arm,
            prompts=tuple(
                Prompt(
                    key=UnitKey(arm.name, case.evalset, case.id),
                    case_hash=case.hash,
                    token_ids=(1, 2, 3),
                    max_new_tokens=case.max_new_tokens,
                )
                for case in every[start : start + job_rows]
            ),
            artifact=f"job-{index}",
            drafted=not arm.is_baseline,
        )
        for arm in arms
        for index, start in enumerate(range(0, len(every), job_rows))
    )
    return Plan(
        key=sha256_text(f"{cases} {wrong} {families} {seed}"),
        gate_file="version: 1\nbaseline: {model: models/support}\n",
        policy=policy or Policy(rules=RULES),
        arms=arms,
        identities={arm.name: make_identity(arm.name) for arm in arms},
        evalsets=sets,
        jobs=jobs,
        artifacts="artifacts",
    )


def make_identity(arm: str) -> ArmIdentity:
    return ArmIdentity(
        weights=sha256_text(arm), config="c" * 64, tokenizer="d" * 64, template="e" * 64, sampling="f" * 64,
        engine="qualgate 0.1.0 torch cpu float32",
    )  # fmt: skip


Scores = dict[UnitKey, tuple[Score, ...]]


def make_results(plan: Plan, wrong: dict[str, float] = WRONG) -> Iterator[tuple[JobResult, Scores]]:
    known = {(item.name, case.id): case for item in plan.evalsets for case in item.cases}
    for job in plan.jobs:
        yield make_result(job, known, wrong.get(job.arm.name, 0.0))


def make_result(job: Job, known: dict[tuple[str, str], Case], wrong: float) -> tuple[JobResult, Scores]:
    done = [_answered(prompt.key, known[prompt.key.evalset, prompt.key.case_id], wrong) for prompt in job.prompts]
    bits = {"int8": 8.1, "int4-g32": 4.5, "mxfp4": 4.25, "int2-g32": 2.5}.get(job.arm.name, 16.0)
    result = JobResult(
        index=job.index,
        arm=job.arm.name,
        identity=make_identity(job.arm.name),
        footprint=ArmFootprint(
            bytes_on_disk=int(4_200_000 * bits / 8),
            bytes_in_memory=int(4_300_000 * bits / 8),
            quantized_bytes=0 if job.arm.is_baseline else int(3_900_000 * bits / 8),
            effective_bits=bits,
        ),
        completions=tuple(completion for completion, _, _ in done),
        drifts=tuple(drift for _, drift, _ in done if drift is not None),
    )
    return result, {completion.key: scores for completion, _, scores in done}


def make_run(store: Store, plan: Plan | None = None, wrong: dict[str, float] = WRONG, jobs: int | None = None) -> str:
    """A run in the store, decided by the real gate; with `jobs`, one that stopped after so many."""
    plan = plan or make_plan(wrong=wrong)
    record = runs.begin(store, plan)
    for number, (result, scores) in enumerate(make_results(plan, wrong)):
        if number == jobs:
            return record.run_id
        runs.record(store, record.run_id, result, scores)
    runs.finish(store, record.run_id, decide_plain(runs.evidence(store, record.run_id), plan.policy), complete=True)
    return record.run_id


def _evalset(name: str, cases: int, rng: random.Random) -> Evalset:
    bodies = [{"id": f"{name}-{number:04d}", "max_new_tokens": 64, **_body(name, rng)} for number in range(cases)]
    metrics = ("exact_match", "tool_call.valid") if name == "tool_calls" else ("exact_match",)
    return Evalset(
        name=name,
        version="1.0.0",
        sha256=content_hash(bodies),
        metrics=metrics,
        description=f"made-up cases like those of {name}",
        cases=tuple(Case(evalset=name, body=body) for body in bodies),
    )


def _body(name: str, rng: random.Random) -> dict:
    if name == "tool_calls":
        to, subject = rng.choice(NAMES), f"order {rng.choice('ABCK')}{rng.randrange(100, 999)}"
        call = {"name": "send_email", "arguments": {"to": to, "subject": subject}}
        return {
            "messages": [{"role": "user", "content": f"Mail {to} about {subject}."}],
            "tools": [{"type": "function", "function": {"name": "send_email", "parameters": {"type": "object"}}}],
            "expected_calls": [call],
            "answer": f"<tool_call>\n{json.dumps(call)}\n</tool_call>",
        }
    if name == "json_extract":
        city, guest, vip = rng.choice(NAMES), rng.choice(NAMES), rng.random() < 0.5
        text = f"Guest{' vip,' if vip else ''} from {city}, called {guest}, room {rng.randrange(100, 400)}."
        answer = {"city": city, "vip": vip, "name": guest, "note": text}
        return {"messages": [{"role": "user", "content": f"Extract JSON.\n{text}"}], "answer": json.dumps(answer)}
    left, right = rng.randrange(1000, 9999), rng.randrange(1000, 9999)
    steps, carry = [], 0
    for place in range(4):
        a, b = left // 10**place % 10, right // 10**place % 10
        steps.append(f"{a}+{b}+{carry}={a + b + carry}")
        carry = (a + b + carry) // 10
    return {
        "messages": [{"role": "user", "content": f"What is {left} + {right}?"}],
        "answer": "\n".join([*steps, f"Answer: {left + right}"]),
    }


def _answered(key: UnitKey, case: Case, wrong: float) -> tuple[Completion, Drift | None, tuple[Score, ...]]:
    common = random.Random(f"{case.hash} baseline")  # the same in every arm
    own = random.Random(f"{case.hash} {key.arm}")
    said = case.body["answer"]
    if common.random() < 0.12:
        said = _spoiled(said, common) if key.arm == "baseline" or own.random() > 0.05 else said
    elif own.random() < wrong:
        said = _spoiled(said, own)
    elif said and own.random() < wrong / 10:
        said = said[: len(said) // 2]
    token_ids = tuple(crc32(piece.encode()) % 768 for piece in _pieces(said))
    size = len(token_ids)
    ttft = 0.02 + 0.01 * own.random()
    right = said == case.body["answer"]
    scores = [
        Score(
            metric="exact_match", value=float(right), verdict=right, error_type="" if right else "different",
            extracted=said, reason="" if right else "the answer is not the reference", scorer="exact_match/1",
        )
    ]  # fmt: skip
    if case.evalset == "tool_calls":
        valid = _is_call(said)
        scores.append(
            Score(
                metric="tool_call.valid", value=float(valid), verdict=valid, error_type="" if valid else "malformed",
                reason="" if valid else "the call is not JSON", scorer="tool_call/1",
            )
        )  # fmt: skip
    completion = Completion(
        key=key, case_hash=case.hash, token_ids=token_ids, text=said, finish_reason="eos", prompt_tokens=20,
        logprobs=tuple(-own.random() / 10 for _ in range(size)), margins=tuple(9 * own.random() for _ in range(size)),
        ttft=ttft, e2e=ttft + 0.004 * size,
    )  # fmt: skip
    if key.arm == "baseline":
        return completion, None, tuple(scores)
    common = random.Random(f"{case.hash} baseline")
    before = _spoiled(case.body["answer"], common) if common.random() < 0.12 else case.body["answer"]
    theirs = [crc32(piece.encode()) % 768 for piece in _pieces(before)]
    parted = next((at for at, (a, b) in enumerate(zip(theirs, token_ids, strict=False)) if a != b), None)
    diverged = parted if parted is not None or len(theirs) == size else min(len(theirs), size)
    drift = Drift(
        key=key, kl=tuple(abs(own.gauss(0, 0.002 + wrong / 2)) for _ in range(size)),
        top1_agreement=1.0 - wrong / 4, first_divergence=diverged, length_ratio=1.0,
    )  # fmt: skip
    return completion, drift, tuple(scores)


def said(
    stored: StoredVerdict, action: Action = "approve", name: str = "Ada", reason: str = "looked at all of it"
) -> Said:
    """A decision about this verdict; an approval against the gate overrules its first rule, with its own reason."""
    overrules = next(iter(overruled(stored.verdict)), "") if action == "approve" else ""
    own = f"{reason}, run {stored.sha256[:12]}" if overrules else reason
    return Said(action=action, name=name, reason=own, overrules=overrules)


def _spoiled(text: str, rng: random.Random) -> str:
    marks = [position for position, mark in enumerate(text) if mark in '0123456789"{}']
    at = rng.choice(marks)
    return text[:at] + ("" if text[at] in '"{}' else str((int(text[at]) + 1) % 10)) + text[at + 1 :]


def _is_call(text: str) -> bool:
    try:
        return "name" in json.loads(text.removeprefix("<tool_call>").removesuffix("</tool_call>"))
    except ValueError:
        return False


def _pieces(text: str) -> list[str]:
    return re.findall(r"\w{1,4}|\W", text)
