"""Benchmark `run-costs`: parts of a process that add up, and a share of all but the model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qualgate.errors import InfrastructureError
from tests.benchmarks import measured_run, run_costs
from tests.verification.references.agreement import NoReference


def test_an_inner_part_is_not_counted_in_its_outer_one(monkeypatch):
    clock = iter([0.0, 1.0, 4.0, 6.0])
    monkeypatch.setattr(measured_run, "process_time", lambda: next(clock))
    monkeypatch.setattr(measured_run, "took", dict.fromkeys(("load", "model"), 0.0))
    inner = measured_run.timed("model", lambda said: said)
    assert measured_run.timed("load", lambda: inner("kept"))() == "kept"
    assert measured_run.took == {"load": 3.0, "model": 3.0}


@pytest.mark.parametrize("code", [0, 13])
def test_what_no_process_told_is_rest_and_the_model_is_left_out(monkeypatch, tmp_path, code):
    def spent(command):
        if command[1] == "-c":
            return 5.0, None
        parts, gate = map(Path, command[-2:])
        assert "quantize: {method: int4" in gate.read_text()
        assert len((gate.parent / "turns.jsonl").read_text().splitlines()) == 2
        (parts / "1.json").write_text(json.dumps({"imports": 2.0, "rest": 1.0}))
        (parts / "2.json").write_text(json.dumps({"imports": 4.0, "model": 20.0, "rest": 2.0}))
        return 30.0, type("Done", (), {"returncode": code, "stderr": "it broke"})

    (tmp_path / "mt_bench").mkdir()
    (tmp_path / "mt_bench" / "question.jsonl").write_text(json.dumps({"turns": ["Why?"]}) + "\n" + '{"turns": ["a"]}')
    monkeypatch.setattr(run_costs, "DATA", tmp_path)
    monkeypatch.setattr(run_costs, "chat_model", lambda work: work)
    monkeypatch.setattr(run_costs, "_spent", spent)
    if code:
        with pytest.raises(InfrastructureError, match="13: it broke"):
            run_costs.run(True)
        return
    result = run_costs.run(True)
    assert result["rounds"][0]["parts"] == {"imports": 6.0, "rest": 4.0, "model": 20.0}
    assert result["goals"][0]["measured"] == 2.0


def test_without_the_model_no_row_is_measured(monkeypatch):
    def missing(work):
        raise NoReference("no chat model")

    monkeypatch.setattr(run_costs, "chat_model", missing)
    assert run_costs.run(True)["goals"][0]["reason"] == "no chat model"


def test_every_part_names_functions_that_there_are(monkeypatch):
    named = {**measured_run.IN_WORKERS, **measured_run.IN_COORDINATOR}
    called = [place for places in named.values() for place in places]
    monkeypatch.setattr(measured_run, "setattr", lambda *_: None, raising=False)
    measured_run.measure(named)  # an AttributeError names one that is not
    assert len(called) == len(set(called))
