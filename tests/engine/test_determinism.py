"""The determinism matrix calls equal what is, and sees what was planted."""

from __future__ import annotations

import pytest
import torch

from qualgate.engine.determinism import (
    compare,
    determinism_matrix,
    model_determinism,
    near_ties,
    read_batch,
    read_stepwise,
)
from qualgate.records import Case
from tests.engine.engines import load
from tests.engine.jobs import loaded, under

TEXTS = [[3, 5, 7, 11, 13, 17], [2, 4], [9] * 9]


@pytest.fixture(scope="module", params=["plain", "packed", "padded"])
def arm(request, saved, tmp_path_factory):
    return under(request.param, loaded(saved(), tmp_path_factory.mktemp("cache")))


def test_the_matrix_has_every_condition_and_repeats_are_equal(arm):
    threads = torch.get_num_threads()
    found = determinism_matrix(arm.model, arm.choice, TEXTS, repeats=3)
    assert [cell.condition for cell in found.cells] == ["repeat", "batch", "one row a step", "threads 1, 2"]
    assert found.repeatable
    assert found.cells[0].trials == 3
    assert found.positions == sum(map(len, TEXTS))
    for cell in found.cells:
        assert cell.max_difference < 1e-3
        assert cell.other_tokens == 0
        assert cell.equal is (cell.max_ulp == 0)
        assert cell.equal or arm.choice.kind == "padded"
    assert set(found.near_tie_share) == {"1", "4"}
    assert found.softmax_sum_error is not None
    assert found.softmax_sum_error < 260 * 2.0**-24  # each of 260 probabilities within half an ulp of at most 1, or so
    assert torch.get_num_threads() == threads


def test_a_model_folder_is_tried_on_whole_cases(saved):
    case = Case(evalset="s", body={"id": "a", "prompt": "Two", "answer": "Four"})
    found = model_determinism(saved(), [case], repeats=2)
    assert found.repeatable
    assert found.positions == len("TwoFour") + 1  # bytes, and the end token


def test_reading_in_a_batch_and_step_by_step_gives_the_logits_of_every_position(arm, saved):
    alone = [read_batch(arm.model, arm.choice, [text])[0] for text in TEXTS]
    together = read_batch(arm.model, arm.choice, TEXTS)
    stepwise = [read_stepwise(arm.model, arm.choice, text) for text in TEXTS]
    theirs = load(saved())
    assert [len(text) for text in alone] == [6, 2, 9]
    for text, one, two, three in zip(TEXTS, alone, together, stepwise, strict=True):
        with torch.inference_mode():
            torch.testing.assert_close(one, theirs(torch.tensor([text])).logits[0], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(two, one, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(three, one, atol=1e-4, rtol=1e-4)


def test_a_model_that_answers_differently_each_time_is_not_repeatable(arm):
    noise = iter(range(1000))
    head = arm.model.get_output_embeddings()
    hook = head.register_forward_hook(lambda _, __, logits: logits + 1e-6 * next(noise))
    try:
        found = determinism_matrix(arm.model, arm.choice, TEXTS[:1], repeats=2, threads=(1,))
    finally:
        hook.remove()
    assert not found.repeatable
    assert not found.cells[0].equal
    assert found.cells[0].max_ulp > 0


def test_a_token_that_turns_without_a_near_tie_is_told_from_one_that_does():
    expected = [torch.tensor([[5.0, 1.0], [2.0, 2.0 - 5e-7]])]  # two float32 below 2, where they lie 1.2e-7 apart
    turned = compare("x", expected, [[torch.tensor([[5.0, 1.0], [2.0, 2.0 + 5e-7]])]])
    assert (turned.other_tokens, turned.near_ties, turned.equal) == (1, 1, False)
    defect = compare("x", expected, [[torch.tensor([[1.0, 1.5], [2.0, 1.0]])]])
    assert (defect.other_tokens, defect.near_ties) == (1, 0)
    nothing = compare("x", expected, [expected])
    assert (nothing.equal, nothing.max_ulp, nothing.max_difference, nothing.other_tokens) == (True, 0, 0.0, 0)
    broken = compare("x", expected, [[torch.full((2, 2), float("nan"))]])
    assert broken.max_difference == float("inf")


def test_near_ties_are_counted_at_the_magnitude_of_each_best_logit():
    spacing = 2.0**-19  # of float32 at 16
    logits = [torch.tensor([[16.0, 16.0 - spacing / 2], [16.0, 16.0 - 3 * spacing], [16.0, 1.0]])]
    assert near_ties(logits, 1) == pytest.approx(1 / 3)
    assert near_ties(logits, 4) == pytest.approx(2 / 3)
    assert near_ties([], 1) is None
