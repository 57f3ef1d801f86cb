from __future__ import annotations

import math

from tests.benchmarks.questions import asked_of
from tests.benchmarks.turns import Turn, gain, in_turns, shown, unlike


def turn(seconds, decoding=None, tokens=(1, 2)):
    return Turn(tokens=tokens, seconds=seconds, decoding=decoding)


def test_every_way_answers_each_prompt_and_none_is_always_first():
    heard = []
    prompts = asked_of({"a": ("code",), "b": ("transform",)}, 3)
    prompts["b"].pop()

    def way(name):
        def answer(prompt):
            heard.append((name, prompt.key))
            return turn(1.0)

        return answer

    found = in_turns("test", {"x": way("x"), "y": way("y")}, prompts)
    assert {task: len(of_task) for task, of_task in found.items()} == {"a": 3, "b": 2}
    assert [key for _, key in heard[::2]] == [key for _, key in heard[1::2]]  # of one prompt, side by side
    assert len(set(heard)) == 10
    assert [name for name, _ in heard[::2]].count("x") in (2, 3)


def test_a_gain_is_the_geometric_mean_over_tasks_of_sums_over_prompts():
    turns = {
        "a": [{"x": turn(1.0, 0.5), "y": turn(4.0, 1.0)}, {"x": turn(3.0, 0.5), "y": turn(4.0, 1.0)}],
        "b": [{"x": turn(1.0, 1.0), "y": turn(8.0, 8.0)}] * 2,
    }
    found = gain(turns, "x", "y")
    assert found.by_task == {"a": 2.0, "b": 8.0}
    assert math.isclose(found.ratio, 4.0)
    # Of task a's two prompts twice the one or twice the other is drawn: 4 or 4 / 3, beside the 8 of the other task.
    assert math.isclose(found.interval[0], math.sqrt(4 / 3 * 8))
    assert math.isclose(found.interval[1], math.sqrt(4 * 8))
    assert math.isclose(gain(turns, "x", "y", "decoding").ratio, 4.0)
    assert gain(turns, "x", "y", "decoding").interval == (gain(turns, "x", "y", "decoding").ratio,) * 2


def test_other_tokens_are_counted_and_turns_shown():
    turns = {"a": [{"x": turn(1.0), "y": turn(2.0, tokens=(1, 3))}, {"x": turn(1.0), "y": turn(2.0)}]}
    assert unlike(turns, "x", "y") == 1
    [told] = shown("race", turns)
    assert told["task"] == "a"
    assert told["y"] == {"tokens": [2, 2], "seconds": [2.0, 2.0], "decoding": [None, None]}
