"""Roles of people: who may decide and label is asked of the store at every write."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import get_args

import pytest

from qualgate.errors import IntegrityError, UsageError
from qualgate.records import UnitKey
from qualgate.records.identity import content_hash
from qualgate.store import audit, decisions, labels, people, plain, queries, tables
from qualgate.store.decisions import Seen
from qualgate.store.people import Grant, Role, grant, grants
from qualgate.store.planned import MAKERS, maker
from qualgate.store.rows import run_digest
from qualgate.store.sealed import COVERED
from qualgate.store.signing.keys import KEY, TRUSTED, make_key, public_path, trusted_keys
from qualgate.store.tables import units
from tests.command_line import qualgate
from tests.store.conftest import SMALL
from tests.store.made import make_run, said
from tests.store.tampering import tamper

ADA, GRACE = "ada@example.org", "grace@example.org"
ROLES = (*get_args(Role), "none", None)


@pytest.fixture
def store(recorded):
    return recorded[0]


@pytest.fixture
def run_id(recorded):
    return recorded[1]


def give(store, person, role, *makes_runs_as):
    grant(store, Grant(person=person, role=role, makes_runs_as=makes_runs_as, by="root"))


def decide(store, run_id, signed_in, action="approve", variant="int8", **more):
    stored = queries.run_summary(store, run_id).verdict(variant)
    last = stored.decisions[-1].hash if stored.decisions else None
    one = replace(said(stored, action), signed_in=signed_in, **more)
    return decisions.append(store, run_id, variant, one, Seen(stored.sha256, last))


def label(store, run_id, signed_in):
    with store.read() as connection:
        unit = connection.execute(units.select().where(units.c.run_id == run_id, units.c.arm == "int8")).first()
    key = UnitKey("int8", unit.evalset, unit.case_id, unit.repeat)
    return labels.set_label(store, run_id, key, "flaky", name="Ada", signed_in=signed_in)


def test_in_a_store_without_people_anybody_decides_unauthenticated(store, run_id):
    assert decide(store, run_id, "").signed_in == ""
    assert label(store, run_id, "").signed_in == ""


@pytest.mark.parametrize(("role", "own", "action"), list(product(ROLES, (False, True), get_args(decisions.Action))))
def test_every_role_may_do_what_it_says_and_nothing_else(store, run_id, role, own, action, monkeypatch):
    """The whole matrix of decisions: role x own or another's run x action."""
    if own:
        monkeypatch.setenv("QUALGATE_MADE_BY", "ada-ci")
        run_id = make_run(store, SMALL)
    if action == "revoke":
        decide(store, run_id, "", "block")
    give(store, GRACE, "viewer")
    if role is not None:
        give(store, ADA, role, "ada-ci")
    allowed = role == "admin" or (role == "approver" and not (own and action == "approve"))
    if allowed:
        assert decide(store, run_id, ADA, action).by == f"Ada ({ADA})"
    else:
        with pytest.raises(UsageError, match=r"may not decide|Somebody else must approve"):
            decide(store, run_id, ADA, action)
    assert len(queries.list_decisions(store)) == allowed + (action == "revoke")


@pytest.mark.parametrize("role", ROLES)
def test_labels_are_for_labellers_and_above(store, run_id, role):
    give(store, GRACE, "viewer")
    if role is not None:
        give(store, ADA, role)
    if role in ("labeller", "approver", "admin"):
        assert label(store, run_id, ADA).signed_in == ADA
    else:
        with pytest.raises(UsageError, match="may not label; that takes labeller or approver or admin"):
            label(store, run_id, ADA)


def test_once_somebody_has_a_role_nobody_decides_without_signing_in(store, run_id):
    give(store, GRACE, "viewer")
    for act in (lambda: decide(store, run_id, ""), lambda: label(store, run_id, "")):
        with pytest.raises(UsageError, match="without signing in"):
            act()
    give(store, GRACE, "none")
    with pytest.raises(UsageError, match="without signing in"):
        decide(store, run_id, "")


def test_a_role_that_was_taken_away_meanwhile_counts(store, run_id):
    give(store, ADA, "approver")
    stored = queries.run_summary(store, run_id).verdict("int8")
    give(store, ADA, "none")
    with pytest.raises(UsageError, match="has no role"):
        decisions.append(store, run_id, "int8", replace(said(stored), signed_in=ADA), Seen(stored.sha256))


def test_an_admin_approves_a_run_of_their_own_only_with_a_reason(store, monkeypatch):
    monkeypatch.setenv("QUALGATE_MADE_BY", ADA)
    run_id = make_run(store, SMALL)
    give(store, ADA, "admin")
    with pytest.raises(UsageError, match="you made this run"):
        decide(store, run_id, ADA, reason="because")
    assert decide(store, run_id, ADA, reason="the release waits for it").signed_in == ADA


def role_of(store, person=ADA):
    with store.read() as connection:
        found = grants(connection).get(person)
    return found and found.role


@pytest.fixture
def keyed(store, tmp_path, monkeypatch):
    """The store, whose grants are signed by one key; another one is not trusted."""
    for name in ("mine", "other"):
        make_key(tmp_path / name)
    monkeypatch.setenv(TRUSTED, str(public_path(tmp_path / "mine")))
    monkeypatch.setenv(KEY, str(tmp_path / "mine"))
    give(store, ADA, "approver", "ada-ci")
    return store, tmp_path


def test_a_grant_that_no_trusted_key_signed_does_not_count_and_locks_nobody_out(keyed, monkeypatch):
    store, folder = keyed
    monkeypatch.delenv(TRUSTED)
    monkeypatch.setenv(KEY, str(folder / "other"))
    give(store, ADA, "admin")
    monkeypatch.delenv(KEY)
    give(store, GRACE, "admin")
    monkeypatch.setenv(TRUSTED, str(public_path(folder / "mine")))
    assert (role_of(store), role_of(store, GRACE)) == ("approver", None)
    assert len(list(audit.broken(store, trusted_keys(), None))) >= 2
    with pytest.raises(UsageError, match="grants count only with a trusted key's signature"):
        give(store, GRACE, "viewer")
    monkeypatch.setenv(KEY, str(folder / "mine"))
    give(store, ADA, "viewer")
    assert role_of(store) == "viewer"


def test_a_grant_that_is_written_again_later_does_not_count(keyed):
    store, _ = keyed
    give(store, ADA, "none")
    with store.read() as connection:
        row = connection.execute(tables.sealed.select().where(tables.sealed.c.kind == "person")).first()
    again = {**row._mapping, "key": "y" * 64}
    again["sha256"] = content_hash({name: again[name] for name in COVERED})
    del again["sealed_id"]
    values = ", ".join(f":{name}" for name in again)
    tamper(store, f"insert into sealed ({', '.join(again)}) values ({values})", **again)
    assert role_of(store) == "none"
    assert any("stands at another place" in fault for fault in audit.broken(store, trusted_keys(), None))


def test_grants_that_were_removed_are_found_by_a_saved_head(keyed):
    store, _ = keyed
    give(store, ADA, "none")
    head = audit.head(store)
    tamper(store, "delete from sealed where kind = 'person'")
    assert [fault for fault in audit.broken(store, (), head) if "2 roles that the head of" in fault]


def test_a_changed_grant_is_damage(store):
    give(store, ADA, "approver")
    tamper(store, "update sealed set body_json = replace(body_json, 'approver', 'admin') where kind = 'person'")
    with pytest.raises(IntegrityError, match="is not what was recorded"):
        role_of(store)


def test_addresses_are_one_in_capitals_and_not(store, run_id):
    give(store, "Ada@Example.org", "approver")
    assert decide(store, run_id, ADA).signed_in == ADA


def test_a_run_whose_maker_nobody_knows_is_approved_by_an_admin_alone(store, run_id):
    tamper(store, "update runs set made_by = null")
    with store.read() as connection:
        row = connection.execute(tables.runs.select().where(tables.runs.c.run_id == run_id)).one()
    tamper(store, "update runs set sha256 = :sha where run_id = :run", sha=run_digest(row._mapping), run=run_id)
    give(store, ADA, "approver")
    with pytest.raises(UsageError, match="nobody knows who made run"):
        decide(store, run_id, ADA)
    give(store, ADA, "admin")
    assert decide(store, run_id, ADA).signed_in == ADA


TWO = replace(SMALL, policy=replace(SMALL.policy, approvals=2), key="2" * 64)


def test_two_people_who_signed_in_approve_where_the_policy_asks_for_two(store):
    run_id = make_run(store, TWO)
    with pytest.raises(UsageError, match="asks for 2 people, who must sign in"):
        decide(store, run_id, "")
    for person in (ADA, GRACE):
        give(store, person, "approver")
    first = decide(store, run_id, ADA)
    assert (first.needed, queries.run_summary(store, run_id).verdict("int8").decision) == (1, None)
    assert "int8" in [line.variant for line in queries.queue(store) if line.run_id == run_id]
    again = decide(store, run_id, ADA, name="Another", reason="I have looked at them once more")
    assert again.needed == 1, "the same person is one person"
    end = plain.stamp(datetime.now(UTC) + timedelta(days=3))
    second = decide(store, run_id, GRACE, name="Grace", reason="I looked, too, at all", expires_at=end)
    assert (second.needed, queries.run_summary(store, run_id).verdict("int8").decision) == (0, second)
    assert "int8" not in [line.variant for line in queries.queue(store) if line.run_id == run_id]


def test_two_people_of_one_name_who_give_one_reason_at_once_are_two(store):
    run_id = make_run(store, TWO)
    for person in (ADA, GRACE):
        give(store, person, "approver")
    stored = queries.run_summary(store, run_id).verdict("int8")
    form = said(stored)
    first = decisions.append(store, run_id, "int8", replace(form, signed_in=ADA), Seen(stored.sha256))
    assert decisions.append(store, run_id, "int8", replace(form, signed_in=ADA), Seen(stored.sha256)) == first
    with pytest.raises(UsageError, match="since you opened it"):
        decisions.append(store, run_id, "int8", replace(form, signed_in=GRACE), Seen(stored.sha256))


def test_a_block_between_two_approvals_begins_anew_and_the_first_that_expires_ends_both(store):
    run_id = make_run(store, TWO)
    for person in (ADA, GRACE):
        give(store, person, "approver")
    end = plain.stamp(datetime.now(UTC) + timedelta(days=3))
    decide(store, run_id, ADA, expires_at=end)
    block = decide(store, run_id, GRACE, "block")
    assert (block.needed, queries.run_summary(store, run_id).verdict("int8").decision) == (0, block)
    assert decide(store, run_id, GRACE, reason="I looked at every one, too").needed == 1
    last = decide(store, run_id, ADA, name="A. L.", reason="It is as good as before", expires_at=end)
    assert (last.needed, last.expires_at) == (0, end)


@pytest.mark.parametrize(("person", "role", "why"), [(ADA, "owner", "a role is"), (" ", "viewer", "name the person"),
                                                     ("x" * 201, "viewer", "name the person")])  # fmt: skip
def test_a_grant_that_is_none_is_refused(store, person, role, why):
    with pytest.raises(UsageError, match=why):
        give(store, person, role)


def test_who_makes_a_run_is_named_by_its_machine(monkeypatch):
    for name in MAKERS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LOGNAME", "ada")
    assert maker() == "ada"
    monkeypatch.setenv("GITHUB_ACTOR", "ada-gh")
    assert maker() == "ada-gh"
    monkeypatch.setenv("QUALGATE_MADE_BY", "release bot")
    assert maker() == "release bot"


def test_people_are_listed_and_granted_by_command(file):
    assert people.MAY.keys() == set(get_args(Role))
    qualgate("db", "upgrade", "--store", file)
    assert "Nobody was given a role" in qualgate("people", "list", "--store", file).stdout
    made = qualgate("people", "grant", ADA, "approver", "--makes-runs-as", "ada-gh", "--store", file)
    assert (made.returncode, made.stdout) == (0, f"{ADA}: approver\n")
    qualgate("people", "grant", GRACE, "viewer", "--store", file)
    qualgate("people", "grant", GRACE, "none", "--store", file)
    shown = qualgate("people", "list", "--store", file).stdout
    allowed = "may look, label, compare, assign, and decide about runs that others made"
    assert shown.startswith(f"{ADA}: approver ({allowed}); makes runs as")
    assert GRACE not in shown
    assert qualgate("people", "grant", ADA, "boss", "--store", file).returncode == 64
