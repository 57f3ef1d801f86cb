"""Benchmark `speculation` on one prompt a task: what its table holds, and that every way said the same."""

from __future__ import annotations

import json

import pytest

from tests.benchmarks import speculation, speculation_ground, vllm_peer
from tests.benchmarks.goals import SPECULATION
from tests.benchmarks.speculation import measured
from tests.benchmarks.speculation_ground import Size

TINY = Size(per_task=1, of_peers=1, of_cells=1, of_bits=1, of_costs=1, rounds=1)


@pytest.fixture(autouse=True)
def little(monkeypatch):
    monkeypatch.setattr(speculation_ground, "LEAST", 2**24)


def rows(result):
    return {row["id"]: row for row in result["goals"]}


def test_every_limit_is_its_goal_s():
    for id, limit in speculation.AT_LEAST.items():
        assert SPECULATION.goals[id].split()[1] == f"{limit}x"


@pytest.mark.proof
def test_self_drafts_say_what_the_target_says_and_are_accepted_as_the_reference_model_s():
    result = measured(TINY, ["specqd_1", "specqd_2"])
    found = rows(result)
    for id in ("specqd_1", "specqd_2"):
        row = found[id]
        assert (row["cases"], row["cases_with_other_tokens"], row["cases_widened_otherwise"]) == (4, 0, 0)
        assert row["met"] is None
        assert "1 prompts a task" in row["reason"]
        assert row["spread"][0] <= row["measured"] <= row["spread"][1]
        assert set(row["tasks"]) == set(speculation_ground.TASKS)
        assert row["target"] == "the reference model widened 4 times"
    one, two = found["specqd_1"], found["specqd_2"]
    assert one["drafts"] == [one["unwidened_drafts"]]
    assert one["drafts"][0]["tokens_a_pass"] > 3
    assert all(0 < cost < 100 for cost in one["costs"].values())
    assert len(two["drafts"]) == 2
    assert set(two["crossover"]) == {"mxfp4", "ngram", "small", "both", "small under"}
    assert two["crossover"][two["by"]]["ratio"] == two["measured"]
    assert len(result["rounds"]) == 1 + len(speculation_ground.TASKS)
    json.dumps(result)


@pytest.mark.proof
def test_the_law_the_control_and_the_formats_are_measured_and_shown(monkeypatch):
    monkeypatch.setattr(speculation, "BATCHES", (1, 2))
    monkeypatch.setattr(speculation.bits, "FORMATS", {"mxfp4": "mxfp4"})
    monkeypatch.setattr(speculation.bits, "KEPT", {})
    result = measured(
        Size(per_task=1, of_peers=1, of_cells=2, of_bits=1, of_costs=1, rounds=1), ["law", "control", "bits"]
    )
    found = rows(result)
    assert found["law"]["cells"] == 2 * 3 * 2 * 4  # who drafts x γ x batch x task
    assert found["law"]["answers_with_other_tokens"] == 0
    assert 0 <= found["law"]["measured"] <= found["law"]["within_twice_that"] <= 1
    assert set(found["control"]["over_best_fixed"]) == {"mxfp4", "ngram"}
    assert set(found["control"]["of_plain"]) == {"mxfp4", "int2"}
    assert found["control"]["cases_with_other_tokens"] == 0
    assert set(found["bits"]["measured"]) == {"mxfp4"}
    json.dumps(result)


@pytest.mark.proof
def test_transformers_says_the_same_and_vllm_says_why_it_is_not_there(monkeypatch):
    monkeypatch.delenv(vllm_peer.INTERPRETER, raising=False)
    found = rows(measured(TINY, ["assistant", "lookup", "vllm_ngram", "vllm_draft"]))
    assert found["assistant"]["cases_with_other_tokens"] == {"small": 0, "own": 0}
    assert found["lookup"]["cases_with_other_tokens"] == {"lookup": 0}
    assert found["lookup"]["their_tokens"] in speculation.LOOKED_UP
    assert found["assistant"]["measured"] == min(one["ratio"] for one in found["assistant"]["by"].values())
    for id in ("vllm_ngram", "vllm_draft"):
        assert vllm_peer.INTERPRETER in found[id]["reason"]


def test_a_vllm_that_does_not_come_up_says_why(monkeypatch):
    def down(ground, id):
        raise vllm_peer.Down("no draft models on this machine")

    monkeypatch.setenv(vllm_peer.INTERPRETER, "python")
    monkeypatch.setattr(speculation, "_vllm", down)
    assert rows(measured(TINY, ["vllm_draft"]))["vllm_draft"]["reason"] == "no draft models on this machine"


@pytest.mark.proof
def test_on_a_gpu_gains_are_shown_by_batch_and_elsewhere_why_not(monkeypatch):
    asked = ["gpu_spec"]
    monkeypatch.setattr(speculation.torch.cuda, "is_available", lambda: False)
    assert rows(measured(TINY, asked))["gpu_spec"]["reason"] == "torch sees no GPU here"
    monkeypatch.setattr(speculation, "GPU", "cpu")
    monkeypatch.setattr(speculation, "ON_GPU", (1, 2))
    found = rows(measured(TINY, asked))["gpu_spec"]
    assert {by: set(gains) for by, gains in found["measured"].items()} == {"mxfp4": {1, 2}, "ngram": {1, 2}}
    assert set(found["pays_up_to"]) == {"mxfp4", "ngram"}
    assert set(found["verify_int4"]) == {1, 2}
    assert found["answers_with_other_tokens"] == 0
