"""Check that speculation keeps its target's answers: token by token or, for sampled answers, by scores and law.

The arm's acceptance rule on our own engine, else the gate file, says what it promises. In packed passes a row's bits do
not depend on other rows, so every differing token is a defect. A near tie excuses one only if a foreign engine or
padded batches computed the logits of either arm. A tie is one step of float32. Score files do not say whether logits
are bf16 or fp16, one step of which is 2^16 or 2^13 times that: there only equal logits are a tie. Servers run in bf16,
and verification sums in another order than decoding: for served arms a tie is one step of bf16, and more than a few
ties are still a defect.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import ceil, log2
from typing import Literal

import numpy as np

from qualgate.gate.comparisons.by_metric import measure
from qualgate.gate.evidence.checks import Pair
from qualgate.gate.evidence.sampler import GREEDY_ALPHA, says_likeliest
from qualgate.gate.evidence.unfinished_sets import unfinished_sets
from qualgate.gate.four_arm.drafting import ran_here
from qualgate.gate.four_arm.laws import another_law, warm
from qualgate.gate.rules import Slice
from qualgate.records import ArmEvidence, ArmStep, Policy, RuleStatus
from qualgate.records.metrics import METRICS
from qualgate.stats.intervals import binomial_lower
from qualgate.text.numbers import counted

TIE = 2.0**-17  # top-2 logit gap of a near tie: one float32 step of a logit between 64 and 128
SERVED_TIE = 2.0**-3  # likewise of a server: one bf16 step of a logit between 16 and 32
TOKENS = "their tokens"
DIGESTS = "digests of their tokens"
TEXTS = "digests of their texts, as no token ids were recorded"
MOST_TIES = 1e-4  # mismatches at near ties allowed per token
ARMS_COMPARED = 2  # against their targets: what speculates alone, and what does both
VARYING = ceil(-log2(GREEDY_ALPHA))  # cases whose answers must vary in the target for that

Promise = Literal["identical", "sampled", "lossy"]
PACKED = "packed"  # `Generation.engine` of passes whose rows do not depend on each other


def promise_of(arm: ArmEvidence, target: ArmEvidence, declared: Promise) -> Promise:
    """What the arm's drafts must not change. A rule that changes the distribution promises nothing, whatever is
    declared. Drafts accepted where the target's own draw agrees promise every token, sampled or not: both arms of a run
    draw with one seed."""
    if arm.speculation is None:
        return declared
    if not arm.speculation.lossless:
        return "lossy"
    same_draws = (
        arm.identity is not None and target.identity is not None and (arm.identity.sampling == target.identity.sampling)
    )
    return "identical" if arm.speculation.rule == "keyed" and same_draws and exact(arm, target) else declared


def exact(*arms: ArmEvidence) -> bool:
    """Whether all arms ran in packed passes only."""
    return all(arm.generation.engine == PACKED for arm in arms)


def parity_step(
    arm: ArmEvidence,
    target: ArmEvidence,
    pairs: dict[str, tuple[Pair, ...]],
    slices: Sequence[Slice],
    policy: Policy,
) -> ArmStep:
    """Check whether the arm gives its target's answers. pairs: the arm as the variant of its target."""
    assert policy.four_arm is not None

    def step(status: RuleStatus, reason: str) -> ArmStep:
        return ArmStep(arm=arm.name, step="parity", status=status, reason=reason)

    if notice := says_likeliest(target):
        return step("undecided", f"{notice}, and {arm.name} is held against it")
    if notice := says_likeliest(arm):
        return step("broken", f"{arm.name} is defective: {notice}")
    match promise_of(arm, target, policy.four_arm.parity):
        case "lossy":
            if arm.speculation is not None and not arm.speculation.lossless:
                rule = f"its rule of acceptance ({arm.speculation.rule.replace('_', ' ')}) changes the distribution"
                return step("proven", f"{rule}, so its quality is judged instead")
            return step("proven", "declared to change the distribution, so its quality is judged instead")
        case "sampled":
            status, reason = _same_within_margins(arm.name, target.name, pairs, slices, policy)
            foreign = not ran_here(arm)  # of our own engine the rule of acceptance is known, and proven to draw
            if foreign and status != "broken" and warm(policy.four_arm.temperature):
                all_pairs, seed = flat(pairs), policy.four_arm.seed
                if other := another_law(arm.name, target.name, all_pairs, policy.alpha, seed):
                    return step("broken", f"{arm.name} is defective{other}")
            unshown = (
                _why_sampling_unshown(arm.name, target.name, flat(pairs)) if foreign and status == "proven" else ""
            )
            return step("undecided", unshown) if unshown else step(status, reason)
    all_pairs = flat(pairs)
    both, alpha = exact(arm, target), policy.alpha / ARMS_COMPARED
    served = any(each_arm.identity is not None and each_arm.identity.served for each_arm in (arm, target))
    return step(*_identical(arm.name, target.name, all_pairs, exact=both, served=served, alpha=alpha))


def _identical(
    name: str, target: str, pairs: Sequence[Pair], *, exact: bool, served: bool, alpha: float
) -> tuple[RuleStatus, str]:
    """Compare token by token. A difference is excused only at a near tie of the target's own logits, only rarely, and
    never where both are exact; a server without token ids gets the benefit of the doubt. alpha: how often ties at the
    allowed rate are taken for a defect."""
    compared_by = Counter(map(_compared_by, pairs))
    if unread := compared_by[""]:
        return "undecided", f"the tokens of {unread} of {counted(len(pairs), 'answer')} were not recorded"
    differing = [pair for pair in pairs if not equal(pair)]
    if not differing:
        inexact = [f"{count} by {way}" for way, count in sorted(compared_by.items()) if way != TOKENS]
        summary = f": {', '.join(inexact)}" if inexact else ", token for token"
        return "proven", f"all {len(pairs)} answers are {target}'s{summary}"
    without_tokens = [pair for pair in differing if served and _compared_by(pair) != TOKENS]
    first = [(pair, *_first_difference(pair)) for pair in differing if pair not in without_tokens]
    tie = SERVED_TIE if served else TIE
    defects = [(pair, position, gap) for pair, position, gap in first if exact or gap is None or not 0 <= gap <= tie]
    if defects:
        return "broken", _name_first_defect(name, target, pairs, defects, exact=exact)
    tokens = _tokens_compared(pairs)
    way = "by their texts" if without_tokens else "at near ties"
    summary = f"{counted(len(differing), 'answer leaves', 'answers leave')} {target}'s {way}"
    if binomial_lower(len(differing), max(tokens, len(differing)), alpha) > MOST_TIES:
        why = "" if without_tokens else ": its verification rounds otherwise than its target decodes"
        return "broken", f"{name} is defective: {summary}, over {MOST_TIES:g} of {tokens:,} tokens{why}"
    if without_tokens:
        return "undecided", (
            f"{summary}, and where no tokens are told a near tie is not told from a defect: give both arms `tokenizer`"
        )
    if len(differing) > MOST_TIES * tokens:
        return "undecided", (
            f"{summary}, in {tokens:,} tokens: too few to tell a defect from chance. "
            f"{ceil(len(differing) / MOST_TIES):,} tokens or more with no further one would show that they are rare"
        )
    return "proven", f"{len(differing)} of {counted(len(pairs), 'answer')} differ from {target}'s, each from a near tie"


def _name_first_defect(
    name: str, target: str, pairs: Sequence[Pair], defects: Sequence[tuple[Pair, int | None, float | None]], *,
    exact: bool,
) -> str:  # fmt: skip
    """Say that the arm is defective, with the first differing answer and why it is not excused.

    defects: (pair, index of the first differing token, top-2 logit gap there); None where it is not known. exact: both
    arms ran in packed passes.
    """
    pair, position, gap = defects[0]
    key = pair.variant.key
    excuse = "no top-2 gap was recorded that could excuse it" if gap is None else f"top-2 gap {gap:.3g}, no near tie"
    if exact:
        excuse = "both ran in packed passes, where no batch, draft or near tie changes a bit"
    location = (
        f"token {position} of {key.question}" if position is not None else f"{key.question}, by {_compared_by(pair)}"
    )
    return (
        f"{name} is defective: {len(defects)} of {counted(len(pairs), 'answer')} are not {target}'s, first at "
        f"{location} ({excuse}){_greedy_sampler(pairs)}"
    )


def _tokens_compared(pairs: Sequence[Pair]) -> int:
    """Count compared tokens of the target: up to the first difference of an answer, or all of it without token ids."""
    tokens = 0
    for pair in pairs:
        position = None if equal(pair) else _first_difference(pair)[0]
        answer = pair.baseline.answer
        all_tokens = len(answer) // 4 if answer is not None else pair.baseline.tokens or 0
        tokens += all_tokens if position is None else position + 1
    return tokens


def _compared_by(pair: Pair) -> str:
    """Return the most exact record of the answer that both sides have; "" if they have none in common."""
    before, after = pair.baseline, pair.variant
    if before.answer is not None and after.answer is not None:
        return TOKENS
    if before.tokens_sha256 and after.tokens_sha256:
        return DIGESTS
    return TEXTS if before.text_sha256 and after.text_sha256 else ""


def equal(pair: Pair) -> bool:
    """Whether both answers are equal by their most exact common record; False without any."""
    before, after, how = pair.baseline, pair.variant, _compared_by(pair)
    if how == TOKENS:
        return before.answer == after.answer
    if how == DIGESTS:
        return before.tokens_sha256 == after.tokens_sha256
    return how == TEXTS and before.text_sha256 == after.text_sha256


def scored_alike(pair: Pair) -> bool:
    """Whether both answers have the same scores. If equal answers do not, parity cannot stand for their scores."""
    scored = pair.baseline.scorers.keys() | pair.variant.scorers.keys()
    return all(pair.baseline.values.get(metric) == pair.variant.values.get(metric) for metric in scored)


def _first_difference(pair: Pair) -> tuple[int | None, float | None]:
    """Return the index of the first token that differs, and the target's own top-2 logit gap there.

    Both are None without token ids; the gap is None too if it was not recorded.
    """
    if _compared_by(pair) != TOKENS:
        return None, None
    before, after = (np.frombuffer(unit.answer or b"", "<i4") for unit in (pair.baseline, pair.variant))
    shared = min(len(before), len(after))
    differs = np.flatnonzero(before[:shared] != after[:shared])
    position = int(differs[0]) if len(differs) else shared
    margins = np.frombuffer(pair.baseline.margins or b"", "<f8")
    return position, float(margins[position]) if position < len(margins) else None


def _same_within_margins(
    name: str, target: str, pairs: dict[str, tuple[Pair, ...]], slices: Sequence[Slice], policy: Policy
) -> tuple[RuleStatus, str]:
    """Compare sampled answers by score: every critical quality rule must hold in both directions.

    Broken if any is surely beyond its margin in a direction (Bonferroni over rules and directions), else undecided if
    any is unproven. Returns: (status, reason).
    """
    swapped = {
        name: tuple(Pair(baseline=pair.variant, variant=pair.baseline, cluster=pair.cluster) for pair in of_set)
        for name, of_set in pairs.items()
    }
    if greedy := _greedy_sampler(flat(pairs)):
        return "broken", f"{name} is defective{greedy}"
    unfinished, alpha = unfinished_sets(pairs, policy.max_unfinished), policy.alpha
    critical = critical_quality(slices)
    unproven = []
    for slice_ in critical:
        for direction, side in (("worse", pairs), ("better", swapped)):
            measured = measure(slice_, side, unfinished, alpha)
            broken = measured.comparison.p_broken
            if broken is not None and broken <= alpha / (2 * len(critical)):
                return (
                    "broken",
                    f"{name} is defective: {slice_.head} is surely {direction} than {target}'s, beyond its margin",
                )
            if measured.obstacle or not measured.p_within <= alpha:
                unproven.append(
                    measured.obstacle
                    or f"{slice_.head}: {counted(measured.comparison.n, 'case')} cannot tell it from {target}'s"
                )
    if unproven:
        return "undecided", unproven[0]
    return "proven", f"scores as {target} does, within every critical margin, in both directions"


def _greedy_sampler(pairs: Sequence[Pair]) -> str:
    """Say that the arm is surely greedy while its target samples; "" if it samples or nothing shows it.

    Of two equal samplers each is equally likely to be the one that varies on a case.
    """
    before, after = _varying(pairs)
    if after or not before or 0.5 ** len(before) > GREEDY_ALPHA:
        return ""
    return (
        f": its sampler is greedy, for {counted(len(before), 'case')} with several answers vary in its target and none "
        "in it"
    )


def _why_sampling_unshown(name: str, target: str, pairs: Sequence[Pair]) -> str:
    """Say why nothing shows that the arm samples like its target although scores are alike (a greedy sampler may score
    so); "" if something does. Answers that all equal the target's need no other proof."""
    if all(map(equal, pairs)):
        return ""
    before, after = _varying(pairs)
    if after:
        return ""
    answers_per_case = Counter(
        (pair.variant.key.evalset, pair.variant.key.case_id) for pair in pairs if _compared_by(pair)
    )
    repeated = sum(count > 1 for count in answers_per_case.values())
    if not answers_per_case:
        gap = "no answer's tokens or text are recorded"
    elif not repeated:
        gap = "each case has one answer"
    else:
        varying = f"{len(before)} in {target}" if before else f"none in {target}"
        gap = f"of {counted(repeated, 'case')} with several answers none varies in {name}, {varying}"
    return (
        f"scores as {target} does, and nothing shows that {name} draws at all: {gap}. A sampler that is silently "
        f"greedy would score so. It needs several answers a case (`repeats: 2` or more), of which {VARYING} cases or "
        f"more vary in {target}"
    )


def _varying(pairs: Sequence[Pair]) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """Find the cases whose answers differ among each other: (of the target, of the arm).

    Answers without a common record do not count.
    """
    varying = []
    for side in ("baseline", "variant"):
        answers_by_case: dict[tuple[str, str], set[bytes | str]] = {}
        for unit in (getattr(pair, side) for pair in pairs if _compared_by(pair)):
            answer = unit.answer if unit.answer is not None else unit.tokens_sha256 or unit.text_sha256
            answers_by_case.setdefault((unit.key.evalset, unit.key.case_id), set()).add(answer)
        varying.append({case for case, answers in answers_by_case.items() if len(answers) > 1})
    return varying[0], varying[1]


def critical_quality(slices: Sequence[Slice]) -> list[Slice]:
    """The slices of critical quality rules."""
    return [
        slice_ for slice_ in slices if slice_.rule.tier == "critical" and METRICS[slice_.rule.metric].kind == "quality"
    ]


def flat(pairs: dict[str, tuple[Pair, ...]]) -> list[Pair]:
    """All pairs, in order of their evalsets' names."""
    return [pair for name in sorted(pairs) for pair in pairs[name]]
