"""Before anything is generated a run says what it does, and how long what it knows of will take."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from qualgate.pipeline import before_run
from qualgate.pipeline import plan as planning
from qualgate.pipeline.before_run import left_to_do, outlook
from qualgate.pipeline.forecast import Forecast
from qualgate.store import runs
from qualgate.store.database import open_store
from tests.store.made import make_plan, make_run


def test_weights_that_take_long_to_read_are_told_with_their_size_and_about_how_long(tmp_path, monkeypatch):
    monkeypatch.setattr(planning, "READ_SPEED", 100)
    for name, size in (("a.safetensors", 900), ("b.safetensors", 100), ("notes.txt", 9000)):
        (tmp_path / name).write_bytes(b"0" * size)
    assert planning._reading([str(tmp_path)]) == " (0.00 MiB, about 10 s)"
    monkeypatch.setattr(planning, "READ_SPEED", 1000)
    assert planning._reading([str(tmp_path), str(tmp_path / "none")]) == "", "it is read within a second"


def test_what_is_left_is_told_with_its_time_where_it_is_known():
    assert left_to_do(300, 0, 60.0, "r0") == "planned: 300 answers to generate, about 60 s, as in run r0"
    assert left_to_do(300, 20, 60.0, "").startswith("planned: 280 answers to generate, about 56 s, guessed")
    assert left_to_do(300, 0, None, "").endswith("answers to generate, time unknown until measured")


def test_the_time_is_that_of_the_run_before_and_not_of_the_one_just_begun(tmp_path, monkeypatch):
    plan, asked = make_plan(cases=4), []
    gate: Any = SimpleNamespace(workers=2)

    def forecast(plan, workers, past):
        asked.append(past and (past.run, len(past.times)))
        return Forecast(arms=(), run=past.run if past else "")

    monkeypatch.setattr(before_run, "forecast", forecast)
    with open_store(f"sqlite:///{tmp_path / 'q.db'}") as store:
        outlook(gate, plan, store, runs.begin(store, plan))
        first = make_run(store, plan)  # it resumes, and is complete
        assert f"as in run {first}" in outlook(gate, plan, store, runs.begin(store, plan))
    assert asked == [None, (first, len(plan.expected))]
