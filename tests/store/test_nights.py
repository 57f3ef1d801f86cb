"""Nights are kept for good, digests until they are delivered, and nights side by side are what was scored."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qualgate.records.identity import sha256_text
from qualgate.store import decisions, queries
from qualgate.store.nights import Night, add_digests, add_night, last_nights, note_attempt, undelivered, untold
from qualgate.store.queries import retention
from qualgate.store.queries.superseded import superseded
from tests.store.made import make_plan, make_run, said

FILE = "nightly.yaml"
NIGHT = Night(
    nightly=FILE, gate="support", model="", due_at="2026-11-25T02:00:00+00:00", began_at="2026-11-25T02:00:01Z",
    finished_at="2026-11-25T03:00:00Z", run_id=None, repeated=False, exit=13, said="no room",
)  # fmt: skip
LOST = {"int8": 0.0, "int2-g32": 0.5}
SAME = {"int8": 0.0, "int2-g32": 0.0}


def night_of(store, wrong, *, scored=None):
    """A run of one plan key; `scored` are the shares that come out wrong, where they are not the plan's."""
    plan = replace(make_plan(cases=20, wrong=wrong), key=sha256_text("one"))
    return make_run(store, plan, scored or wrong)


def test_the_newest_night_of_each_gate_and_model_is_found(store):
    other = replace(NIGHT, model="/models/a", exit=0)
    for night in (NIGHT, other, replace(NIGHT, due_at="2026-11-26T02:00:00+00:00", exit=12)):
        add_night(store, night)
    newest, beside = last_nights(store, FILE)
    assert (newest.exit, beside) == (12, other)
    assert (newest.name, beside.name) == ("support", "support: a")
    assert [one.exit for one in last_nights(store, FILE, gate="support")] == [12, 0]
    assert last_nights(store, FILE, gate="none") == ()


def test_files_that_share_a_store_know_nothing_of_each_other_s_nights_and_digests(store):
    add_night(store, NIGHT)
    add_night(store, replace(NIGHT, nightly="theirs", exit=0))
    add_digests(store, "theirs", {"slack": {}}, 2)
    assert last_nights(store, FILE) == (NIGHT,)
    assert [(one.night.exit, one.before) for one in untold(store, FILE)] == [(13, None)]
    assert (untold(store, "theirs"), undelivered(store, FILE)) == ((), ())
    assert [one.target for one in undelivered(store, "theirs")] == ["slack"]


def test_a_digest_waits_until_it_is_delivered(store):
    add_digests(store, FILE, {"slack": {"word": "bl\u202eock"}, "webhook": {"word": "bl\u202eock"}}, 1)
    first, second = undelivered(store, FILE)
    assert first.body == {"word": "bl\u202eock"}
    note_attempt(store, first, "the server answered 500")
    note_attempt(store, second, "")
    [waits] = undelivered(store, FILE)
    assert (waits.target, waits.attempts, waits.error) == ("slack", 1, "the server answered 500")
    note_attempt(store, first, "")
    assert undelivered(store, FILE) == ()


def test_a_night_is_untold_until_a_digest_tells_of_it_though_nobody_is_to_be_told(store):
    for code in (0, 10, 12):
        add_night(store, replace(NIGHT, exit=code))
    add_night(store, replace(NIGHT, model="/models/a"))
    found = untold(store, FILE)
    assert [(one.night.exit, one.before) for one in found] == [(0, None), (10, 0), (12, 10), (13, None)]
    add_digests(store, FILE, {}, found[1].night_id)
    assert [(one.night.exit, one.before) for one in untold(store, FILE)] == [(12, 10), (13, None)]
    assert undelivered(store, FILE) == ()
    add_digests(store, FILE, {"slack": {}}, found[-1].night_id)
    assert untold(store, FILE) == ()


def test_nights_side_by_side_are_the_scores_of_each(store):
    ids = [night_of(store, LOST, scored=one) for one in (SAME, SAME, LOST)]
    found = {(one.arm, one.metric): one for one in queries.watched(store, ids[-1])}
    assert set(found) == {(a, m) for a in ("baseline", *LOST) for m in ("exact_match", "tool_call.valid")}
    lost, kept = found["int2-g32", "exact_match"], found["int8", "exact_match"]
    assert lost.run_ids == tuple(ids)
    assert lost.means[0] == lost.means[1] > lost.means[2]
    assert lost.values[0] == lost.values[1] != lost.values[2]
    assert lost.weight == 60
    assert [sum(night) / lost.weight for night in lost.values] == pytest.approx(lost.means)
    assert len(set(kept.values)) == 1
    assert queries.watched(store, ids[1])[0].run_ids == tuple(ids[:2]), "a night knows of none after it"


def test_nights_are_held_against_what_a_person_approved_last_else_what_the_gate_did_first(store):
    ids = [night_of(store, SAME) for _ in range(4)]
    found = {one.arm: one for one in queries.watched(store, ids[-1]) if one.metric == "exact_match"}
    first_word = queries.run_summary(store, ids[0]).verdict("int8").verdict.word
    assert found["int8"].run_ids[0] == ids[0]
    assert found["int8"].approved_by == ("the gate" if first_word == "approve" else "")
    for run, variant in ((ids[1], "int8"), (ids[2], "int8"), (ids[3], "int2-g32")):
        stored = queries.run_summary(store, run).verdict(variant)
        action = "approve" if run != ids[3] else "block"
        decisions.append(
            store,
            run,
            variant,
            said(stored, action, "Ana"),
            decisions.Seen(stored.sha256),
        )
    found = {one.arm: one for one in queries.watched(store, ids[-1]) if one.metric == "exact_match"}
    assert found["int8"].run_ids == tuple(ids[2:])
    assert found["int8"].approved_by == "Ana"
    assert found["int2-g32"].run_ids[0] == ids[0], "a block approves nothing"


def test_nights_that_asked_other_cases_are_left_out_and_that_is_said(store):
    before = make_run(store, make_plan(cases=10, wrong=SAME), SAME)
    after = [make_run(store, make_plan(cases=12, wrong=SAME, seed=seed), SAME) for seed in (1, 1)]
    found = queries.watched(store, after[-1])
    assert all(one.run_ids == tuple(after) and one.other_cases for one in found)
    assert all(not one.other_cases for one in queries.watched(store, before))


def test_nights_of_another_gate_over_the_same_models_are_not_compared_with_ones_own(store):
    """Two gate files, which ask the same models otherwise, night by night; one of them was made by hand before."""
    ids = [make_run(store, replace(make_plan(cases=20, wrong=SAME), key=sha256_text("support")), SAME)]
    for _ in range(2):
        for gate, wrong in (("support", SAME), ("search", LOST)):
            plan = replace(make_plan(cases=20, wrong=wrong), key=sha256_text(gate))
            ids.append(make_run(store, plan, wrong))
            add_night(store, replace(NIGHT, gate=gate, run_id=ids[-1], exit=0))
    assert {one.run_ids for one in queries.watched(store, ids[3])} == {(ids[0], ids[1], ids[3])}
    assert {one.run_ids for one in queries.watched(store, ids[4])} == {(ids[0], ids[2], ids[4])}
    with store.read() as connection:
        newer, stay = superseded(connection), retention.in_force(connection)
    assert {ids[3], ids[4]} <= set(stay), "the last of each"
    assert {run: newer.get(run) for run in ids[1:]} == {ids[1]: ids[3], ids[2]: ids[4], ids[3]: None, ids[4]: None}
    add_night(store, replace(NIGHT, gate="search", run_id=ids[1], repeated=True, exit=0))
    assert {one.run_ids[-2:] for one in queries.watched(store, ids[4])} == {(ids[2], ids[4])}
    assert ids[1] in queries.watched(store, ids[4])[0].run_ids, "what a gate repeated is a night of its own too"


def test_gate_files_that_are_run_by_hand_over_the_same_models_are_kept_apart_by_name(store):
    ids = [make_run(store, replace(make_plan(cases=4, wrong=SAME), key=sha256_text(name), gate_name=name), SAME)
           for name in ("", "support.yaml", "search.yaml", "support.yaml", "search.yaml")]  # fmt: skip
    assert {one.run_ids for one in queries.watched(store, ids[3])} == {(ids[0], ids[1], ids[3])}
    with store.read() as connection:
        newer, stay = superseded(connection), retention.in_force(connection)
    assert {run: newer.get(run) for run in ids[1:]} == {ids[1]: ids[3], ids[2]: ids[4], ids[3]: None, ids[4]: None}
    assert {ids[3], ids[4]} <= set(stay), "the last of each"


def test_only_answers_that_change_between_nights_of_one_key_are_flaky(store):
    ids = [night_of(store, LOST, scored=one) for one in (SAME, LOST, SAME)]
    found = queries.flaky(store, ids[-1])
    assert {one.arm for one in found} == {"int2-g32"}
    assert {(one.changed, one.pairs) for one in found} == {(2, 2)}
    assert 10 < len(found) <= 60
    make_run(store, replace(make_plan(cases=20, wrong=LOST), key=sha256_text("another")), LOST)
    newest = queries.latest_run(store)
    assert {one.pairs for one in queries.flaky(store, newest)} == {2}, "something changed in between"
