"""`qualgate db`: what it prints, and by which exit code it ends."""

from __future__ import annotations

from qualgate.errors import Exit
from qualgate.store.database import open_store
from tests.command_line import qualgate
from tests.store.made import make_plan, make_run
from tests.store.tampering import tamper


def test_a_store_is_copied_and_one_whose_seals_are_broken_ends_so(tmp_path):
    with open_store(f"sqlite:///{tmp_path / 'q.db'}") as store:
        run_id = make_run(store, make_plan(cases=1, wrong={"int8": 0.0}))
        done = qualgate("db", "copy", "sqlite:///q.db", "sqlite:///to.db", cwd=tmp_path)
        assert done.returncode == Exit.APPROVE, done.stderr
        assert "rows of 1 run copied, each compared, seals too" in done.stdout
        tamper(store, "update units set text = 'changed' where unit_id = 1")
    again = qualgate("db", "copy", "sqlite:///q.db", "sqlite:///to.db", cwd=tmp_path)
    assert again.returncode == Exit.USAGE
    assert "already holds rows" in again.stderr
    told = qualgate("db", "copy", "sqlite:///q.db", "sqlite:///other.db", cwd=tmp_path)
    assert told.returncode == Exit.INTEGRITY
    assert f"as in the store it came from: run {run_id}" in told.stdout


def test_roles_are_printed_without_a_store_and_applied_to_a_database_alone(tmp_path):
    printed = qualgate("db", "roles", "--prefix", "gate", cwd=tmp_path)
    assert printed.returncode == Exit.APPROVE
    assert 'GRANT INSERT ON "public".decisions, "public".sealed TO gate_approver;' in printed.stdout
    kinds = "('claim', 'label', 'opening', 'preference')"
    assert f"FOR INSERT TO gate_approver WITH CHECK (kind IN {kinds});" in printed.stdout
    for store in ((), ("--store", "sqlite:///q.db")):
        refused = qualgate("db", "roles", "--apply", *store, cwd=tmp_path)
        assert refused.returncode == Exit.USAGE
        assert "give --store with one (postgresql://USER@HOST/DATABASE)" in refused.stderr


def test_no_command_repeats_a_password(tmp_path):
    url = "postgresql://me:hunter2@127.0.0.1:1/db"
    for command in (("runs",), ("gate",), ("report",), ("db", "upgrade"), ("db", "roles", "--apply"), ("dashboard",)):
        done = qualgate(*command, "--store", url, cwd=tmp_path)
        assert done.returncode == Exit.USAGE, done.stderr
        assert "PGPASSWORD" in done.stderr
        assert "hunter2" not in done.stdout + done.stderr
    away = qualgate("runs", "--store", "postgresql://me@127.0.0.1:1/db", cwd=tmp_path)
    assert away.returncode == Exit.INFRASTRUCTURE
    assert "See that its server runs" in away.stderr
