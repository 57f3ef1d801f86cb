"""Roles of people: who may decide and label is asked of the store at every write."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import get_args

import pytest

from qualgate.errors import IntegrityError, UsageError
from qualgate.records import UnitKey
from qualgate.store import decisions, labels, people, queries
from qualgate.store.decisions import Seen
from qualgate.store.people import Grant, Role, grant, grants
from qualgate.store.planned import MAKERS, maker
from qualgate.store.signing.keys import KEY, TRUSTED, make_key, public_path
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
    with pytest.raises(UsageError, match="give a reason of 20 characters"):
        decide(store, run_id, ADA, reason="because")
    assert decide(store, run_id, ADA, reason="the release waits for it").signed_in == ADA


def test_a_changed_grant_is_found_and_so_is_one_that_no_trusted_key_signed(store, tmp_path, monkeypatch):
    for name in ("mine", "other"):
        make_key(tmp_path / name)
    monkeypatch.setenv(KEY, str(tmp_path / "mine"))
    give(store, ADA, "approver", "ada-ci")
    with store.read() as connection:
        assert grants(connection)[ADA].role == "approver"
    monkeypatch.setenv(KEY, str(tmp_path / "other"))
    give(store, ADA, "admin")
    monkeypatch.delenv(KEY)
    monkeypatch.setenv(TRUSTED, str(public_path(tmp_path / "mine")))
    with pytest.raises(IntegrityError, match="is not signed by a trusted key"), store.read() as connection:
        grants(connection)
    tamper(store, "update sealed set body_json = replace(body_json, 'approver', 'admin') where kind = 'person'")
    monkeypatch.delenv(TRUSTED)
    with pytest.raises(IntegrityError, match="is not what was recorded"), store.read() as connection:
        grants(connection)


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
    assert "Nobody has a role" in qualgate("people", "list", "--store", file).stdout
    made = qualgate("people", "grant", ADA, "approver", "--makes-runs-as", "ada-gh", "--store", file)
    assert (made.returncode, made.stdout) == (0, f"{ADA}: approver\n")
    qualgate("people", "grant", GRACE, "viewer", "--store", file)
    qualgate("people", "grant", GRACE, "none", "--store", file)
    shown = qualgate("people", "list", "--store", file).stdout
    assert shown.startswith(f"{ADA}: approver (may look, label, and decide about runs that others made); makes runs as")
    assert GRACE not in shown
    assert qualgate("people", "grant", ADA, "boss", "--store", file).returncode == 64
