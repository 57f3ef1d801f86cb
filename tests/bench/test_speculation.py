"""`bench speculation` on one prompt a task: what its table holds, and that every way said the same."""

from __future__ import annotations

import json

import pytest

from qualgate.bench import speculation
from qualgate.bench.goals import SPECULATION
from qualgate.bench.speculation import Size, measured

TINY = Size(per_task=1)


@pytest.fixture(autouse=True)
def little(monkeypatch):
    monkeypatch.setattr(speculation, "LEAST", 2**24)


def rows(result):
    return {row["id"]: row for row in result["goals"]}


def test_every_limit_is_its_goal_s():
    for id, limit in speculation.AT_LEAST.items():
        assert SPECULATION.goals[id].split()[1] == f"{limit}x"


def test_self_drafts_say_what_the_target_says_and_are_accepted_as_the_reference_model_s():
    result = measured(TINY, ["specqd_1", "specqd_2"])
    found = rows(result)
    for id in ("specqd_1", "specqd_2"):
        row = found[id]
        assert (row["cases"], row["cases_with_other_tokens"], row["cases_widened_otherwise"]) == (4, 0, 0)
        assert row["met"] is None
        assert "1 prompts a task" in row["reason"]
        assert row["spread"][0] <= row["measured"] <= row["spread"][1]
        assert set(row["tasks"]) == set(speculation.TASKS)
        assert row["target"] == "widened 4 times"
    one, two = found["specqd_1"], found["specqd_2"]
    assert one["drafts"] == [one["unwidened_drafts"]]
    assert one["drafts"][0]["tokens_a_pass"] > 3
    assert len(two["drafts"]) == 2
    assert set(two["crossover"]) == {"mxfp4", "ngram", "both"}
    assert two["crossover"]["both"]["ratio"] == two["measured"]
    assert len(result["rounds"]) == 1 + len(speculation.TASKS)
    json.dumps(result)
