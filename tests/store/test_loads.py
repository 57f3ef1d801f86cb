"""Loads in the store: apart from runs, sealed, and there for good."""

from __future__ import annotations

import json

import pytest
from sqlalchemy import text

from qualgate.errors import Exit, IntegrityError
from qualgate.store import loads, queries
from qualgate.store.copy import copy_store
from qualgate.store.database import open_store
from tests.command_line import qualgate
from tests.store.tampering import tamper

RULE = {"rule": "throughput.answers max_drop 0.05", "level": "4 at once", "within": 1, "rounds": [1.0] * 5}
BODY = {"load": {"rounds": 5}, "rows": [], "verdicts": [{"variant": "a\u202e\ud800", "verdict": "approve"}]}


@pytest.fixture
def kept(store):
    return [loads.add(store, f"gate-{number}.yaml", "version: 1\n", "f" * 64, 0, BODY) for number in range(3)]


def test_the_newest_come_first_whole_and_none_of_them_is_a_run(store, kept):
    found = loads.newest(store, 2)
    assert [one.load_id for one in found] == [kept[2], kept[1]]
    assert (found[0].gate_name, found[0].exit, found[0].body) == ("gate-2.yaml", 0, BODY)
    assert loads.count(store) == 3
    assert queries.count_runs(store) == 0
    assert queries.list_runs(store, 9) == ()
    assert queries.count_queue(store) == 0


def test_they_are_listed_with_why_and_no_command_takes_one_for_a_verdict(tmp_path):
    findings = [{**RULE, "verdict": "block", "because": ""}, {**RULE, "verdict": "undecided", "because": "not known"}]
    verdicts = [{"variant": "a\u202e", "verdict": "block", "findings": findings}]
    body = {"load": {"rounds": 5}, "rows": [{"label": "4 at once"}, {"label": "4 at once"}], "verdicts": verdicts}
    url = f"sqlite:///{tmp_path / 'qualgate.db'}"
    with open_store(url) as store:
        kept = [loads.add(store, "gate.yaml", "", "f" * 64, 10, body) for _ in range(2)]

    def said(*words: str) -> str:
        return " ".join(qualgate(*words, "--store", url).stdout.split())

    listed = said("runs", "--loads", "--limit", "1")
    assert listed.startswith(f"{kept[1]} ")
    assert "gate.yaml, 4 at once, 5 rounds, ended with 10 a\\u202e BLOCK under load: " in listed
    assert "max_drop 0.05 at 4 at once: 1 of 5 rounds are within it 1 older load: --limit 2 shows all" in listed
    assert "not known" not in listed  # which is no cause of a block
    assert "this store holds no run yet" in said("runs")
    assert "and 2 loads of `qualgate load`: qualgate runs --loads" in said("runs")
    assert json.loads(said("runs", "--json")) == []
    for command in ("report", "gate"):
        assert "holds no run yet" in qualgate(command, "--store", url).stderr
        assert qualgate(command, "--store", url, "--run", kept[0]).returncode == Exit.USAGE


CHANGES = (
    "name = ''",
    "body_json = '{}'",
    "body_json = replace(body_json, '\"exit\"\\:0', '\"exit\"\\:1')",
    "at = '2999'",
)


@pytest.mark.parametrize("change", CHANGES)
def test_one_that_was_changed_is_told_of_and_not_shown(store, kept, change):
    tamper(store, f"update sealed set {change} where part = '{kept[0]}'")
    with pytest.raises(IntegrityError, match=f"load {kept[0]} is not what was recorded"):
        loads.newest(store, 9)


def test_a_copy_of_a_store_has_them(store, kept, tmp_path):
    target = f"sqlite:///{tmp_path / 'copy.db'}"
    copy_store(store.url, target)
    with open_store(target) as copied:
        assert loads.newest(copied, 9) == loads.newest(store, 9)
        with pytest.raises(Exception, match="append-only"), copied.write() as connection:
            connection.execute(text("delete from sealed"))
