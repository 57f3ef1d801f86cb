"""People's decisions: what is refused, and that the chain stays whole and linear."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

import pytest
from sqlalchemy import text

from qualgate.errors import IntegrityError, QualgateError, UsageError
from qualgate.records import Verdict
from qualgate.store import decisions, queries, runs
from qualgate.store.database import open_store
from qualgate.store.decisions import Seen
from qualgate.store.evidence_seal import evidence_seal
from tests.store.conftest import SMALL
from tests.store.tampering import tamper


@pytest.fixture
def store(recorded):
    return recorded[0]


@pytest.fixture
def run_id(recorded):
    return recorded[1]


def seen(store, run_id, variant="int8"):
    return queries.run_summary(store, run_id).verdict(variant).sha256


def decide(store, run_id, variant="int8", action="approve", name="Ada", reason="looked at all flips", **options):
    options.setdefault("verdict_sha256", seen(store, run_id, variant))
    return decisions.append(store, run_id, variant, action, name=name, reason=reason, **options)


def test_a_decision_is_chained_and_takes_the_variant_from_the_queue(store, run_id):
    assert decisions.check_chain(store) == decisions.GENESIS
    assert [line.variant for line in queries.queue(store)] == ["int8", "int4-g32", "mxfp4", "int2-g32"]
    made = decide(store, run_id)
    assert queries.run_summary(store, run_id).verdict("int8").decision == made
    assert [line.variant for line in queries.queue(store)] == ["int4-g32", "mxfp4", "int2-g32"]
    later = decide(store, run_id, "int2-g32", "block", "Grace", "tool calls collapse")
    assert decisions.check_chain(store) == later.hash
    assert queries.list_decisions(store) == (later, made)


@pytest.mark.parametrize("missing", ["name", "reason"])
def test_a_decision_without_a_name_or_a_reason_that_can_be_read_is_refused(store, run_id, missing):
    for unseen in ("", "  ", "\u200b\u2060", "\u00a0\ufe0f", "\u3164"):
        with pytest.raises(UsageError, match="name and a reason"):
            decide(store, run_id, **{missing: unseen})
    assert queries.list_decisions(store) == ()
    decide(store, run_id, **{missing: "漢"})


def test_a_new_verdict_puts_a_decided_variant_back_into_the_queue_and_the_old_one_is_not_decided(store, run_id):
    old = seen(store, run_id)
    decide(store, run_id)
    runs.add_verdicts(store, run_id, [Verdict(variant="int8", word="block", exit=10, reasons=("x",))], SMALL.policy)
    assert "int8" in [line.variant for line in queries.queue(store)]
    assert queries.run_summary(store, run_id).verdict("int8").decision is None
    with pytest.raises(UsageError, match="changed since you opened it"):
        decide(store, run_id, verdict_sha256=old)


def test_an_invalid_run_can_be_blocked_but_not_approved_whatever_word_its_verdict_is_given(store, run_id):
    runs.add_verdicts(store, run_id, [Verdict(variant="int8", word="invalid", exit=13, reasons=("x",))], SMALL.policy)
    with pytest.raises(UsageError, match="invalid"):
        decide(store, run_id)
    assert decide(store, run_id, action="block").action == "block"
    sha256 = seen(store, run_id)
    tamper(store, "update verdicts set word = 'approve' where word = 'invalid'")
    with pytest.raises(IntegrityError, match="verdict on 'int8'"):
        decisions.append(store, run_id, "int8", "approve", name="Ada", reason="fine", verdict_sha256=sha256)
    with pytest.raises(IntegrityError, match="not what was recorded"):
        queries.run_summary(store, run_id)


def test_a_second_person_learns_of_the_first_one_s_decision(store, run_id):
    first = decide(store, run_id)
    with pytest.raises(UsageError, match="Ada has decided 'approve'"):
        decide(store, run_id, action="block", name="Grace")
    changed = decide(store, run_id, action="block", name="Grace", seen=Seen(first.hash))
    assert queries.run_summary(store, run_id).verdict("int8").decision == changed


def test_a_double_click_is_one_decision(store, run_id):
    first = decide(store, run_id)
    assert decide(store, run_id) == first
    assert queries.list_decisions(store) == (first,)
    again = decide(store, run_id, reason="seen again", seen=Seen(first.hash))
    assert queries.list_decisions(store) == (again, first)


def test_another_reason_or_the_same_one_later_is_no_double_click(store, run_id, monkeypatch):
    first = decide(store, run_id)
    with pytest.raises(UsageError, match="Ada has decided 'approve'"):
        decide(store, run_id, reason="looked at the tool calls too")
    later = datetime.fromisoformat(first.created_at) + decisions.DOUBLE_CLICK
    monkeypatch.setattr("qualgate.store.plain.now", lambda: later.isoformat())
    with pytest.raises(UsageError, match="Ada has decided 'approve'"):
        decide(store, run_id)
    assert queries.list_decisions(store) == (first,)


@pytest.mark.parametrize("forged", ["update units set text = 'forged'", "update scores set value = 1"])
def test_evidence_forged_under_an_unchanged_seal_is_not_approved(store, run_id, forged):
    with store.read() as connection:
        seal = evidence_seal(connection, run_id)
    tamper(store, forged)
    with store.read() as connection:
        assert evidence_seal(connection, run_id) == seal
    with pytest.raises(IntegrityError, match=f"run {run_id}: .* Restore the store"):
        decide(store, run_id, seen=Seen(seal=seal))
    assert queries.list_decisions(store) == ()


def test_evidence_that_changed_since_it_was_checked_is_not_decided_on(store, run_id):
    with store.read() as connection:
        seal = evidence_seal(connection, run_id)
    tamper(store, "update units set sha256 = 'x' || substr(sha256, 2) where unit_id = 1")
    for action in ("approve", "block"):
        with pytest.raises(UsageError, match=rf"evidence of run {run_id} has changed .* was {seal[:12]}"):
            decide(store, run_id, action=action, seen=Seen(seal=seal))
    assert queries.list_decisions(store) == ()


def test_people_deciding_at_the_same_moment_leave_one_decision_and_a_linear_chain(store, run_id):
    verdicts = {variant: seen(store, run_id, variant) for variant in ("int8", "int4-g32", "mxfp4", "int2-g32")}

    def one(number: int) -> bool:
        variant = list(verdicts)[number % 4]
        with open_store(store.url) as own:
            try:
                decide(own, run_id, variant, name=f"person {number}", verdict_sha256=verdicts[variant])
                return True
            except QualgateError:
                return False

    with ThreadPoolExecutor(8) as pool:
        recorded = sum(pool.map(one, range(16)))
    assert recorded == 4
    assert len(queries.list_decisions(store)) == 4
    decisions.check_chain(store)


@pytest.mark.parametrize(
    "tampering",
    [
        "update decisions set action = 'approve' where decision_id = 2",
        "update decisions set name = 'Eve' where decision_id = 1",
        "delete from decisions where decision_id = 2",
        "update decisions set decision_id = 9 where decision_id = 1",
        "insert into decisions select 7, run_id, variant, verdict_sha256, action, name, reason, created_at, "
        "'x' || substr(prev_hash, 2), 'x' || substr(hash, 2) from decisions where decision_id = 3",
    ],
)
def test_a_changed_chain_is_found_and_the_row_is_named(store, run_id, tampering):
    for variant in ("int8", "int4-g32", "mxfp4"):
        decide(store, run_id, variant, "block")
    if not tampering.startswith("insert"):
        with pytest.raises(IntegrityError, match="append-only"), store.write() as connection:
            connection.execute(text(tampering))
    tamper(store, tampering)
    with pytest.raises(IntegrityError, match=r"broken: decision \d"):
        decisions.check_chain(store)


def test_replacing_a_decision_is_refused_by_the_database(store, run_id):
    decide(store, run_id)
    replace = {
        "sqlite": "insert or replace into decisions select * from decisions",
        "postgresql": "insert into decisions select * from decisions on conflict (hash) do update set name = 'Eve'",
    }[store.engine.dialect.name]
    with pytest.raises(IntegrityError, match="append-only"), store.write() as connection:
        connection.execute(text(replace))
