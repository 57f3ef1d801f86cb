"""What became of a thought, and each of it has a word."""

from __future__ import annotations

import pytest

from qualgate.records import Evalset
from qualgate.scoring.registry import find
from qualgate.scoring.thought import METRICS
from tests.scoring.cases import scored

WRONG = {
    "<think>x</think>A": {},
    "A": {},
    "<think>x": {"reasoning.closed": "unclosed", "reasoning.committed": "no_answer"},
    "<think>x</think>\n": {"reasoning.committed": "no_answer"},
    "<think>x</think>A</think>B": {"reasoning.no_leak": "leaked"},
    "A <think> B": {"reasoning.no_leak": "leaked"},
    "<think>x</think>Write `</think>` at the end.": {},
    f"<think>{'wait, ' * 40}</think>A": {"reasoning.no_loop": "loop"},
    f"<think>{'wait, ' * 40}": {"reasoning.closed": "unclosed", "reasoning.no_loop": "loop",
                                "reasoning.committed": "no_answer"},
    f"<think>x</think>{'A ' * 40}": {},
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_each_fault_of_a_thought_is_told_by_a_metric_of_its_own(text):
    found = scored({"prompt": "Q", "reasoning": "think"}, METRICS, text)
    assert {name: score.error_type for name, score in found.items() if not score.verdict} == WRONG[text]


def test_a_marker_that_the_question_holds_may_stand_in_the_answer():
    for asked in ({"prompt": "What does </think> do?"}, {"messages": [{"role": "user", "content": "and </think>?"}]}):
        found = scored({**asked, "reasoning": "think"}, ("reasoning.no_leak",), "<think>x</think>It </think> ends.")
        assert found["reasoning.no_leak"].verdict is True
    opened = {"prompt": "Q <think>", "reasoning": "think"}
    assert scored(opened, ("reasoning.no_leak",), "x</think>A <think>")["reasoning.no_leak"].verdict is False


def test_a_case_must_say_how_thoughts_are_written():
    evalset = Evalset(name="s", version="1", sha256="", metrics=METRICS)
    assert "needs `reasoning`" in " ".join(find("reasoning").unscorable({"prompt": "Q"}, evalset))
