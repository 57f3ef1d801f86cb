"""Name the cause of a variant's failure in one word from its run's evidence; "" if the evidence shows none.

Facts that no loss of quality can fake come first, each read off the stored units alone:

- infrastructure: units failed or are missing; the engines differ; answers that contradict their own teacher forcing
  (the weights would have said something else there: another model's answer, or one out of a cache), unless the arm
  that lacks one part says what its weights say: then it is that part's
- template: template or tokenizer differ, or the same case became a prompt of another length
- config: its architecture is not the baseline's, as the gate file allows
- truncation: most lost answers are the baseline's own up to where the machine, not the model, ended them; or the
  sampling settings differ (stop tokens are among them) and that is how most answers differ
- truncation, parser, harness, filter: most lost answers are cut off or empty, or the harness found nothing in them
  (parser: of what is served or scored elsewhere, where nothing else is named)
- parser: most lost answers cannot be read as declared and can be in another way (`UnitEvidence.misread`)

Otherwise the fault is in the answers' content. Then a witness shows it: an arm that lacks one part (`causes.blame`).
Without one, a single suspect is enough: other weights with nothing packed, cached or drafted in between; another
adapter over the same weights; or another KV cache with the same weights. Two suspects name no cause.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from qualgate.gate.causes.blame import WITNESSES
from qualgate.gate.causes.unfinished import cause_of_gaps, way_unfinished
from qualgate.records import CALL_UNREAD, ArmEvidence, Comparison, RunEvidence, UnitEvidence, Verdict
from qualgate.records.metrics import BY_LIKELIHOOD, LM_EVAL, METRICS
from qualgate.text.numbers import counted

Relation = Literal["", "same", "ended", "contradiction", "content", "unmeasured"]
MOST = 0.5  # of the lost answers: a fact that holds for more of them is their cause
ADAPTER = "the adapter alone differs: same weights below it, prompts, engine and ends"
CAN_CONTRADICT = 5  # answers that diverge, in words or in teacher forcing: fewer prove nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """Cause of a variant's failure, and the evidence for it."""

    # recipe, adapter, kernel, KV, speculation, parser, template, config, truncation, infrastructure, harness, filter;
    word: str  # "": not known
    why: str


def name_causes(verdicts: Sequence[Verdict], evidence: RunEvidence, most_unfinished: float) -> tuple[Verdict, ...]:
    """Add causes to verdicts that are invalid, mismatched, or blocks on quality or drift, where the evidence shows one.

    most_unfinished: the policy's share of answers beyond which a loss may be theirs.
    """
    arms = {arm.name: arm for arm in evidence.variants}
    return tuple(_with_cause(verdict, evidence, arms, most_unfinished) for verdict in verdicts)


def _with_cause(
    verdict: Verdict, evidence: RunEvidence, arms: Mapping[str, ArmEvidence], most_unfinished: float
) -> Verdict:
    """Add the cause of an invalid, mismatched or blocked verdict, as far as the evidence shows one.

    arms: name → arm. A verdict with another cause already, shown by a witness, gets one only from identities or
    adapters. An undecided verdict is explained only if no case could be compared, and a block only if it shows beside
    the baseline: causes are looked for there.
    """
    arm = arms.get(verdict.variant)
    if verdict.exit == 13:
        return replace(verdict, cause="infrastructure")
    if arm is None or verdict.word not in ("block", "undecided") or (verdict.word == "block" and not _broken(verdict)):
        return verdict
    without = {component: arms[arm.name + end] for end, component in WITNESSES.items() if arm.name + end in arms}
    cause = _of_identity(evidence.baseline, arm, without)
    if verdict.word == "undecided":
        mismatched = bool(verdict.comparisons) and not any(comparison.n for comparison in verdict.comparisons)
        if not mismatched or not cause.word:
            return verdict
        reasons = (*verdict.reasons, f"cause: {cause.word}; {cause.why}") if cause.word in without else verdict.reasons
        return replace(verdict, cause=cause.word, reasons=reasons)
    if not cause.word and verdict.cause in ("", "recipe"):  # else a witness that keeps a rule has shown it already
        cause = _of_answers(verdict, evidence.baseline, arm, most_unfinished) or cause
    if not cause.word:
        cause = _of_adapter(verdict, evidence.baseline, arm)
    if not cause.word or cause.word == verdict.cause:
        return verdict
    return replace(verdict, cause=cause.word, reasons=(*verdict.reasons, f"cause: {cause.word}; {cause.why}"))


def _of_identity(baseline: ArmEvidence, arm: ArmEvidence, without: Mapping[str, ArmEvidence]) -> Cause:
    """Find a cause in prompts, settings and engines, before any score. without: part → the arm that lacks it."""
    identity, arm_identity = baseline.identity, arm.identity
    pairs = _pairs(baseline, arm)
    if identity and arm_identity:
        for field in ("template", "tokenizer"):
            if getattr(identity, field) != getattr(arm_identity, field):
                return Cause(word="template", why=f"its {field} is not the baseline's")
        if arm.config_differences and not arm.another_model:
            return Cause(word="config", why=f"config: {'; '.join(arm.config_differences)}")
        if identity.engine != arm_identity.engine and not (
            identity.served or arm_identity.served
        ):  # what is served has its own
            return Cause(word="infrastructure", why="its engine is not the baseline's")
    comparable = [(b, v) for b, v in pairs if b.case_hash == v.case_hash and b.prompt_tokens and v.prompt_tokens]
    longer = sum(b.prompt_tokens != v.prompt_tokens for b, v in comparable)
    if longer > MOST * len(comparable):
        return Cause(
            word="template", why=f"{longer} of {counted(len(comparable), 'case')} became prompts of another length"
        )
    relations = [relation(b, v) for b, v in pairs]
    if contradictory(relations):
        how_many = counted(relations.count("contradiction"), "answer is not", "answers are not")
        why = f"{how_many} what its own weights say there"
        for component, witness in without.items():
            if _says_its_own(baseline, witness):
                return Cause(word=component, why=f"{why}; without that part they are")
        return Cause(word="infrastructure", why=why)
    differ = [kind for kind in relations if kind not in ("", "same")]
    if (
        identity
        and arm_identity
        and identity.sampling != arm_identity.sampling
        and differ.count("ended") > MOST * len(differ)
    ):
        all_ = counted(len(differ), "answer that differs", "answers that differ")
        ended = f"{differ.count('ended')} of {all_} are the baseline's, ended elsewhere"
        return Cause(word="truncation", why=f"its sampling settings, stop tokens among them, are others, and {ended}")
    return Cause(word="", why="")


def _says_its_own(baseline: ArmEvidence, witness: ArmEvidence) -> bool:
    """Whether every answer of the witness is known and agrees with its own weights, near ties aside."""
    relations = [relation(b, v) for b, v in _pairs(baseline, witness)]
    known = len(relations) == len(baseline.units) and not {"", "unmeasured"}.intersection(relations)
    return known and not contradictory(relations)


def contradictory(relations: Sequence[str]) -> bool:
    """Whether most diverging answers that were measured differ between what was generated and what teacher forcing
    gives.

    A near tie may, since the two ran in batches of different shape. That is rare; an answer from a stale cache nearly
    always differs.
    """
    against, agree = relations.count("contradiction"), relations.count("content")
    return against + agree >= CAN_CONTRADICT and against > MOST * (against + agree)


def _broken(verdict: Verdict) -> list[Comparison]:
    """The broken critical comparisons with the baseline."""
    return [c for c in verdict.comparisons if c.tier == "critical" and c.status == "broken" and not c.against]


def _of_answers(verdict: Verdict, baseline: ArmEvidence, arm: ArmEvidence, most_unfinished: float) -> Cause | None:
    """Find what the lost answers of the broken critical rules have in common: most are the baseline's, cut; or most can
    be read by another parser; or more than the share `most_unfinished` of their sets are unfinished.

    If answers show nothing, the cause is found by elimination, unless the verdict has one already; None if nothing
    shows it.
    """
    broken = _broken(verdict)
    wanted = {(c.metric, c.slice) for c in broken if METRICS[c.metric].kind == "quality"}
    pairs = _pairs(baseline, arm)
    lost = [(b, v) for b, v in pairs if any(_lost(b, v, *metric_slice) for metric_slice in wanted)]
    if wanted and lost:
        ended = sum(_cut(b, v) for b, v in lost)
        misread = [v.misread for _, v in lost if v.misread]
        if ended > MOST * len(lost):
            return Cause(
                word="truncation", why=f"{ended} of {len(lost)} lost answers are the baseline's, ended elsewhere"
            )
        if len(misread) > MOST * len(lost):
            read = max(sorted(set(misread)), key=misread.count)
            return Cause(word="parser", why=f"{len(misread)} of {len(lost)} lost answers can be read as {read}")
        sets = {b.key.evalset for b, _ in lost}
        of_sets = [v for b, v in pairs if b.key.evalset in sets]
        if sum(bool(way_unfinished(v)) for v in of_sets) > most_unfinished * len(of_sets):
            word, why = cause_of_gaps(lost, MOST)
            # Our own engine takes no text from a model: what is blank there was written blank.
            by_own_engine = arm.identity is not None and arm.identity.engine and not arm.identity.served
            if word and not (word == "parser" and (by_own_engine or verdict.cause)):
                return Cause(word=word, why=why)
    if verdict.cause or not (wanted or any(METRICS[c.metric].kind == "drift" for c in broken)):
        return None
    return _by_elimination(baseline, arm, pairs)


def _by_elimination(
    baseline: ArmEvidence, arm: ArmEvidence, pairs: Sequence[tuple[UnitEvidence, UnitEvidence]]
) -> Cause | None:
    """Name the only component that differs between two identities; None if several differ or a cause could be
    elsewhere.

    pairs: (baseline's, variant's) answers. Without token ids of every answer nothing can be excluded.
    """
    identity, arm_identity = baseline.identity, arm.identity
    complete = all(v.token_ids and v.prompt_tokens for _, v in pairs)  # else the facts above could not have shown
    packed = {v.kernel for _, v in pairs} | {b.kernel for b, _ in pairs}
    if identity is None or arm_identity is None or not complete or len(packed) > 1:
        return None
    parts = ("weights", "kv_cache", "speculation")
    differing_fields = [field for field in parts if getattr(identity, field) != getattr(arm_identity, field)]
    if differing_fields == ["kv_cache"]:
        return Cause(
            word="KV", why="how keys and values are held alone differs: same weights, prompts, engine and ends"
        )
    if differing_fields == ["weights"] and identity.adapter != arm_identity.adapter:
        return Cause(word="adapter", why=ADAPTER) if identity.bare == arm_identity.bare else None
    if differing_fields != ["weights"] or packed != {""}:
        return None
    if identity.served or arm_identity.served:  # whose weights, kernels and flags nobody here sees
        return None
    return Cause(word="recipe", why="the weights alone differ: same prompts, engine and ends, and nothing is packed")


def _of_adapter(verdict: Verdict, baseline: ArmEvidence, arm: ArmEvidence) -> Cause:
    """Split the cause "recipe" between recipe and adapter where the arms have different adapters.

    Returns an empty cause if the verdict has no cause "recipe", or the adapters are equal or unknown.
    """
    identity, arm_identity, named = baseline.identity, arm.identity, verdict.cause.split(" and ")
    if "recipe" not in named or not identity or not arm_identity or identity.adapter == arm_identity.adapter:
        return Cause(word="", why="")
    alone = identity.bare == arm_identity.bare
    word = " and ".join([*named[:-1], "adapter" if alone else "recipe or adapter"])
    return Cause(word=word, why=ADAPTER if alone else "weights and adapter differ, and no arm tells them apart")


def _pairs(baseline: ArmEvidence, arm: ArmEvidence) -> list[tuple[UnitEvidence, UnitEvidence]]:
    """Match (baseline's, variant's) finished answers to the same question and repeat."""
    answers = {(u.key.evalset, u.key.case_id, u.key.repeat): u for u in arm.units if u.status == "done"}
    matches = ((answers.get((u.key.evalset, u.key.case_id, u.key.repeat)), u) for u in baseline.units)
    return [(variant, before) for before, variant in matches if before is not None and variant.status == "done"]


def _lost(baseline: UnitEvidence, variant: UnitEvidence, metric: str, slice_name: str) -> bool:
    """Return whether the variant scores lower on this answer. It counts for a pooled or labelled slice, or its
    evalset's.
    """
    if slice_name == baseline.key.evalset or slice_name == "pooled" or ":" in slice_name:
        before, after = baseline.values.get(metric), variant.values.get(metric)
        if variant.unsaid.get(metric) == CALL_UNREAD:
            after = 0.0  # else the rule would not be broken by it: see `evidence.unread_calls`
        return before is not None and after is not None and after < before
    return False


def _cut(baseline: UnitEvidence, variant: UnitEvidence) -> bool:
    """Whether the answer is the baseline's own, with an end that the weights did not choose."""
    return bool(variant.token_ids) and relation(baseline, variant) == "ended"


def relation(baseline: UnitEvidence, variant: UnitEvidence) -> Relation:
    """Classify how two answers to one case differ, given teacher forcing of the variant; "" = unknown.

    ended: one answer is a prefix of the other, and the variant's weights did not choose that end. content: the answers
    diverge where the weights do. contradiction: they diverge elsewhere, or only one of answers and weights diverges.
    unmeasured: the answers diverge, and where the weights do was not measured.
    """
    before, after = _words(baseline), _words(variant)
    if before is None or after is None:
        return ""
    shared = next((index for index, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), None)
    divergence = variant.first_divergence if variant.kl else None
    if shared is not None:  # another word
        if not variant.kl:
            return "unmeasured"
        return "content" if divergence == shared else "contradiction"
    if len(before) == len(after):
        if divergence is not None and divergence < len(before):
            return "contradiction"
        return "same"
    if len(after) < len(before) and divergence == len(after) and variant.finish_reason == "eos":
        return "content"  # the weights themselves end there
    if not variant.kl and variant.finish_reason == "eos":
        return "unmeasured"
    return "ended" if divergence is None or divergence >= min(len(before), len(after)) else "contradiction"


def _words(unit: UnitEvidence) -> list[bytes] | None:
    """The answer's tokens without the end token; None if they were not stored, or may be input: the texts of likelihood
    requests and choices are the same for both arms."""
    if not unit.token_ids or not unit.finish_reason:
        return None
    if unit.finish_reason == "stop" and any(name.startswith((LM_EVAL, *BY_LIKELIHOOD)) for name in unit.values):
        return None
    ids = [unit.token_ids[start : start + 4] for start in range(0, len(unit.token_ids), 4)]
    return ids[:-1] if unit.finish_reason == "eos" else ids
