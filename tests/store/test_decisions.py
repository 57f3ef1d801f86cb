"""People's decisions: what is refused, and that the chain stays whole and linear."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from qualgate.errors import IntegrityError, QualgateError, UsageError
from qualgate.records import Verdict
from qualgate.store import decisions, plain, queries, runs
from qualgate.store.database import open_store
from qualgate.store.decisions import Said, Seen, overruled
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


def decide(
    store, run_id, variant="int8", action="approve", name="Ada", reason="I looked at all of its flips", **options
):
    shown = {key: options.pop(key) for key in ("verdict", "decision", "seal") if key in options}
    shown.setdefault("verdict", seen(store, run_id, variant))
    if action == "approve":
        verdict = queries.run_summary(store, run_id).verdict(variant).verdict
        options.setdefault("overrules", next(iter(overruled(verdict)), ""))
    said = Said(action=action, name=name, reason=reason, **options)
    return decisions.append(store, run_id, variant, said, Seen(**shown))


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
    decide(store, run_id, **{missing: "漢" * decisions.REASONED})


def test_a_new_verdict_puts_a_decided_variant_back_into_the_queue_and_the_old_one_is_not_decided(store, run_id):
    old = seen(store, run_id)
    decide(store, run_id)
    runs.add_verdicts(store, run_id, [Verdict(variant="int8", word="block", exit=10, reasons=("x",))], SMALL.policy)
    assert "int8" in [line.variant for line in queries.queue(store)]
    assert queries.run_summary(store, run_id).verdict("int8").decision is None
    with pytest.raises(UsageError, match="changed since you opened it"):
        decide(store, run_id, verdict=old)


def test_an_invalid_run_can_be_blocked_but_not_approved_whatever_word_its_verdict_is_given(store, run_id):
    runs.add_verdicts(store, run_id, [Verdict(variant="int8", word="invalid", exit=13, reasons=("x",))], SMALL.policy)
    with pytest.raises(UsageError, match="invalid"):
        decide(store, run_id)
    assert decide(store, run_id, action="block").action == "block"
    sha256 = seen(store, run_id)
    tamper(store, "update verdicts set word = 'approve' where word = 'invalid'")
    with pytest.raises(IntegrityError, match="verdict on 'int8'"):
        decisions.append(
            store, run_id, "int8", decisions.Said(action="approve", name="Ada", reason="fine"), decisions.Seen(sha256)
        )
    with pytest.raises(IntegrityError, match="not what was recorded"):
        queries.run_summary(store, run_id)


def test_a_second_person_learns_of_the_first_one_s_decision(store, run_id):
    first = decide(store, run_id)
    with pytest.raises(UsageError, match="Ada has decided 'approve'"):
        decide(store, run_id, action="block", name="Grace")
    changed = decide(store, run_id, action="block", name="Grace", decision=first.hash)
    assert queries.run_summary(store, run_id).verdict("int8").decision == changed


def test_a_double_click_is_one_decision(store, run_id):
    first = decide(store, run_id)
    assert decide(store, run_id) == first
    assert queries.list_decisions(store) == (first,)
    again = decide(store, run_id, reason="I have seen them all again", decision=first.hash)
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
        decide(store, run_id, seal=seal)
    assert queries.list_decisions(store) == ()


def test_evidence_that_changed_since_it_was_checked_is_not_decided_on(store, run_id):
    with store.read() as connection:
        seal = evidence_seal(connection, run_id)
    tamper(store, "update units set sha256 = 'x' || substr(sha256, 2) where unit_id = 1")
    for action in ("approve", "block"):
        with pytest.raises(UsageError, match=rf"evidence of run {run_id} has changed .* was {seal[:12]}"):
            decide(store, run_id, action=action, seal=seal)
    assert queries.list_decisions(store) == ()


def test_people_deciding_at_the_same_moment_leave_one_decision_and_a_linear_chain(store, run_id):
    verdicts = {variant: seen(store, run_id, variant) for variant in ("int8", "int4-g32", "mxfp4", "int2-g32")}

    def one(number: int) -> bool:
        variant = list(verdicts)[number % 4]
        with open_store(store.url) as own:
            try:
                decide(
                    own,
                    run_id,
                    variant,
                    name=f"person {number}",
                    verdict=verdicts[variant],
                    reason=f"person {number} looked at {variant}",
                )
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
        "insert into decisions select 7, run_id, variant, verdict_sha256, action, name, reason, overrules, signed_in, "
        "expires_at, needed, created_at, 'x' || substr(prev_hash, 2), 'x' || substr(hash, 2), signature from decisions "
        "where decision_id = 3",
        "update decisions set overrules = 'exact_match [pooled]' where decision_id = 1",
        "update decisions set signed_in = 'eve@example.org' where decision_id = 1",
        "update decisions set expires_at = '2999-01-01T00:00:00.000000Z' where decision_id = 1",
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


def verdict_on(store, run_id, variant):
    return queries.run_summary(store, run_id).verdict(variant)


def test_an_approval_against_the_gate_names_the_rule_that_it_overrules_the_broken_ones_first(store, run_id):
    words = {one.verdict.variant: one.verdict.word for one in queries.run_summary(store, run_id).verdicts}
    assert words["int8"] == "undecided"
    choices = overruled(verdict_on(store, run_id, "int8").verdict)
    assert choices[0] == "exact_match [pooled]"
    for wrong in ("", "exact_match", "json.valid [pooled]"):
        with pytest.raises(UsageError, match="An approval must say what it overrules, one of: exact_match"):
            decide(store, run_id, overrules=wrong)
    assert decide(store, run_id, overrules=choices[-1]).overrules == choices[-1]


def test_a_block_and_a_revocation_overrule_nothing(store, run_id):
    with pytest.raises(UsageError, match="overrules nothing"):
        decide(store, run_id, action="block", overrules="exact_match [pooled]")


@pytest.mark.parametrize("reason", ["too short", "x" + " " * 40 + "y", "nineteen characters"])
def test_a_reason_to_overrule_has_twenty_characters(store, run_id, reason):
    with pytest.raises(UsageError, match="give a reason of 20 characters or more"):
        decide(store, run_id, reason=reason)
    assert decide(store, run_id, action="block", reason=reason).reason == reason.strip()


def test_a_reason_to_overrule_is_not_the_last_one_again(store, run_id):
    decide(store, run_id, "int4-g32", reason="Looked at every flip of it.")
    for again in ("Looked at every flip of it.", "  looked AT every\nflip of it. "):
        with pytest.raises(UsageError, match="the reason of the last decision, word for word"):
            decide(store, run_id, reason=again)
    first = decide(store, run_id, name="Grace", reason="Looked at every flip of it.")
    with pytest.raises(UsageError, match="word for word"):
        decide(store, run_id, name="Linus", reason="Looked at every flip of it.", decision=first.hash)


def test_a_revoked_decision_puts_the_variant_back_into_the_queue(store, run_id):
    with pytest.raises(UsageError, match="no decision about this verdict of 'int8' to revoke"):
        decide(store, run_id, action="revoke")
    first = decide(store, run_id)
    second = decide(store, run_id, action="revoke", reason="wrong run", decision=first.hash)
    stored = verdict_on(store, run_id, "int8")
    assert (stored.decision, stored.decisions) == (None, (first, second))
    assert "int8" in [line.variant for line in queries.queue(store)]
    with pytest.raises(UsageError, match="to revoke"):
        decide(store, run_id, action="revoke", reason="again", decision=second.hash)


def test_an_approval_holds_until_it_expires(store, run_id, monkeypatch):
    end = plain.stamp(datetime.now(UTC) + timedelta(days=3))
    made = decide(store, run_id, expires_at=end)
    assert verdict_on(store, run_id, "int8").decision == made
    assert "int8" not in [line.variant for line in queries.queue(store)]
    monkeypatch.setattr("qualgate.store.plain.now", lambda: end)
    assert verdict_on(store, run_id, "int8").decision is None
    since = {line.variant: line.since for line in queries.queue(store)}
    assert since.pop("int8") == end
    assert {*since.values()} == {queries.run_summary(store, run_id).finished_at}


@pytest.mark.parametrize(
    ("days", "action", "why"),
    [(-1, "approve", "must expire after it is made"), (4000, "approve", "within ten years"),
     (3, "block", "only an approval expires")],
)  # fmt: skip
def test_an_end_that_is_none_is_refused(store, run_id, days, action, why):
    with pytest.raises(UsageError, match=why):
        decide(store, run_id, action=action, expires_at=plain.stamp(datetime.now(UTC) + timedelta(days=days)))


def test_who_did_not_sign_in_is_named_unauthenticated(store, run_id):
    assert decide(store, run_id).by == "Ada (unauthenticated)"
    made = decide(store, run_id, "int4-g32", reason="I looked at each of these", signed_in="ada@example.org")
    assert made.by == "Ada (ada@example.org)"
