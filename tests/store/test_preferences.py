"""Preferences of people who compare blind: drawn sides, the newest counts, and nothing after the results."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from qualgate.errors import IntegrityError, UsageError
from qualgate.records import UnitKey
from qualgate.store import people, prune, runs
from qualgate.store.people import Grant
from qualgate.store.preferences import close, closed, differing, prefer, preferences
from qualgate.store.prunings import EvidencePruned
from qualgate.store.seals import broken
from tests.store.made import make_plan, make_run
from tests.store.tampering import tamper

PEOPLE = ("Ada", "Bob", "Cleo", "Dan")


@pytest.fixture
def store(recorded):
    return recorded[0]


@pytest.fixture
def run_id(recorded):
    return recorded[1]


def test_sides_are_drawn_by_reviewer_and_pair_and_are_the_same_again(store):
    run_id = make_run(store, make_plan(cases=24, job_rows=96))
    pairs = differing(store, run_id)
    sides = {name: [pair.variant_first(run_id, name) for pair in pairs] for name in PEOPLE}
    orders = {name: sorted(pairs, key=lambda pair: pair.drawn(run_id, name)) for name in PEOPLE}
    every = [side for name in map(str, range(100)) for side in (pair.variant_first(run_id, name) for pair in pairs)]
    assert abs(sum(every) / len(every) - 0.5) < 5 * 0.5 / len(every) ** 0.5
    assert len({tuple(each) for each in sides.values()}) == len(PEOPLE)
    assert len({tuple(pair.unit for pair in each) for each in orders.values()}) == len(PEOPLE)
    assert sides["Ada"] == [pair.variant_first(run_id, "Ada") for pair in differing(store, run_id)]


def test_equal_answers_and_arms_of_the_run_itself_are_no_pairs(store, run_id):
    texts = {unit.key: unit for arm in runs.evidence(store, run_id, answers=True).variants for unit in arm.units}
    assert {pair.unit for pair in differing(store, run_id)} < set(texts)
    with store.read() as connection:
        equal = connection.execute(text(
            "select b.arm, b.evalset, b.case_id, b.repeat from units a join units b using (run_id, evalset, case_id, "
            f"repeat) where run_id = '{run_id}' and a.arm = 'baseline' and b.arm != a.arm and a.text = b.text"
        )).first()  # fmt: skip
    assert equal is not None
    with pytest.raises(UsageError, match="no two different answers"):
        prefer(store, run_id, UnitKey(*equal), "tie", name="Ada")


def test_the_stored_side_is_the_drawn_one_and_the_newest_of_a_reviewer_counts(store, run_id):
    first, second, *_ = differing(store, run_id)
    for word in ("second", "first"):
        given = prefer(store, run_id, first.unit, word, name=" Ada ")
    prefer(store, run_id, second.unit, "tie", name="Bob")
    assert [(one.reviewer, one.unit) for one in preferences(store, run_id)] == [
        ("ada", first.unit), ("bob", second.unit),
    ]  # fmt: skip
    assert given.vote.win == float(first.variant_first(run_id, "Ada"))
    assert preferences(store, run_id, "Bob")[0].vote.win == 0.5


def test_after_the_results_a_reviewer_prefers_nothing_and_others_go_on(store, run_id):
    pair = differing(store, run_id)[0]
    close(store, run_id, name="Ada")
    with pytest.raises(UsageError, match="Ada has seen the results"):
        prefer(store, run_id, pair.unit, "first", name="Ada")
    with pytest.raises(UsageError, match="has seen the results"):
        prefer(store, run_id, pair.unit, "first", name="\u200baDA")
    prefer(store, run_id, pair.unit, "first", name="Bob")
    with store.read() as connection:
        assert (closed(connection, run_id, "Ada"), closed(connection, run_id, "Bob")) == (True, False)


@pytest.mark.parametrize(
    ("word", "name", "unit", "said"),
    [
        ("better", "Ada", None, "is no preference"),
        ("first", "\u200b ", None, "needs the reviewer's name"),
        ("first", "a" * 201, None, "needs the reviewer's name"),
        ("first", "Ada", UnitKey("baseline", "tool_calls", "tool_calls-0000"), "no two different answers"),
        ("first", "Ada", UnitKey("nobody", "x", "y"), "no two different answers"),
    ],
)
def test_what_is_no_preference_is_refused(store, run_id, word, name, unit, said):
    with pytest.raises(UsageError, match=said):
        prefer(store, run_id, unit or differing(store, run_id)[0].unit, word, name=name)
    assert preferences(store, run_id) == ()


def test_a_run_under_way_or_pruned_has_nothing_to_compare(store, run_id):
    unit = differing(store, run_id)[0].unit
    under_way = make_run(store, make_plan(cases=4, seed=2, job_rows=6), jobs=3)
    assert differing(store, under_way) == ()
    kept = prefer(store, run_id, unit, "tie", name="Ada")
    make_run(store, make_plan(cases=4, job_rows=8))  # the newest of its gate file is kept
    prune.prune_run(store, run_id)
    assert differing(store, run_id) == ()
    with pytest.raises(EvidencePruned):
        prefer(store, run_id, unit, "tie", name="Bob")
    assert preferences(store, run_id) == (kept,)


def test_where_people_have_roles_a_labeller_compares_and_a_viewer_does_not(store, run_id):
    unit = differing(store, run_id)[0].unit
    for person, role in (("ada@x.org", "labeller"), ("bob@x.org", "viewer")):
        people.grant(store, Grant(person=person, role=role, by="test"))
    assert prefer(store, run_id, unit, "tie", name="Ada", signed_in="ada@x.org").reviewer == "ada@x.org"
    for signed_in, said in (("bob@x.org", "has the role viewer"), ("", "without signing in")):
        with pytest.raises(UsageError, match=said):
            prefer(store, run_id, unit, "tie", name="Ada", signed_in=signed_in)
        with pytest.raises(UsageError, match=said):
            close(store, run_id, name="Ada", signed_in=signed_in)


def test_a_changed_preference_is_found(store, run_id):
    prefer(store, run_id, differing(store, run_id)[0].unit, "first", name="Ada")
    tamper(store, "update sealed set body_json = replace(body_json, '\"first\"', '\"second\"') "
           "where kind = 'preference'")  # fmt: skip
    with pytest.raises(IntegrityError, match="preference"):
        preferences(store, run_id)
    assert any(line.startswith("preference ") for line in broken(store))


def test_what_was_typed_counts_no_more_once_people_have_roles_nor_what_a_former_labeller_said(store, run_id):
    first, second, *_ = differing(store, run_id)
    prefer(store, run_id, first.unit, "first", name="ada@x.org")
    people.grant(store, Grant(person="ada@x.org", role="labeller", by="test"))
    assert preferences(store, run_id, "ada@x.org") == ()
    kept = prefer(store, run_id, second.unit, "first", name="Ada", signed_in="ada@x.org")
    assert preferences(store, run_id) == (kept,)
    people.grant(store, Grant(person="ada@x.org", role="none", by="test"))
    assert preferences(store, run_id) == ()
