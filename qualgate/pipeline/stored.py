"""Decide on a stored run: find it, choose its policy, and check that it is still current."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from qualgate import evalsets
from qualgate.config import GateFile
from qualgate.errors import EvidenceMissing, UsageError
from qualgate.gate.causes.noise_floor import without_noise_floor
from qualgate.gate.decide import Decided, decide
from qualgate.gate.peers.nel_policy import NelPolicy, as_text
from qualgate.intake.feedback import Feedback, read_feedback, with_corrections
from qualgate.pipeline.arms import with_nel_policy
from qualgate.pipeline.evidence import known, labels_of, reads_answers
from qualgate.pipeline.four_arm import as_four_arms, as_recorded
from qualgate.pipeline.judging import with_judgements, with_sample
from qualgate.pipeline.named_sets import load_set, set_refs
from qualgate.pipeline.outcome import Outcome
from qualgate.pipeline.staleness import changes_since, scored_otherwise, tested_otherwise
from qualgate.records import Evalset, Policy, RunEvidence
from qualgate.records.metrics import METRICS
from qualgate.store import audit, plain, queries, runs
from qualgate.store.database import Store, exists, open_store
from qualgate.store.prunings import EvidencePruned


def decide_again(
    store_url: str,
    run_id: str | None,
    gate: GateFile | None,
    nel: NelPolicy | None = None,
    *,
    four_arm: bool = False,
    keep: bool = True,
) -> Outcome:
    """Decide from stored evidence alone. Raises UsageError if there is no such run.

    gate: its policy decides, and its weights, tokenizers, evalsets and variants must still be those of the run, else
    every verdict is undecided. None: the run's own policy decides.
    nel: a NeMo Evaluator policy that decides in place of either, see `gate.peers.nel_policy`.
    four_arm: decide by four arms only, see `four_arm.arms_compared`. keep=False: store no verdict.
    """
    if four_arm and gate is not None:
        gate = as_four_arms(gate)
    with open_store(store_url, create=False) as store:
        stands = standing(store, run_id, gate)
        run, arms = stands.run_id, stands.policy.four_arm
        if four_arm and arms is None:
            raise UsageError(
                f"run {run} was not made as four arms, and "
                + ("a gate file must say which they are." if gate is None else "lacks one that the gate file names.")
            )
        if nel is not None:
            if arms is not None:
                raise UsageError(
                    f"run {run} compares four arms, and an nel policy knows neither parity nor value: leave "
                    "--nel-policy out (--peers shows what nel's rule would have said)."
                )
            stands = replace(stands, policy=replace(stands.policy, nel=as_text(nel)))
        evidence = replace(stands.evidence, stale=(*stands.evidence.stale, *scored_otherwise(stands.evidence)))
        decided = stands.decided(evidence)
        if keep:
            runs.add_verdicts(store, run, decided.verdicts, decided.policy)
    return Outcome(
        run_id=run,
        verdicts=decided.verdicts,
        exit=decided.exit,
        resumed=False,
        failures=(),
        policy=decided.policy,
        nel=decided.nel,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A stored run, and the policy that judges it today."""

    run_id: str
    evidence: RunEvidence
    policy: Policy
    then: Policy  # the run's own policy
    feedback: Feedback | None
    noise_floor: bool = False  # whether the gate file asks for one today

    def decided(self, evidence: RunEvidence) -> Decided:
        """Decide on this evidence: the run's own, or the same with other scores."""
        stale = (*evidence.stale, *tested_otherwise(self.then, self.policy))
        result = decide(with_corrections(replace(evidence, stale=stale), self.feedback), self.policy, plain.now())
        return replace(result, verdicts=without_noise_floor(result.verdicts, evidence)) if self.noise_floor else result


def standing(store: Store, run_id: str | None, gate: GateFile | None, sets: Sequence[Evalset] = ()) -> Standing:
    """Return the run that is meant, its evidence, and the policy of the gate file or, without one, of the run.

    sets: the evalsets of a scoring in progress; (): those of the last scoring.
    """
    feedback = read_feedback(gate.feedback) if gate is not None and gate.feedback else None
    run = run_meant(store, run_id, gate)
    run_policy = runs.policy(store, run)
    policy, stale = _grounds(store, run, gate, sets)
    policy = with_sample(policy, gate.labels if gate is not None else None)
    if feedback is not None:
        policy = replace(policy, feedback=feedback.sha256)
    audit.check_signed(store, run)
    evidence = known(store, run, answers=reads_answers(policy), sampled=True)
    evidence = replace(evidence, metrics=evidence.metrics | {item.name: item.metrics for item in sets})
    if not sets:
        _refuse_unscored(evidence, policy, gate)
    labels = _labels_today(gate, policy) if gate is not None and not stale else None
    evidence = with_judgements(store, replace(evidence, labels=labels, stale=stale), policy)
    floor = gate is not None and gate.noise_floor
    return Standing(run_id=run, evidence=evidence, policy=policy, then=run_policy, feedback=feedback, noise_floor=floor)


def run_meant(store: Store, run_id: str | None, gate: GateFile | None) -> str:
    """Return the named run, else the newest of the gate file, else the newest of all."""
    return run_id or (newest_run_of(store, gate) if gate is not None else queries.latest_run(store))


def newest_run_of(store: Store, gate: GateFile) -> str:
    """Return the newest run of this gate file's variants and evalsets: several gate files may share a store."""
    arms = [arm.name for arm in (gate.baseline, *gate.variants)]
    sets = [evalsets.name_of(ref) for ref in set_refs(gate)]
    newest = queries.latest_run_of(store, arms, sets)
    if newest is None:
        raise EvidenceMissing(
            f"{gate.store_url} holds no run of these variants ({', '.join(arms[1:])}) on these evalsets "
            f"({', '.join(sets)}). Run: qualgate run {gate.path.name}"
        )
    return newest


def _refuse_unscored(evidence: RunEvidence, policy: Policy, gate: GateFile | None) -> None:
    """Raise UsageError for a rule on a metric that the evalset gained after the run's last scoring."""
    scored = {metric for metrics in evidence.metrics.values() for metric in metrics}
    unscored = {rule.metric for rule in policy.rules if METRICS[rule.metric].approves} - scored
    unscored = {metric for metric in unscored if not METRICS[metric].everywhere}
    if unscored and gate is None and evidence.scored_again is not None:
        raise UsageError(
            f"run {evidence.run_id} was scored again without {', '.join(sorted(unscored))}, which its own rules are "
            f"on. Name the gate file it was scored for: qualgate gate GATE.yaml --run {evidence.run_id}"
        )
    sets = [load_set(ref, gate.path.parent) for ref in set_refs(gate)] if unscored and gate is not None else []
    if missing_scores := sorted(f"{item.name} by {metric}" for item in sets for metric in unscored & {*item.metrics}):
        raise UsageError(
            f"the answers of run {evidence.run_id} were not scored of {', '.join(missing_scores)}, which its file "
            f"lists now. No model is needed: qualgate rescore {evidence.run_id} {gate.path.name if gate else ''}"
        )


def _grounds(
    store: Store, run_id: str, gate: GateFile | None, sets: Sequence[Evalset]
) -> tuple[Policy, tuple[str, ...]]:
    """Return the policy that judges a stored run, and the reasons why its verdicts are undecided, see `decide_again`.

    A run keeps the `stop` it was made with. A `stop: early` added since applies to the next run; a gate file without
    it cannot decide a run made with looks, see `staleness.tested_otherwise`.
    """
    run_policy = runs.policy(store, run_id)
    if gate is None:
        return run_policy, ()
    run = queries.run_summary(store, run_id)
    contents = {item.name: item.content for item in sets}
    lines = (replace(line, content=contents.get(line.name, line.content)) for line in run.evalsets)
    run = replace(run, evalsets=tuple(lines))
    gate = with_nel_policy(as_recorded(gate, run_policy, run))
    stop = run_policy.stop if gate.policy.stop is not None else None
    return replace(gate.policy, stop=stop), changes_since(run, gate)


def _labels_today(gate: GateFile, policy: Policy) -> dict[tuple[str, str], tuple[str, ...]] | None:
    """Return the tasks and tags of the gate file's evalsets; None if no rule needs them.

    The store's tags are not used: a case's hash leaves them out, so a change in the store would go unnoticed.
    """
    if all(rule.where is None and rule.scope in ("pooled", "evalset") for rule in policy.rules):
        return None
    return labels_of(load_set(ref, gate.path.parent) for ref in set_refs(gate))


def earlier_evidence(gate: GateFile) -> RunEvidence | None:
    """Return the evidence of this gate file's newest run for the planner; None if its store has none."""
    if not exists(gate.store_url):
        return None
    try:
        with open_store(gate.store_url, create=False) as store:
            return runs.evidence(store, newest_run_of(store, gate))
    except (EvidenceMissing, EvidencePruned):
        return None
