"""Answers put before a judge: which pairs a policy asks about, what is not asked yet, and what the replies come to.

A judge compares answers after they are all there, so nothing of it is part of generation. Its raw replies are kept;
what they mean is read from them whenever evidence is, against the answers and labels that they were about.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from qualgate.errors import IntegrityError
from qualgate.formatting import counted
from qualgate.gate.evidence.judged import never_over_floor
from qualgate.gate.rules import Labels, Slice, check_policy
from qualgate.identity import content_hash
from qualgate.intake.preferences import labels_sha256, read_labels
from qualgate.metrics import METRICS
from qualgate.pipeline.evidence import labels_of
from qualgate.pipeline.locks import interrupted
from qualgate.records import (
    NOISE,
    PLAIN,
    TWIN,
    WIDE,
    ArmSpec,
    Judge,
    Judged,
    JudgedArm,
    JudgedLabel,
    Judgement,
    Label,
    Plan,
    Policy,
    RunEvidence,
    Spent,
)
from qualgate.scoring.preference.asking import question_text, request, version
from qualgate.scoring.preference.reading import judged
from qualgate.scoring.reasoning import NONE, apart
from qualgate.served.charging import prompt_most
from qualgate.served.judging import Asked, as_arm, ask, look
from qualgate.served.ledger import Ledger
from qualgate.store import judgements
from qualgate.store.database import Store
from qualgate.store.evidence import case_bodies

OURS = (NOISE, TWIN, PLAIN, WIDE)  # ends of arms that a run adds for itself
Replies = Mapping[tuple[str, str, str, int, bool], Judgement]


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two answers to be judged, without their thoughts."""

    variant: str
    evalset: str
    case_id: str
    repeat: int
    question: str
    first: str  # the baseline's, or a label's `a`
    second: str
    label: str = ""

    def orders(self, judge: Judge) -> Iterator[Asked]:
        """Both, unless the answers are equal: that is a tie without a judge."""
        for swapped in (False, True) if self.first != self.second else ():
            texts = (self.second, self.first) if swapped else (self.first, self.second)
            body = request(judge, self.question, *texts)
            yield (
                Judgement(
                    variant=self.variant,
                    evalset=self.evalset,
                    case_id=self.case_id,
                    repeat=self.repeat,
                    swapped=swapped,
                    asked=content_hash(body),
                    reply=None,
                    error="",
                    served="",
                    label=self.label,
                ),
                body,
            )


def with_sample(policy: Policy, labels: Path | None) -> Policy:
    """The policy, its judge knowing the sample that it is measured by. UsageError for a file that is none."""
    if policy.judge is None or labels is None:
        return policy
    return replace(policy, judge=replace(policy.judge, labels=labels_sha256(read_labels(labels))))


def too_few_labels(policy: Policy, labels: Path | None) -> Iterator[str]:
    """A line where the sample is so small that nothing could ever rest on the judge."""
    if policy.judge is not None and labels is not None:
        told = never_over_floor(read_labels(labels), policy.judge.floor, policy.alpha)
        yield from (told,) if told else ()


def judged_most(plan: Plan, labels: Path) -> Spent:
    """What its judge can be asked in a run where no request fails: labels and pairs in both orders, every reply as long
    as it may be. What it reads of an answer is taken to be as many tokens as the answer may have."""
    judge, metrics = plan.policy.judge, {item.name: item.metrics for item in plan.evalsets}
    assert judge is not None, "asked of plans with one"
    bodies = [body for pair in _labels(read_labels(labels)) for _, body in pair.orders(judge)]
    read = sum(map(prompt_most, bodies))
    slices = _judged_slices(plan.policy, metrics, labels_of(plan.evalsets))
    asked = {(item.name, case.id): question_text(case.body) for item in plan.evalsets for case in item.cases}
    bare = {at: prompt_most(request(judge, said, "", "")) for at, said in asked.items() if _holds(slices, *at)}
    variants = [arm.name for arm in plan.arms[1:] if _is_named(arm.name)]
    prompts = [one for job in plan.jobs if job.arm.name in variants for one in job.prompts]
    pairs = [one for one in prompts if (one.key.evalset, one.key.case_id) in bare]
    read += sum(2 * (bare[one.key.evalset, one.key.case_id] + 2 * one.max_new_tokens) for one in pairs)
    requests = len(bodies) + 2 * len(pairs)
    return Spent(requests=requests, prompt=read, answer=requests * judge.max_tokens)


def judge_there(policy: Policy) -> None:
    """Before anything is generated: UsageError or InfrastructureError where its judge does not answer."""
    if policy.judge is not None:
        look(policy.judge)


def judges_of(policy: Policy) -> tuple[ArmSpec, ...]:
    """Return the policy's judge as an arm: it is sent prompts, too."""
    return () if policy.judge is None else (as_arm(policy.judge),)


def own_judge(policy: Policy, arms: Sequence[ArmSpec]) -> Iterator[str]:
    """A line where the judge is, by its name, a model that it judges."""
    if (judge := policy.judge) is None:
        return
    mine = Path(judge.model).name.lower()
    if same := [arm.name for arm in arms if Path(arm.model).name.lower() == mine and "@" not in arm.name]:
        yield (
            f"the judge {judge.model} is called as the model of {', '.join(same)}: a model prefers what it would say "
            "itself. Name another one under `judge`, unless they are not the same"
        )


def ask_judge(
    store: Store,
    evidence: RunEvidence,
    policy: Policy,
    labels: Path | None,
    say: Callable[[str], None] = lambda line: None,
    stop: Callable[[], bool] = lambda: False,
    ledger: Ledger | None = None,
) -> bool:
    """Ask the judge about every label and pair of the policy's rules that it was not asked about in this run; whether
    all is there now. Its server is not asked anything where nothing is missing. ledger: in which that is counted."""
    judge = policy.judge
    if judge is None or labels is None:
        return True
    run_id, name = evidence.run_id, version(judge)
    there = _replies(store, run_id, judge)
    pairs = (*_labels(read_labels(labels)), *_pairs(store, evidence, policy))
    missing = [request for pair in pairs for request in pair.orders(judge) if _at(request[0]) not in there]
    if not missing:
        return True
    say(f"judging: {counted(len(missing), 'request')} to {judge.model}")
    return ask(judge, missing, lambda came: judgements.add(store, run_id, name, came), stop, ledger)


def put_before_judge(
    store: Store,
    evidence: RunEvidence,
    policy: Policy,
    labels: Path | None,
    say: Callable[[str], None],
    stop: Callable[[], signal.Signals | None],
    ledger: Ledger | None,
) -> RunEvidence:
    """Both: whatever is missing is asked, and the evidence comes with what the judge says. Interrupted where a stop was
    requested; what was replied until then is kept."""
    if not ask_judge(store, evidence, policy, labels, say, lambda: stop() is not None, ledger):
        raise interrupted(stop(), "stopped while the judge was asked; its replies so far are stored")
    return with_judgements(store, evidence, policy)


def with_judgements(store: Store, evidence: RunEvidence, policy: Policy) -> RunEvidence:
    """The evidence with what the policy's judge says of each variant, read from its raw replies."""
    if (judge := policy.judge) is None:
        return evidence
    replies, fault = judgements.read(store, evidence.run_id, version(judge))
    if fault:
        return replace(evidence, integrity=(*evidence.integrity, fault))
    there = {_at(one): one for one in replies}
    labels, fault = _labels_of(judge, there)
    if len(served := {one.served for one in replies}) > 1:
        fault = f"the judge's server was not always the same: {' and '.join(sorted(served))!r:.300}"
    found: dict[str, dict[tuple[str, str, int], Judged]] = {}
    try:
        for pair in _pairs(store, evidence, policy):
            if (one := _judged(judge, pair, there)) is not None:
                found.setdefault(pair.variant, {})[pair.evalset, pair.case_id, pair.repeat] = one
    except IntegrityError as error:
        return replace(evidence, integrity=(*evidence.integrity, str(error)))

    def told(name: str) -> JudgedArm:
        return JudgedArm(
            judge=f"{version(judge)} ({judge.model})",
            floor=judge.floor,
            pairs=found.get(name, {}),
            labels=labels,
            fault=fault,
        )

    variants = (replace(arm, judged=told(arm.name)) if _is_named(arm.name) else arm for arm in evidence.variants)
    return replace(evidence, variants=tuple(variants))


def _replies(store: Store, run_id: str, judge: Judge) -> Replies:
    found, fault = judgements.read(store, run_id, version(judge))
    if fault:
        raise IntegrityError(f"run {run_id}: {fault}. Restore the store from a backup.")
    return {_at(one): one for one in found}


def _at(one: Judgement) -> tuple[str, str, str, int, bool]:
    return one.variant, one.evalset, one.case_id, one.repeat, one.swapped


def _labels(labels: Sequence[Label]) -> Iterator[_Pair]:
    """Kept under the sample's hash, so that another sample is measured anew."""
    sample = labels_sha256(tuple(labels))
    for one in labels:
        text = json.dumps(asdict(one), sort_keys=True)
        yield _Pair("", sample, one.id, 0, one.question, one.first, one.second, text)


def _labels_of(judge: Judge, there: Replies) -> tuple[tuple[JudgedLabel, ...], str]:
    """The sample as it was judged, and why it cannot be used. Whole, or not at all: of a sample with rows left out
    nobody knows which."""
    bodies = {one.case_id: one.label for one in there.values() if one.label and one.evalset == judge.labels}
    try:
        labels = tuple(Label(**json.loads(text)) for _, text in sorted(bodies.items()))
    except (TypeError, ValueError):
        return (), "its labelled sample in the store is not what was recorded"
    if not labels or labels_sha256(labels) != judge.labels:
        return (), "its labelled sample was not judged whole: qualgate rescore with this gate file"
    found = []
    for pair, label in zip(_labels(labels), labels, strict=True):
        one = _judged(judge, pair, there)
        if one is None:
            return (), f"label {label.id!r:.60} was not judged in both orders: qualgate rescore with this gate file"
        found.append(JudgedLabel(preferred=label.preferred, question=label.question, judged=one))
    return tuple(found), ""


def _judged(judge: Judge, pair: _Pair, there: Replies) -> Judged | None:
    """None where an order is missing. IntegrityError where a reply is to other texts."""
    said = []
    for one, _ in pair.orders(judge):
        reply = there.get(_at(one))
        if reply is None:
            return None
        if reply.asked != one.asked:
            raise IntegrityError(
                f"{pair.variant or 'label'}: {pair.case_id}: the judge replied to other texts than these"
            )
        said.append(reply)
    return judged(pair.first, pair.second, [one.reply for one in said], [one.error for one in said])


def _pairs(store: Store, evidence: RunEvidence, policy: Policy) -> Iterator[_Pair]:
    """Those that a rule on a judge asks about, of every variant that the user named."""
    slices = _judged_slices(policy, evidence.metrics, evidence.labels)
    texts = judgements.answers(store, evidence.run_id)
    bodies = case_bodies(store, {hash_ for _, hash_ in texts.values()})
    base = evidence.baseline.name
    for arm in evidence.variants:
        if not _is_named(arm.name):
            continue
        for key in sorted(key for key in texts if key.arm == arm.name):
            before = texts.get(replace(key, arm=base))
            wanted = _holds(slices, key.evalset, key.case_id)
            if before is None or not wanted or (body := bodies.get(before[1])) is None:
                continue
            first, second = (_said(body, text) for text in (before[0], texts[key][0]))
            yield _Pair(arm.name, key.evalset, key.case_id, key.repeat, question_text(body), first, second)


def _judged_slices(policy: Policy, metrics: Mapping[str, tuple[str, ...]], labels: Labels | None) -> list[Slice]:
    """Of the rules that rest on a judge."""
    return [one for one in check_policy(policy, dict(metrics), labels) if METRICS[one.rule.metric].kind == "judged"]


def _holds(slices: Sequence[Slice], evalset: str, case_id: str) -> bool:
    return any(one.holds(evalset, case_id) for one in slices)


def _is_named(arm: str) -> bool:
    """Whether the user did, and the run did not add it for itself."""
    return not arm.endswith(OURS)


def _said(body: Mapping[str, Any], text: str) -> str:
    """An answer without its thought."""
    return text if body.get("reasoning", NONE) == NONE else apart(body, text).answer
