"""Judge files of score rows from any scorer: two files, or one for each of several arms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from qualgate import evalsets
from qualgate.config import GateFile
from qualgate.errors import Exit, UsageError
from qualgate.gate.causes.noise_floor import without_noise_floor
from qualgate.gate.decide import Decided, decide, exit_of
from qualgate.gate.growing import tested_before
from qualgate.gate.peers.nel_policy import NelSaid
from qualgate.intake.copies import refuse_copies, refuse_one_file_twice
from qualgate.intake.feedback import Feedback, read_feedback, with_corrections
from qualgate.intake.looks import keep_looks, looks_at
from qualgate.intake.row_evidence import BASELINE, NOT_NAMED, Identity, KnownCases, evidence_of
from qualgate.intake.score_rows import Scores, read_score_rows
from qualgate.pipeline.arms import with_nel_policy
from qualgate.pipeline.four_arm import as_four_arms
from qualgate.pipeline.known_cases import known_cases
from qualgate.pipeline.models_of_rows import one_name_of_two, refuse_other_models, unnamed
from qualgate.pipeline.named_sets import set_refs
from qualgate.records import Policy, RunEvidence, Verdict
from qualgate.store import plain
from qualgate.store.bulk import uncollected

UNKEPT = "judged without memory: whether these files were judged before, when they held less, is not known"
BY_IDS = "paired by ids alone, as asked: whether both sides were asked the same is not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """Verdicts from score files, and what they rest on."""

    verdicts: tuple[Verdict, ...]  # one for each variant, in the order of the files
    policy: Policy  # the rules that decided
    nel: tuple[NelSaid, ...]  # with an nel policy: nel's own results
    evidence: RunEvidence
    sides: tuple[Scores, ...]  # the rows, the baseline's first
    gate: GateFile  # with the policy that decided

    @property
    def exit(self) -> Exit:
        """The exit code of all verdicts together."""
        return exit_of(self.verdicts)


def judge_files(
    gate: GateFile,
    baseline: Path,
    variants: Mapping[str, Path],
    nel_policy: Path | None = None,
    *,
    called: Path | None = None,
    looks: Path | None = None,
) -> Judged:
    """Judge score files by the gate file's rules; exit codes are those of a run with this evidence.

    `closed_list` decides which cases the files must hold. If the evalset lies beside the gate file, its case hashes
    must match the rows', each case needs the metrics that rules name, and the evalset defines the clusters.

    Args:
        variants: One variant, named neither `baseline` nor with an @; or the three arms that the gate file names; or
            with `gate.against` the arms named there and at least one variant to be judged.
        nel_policy: Decides in place of the rules.
        called: The gate file's name in errors.
        looks: File that keeps the looks at growing score files, see `gate.growing`; None: looks are not kept.
    """
    if not variants:
        raise UsageError("give the score file of one variant, or of three arms, to compare with the baseline's.")
    if reserved := [name for name in variants if name == BASELINE or "@" in name]:
        raise UsageError(f"{reserved[0]!r} cannot be a variant's name: `baseline` and names with @ are reserved.")
    _refuse_own_drafts(gate)
    gate = replace(gate, nel_policy=nel_policy) if nel_policy is not None else gate
    if gate.policy.references:
        _refuse_other_arms(gate, variants)
    elif gate.four_arm is not None or len(variants) > 1:
        gate = as_four_arms(gate)
        variants = _in_order(gate, variants)
    gate = with_nel_policy(gate)
    files = {BASELINE: baseline, **variants}
    refuse_one_file_twice(files)
    with uncollected():
        return _judge(gate, files, called or gate.path, looks)


def _judge(gate: GateFile, files: Mapping[str, Path], called: Path, looks: Path | None) -> Judged:
    """Read the files and judge them. files: arm → its score file, the baseline's first; called: the gate file's name
    in errors; looks: the file that keeps looks, None: not kept. Raises UsageError for rows that do not fit the gate
    file."""
    names = [evalsets.name_of(ref) for ref in set_refs(gate)]
    default = names[0] if len(names) == 1 else None
    sides = {arm: read_score_rows(path, default or "", gate.error_texts) for arm, path in files.items()}
    refuse_copies(sides)
    refuse_other_models(gate, sides)
    row_sets = {row.evalset for side in sides.values() for row in side.rows if row.evalset}
    if strange := sorted(row_sets - set(names)):
        raise UsageError(f"rows of {strange[0]!r:.80}, an evalset that {called} does not list: {', '.join(names)}")
    cases = known_cases(gate, default, tuple(sides.values()))
    absent = [f"{name} is in the gate file and no score file has a row of it" for name in names if name not in row_sets]
    evidence, decided = judge_scores(
        sides,
        gate.policy,
        replace(cases, stale=(*cases.stale, *absent), notes=(*cases.notes, *one_name_of_two(sides), *unnamed(sides))),
        identity=gate.identity,
        now=plain.now(),
        feedback=read_feedback(gate.feedback) if gate.feedback else None,
        looks=looks,
        called=called,
    )
    return Judged(
        verdicts=without_noise_floor(decided.verdicts, evidence) if gate.noise_floor else decided.verdicts,
        policy=decided.policy,
        nel=decided.nel,
        evidence=evidence,
        sides=tuple(sides.values()),
        gate=gate,
    )


def judge_scores(
    sides: Mapping[str, Scores],
    policy: Policy,
    cases: KnownCases,
    *,
    identity: Identity = "hash",
    now: str = "",
    feedback: Feedback | None = None,
    looks: Path | None = None,
    called: Path | None = None,
) -> tuple[RunEvidence, Decided]:
    """Return the evidence of score rows, see `evidence_of`, and the decision. Raises UsageError for an unfit policy.

    now: see `decide`. feedback: users' feedback on these answers. looks: file that keeps the looks; without it the
    files are judged once as a whole, `stop` is ignored, and the verdict says that looks were not counted. called: the
    gate file's name in errors, if the policy comes from one.
    """
    if feedback is not None:
        policy = replace(policy, feedback=feedback.sha256)
    evidence = with_corrections(evidence_of(sides, cases, identity), feedback)
    answers = _answers_to_a_case(evidence) if cases.repeats is None else {}
    evidence = replace(evidence, stale=(*evidence.stale, *_single_answers(policy, answers)))
    if looks is None:
        policy = replace(policy, stop=None)
    else:
        evidence = replace(evidence, looks=looks_at(looks, evidence, policy.test))
    notes = (*((BY_IDS,) if identity == "ids" else ()), *_unnamed_scorers(evidence), *_not_stated(answers))
    try:
        decided = decide(evidence, policy, now)
    except UsageError as error:
        if called is None or policy.nel:  # an nel policy has a file of its own
            raise
        raise UsageError(f"{called}: {error}") from None
    if looks is None:
        notes = (*notes, UNKEPT)
    elif not tested_before(evidence.looks, policy) and any(
        comparison.n for verdict in decided.verdicts for comparison in verdict.comparisons
    ):  # else nothing was looked at
        keep_looks(looks, evidence.looks or ())
    return evidence, replace(decided, verdicts=_with_reasons(decided.verdicts, (*notes, *cases.notes)))


def _with_reasons(verdicts: Sequence[Verdict], notes: tuple[str, ...]) -> tuple[Verdict, ...]:
    return tuple(replace(verdict, reasons=(*verdict.reasons, *notes)) for verdict in verdicts)


def _answers_to_a_case(evidence: RunEvidence) -> dict[str, int]:
    numbers: dict[str, set[int]] = {}
    for key in evidence.expected:
        numbers.setdefault(key.evalset, set()).add(key.repeat)
    return {evalset: len(repeats) for evalset, repeats in sorted(numbers.items())}


def _not_stated(answers: Mapping[str, int]) -> tuple[str, ...]:
    """Return notes on answer counts known from the files alone: an answer missing on both sides goes unnoticed."""
    return tuple(
        f"{evalset}: {count} answers to each case, as many as the files hold: the gate file does not state "
        f"`generation: {{repeats: {count}}}`"
        for evalset, count in answers.items()
        if count > 1
    )


def _single_answers(policy: Policy, answers: Mapping[str, int]) -> tuple[str, ...]:
    """Explain why a rule on the best or worst of several answers does not apply to files with one answer per case."""
    return tuple(
        f"{evalset}: {rule.metric} is to count {rule.repeats} of a case's answers, and the files hold one of each; a "
        "case with several has a row for each, numbered by `repeat`. Of one alone say so: `generation: {repeats: 1}`"
        for rule in policy.rules
        if rule.repeats != "mean"
        for evalset, count in answers.items()
        if count == 1 and rule.evalset in (None, evalset)
    )


def _unnamed_scorers(evidence: RunEvidence) -> tuple[str, ...]:
    """Return a note if rows of both sides name no scorer: they count as scored alike, which is unverified."""
    left_out = [
        {metric for unit in units for metric, scorer in unit.scorers.items() if scorer == NOT_NAMED}
        for units in (evidence.baseline.units, [unit for arm in evidence.variants for unit in arm.units])
    ]
    names = ", ".join(sorted(left_out[0] & left_out[1]))
    return (f"{names}: rows name no `scorer`, so whether both sides were scored alike is not known",) if names else ()


def _in_order(gate: GateFile, variants: Mapping[str, Path]) -> dict[str, Path]:
    """Return the three files in the order quantization, speculation, both. Raises UsageError unless exactly these
    arms are given."""
    assert gate.four_arm is not None
    names = (gate.four_arm.quantization, gate.four_arm.speculation, gate.four_arm.both)
    if set(variants) != set(names):
        strange = "".join(f" ({name!r:.80} is none of them)" for name in sorted({*variants} - {*names, "variant"}))
        raise UsageError(
            f"{gate.path.name} compares four arms{strange}: give --baseline-scores, and "
            + " ".join(f"--arm {name}=FILE" for name in names)
        )
    return {name: variants[name] for name in names}


def _refuse_other_arms(gate: GateFile, variants: Mapping[str, Path]) -> None:
    """Raise UsageError unless each file is that of a variant, one of them to be judged, and no arm of `gate.against`
    is missing."""
    names, references = [arm.name for arm in gate.variants], gate.policy.references
    strange = next((name for name in variants if name not in names), "")
    if strange or not {*variants} - {*references} or not variants.keys() >= {*references}:
        other = f" ({strange!r:.80} is none of its variants)" if strange else ""
        raise UsageError(
            f"{gate.path.name} holds variants against {' and '.join(references)}{other}: give --baseline-scores, and "
            + " ".join(f"--arm {name}=FILE" for name in names)
        )


def _refuse_own_drafts(gate: GateFile) -> None:
    """Raise UsageError if variants of score files declare how this engine drafts."""
    if drafting := [arm.name for arm in gate.variants if arm.speculation is not None]:
        raise UsageError(
            f"{gate.path.name}: `speculation` of {', '.join(drafting)} sets drafts for qualgate's own engine, but "
            "score files come from another one. Remove it. What a server drafted belongs in its rows "
            "(`draft_proposed`, `draft_accepted`), or as totals in `four_arm: {drafting: …}`."
        )
