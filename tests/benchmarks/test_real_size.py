"""Benchmark `real-size`: its rows, the models with random weights, and what is not measured where something lacks."""

from __future__ import annotations

import json

import pytest

from qualgate import refmodel
from tests.benchmarks import llama_peer, ours, real_ground, real_shapes, real_size, vllm_peer
from tests.benchmarks.goals import REAL_SIZE
from tests.benchmarks.real_ground import Ground, endless
from tests.benchmarks.real_shapes import Shape
from tests.verification.references.agreement import NoReference

TINY = Shape(width=64, inner=128, layers=2, heads=4, vocabulary=1000, tokens=4)


@pytest.fixture
def ground(monkeypatch, tmp_path):
    monkeypatch.setitem(real_shapes.SHAPES, "05b", TINY)
    return Ground(work=tmp_path, model=refmodel.PATH, cases=2, rounds=1, singles=1)


def test_every_row_of_a_race_has_the_limit_that_its_goal_names():
    assert all(REAL_SIZE.goals[id].startswith((f">= {least}x", f">= {least:.0%}".replace("%", " %")))
               for id, least in real_ground.AT_LEAST.items())  # fmt: skip


def test_rows_without_a_model_or_a_peer_say_so(monkeypatch, tmp_path):
    def none(work):
        raise NoReference("no chat model here")

    monkeypatch.setattr(real_size, "chat_model", none)
    only = [id for id in REAL_SIZE.goals if id not in ("products", "drift")]
    found = {row["id"]: row for row in real_size.run(True, only)["goals"]}
    assert {found[id]["reason"] for id in only} == {"no chat model here"}
    assert found["drift"]["reason"].startswith("not asked for")
    monkeypatch.setattr(real_size, "chat_model", lambda work: tmp_path)
    monkeypatch.delenv(llama_peer.INTERPRETER, raising=False)
    monkeypatch.delenv(vllm_peer.INTERPRETER, raising=False)
    peers = [id for id in REAL_SIZE.goals if id.startswith(("llama", "vllm"))]
    found = {row["id"]: row for row in real_size.run(True, peers)["goals"]}
    assert len(peers) == 5
    assert all("names no interpreter" in found[id]["reason"] for id in peers)


def test_a_random_model_answers_as_transformers_does_and_beside_its_int4(ground):
    rounds, row = real_shapes.plain(ground, "plain_05b")
    assert (row["cases"], row["cases_with_other_tokens"]) == (12, 0)
    assert row["different_tokens"] > 1
    assert rounds[0]["text"]["ours"]["said"] == 12 * 4
    rounds, row = real_shapes.int4(ground, "int4_05b")
    assert row["measured"].keys() == row["spread"].keys() == {"alone", "at_once"}
    assert row["bytes_of_weights"] > 1
    json.dumps([rounds, row])


def test_a_random_model_is_the_same_each_time_and_no_token_ends_its_answers(ground, tmp_path):
    first, second = (real_shapes.write_random(TINY, refmodel.PATH, tmp_path / name) for name in "ab")
    assert (first / "model.safetensors").read_bytes() == (second / "model.safetensors").read_bytes()
    prompts = {"text": real_shapes.random_prompts(3, TINY.vocabulary, 9)}
    assert prompts == {"text": real_shapes.random_prompts(3, TINY.vocabulary, 9)}
    arm = ours.load("baseline", first, tmp_path / "cache")
    assert arm.footprint.facts["memory.weights"] == pytest.approx((first / "model.safetensors").stat().st_size, rel=0.1)
    assert [len(said) for said in ours.plain(endless(arm), prompts).answer("text")] == [9, 9, 9]
