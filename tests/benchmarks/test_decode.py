"""Benchmark `decode` on seven cases: what its table holds, and that all contenders answered the same."""

from __future__ import annotations

import json

import pytest

from tests.benchmarks import decode, harnesses, vllm_peer
from tests.benchmarks.decode import Size, measured
from tests.benchmarks.goals import DECODE
from tests.benchmarks.questions import KINDS, asked

TINY = Size(per_set=1, questions=1, rounds=1, sizes=(4,), rows=7)
SPEED = set(decode.AT_LEAST) | set(decode.AT_MOST)


@pytest.fixture(autouse=True)
def no_vllm(monkeypatch):
    monkeypatch.delenv(vllm_peer.INTERPRETER, raising=False)


def rows(result):
    return {row["id"]: row for row in result["goals"]}


def test_every_row_has_a_goal_and_a_limit():
    assert SPEED | {"memory"} == set(DECODE.goals)
    limits = decode.AT_LEAST | decode.AT_MOST
    assert all(DECODE.goals[id].split()[1].rstrip("x") == f"{limits[id]:g}" for id in SPEED)


def test_the_shipped_cases_are_asked_by_kind():
    found = asked(2)
    assert list(found) == list(KINDS)
    assert [len(mine) for mine in found.values()] == [2 * len(sets) for sets in KINDS.values()]
    assert {one.key.evalset for mine in found.values() for one in mine} == {
        one for sets in KINDS.values() for one in sets
    }
    assert not {one.key for one in asked(2)["short"]} & {one.key for one in asked(2, first=2)["short"]}


@pytest.mark.proof
def test_drafted_answers_are_those_of_transformers_and_rows_not_asked_for_say_so():
    result = measured(TINY, ["drafted_int8", "step_1"])
    found = rows(result)
    row = found["drafted_int8"]
    assert (row["cases"], row["cases_with_other_tokens"]) == (7, 0)
    assert row["measured"] > 0
    assert row["spread"] == [row["measured"]] * 2
    assert set(row["kinds"]) == set(KINDS)
    assert row["met"] is None
    assert "7 cases" in row["reason"]
    assert found["step_1"]["without_calls"] > found["step_1"]["measured"] > 0
    assert {id for id, one in found.items() if one.get("reason", "").startswith("not asked")} == (
        set(DECODE.goals) - {"drafted_int8", "step_1"}
    )
    assert result["rounds"][0]["best_batch"] == {"generate": dict.fromkeys(KINDS, 4)}
    json.dumps(result)


@pytest.mark.proof
def test_every_peer_that_is_here_gives_the_same_answers():
    pytest.importorskip("lm_eval")
    result = measured(
        TINY, ["drafted_int4", "plain", "lm_eval_int8", "lm_eval_int4", "choices", "memory", "vllm_plain"]
    )
    found = rows(result)
    for id in ("drafted_int4", "plain", "lm_eval_int8", "lm_eval_int4", "choices"):
        assert found[id]["cases_with_other_tokens"] == 0, id
        assert found[id]["cases"] == 7, id
    assert found["plain"]["faster"] in found["plain"]["against"]
    assert found["lm_eval_int8"]["plugged_in"] > 0
    assert set(found["memory"]["measured"]) == {"of_generate", "of_file", "answering_of_generate"}
    assert vllm_peer.INTERPRETER in found["vllm_plain"]["reason"]


def test_a_peer_that_does_not_come_up_leaves_the_other_rows(monkeypatch):
    def down(ground, id):
        raise vllm_peer.Down("no wheel for this machine")

    monkeypatch.setenv(vllm_peer.INTERPRETER, "python")
    monkeypatch.setattr(decode, "_vllm_plain", down)
    found = rows(measured(TINY, ["vllm_plain"]))
    assert found["vllm_plain"]["reason"] == "no wheel for this machine"


def test_without_lm_eval_its_rows_say_so(monkeypatch):
    monkeypatch.setattr(harnesses, "installed_version", lambda extra: "")
    found = rows(measured(TINY, ["lm_eval_int8", "choices"]))
    assert "needs lm-eval. Install it: " in found["lm_eval_int8"]["reason"]
    assert "needs lm-eval. Install it: " in found["choices"]["reason"]
