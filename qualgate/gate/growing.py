"""Judge a list that grows between looks: score files that were too short and are judged again with more rows.

A fixed test may spend all of alpha on its one look: at the margin it approves with a chance of up to alpha. Another
test of the same list adds its own errors (Armitage, McPherson and Rowe, JRSS A 132, 1969), and no alpha is left for it
(Lan and DeMets, Biometrika 70, 1983). So only the first of several tests of one list decides.

With `stop: early` every look of a list that began so is judged by `stats.betting`: one capital over all of them, which
reaches 1/alpha at any of them with a chance of alpha (Ville). The cases come in the order of the looks they came with,
seeded within one, whole clusters together; the stakes rest on the sizes of the first look's list, known before any
outcome and the same at every look. Another seed would be another order, so another capital, and another test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

from qualgate.gate.advice import SENSITIVITY_ALPHA
from qualgate.gate.causes.cause import name_causes
from qualgate.gate.comparisons.acceptance import terms_of
from qualgate.gate.comparisons.by_metric import measure
from qualgate.gate.comparisons.pairs import pairs_of
from qualgate.gate.comparisons.result import Measured, unmeasured
from qualgate.gate.early import Question, in_sequence, measured_in_order
from qualgate.gate.evidence.checks import About, Pair, examine
from qualgate.gate.evidence.unfinished_sets import unfinished_sets
from qualgate.gate.remark import DECIDES, Judged, Remark, Remarks, no_choice
from qualgate.gate.rules import Slice
from qualgate.gate.verdict import judge, prepare, without
from qualgate.records import Looked, Policy, RunEvidence, Seen, Verdict
from qualgate.text.numbers import counted

ONE_LOOK = "has a test for one look alone, and this list was judged before, when it held less"
GREW = "a cluster of cases grew after it had been looked at: what is added must be whole clusters"
LARGER = "a cluster has more cases than any of the first look's, which the stakes rest on"


def tested_before(looks: Sequence[Looked] | None, policy: Policy) -> str:
    """The earlier test of this list that leaves no alpha for this policy's look; "" if none does."""
    tests = [test for look in looks or () for test in look.tests]
    others = [test for test in tests if test != policy.test]
    return others[0] if others else "fixed" if tests[1:] and policy.test == "fixed" else ""


def look_remarks(decision: Judged) -> Remarks:
    """Withhold the verdict of a later look at a list: of several tests of one list the first alone decides."""
    evidence, policy = decision.evidence, decision.policy
    looks, before = evidence.looks or (), evidence.judged_before
    if test := tested_before(looks, policy):
        answers_seen = dict.fromkeys((verdict.variant for verdict in decision.sound), answers_before(looks))
    elif policy.chooses:  # one of several, so a look at any was a look at the choice
        answers_seen = dict.fromkeys((verdict.variant for verdict in decision.sound), max(before.values(), default=0))
    else:
        answers_seen = {verdict.variant: before.get(verdict.variant, 0) for verdict in decision.sound}
    return {
        verdict.variant: _ask_no_more(verdict, test, answers_seen[verdict.variant])
        for verdict in decision.sound
        if test or answers_seen[verdict.variant]
    }


def _ask_no_more(verdict: Verdict, test: str, before: int) -> Remark:
    """Withhold whatever the test says. test: the earlier one, "" = unknown. before: answers that the list had."""
    by = f" (test: {test})" if test else ""
    why = (
        f"this list was judged before at {counted(before, 'answer')}{by}: two tests of one list err more often than "
        "alpha, so the later one decides nothing; judge cases that no look has seen, as an evalset of their own in a "
        "gate file of its own. Score files may grow with `stop: early` and `--looks` from their first look on"
    )
    return Remark(lines=(why,), withholds=DECIDES, answer=no_choice(verdict, why))


def answers_before(looks: Sequence[Looked]) -> int:
    """Number of answers at the earlier looks."""
    return sum(len(look.questions) for look in looks[:-1]) or len(looks[0].questions)


def decide_growing(evidence: RunEvidence, policy: Policy, now: str = "") -> tuple[Verdict, ...]:
    """Decide like `decide_plain`, by tests valid at every look. `evidence.looks` has all looks, this one last."""
    assert policy.stop is not None, "a policy that stops early"
    looks = evidence.looks or ()
    slices, quarantine, evidence = prepare(evidence, policy, now)
    terms = terms_of(evidence, policy)
    verdicts = []
    for examination in (without(full, quarantine) for full in examine(evidence)):
        order = _Order.of(examination.pairs, looks, policy.stop.seed)

        def measured(
            slice_: Slice, pairs: dict[str, tuple[Pair, ...]], order: _Order = order, about: About = examination.about
        ) -> Measured:
            fixed = measure(slice_, pairs, unfinished_sets(pairs, policy.max_unfinished), policy.alpha, terms, about)
            return _at_this_look(fixed, pairs_of(slice_, pairs), order, len(looks), policy)

        verdict = judge(examination, slices, policy, terms, measured)
        open_ = any(
            comparison.tier != "advisory" and comparison.status == "undecided" for comparison in verdict.comparisons
        )
        number, questions = len(looks), len(order.places)
        note = f"look {number} at a list that may grow, by tests that may be asked at any time"
        settled = not open_ and verdict.word != "undecided"
        progress = Seen(look=number, looks=number, questions=questions, of=questions, settled=settled)
        verdicts.append(replace(verdict, seen=progress, reasons=(*verdict.reasons, note)))
    return name_causes(verdicts, evidence, policy.max_unfinished)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Order:
    """The place of each question in the order, and the look that it came with."""

    places: Mapping[Question, int]  # equal for those of one cluster
    looks: Mapping[Question, int]  # the look that it came with, from 0

    @classmethod
    def of(cls, pairs: Mapping[str, Sequence[Pair]], looks: Sequence[Looked], seed: int) -> _Order:
        """Order the pairs by the look that added them, and within a look at random, cluster by cluster."""
        first_look = {question: number for number, look in enumerate(looks) for question in look.questions}
        groups: dict[tuple[int, int], list[Question]] = {}
        for pair in (pair for name in sorted(pairs) for pair in pairs[name]):
            question = _question(pair)
            groups.setdefault((first_look[question], pair.cluster), []).append(question)

        def random_rank(group: tuple[int, int]) -> tuple[int, bytes]:
            label = "\0".join(map(str, (seed, *min(groups[group]))))
            return group[0], sha256(label.encode("utf-8", "surrogatepass")).digest()

        places = {q: position for position, group in enumerate(sorted(groups, key=random_rank)) for q in groups[group]}
        return cls(places=places, looks=first_look)


def _at_this_look(fixed: Measured, pairs: Sequence[Pair], order: _Order, number: int, policy: Policy) -> Measured:
    """Replace the slice's numbers by those of a test that is valid at this look.

    fixed: measured for a single look; it is returned for the first look at a rule without such a test. number: of looks
    so far. Unmeasured if clusters grew between looks.
    """
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
    # Over all possible looks, a baseline too weak to lose the margin passes with 5 % at most.
    chance = SENSITIVITY_ALPHA / (number * (number + 1))
    return measured_in_order(fixed, pairs, dict(order.places), tuple(known.values()), policy, chance)


def _question(pair: Pair) -> Question:
    key = pair.baseline.key
    return key.evalset, key.case_id, key.repeat
