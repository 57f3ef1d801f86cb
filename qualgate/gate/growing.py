"""A list that grows between looks: score files that are judged, found too short, and judged again when they hold more.

The fixed tests are of one look. Asked at every growth until they approve, they err far more often than alpha says (ten
times: 17.6 % at the margin). So the first look may be theirs, and no later one. With `stop: early` every look is judged
by `stats.betting`: the cases in the order of the looks they came with, seeded within one, whole clusters together. The
stakes rest on the sizes of the first look's list, known before any outcome and the same at every look.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from qualgate.errors import Exit
from qualgate.formatting import counted
from qualgate.gate.causes.cause import name_causes
from qualgate.gate.comparisons.acceptance import terms_of
from qualgate.gate.comparisons.by_metric import measure
from qualgate.gate.comparisons.pairs import pairs_of
from qualgate.gate.comparisons.quality import SENSITIVITY_ALPHA
from qualgate.gate.comparisons.result import Measured, unmeasured
from qualgate.gate.early import Question, in_sequence, measured_in_order
from qualgate.gate.evidence.checks import About, Pair, examine, truncated_sets
from qualgate.gate.rules import Slice
from qualgate.gate.verdict import judge, prepare, without
from qualgate.records import Looked, Policy, RunEvidence, Seen, Verdict

ONE_LOOK = "has a test for one look alone, and this list was judged before, when it held less"
GREW = "a cluster of cases grew after it had been looked at: what is added must be whole clusters"
LARGER = "a cluster has more cases than any of the first look's, which the stakes rest on"


def looked_at_before(looks: Sequence[Looked] | None) -> bool:
    """Is this more than the fixed tests' one look?"""
    return bool(looks) and (len(looks) > 1 or "early" in looks[0].tests)


def ask_no_more(verdict: Verdict, look: str, before: int) -> Verdict:
    """The fixed tests' verdict at a later look: whatever they say, it decides nothing. Broken evidence stays that.

    look: which it is. before: how many answers the list had when it was judged before.
    """
    if verdict.exit in (Exit.INTEGRITY, Exit.INFRASTRUCTURE):
        return verdict
    why = (
        f"{look} at a list that was judged before at {counted(before, 'answer')}: the fixed test is of one look, and "
        "asked again as the list grows it errs more often than alpha says; write `stop: early` in the gate file, whose "
        "test may be asked at any time"
    )
    four = verdict.four_arm and replace(verdict.four_arm, choice="", why=why, exit=int(Exit.UNDECIDED))
    reasons = (why, *verdict.reasons)
    return replace(verdict, word="undecided", exit=int(Exit.UNDECIDED), reasons=reasons, four_arm=four)


def answers_before(looks: Sequence[Looked]) -> int:
    """Answers of the list as it was when it was judged before."""
    return sum(len(look.questions) for look in looks[:-1]) or len(looks[0].questions)


def told_of_another(verdict: Verdict, before: int) -> Verdict:
    """A run that stops early on a list of which a shorter one was judged: its own test is new, and there were two."""
    why = f"this list was judged before at {counted(before, 'answer')}: the two together err at most twice alpha"
    return replace(verdict, reasons=(*verdict.reasons, why))


def decide_growing(evidence: RunEvidence, policy: Policy, now: str = "") -> tuple[Verdict, ...]:
    """As `decide_plain`, by tests that may be asked at every look. `evidence.looks` has them all, this one last."""
    assert policy.stop is not None, "a policy that stops early"
    looks = evidence.looks or ()
    slices, held, evidence = prepare(evidence, policy, now)
    terms = terms_of(evidence, policy)
    verdicts = []
    for found in (without(one, held) for one in examine(evidence)):
        order = _Order.of(found.pairs, looks, policy.stop.seed)

        def measured(
            slice_: Slice, pairs: dict[str, tuple[Pair, ...]], order: _Order = order, about: About = found.about
        ) -> Measured:
            fixed = measure(slice_, pairs, truncated_sets(pairs), policy.alpha, terms, about)
            return _at_this_look(fixed, pairs_of(slice_, pairs), order, len(looks), policy)

        verdict = judge(found, slices, policy, terms, measured)
        open_ = any(one.tier != "advisory" and one.status == "undecided" for one in verdict.comparisons)
        number, questions = len(looks), len(order.places)
        seen = Seen(look=number, looks=number, questions=questions, of=questions, settled=not open_)
        verdicts.append(replace(verdict, seen=seen, reasons=(*verdict.reasons, *_said(looks))))
    return name_causes(verdicts, evidence)


def _said(looks: Sequence[Looked]) -> tuple[str, ...]:
    fixed = [str(number) for number, look in enumerate(looks, 1) if "fixed" in look.tests]
    said = f"look {len(looks)} at a list that may grow, by tests that may be asked at any time"
    if not fixed:
        return (said,)
    return (said, f"look {fixed[0]} was judged by the fixed test as well: the two together err at most twice alpha")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """Where each question stands, and what is known of the looks' clusters."""

    places: Mapping[Question, int]  # equal for those of one cluster
    looks: Mapping[Question, int]  # the look that it came with, from 0

    @classmethod
    def of(cls, pairs: Mapping[str, Sequence[Pair]], looks: Sequence[Looked], seed: int) -> _Order:
        came = {question: number for number, look in enumerate(looks) for question in look.questions}
        groups: dict[tuple[int, int], list[Question]] = {}
        for pair in (pair for name in sorted(pairs) for pair in pairs[name]):
            question = _question(pair)
            groups.setdefault((came[question], pair.cluster), []).append(question)

        def drawn(group: tuple[int, int]) -> tuple[int, bytes]:
            label = "\0".join(map(str, (seed, *min(groups[group]))))
            return group[0], sha256(label.encode("utf-8", "surrogatepass")).digest()

        places = {q: place for place, group in enumerate(sorted(groups, key=drawn)) for q in groups[group]}
        return cls(places=places, looks=came)


def _at_this_look(fixed: Measured, pairs: Sequence[Pair], order: _Order, number: int, policy: Policy) -> Measured:
    """The slice's numbers by a test that this look may ask."""
    slice_ = fixed.slice
    if not in_sequence(slice_.rule):
        return fixed if number == 1 else unmeasured(slice_, len(pairs), ONE_LOOK)
    if not pairs:
        return fixed
    first = min(order.looks[_question(pair)] for pair in pairs)
    sizes = Counter(order.places[_question(pair)] for pair in pairs)
    known = Counter(order.places[_question(pair)] for pair in pairs if order.looks[_question(pair)] == first)
    if len({pair.cluster for pair in pairs}) < len(sizes):
        return unmeasured(slice_, len(pairs), GREW)
    if max(sizes.values()) > max(known.values()):
        return unmeasured(slice_, len(pairs), LARGER)
    # Over all looks that there may ever be, a baseline too weak to lose the margin passes with 5 % at most.
    chance = SENSITIVITY_ALPHA / (number * (number + 1))
    return measured_in_order(fixed, pairs, dict(order.places), tuple(known.values()), policy, chance)


def _question(pair: Pair) -> Question:
    key = pair.baseline.key
    return key.evalset, key.case_id, key.repeat
