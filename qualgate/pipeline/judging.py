"""Let a judge or people compare answers: select the pairs of a policy, send the missing requests, and read the replies.

A judge runs after generation. Its raw replies are stored; they are interpreted whenever evidence is read, and checked
against the answers and labels that they refer to.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from qualgate.errors import IntegrityError
from qualgate.gate.evidence.judged import never_over_floor
from qualgate.gate.evidence.people import majority
from qualgate.gate.rules import Labels, Slice, check_policy
from qualgate.intake.preferences import labels_sha256, read_labels
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
    UnitKey,
    Vote,
)
from qualgate.records.identity import content_hash
from qualgate.records.judged import UNCOMPARED, PairKey
from qualgate.records.metrics import JUDGE, PEOPLE
from qualgate.scoring.preference.asking import compared, question_text, request, version
from qualgate.scoring.preference.reading import judged
from qualgate.served.charging import prompt_most
from qualgate.served.ledger import Ledger
from qualgate.store import judgements, votes
from qualgate.store.database import Store
from qualgate.store.evidence import case_bodies
from qualgate.text.numbers import counted

if TYPE_CHECKING:
    from qualgate.served.judging import Asked

OURS = (NOISE, TWIN, PLAIN, WIDE)  # name suffixes of arms that a run adds
Replies = Mapping[tuple[str, str, str, int, bool], Judgement]


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two answers to compare, without their thoughts."""

    variant: str
    evalset: str
    case_id: str
    repeat: int
    question: str
    first: str  # the baseline's, or a label's `a`
    second: str
    label: str = ""

    def orders(self, judge: Judge) -> Iterator[Asked]:
        """Yield the requests in both orders; none for equal answers, which are a tie without a judge."""
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
    """Return the policy with the hash of its judge's labelled sample. Raises UsageError for an invalid file."""
    if policy.judge is None or labels is None:
        return policy
    return replace(policy, judge=replace(policy.judge, labels=labels_sha256(read_labels(labels))))


def too_few_labels(policy: Policy, labels: Path | None) -> Iterator[str]:
    """Yield a note if the labelled sample is too small for the judge ever to reach its floor."""
    if policy.judge is not None and labels is not None:
        note = never_over_floor(read_labels(labels), policy.judge.floor, policy.alpha)
        yield from (note,) if note else ()


def judged_most(plan: Plan, labels: Path) -> Spent:
    """Return the most that the judge of a plan can use if no request fails: labels and pairs in both orders, every
    answer and reply at its token limit."""
    judge, metrics = plan.policy.judge, {item.name: item.metrics for item in plan.evalsets}
    assert judge is not None, "asked of plans with one"
    bodies = [body for pair in _labels(read_labels(labels)) for _, body in pair.orders(judge)]
    prompt_tokens = sum(map(prompt_most, bodies))
    slices = _judged_slices(plan.policy, metrics, labels_of(plan.evalsets))
    questions = {(item.name, case.id): question_text(case.body) for item in plan.evalsets for case in item.cases}
    bare = {
        case_key: prompt_most(request(judge, text, "", ""))
        for case_key, text in questions.items()
        if _holds(slices, *case_key)
    }
    variants = [arm.name for arm in plan.arms[1:] if _is_named(arm.name, plan.policy)]
    prompts = [prompt for job in plan.jobs if job.arm.name in variants for prompt in job.prompts]
    pairs = [prompt for prompt in prompts if (prompt.key.evalset, prompt.key.case_id) in bare]
    prompt_tokens += sum(
        2 * (bare[prompt.key.evalset, prompt.key.case_id] + 2 * prompt.max_new_tokens) for prompt in pairs
    )
    requests = len(bodies) + 2 * len(pairs)
    return Spent(requests=requests, prompt=prompt_tokens, answer=requests * judge.max_tokens)


def judge_there(policy: Policy) -> None:
    """Raise UsageError or InfrastructureError if the policy's judge does not answer."""
    if policy.judge is not None:
        from qualgate.served.judging import look  # late, as below: who asks no judge need not wait for an HTTP library

        look(policy.judge)


def judges_of(policy: Policy) -> tuple[ArmSpec, ...]:
    """Return the policy's judge as an arm, since it also receives prompts; () without a judge."""
    if policy.judge is None:
        return ()
    from qualgate.served.judging import as_arm

    return (as_arm(policy.judge),)


def own_judge(policy: Policy, arms: Sequence[ArmSpec]) -> Iterator[str]:
    """Yield a note if the judge has the name of a model that it judges."""
    if (judge := policy.judge) is None:
        return
    judge_name = Path(judge.model).name.lower()
    if same_named := [arm.name for arm in arms if Path(arm.model).name.lower() == judge_name and "@" not in arm.name]:
        yield (
            f"the judge {judge.model} is called as the model of {', '.join(same_named)}: a model prefers what it would "
            "say itself. Name another one under `judge`, unless they are not the same"
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
    """Ask the judge about every label and pair that has no reply in this run; return whether all replies are there
    now. Nothing is sent if none is missing.

    labels: people's preferences, by which the judge is measured; None: the run asks no judge, and nothing is missing.
    ledger: counts the requests.
    """
    judge = policy.judge
    if judge is None or labels is None:
        return True
    run_id, name = evidence.run_id, version(judge)
    replies = _replies(store, run_id, judge)
    pairs = (*_labels(read_labels(labels)), *_pairs(store, evidence, policy))
    missing = [request for pair in pairs for request in pair.orders(judge) if _at(request[0]) not in replies]
    if not missing:
        return True
    from qualgate.served.judging import ask

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
    """Ask the judge for missing replies, and return the evidence with all of them. Raises Interrupted if a stop was
    requested; replies so far are kept."""
    if not ask_judge(store, evidence, policy, labels, say, lambda: stop() is not None, ledger):
        raise interrupted(stop(), "stopped while the judge was asked; its replies so far are stored")
    return with_judgements(store, evidence, policy)


def with_judgements(store: Store, evidence: RunEvidence, policy: Policy) -> RunEvidence:
    """Return the evidence with people's preferences on each variant, and the judge's, read from its raw replies."""
    evidence = _with_preferences(store, evidence, policy)
    if (judge := policy.judge) is None:
        return evidence
    replies, fault = judgements.read(store, evidence.run_id, version(judge))
    if fault:
        return replace(evidence, integrity=(*evidence.integrity, fault))
    replies_by_key = {_at(judgement): judgement for judgement in replies}
    labels, fault = _labels_of(judge, replies_by_key)
    if len(served := {judgement.served for judgement in replies}) > 1:
        fault = f"the judge's server was not always the same: {' and '.join(sorted(served))!r:.300}"
    pairs: dict[str, dict[tuple[str, str, int], Judged]] = {}
    try:
        for pair in _pairs(store, evidence, policy):
            if (outcome := _judged(judge, pair, replies_by_key)) is not None:
                pairs.setdefault(pair.variant, {})[pair.evalset, pair.case_id, pair.repeat] = outcome
    except IntegrityError as error:
        return replace(evidence, integrity=(*evidence.integrity, str(error)))

    def judged_arm(name: str) -> JudgedArm:
        """Return the judge's results for the variant `name`."""
        return JudgedArm(
            judge=f"{version(judge)} ({judge.model})",
            floor=judge.floor,
            pairs=pairs.get(name, {}),
            labels=labels,
            fault=fault,
        )

    variants = (
        replace(arm, judged=judged_arm(arm.name)) if _is_named(arm.name, policy) else arm for arm in evidence.variants
    )
    return replace(evidence, variants=tuple(variants))


def _with_preferences(store: Store, evidence: RunEvidence, policy: Policy) -> RunEvidence:
    """Return the evidence with people's preferences on each variant. Equal answers are a tie without them.

    Of a pair the first `policy.reviewers` people count, and it counts with the last of them. Asking one more because of
    what the others said changes nothing, so the rule may be read at any time.
    """
    if not votes.asks_people(policy):
        return evidence
    try:
        with store.read() as connection:
            given = votes.counting(connection, evidence.run_id, policy.reviewers)
    except IntegrityError as error:
        return replace(evidence, integrity=(*evidence.integrity, str(error)))
    arms: dict[str, dict[PairKey, Judged]] = {}
    counting: dict[str, dict[PairKey, tuple[Vote, ...]]] = {}
    for pair in _pairs(store, evidence, policy, PEOPLE):
        place = (pair.evalset, pair.case_id, pair.repeat)
        own = given.get(UnitKey(pair.variant, *place), ())
        if pair.first == pair.second:
            outcome = Judged(win=0.5)
        else:
            whole = len(own) == policy.reviewers
            outcome = Judged(win=majority(own)) if whole else Judged(win=None, why=UNCOMPARED)
            counting.setdefault(pair.variant, {})[place] = own
        arms.setdefault(pair.variant, {})[place] = outcome
    variants = (
        replace(
            arm,
            preferred=JudgedArm(
                judge="people",
                floor=None,
                pairs=arms.get(arm.name, {}),
                votes=counting.get(arm.name, {}),
                read=votes.digest(given.items(), arm.name),
            ),
        )
        if _is_named(arm.name, policy)
        else arm
        for arm in evidence.variants
    )
    return replace(evidence, variants=tuple(variants))


def _replies(store: Store, run_id: str, judge: Judge) -> Replies:
    stored, fault = judgements.read(store, run_id, version(judge))
    if fault:
        raise IntegrityError(f"run {run_id}: {fault}. Restore the store from a backup.")
    return {_at(judgement): judgement for judgement in stored}


def _at(judgement: Judgement) -> tuple[str, str, str, int, bool]:
    return judgement.variant, judgement.evalset, judgement.case_id, judgement.repeat, judgement.swapped


def _labels(labels: Sequence[Label]) -> Iterator[_Pair]:
    """Yield the labelled pairs under the sample's hash, so that another sample is measured anew."""
    sample = labels_sha256(tuple(labels))
    for label in labels:
        text = json.dumps(asdict(label), sort_keys=True)
        yield _Pair("", sample, label.id, 0, label.question, label.first, label.second, text)


def _labels_of(judge: Judge, replies: Replies) -> tuple[tuple[JudgedLabel, ...], str]:
    """Return the judged sample and "", or () and why it cannot be used. A partly judged sample is not used: rows could
    have been left out on purpose."""
    bodies = {reply.case_id: reply.label for reply in replies.values() if reply.label and reply.evalset == judge.labels}
    try:
        labels = tuple(Label(**json.loads(text)) for _, text in sorted(bodies.items()))
    except (TypeError, ValueError):
        return (), "its labelled sample in the store is not what was recorded"
    if not labels or labels_sha256(labels) != judge.labels:
        return (), "its labelled sample was not judged whole: qualgate rescore with this gate file"
    judged_labels = []
    for pair, label in zip(_labels(labels), labels, strict=True):
        outcome = _judged(judge, pair, replies)
        if outcome is None:
            return (), f"label {label.id!r:.60} was not judged in both orders: qualgate rescore with this gate file"
        judged_labels.append(JudgedLabel(preferred=label.preferred, question=label.question, judged=outcome))
    return tuple(judged_labels), ""


def _judged(judge: Judge, pair: _Pair, known_replies: Replies) -> Judged | None:
    """Return a pair's outcome; None if an order is missing. Raises IntegrityError for a reply to other texts."""
    replies = []
    for order, _ in pair.orders(judge):
        reply = known_replies.get(_at(order))
        if reply is None:
            return None
        if reply.asked != order.asked:
            raise IntegrityError(
                f"{pair.variant or 'label'}: {pair.case_id}: the judge replied to other texts than these"
            )
        replies.append(reply)
    return judged(pair.first, pair.second, [answer.reply for answer in replies], [answer.error for answer in replies])


def _pairs(store: Store, evidence: RunEvidence, policy: Policy, metric: str = JUDGE) -> Iterator[_Pair]:
    """Yield the pairs that a rule on the metric covers, for every variant that the user named."""
    slices = _judged_slices(policy, evidence.metrics, evidence.labels, metric)
    texts = judgements.answers(store, evidence.run_id)
    bodies = case_bodies(store, {hash_ for *_, hash_ in texts.values()})
    base = evidence.baseline.name
    for arm in evidence.variants:
        if not _is_named(arm.name, policy):
            continue
        for key in sorted(key for key in texts if key.arm == arm.name):
            baseline = texts.get(replace(key, arm=base))
            is_covered = _holds(slices, key.evalset, key.case_id)
            if baseline is None or not is_covered or (body := bodies.get(baseline[-1])) is None:
                continue
            first, second = compared(body, baseline[:2], texts[key][:2])
            yield _Pair(arm.name, key.evalset, key.case_id, key.repeat, question_text(body), first, second)


def _judged_slices(
    policy: Policy, metrics: Mapping[str, tuple[str, ...]], labels: Labels | None, metric: str = JUDGE
) -> list[Slice]:
    return [slice_ for slice_ in check_policy(policy, dict(metrics), labels) if slice_.rule.metric == metric]


def _holds(slices: Sequence[Slice], evalset: str, case_id: str) -> bool:
    return any(slice_.holds(evalset, case_id) for slice_ in slices)


def _is_named(arm: str, policy: Policy) -> bool:
    """Whether the user named the arm, as one to be judged."""
    return not arm.endswith(OURS) and arm not in policy.references
