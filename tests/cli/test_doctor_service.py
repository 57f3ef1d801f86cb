"""`doctor --service` finds what would stop a run in a store, its cluster and its disks, and says what next."""

from __future__ import annotations

import json
import time
from collections import namedtuple
from pathlib import Path

import pytest

from qualgate.cli import doctor_service
from qualgate.cli.doctor import Finding
from qualgate.cli.doctor_service import service_findings
from qualgate.config import load_gate_file
from qualgate.errors import Exit
from qualgate.store import sqlite as file_store
from qualgate.store.database import Store, open_store
from tests.command_line import qualgate
from tests.postgresql import server


@pytest.fixture
def store(tmp_path):
    with open_store(f"sqlite:///{tmp_path / 'qualgate.db'}") as opened:
        yield opened


def found(store: Store) -> dict[str, Finding]:
    return {one.what: one for one in service_findings(store.url, None)}


def test_a_sound_store_is_told_and_nothing_stops_a_run(store):
    said = found(store)
    assert all(one.state == "ready" for name, one in said.items() if name != "sqlite")
    assert "SQLite" in said["store"].detail


def test_the_command_exits_by_what_it_found_and_speaks_json(tmp_path):
    with open_store(f"sqlite:///{tmp_path / 'qualgate.db'}") as store:
        asked = ("doctor", "--service", "--store", "sqlite:///qualgate.db")
        assert qualgate(*asked, cwd=tmp_path).returncode == Exit.APPROVE
        with store.write() as connection:
            connection.exec_driver_sql("DROP TRIGGER verdicts_no_update")
    done = qualgate(*asked, "--json", cwd=tmp_path)
    assert done.returncode == Exit.INFRASTRUCTURE
    stops = [one for one in json.loads(done.stdout) if one["state"] == "stops"]
    assert [one["what"] for one in stops] == ["history"]


def test_a_store_that_is_named_without_service_is_not_silently_left_out(tmp_path):
    done = qualgate("doctor", "--store", "sqlite:///qualgate.db", cwd=tmp_path)
    assert done.returncode == Exit.USAGE
    assert "--service" in done.stderr


def test_a_store_that_cannot_be_opened_is_the_finding_and_the_disks_are_looked_at_all_the_same(tmp_path):
    said = {one.what: one for one in service_findings(f"sqlite:///{tmp_path / 'none.db'}", None)}
    assert said["store"].state == "stops"
    assert "there is no store yet" in said["store"].detail
    assert said["store's disk"].state == "ready"


def test_a_store_on_a_network_s_file_system_is_named(store, monkeypatch):
    monkeypatch.setattr(file_store, "file_system", lambda path: "nfs4")
    assert "network file system (nfs4)" in found(store)["store"].detail


def test_a_store_whose_history_can_be_changed_is_told_with_the_tables(store):
    with store.write() as connection:
        connection.exec_driver_sql("DROP TRIGGER verdicts_no_update")
    history = found(store)["history"]
    assert history.state == "stops"
    assert "verdicts" in history.detail
    assert "decisions" not in history.detail


@pytest.mark.parametrize(("skew", "ok"), [(20.0, True), (-90.0, False), (90.0, False)])
def test_a_clock_that_is_far_off_is_told_and_stops_nothing(store, monkeypatch, skew, ok):
    monkeypatch.setattr("qualgate.store.health.clock", lambda connection: time.time() - skew)
    clock = found(store)["clock"]
    assert clock.state == ("ready" if ok else "optional")
    assert ok or (f"this machine is 90.0 s {'ahead of' if skew > 0 else 'behind'} the store's clock" in clock.detail)


def test_a_disk_that_is_nearly_full_would_stop_a_run(store, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(doctor_service.shutil, "disk_usage", lambda folder: usage(2**40, 0, 2**20))
    said = found(store)
    assert said["store's disk"].state == "stops"


GATE = """version: 1
baseline: {model: ./model}
variants: {int8: {quantize: int8}}
evalsets: [json_extract]
gate: {rules: [{metric: exact_match, max_drop: 0.02}]}
workers: {backend: ray%s}
"""


def of_gate_file(folder: Path, address: str) -> Finding:
    (folder / "gate.yaml").write_text(GATE % address)
    gate = load_gate_file(folder / "gate.yaml", files=False)
    return next(one for one in service_findings(gate.store_url, gate) if one.what == "ray")


def test_a_cluster_that_nobody_answers_for_is_told_with_what_next(tmp_path):
    pytest.importorskip("ray")
    ray = of_gate_file(tmp_path, ", address: '127.0.0.1:1'")
    assert ray.state == "stops"
    assert "no Ray cluster answers at 127.0.0.1:1" in ray.detail


def test_a_cluster_that_a_run_starts_by_itself_is_not_started_to_be_looked_at(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.setattr("qualgate.pipeline.jobs.nodes_of", lambda on: pytest.fail("asked"))
    assert of_gate_file(tmp_path, "").state == "ready"


@pytest.mark.proof
def test_on_a_server_the_role_is_told_and_what_it_lacks(tmp_path):
    pg = server()
    with open_store(pg.new_database()) as store:
        said = found(store)
        assert all(one.state == "ready" for one in said.values()), said
        assert "PostgreSQL" in said["store"].detail
        assert "it owns the store" in said["role"].detail
        name = store.url.partition("?")[0].rpartition("/")[2]
        pg.execute("CREATE ROLE looks LOGIN")
        try:
            pg.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO looks", name)
            role = {one.what: one for one in service_findings(pg.url(name, "looks"), None)}["role"]
            assert role.state == "stops"
            assert "INSERT on arms" in role.detail
            pg.execute("ALTER TABLE sealed ENABLE TRIGGER sealed_append_only", name)  # a session may switch it off now
            assert "sealed" in found(store)["history"].detail
        finally:
            pg.execute("DROP OWNED BY looks", name)
            pg.execute("DROP ROLE looks")
