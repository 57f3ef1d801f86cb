"""Of an arm that a server answered for, its server's counters say whether it drafted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qualgate.errors import Exit
from qualgate.gate.decide import decide, exit_of
from qualgate.records import DraftCounts, DraftWindow, Generation, RunEvidence
from tests.gate.four import NAMES, POLICY, alike, evidence, with_units
from tests.gate.four_arm.test_drafting import answer, drafted, judged
from tests.gate.four_arm.test_verdict import CHEAPER

MISSING = "its metrics have no counter of drafts"
AT = DraftCounts(verifications=10, proposed=40, accepted=20)
MOVED = DraftCounts(verifications=1010, proposed=3978, accepted=1244)


def counted(before: DraftCounts, after: DraftCounts, uncounted: str = "") -> Generation:
    window = DraftWindow(server="127.0.0.1:8000", evalset="code", before=before, after=after)
    return Generation(engine="vllm 0.32.0", windows=(window,), uncounted=uncounted)


def served(**made: Generation) -> RunEvidence:
    """Four arms that vLLM served, of which answers say nothing; made: of `drafted` and `both`, else counters moved."""
    given = evidence(alike(200), CHEAPER)
    for name in NAMES:
        given = with_units(given, name, lambda unit: replace(unit, draft_proposed=None, draft_accepted=None))
    said = {"drafted": counted(AT, MOVED), "int4+drafted": counted(AT, MOVED), **{
        {"both": "int4+drafted"}.get(name, name): one for name, one in made.items()
    }}  # fmt: skip

    def of(arm):
        assert arm.identity is not None
        untold = Generation(engine="vllm 0.32.0", uncounted=MISSING)
        return replace(
            arm, identity=replace(arm.identity, served="m; vllm 0.32.0"), generation=said.get(arm.name, untold)
        )

    return replace(given, baseline=of(given.baseline), variants=tuple(map(of, given.variants)))


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (counted(AT, MOVED), "drafted 3,938 tokens, 1,224 accepted (31.1%) in 1,000 verifications"),
        (counted(DraftCounts(verifications=5), DraftCounts(verifications=9)), "drafted in 4 verifications"),
        (counted(DraftCounts(proposed=5, accepted=1), DraftCounts(proposed=9, accepted=2)),
         "drafted 4 tokens, 1 accepted (25.0%)"),
    ],
    ids=["vLLM", "SGLang", "TensorRT-LLM"],
)  # fmt: skip
def test_counters_that_moved_show_that_an_arm_drafted(made, told):
    verdicts = judged(served(drafted=made))
    assert drafted(verdicts) == ("proven", f"{told}, as its server counts them")
    assert (answer(verdicts).choice, exit_of(verdicts)) == ("int4+drafted", Exit.APPROVE)


@pytest.mark.parametrize("arm", ["drafted", "both"])
@pytest.mark.parametrize(
    ("made", "why"),
    [
        (counted(AT, AT), "its server's counters of drafts stood still while it answered"),
        (Generation(engine="vllm 0.32.0", uncounted=MISSING), f"is not known, for {MISSING}"),
        (counted(AT, AT, MISSING), f"is not known, for {MISSING}"),
    ],
    ids=["still", "missing", "still and missing"],
)
def test_an_arm_whose_server_drafted_nothing_or_does_not_say_ends_in_12(arm, made, why):
    verdicts = judged(served(**{arm: made}))
    name = {"both": "int4+drafted"}.get(arm, arm)
    status, reason = drafted(verdicts, name)
    assert (status, exit_of(verdicts), answer(verdicts).choice) == ("undecided", Exit.UNDECIDED, "")
    assert why in reason


def test_what_is_declared_counts_where_no_counter_does_and_never_against_one():
    untold = Generation(engine="vllm 0.32.0", uncounted=MISSING)
    status, reason = drafted(judged(served(drafted=untold), ("drafted", 100, 50)))
    assert (status, reason.split(":")[0]) == ("proven", "declared in the gate file, not measured")
    status, reason = drafted(judged(served(drafted=counted(AT, AT)), ("drafted", 100, 50)))
    assert (status, "one of the two is wrong" in reason) == ("undecided", True)


def test_answers_that_say_that_nothing_was_drafted_outweigh_a_counter_that_others_move():
    given = with_units(served(), "drafted", lambda unit: replace(unit, draft_proposed=0, draft_accepted=0))
    assert drafted(judged(given))[0] == "undecided"


@pytest.mark.parametrize("arm", ["baseline", "int4"])
def test_an_arm_that_is_to_draft_nothing_and_whose_counters_moved_is_no_target(arm):
    verdicts = judged(served(**{arm: counted(AT, MOVED)}))
    assert exit_of(verdicts) == Exit.UNDECIDED
    assert f"{arm} is to " in drafted(verdicts, "drafted" if arm == "baseline" else "int4")[1]


def by_itself(made: Generation, *, said: bool) -> RunEvidence:
    given = served(drafted=made)
    arm = next(arm for arm in given.variants if arm.name == "drafted")
    keys = tuple(key for key in given.expected if key.arm in ("baseline", "drafted"))
    return replace(given, variants=(replace(arm, to_draft=said),), expected=keys)


def test_an_arm_by_itself_that_says_that_it_speculates_is_not_approved_where_it_does_not():
    policy = replace(POLICY, four_arm=None)
    [moved] = decide(by_itself(counted(AT, MOVED), said=True), policy).verdicts
    [still] = decide(by_itself(counted(AT, AT), said=True), policy).verdicts
    [unsaid] = decide(by_itself(counted(AT, AT), said=False), policy).verdicts
    assert (moved.exit, still.exit, unsaid.exit) == (Exit.APPROVE, Exit.UNDECIDED, Exit.APPROVE)
    assert moved.reasons[-1].startswith("drafting proven: drafted 3,938 tokens")
    assert still.reasons[0].startswith("drafting undecided: drafted is to speculate, and its server's counters")


def test_a_proven_loss_blocks_an_arm_whether_or_not_it_drafted():
    given = by_itself(counted(AT, AT), said=True)
    worse = with_units(given, "drafted", lambda unit: replace(unit, values={**unit.values, "exact_match": 0.0}))
    [verdict] = decide(worse, replace(POLICY, four_arm=None)).verdicts
    assert verdict.exit == Exit.BLOCK
