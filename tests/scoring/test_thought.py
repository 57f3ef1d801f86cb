"""What became of a thought, and each of it has a word."""

from __future__ import annotations

import pytest

from qualgate.records import Evalset
from qualgate.scoring.registry import find
from qualgate.scoring.thought import METRICS
from tests.scoring.cases import scored, table


@pytest.mark.parametrize(("text", "wrong"), table("thoughts"))
def test_each_fault_of_a_thought_is_told_by_a_metric_of_its_own(text, wrong):
    found = scored({"prompt": "Q", "reasoning": "think"}, METRICS, text)
    assert {name: score.error_type for name, score in found.items() if not score.verdict} == wrong


def test_a_marker_that_the_question_holds_may_stand_in_the_answer():
    for asked in ({"prompt": "What does </think> do?"}, {"messages": [{"role": "user", "content": "and </think>?"}]}):
        found = scored({**asked, "reasoning": "think"}, ("reasoning.no_leak",), "<think>x</think>It </think> ends.")
        assert found["reasoning.no_leak"].verdict is True
    opened = {"prompt": "Q <think>", "reasoning": "think"}
    assert scored(opened, ("reasoning.no_leak",), "x</think>A <think>")["reasoning.no_leak"].verdict is False


def test_a_case_must_say_how_thoughts_are_written():
    evalset = Evalset(name="s", version="1", sha256="", metrics=METRICS)
    assert "needs `reasoning`" in " ".join(find("reasoning").unscorable({"prompt": "Q"}, evalset))
