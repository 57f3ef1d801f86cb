"""What the store promises of drafts: written with their answers or not at all, sealed with them, given back whole."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import text

from qualgate.errors import IntegrityError
from qualgate.records import DraftSource, DraftStep, QuantizeRecipe, Speculation
from qualgate.store import queries, runs
from tests.drafts import with_drafts
from tests.store.made import make_plan, make_results

PLAN = make_plan(cases=4, job_rows=8, wrong={"int8": 0.0, "mxfp4": 0.1})
SPECULATION = Speculation(
    draft=DraftSource(
        kind="quantize",
        quantize=QuantizeRecipe(method="mxfp4", group_size=32),
        under=Speculation(draft=DraftSource(kind="ngram"), tokens=2),
    ),
    tokens=4,
)


@pytest.fixture
def begun(store):
    return runs.begin(store, PLAN).run_id


def drafting():
    """(result, scores) of every job; int8 speculates on two levels."""
    for result, scores in make_results(PLAN):
        yield (with_drafts(result, under=(0.5, 0.5)) if result.arm == "int8" else result), scores


def execute(store, statement: str):
    with store.write() as connection:
        return connection.execute(text(statement))


def number(store, query: str) -> int:
    with store.read() as connection:
        return connection.execute(text(query)).scalar_one()


def test_steps_come_back_as_they_were_in_their_order_and_only_of_the_arm_that_drafted(store, begun):
    given: dict = {}
    for result, scores in drafting():
        runs.record(store, begun, result, scores)
        for step in result.draft_steps:
            given.setdefault(step.key, []).append(step)
    evidence = runs.evidence(store, begun)
    assert evidence.integrity == ()
    of_arms = {arm.name: {unit.key: unit.draft_steps for unit in arm.units if unit.draft_steps}
               for arm in (evidence.baseline, *evidence.variants)}  # fmt: skip
    assert of_arms == {
        "baseline": {}, "int8": {key: tuple(steps) for key, steps in given.items()}, "mxfp4": {},
    }  # fmt: skip
    assert {step.level for steps in given.values() for step in steps} == {1, 2}
    assert queries.drafted(store, begun, "int8") == of_arms["int8"]
    assert list(queries.drafted(store, begun, "int8")) == [key for key in PLAN.expected if key in given]
    assert queries.drafted(store, begun, "mxfp4") == {}


def test_what_a_unit_says_of_its_drafts_is_the_sum_of_its_first_level(store, begun):
    for result, scores in drafting():
        runs.record(store, begun, result, scores)
    sums = "select sum({0}) from draft_steps join units using (unit_id) where level = 1 and arm = 'int8'"
    units = "select sum(draft_{0}) from units where arm = 'int8'"
    for name in ("proposed", "accepted"):
        assert number(store, sums.format(f"draft_steps.{name}")) == number(store, units.format(name)) > 0
    assert number(store, "select count(*) from units where arm <> 'int8' and draft_proposed is not null") == 0


def test_an_arm_that_speculates_and_drafted_nothing_in_a_job_says_so_and_not_that_nobody_counted(store):
    arms = tuple(replace(arm, speculation=SPECULATION) if arm.name == "int8" else arm for arm in PLAN.arms)
    begun = runs.begin(store, replace(PLAN, key="speculates", arms=arms)).run_id
    for result, scores in make_results(PLAN):
        runs.record(store, begun, result, scores)
    evidence = runs.evidence(store, begun)
    assert {
        (arm.name, unit.draft_proposed, unit.draft_accepted) for arm in evidence.variants for unit in arm.units
    } == {("int8", 0, 0), ("mxfp4", None, None)}
    assert [arm.speculation for arm in evidence.variants] == [SPECULATION, None]


def test_the_same_job_again_keeps_the_first_steps_and_a_failed_one_leaves_none(store, begun):
    jobs = [one for one in drafting() if one[0].arm == "int8"]
    result, scores = jobs[0]
    runs.record(store, begun, result, scores)
    before = queries.drafted(store, begun, "int8")
    again = replace(result, draft_steps=result.draft_steps[::2])  # the clock chose other drafts
    runs.record(store, begun, again, scores)
    assert queries.drafted(store, begun, "int8") == before
    assert runs.evidence(store, begun).integrity == ()
    result, scores = jobs[1]
    broken = {key: tuple(replace(score, value=float("nan")) for score in said) for key, said in scores.items()}
    with pytest.raises(IntegrityError, match="not a number"):
        runs.record(store, begun, result, broken)
    assert queries.drafted(store, begun, "int8") == before
    runs.record(store, begun, result, scores)
    assert len(queries.drafted(store, begun, "int8")) > len(before)


IMPOSSIBLE = [
    ({"level": 0}, "level 0"),
    ({"accepted": -1}, "-1 accepted"),
    ({"position": -1}, "position -1"),
    ({"rejected": 2}, "2 rejected"),
    ({"proposed": 1, "accepted": 1, "rejected": 1}, "which cannot be"),
    ({"unverified": -3}, "-3 unverified"),
    ({"proposer": "baseline"}, "which is evaluation"),
    ({"proposer": "sibling"}, "which is evaluation"),
    ({"pass_number": -1}, "of pass -1"),
    ({"sequences": -2}, "over -2 sequences"),
    ({"overlap": -0.1}, "of -0.1 over"),
    ({"overlap": 99.0}, "of 99.0 over"),
    ({"overlap": float("nan")}, "of nan over"),
]


def test_a_step_that_cannot_be_is_refused_and_nothing_of_its_job_is_stored(store, begun):
    result, scores = next(one for one in drafting() if one[0].arm == "int8")
    [first, *others] = result.draft_steps
    for change, said in IMPOSSIBLE:
        with pytest.raises(IntegrityError, match=f"{said}.*nothing was stored"):
            runs.record(store, begun, replace(result, draft_steps=(replace(first, **change), *others)), scores)
    assert number(store, "select count(*) from units where status = 'done'") == 0
    assert number(store, "select count(*) from draft_steps") == 0


def test_steps_of_another_answer_or_that_contradict_the_answers_counts_are_refused(store, begun):
    result, scores = next(one for one in drafting() if one[0].arm == "int8")
    stray = DraftStep(
        key=replace(result.draft_steps[0].key, case_id="other"), level=1, position=1, proposed=1, accepted=1, rejected=0
    )
    with pytest.raises(IntegrityError, match="not in its job"):
        runs.record(store, begun, replace(result, draft_steps=(*result.draft_steps, stray)), scores)
    said = tuple(replace(one, draft_proposed=1, draft_accepted=1) for one in result.completions)
    with pytest.raises(IntegrityError, match="1 tokens proposed and 1 accepted, but its draft steps add up to"):
        runs.record(store, begun, replace(result, completions=said), scores)


@pytest.mark.parametrize(
    "tampering",
    [
        "update draft_steps set accepted = accepted + 1 where unit_id = {unit} and step = 0",
        "update draft_steps set unverified = unverified + 1 where unit_id = {unit} and step = 0",
        "update draft_steps set pass_number = 7 where unit_id = {unit} and step = 1",
        "update draft_steps set sequences = 7 where unit_id = {unit} and step = 1",
        "update draft_steps set overlap = 7 where unit_id = {unit} and step = 1",
        "update draft_steps set proposer = 'x' where unit_id = {unit} and step = 1",
        "update draft_steps set step = step + 100 where unit_id = {unit} and step = 0",
        "delete from draft_steps where unit_id = {unit} and step = 0",
        "delete from draft_steps where unit_id = {unit}",
        "insert into draft_steps values ({unit}, 999, 1, 1, 1, 1, 0, 0, 'x', 3, 2, null)",
        "insert into draft_steps values ({plain}, 0, 1, 1, 1, 1, 0, 0, 'x', 3, 2, null)",
    ],
)
def test_steps_that_were_changed_dropped_or_added_are_found(store, begun, tampering):
    for result, scores in drafting():
        runs.record(store, begun, result, scores)
    unit = number(store, "select min(unit_id) from draft_steps")
    plain = number(store, "select min(unit_id) from units where arm = 'mxfp4'")
    execute(store, tampering.format(unit=unit, plain=plain))
    assert len(runs.evidence(store, begun).integrity) == 1


def test_units_that_are_looked_at_on_the_way_bring_their_steps(store, begun):
    jobs = list(drafting())
    seen = runs.evidence(store, begun)
    for result, scores in jobs:
        runs.record(store, begun, result, scores)
    keys = {completion.key for result, _ in jobs for completion in result.completions}
    later = runs.grown(store, seen, keys)
    assert later.integrity == ()
    assert [unit.draft_steps for unit in later.variants[0].units] == [
        unit.draft_steps for unit in runs.evidence(store, begun).variants[0].units
    ]
