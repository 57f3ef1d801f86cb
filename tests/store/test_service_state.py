"""What is watched of a service is counted in one snapshot, on a file and on a server alike."""

from __future__ import annotations

from dataclasses import replace

from qualgate.store import runs
from qualgate.store.nights import Night, add_digests, add_night
from qualgate.store.queries.service import service_state
from tests.store.made import make_plan, make_run

NIGHT = Night(
    nightly="nightly.yaml", gate="support", model="", due_at="2026-11-25T02:00:00+00:00",
    began_at="2026-11-25T02:00:01Z", finished_at="2026-11-25T03:00:00Z", run_id=None, repeated=False, exit=13,
)  # fmt: skip


def test_a_new_store_is_at_rest(store):
    state = service_state(store)
    assert (state.runs, state.units, state.verdicts, state.night_exits, state.waiting) == ({}, {}, {}, {}, {})


def test_units_are_those_of_runs_under_way_and_verdicts_those_of_all(store):
    make_run(store, make_plan(cases=3))
    assert service_state(store).units == {}
    begun = replace(make_plan(cases=5), key="0" * 64)
    runs.begin(store, begun)
    found = service_state(store)
    assert found.runs == {"complete": 1, "running": 1}
    assert found.units == {(arm.name, "pending"): 5 * len(begun.evalsets) for arm in begun.arms}
    assert sum(found.verdicts.values()) == len(begun.arms) - 1


def test_nights_and_digests_are_told_by_their_file(store):
    for change in ({}, {"model": "/a", "exit": 0}, {"finished_at": "2026-11-26T03:00:00Z", "exit": 0}):
        add_night(store, replace(NIGHT, **change))
    add_digests(store, "nightly.yaml", {"slack": {}, "webhook": {}}, 3)
    found = service_state(store)
    assert found.last_nights == {("nightly.yaml", "support"): 1795662000.0}
    assert found.night_exits == {("nightly.yaml", 0): 2}
    assert found.waiting["nightly.yaml"][0] == 2
    assert 0.0 <= found.waiting["nightly.yaml"][1] < 600.0


def test_a_model_that_is_gone_and_a_fault_that_passed_do_not_stand_for_ever(store):
    for change in (
        {"exit": 64},  # no folder fitted
        {"model": "/gone"},
        {"model": "/a", "exit": 10},
        {"model": "/a", "exit": 0, "due_at": "2026-11-26T02:00:00+00:00"},
        {"gate": "search", "exit": 12},
    ):
        add_night(store, replace(NIGHT, **change))
    assert service_state(store).night_exits == {("nightly.yaml", 0): 1, ("nightly.yaml", 12): 1}
