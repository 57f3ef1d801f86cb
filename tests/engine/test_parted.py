"""Two answers held against each other token by token, and against the logits where they part."""

from __future__ import annotations

import pytest
import torch

from qualgate.engine.answers import Answers
from qualgate.engine.choice import open_engine
from qualgate.engine.parted import Parting, parting
from qualgate.engine.request import Request

PROMPT = (7, 8, 9, 10)


@pytest.fixture(scope="module")
def said(tiny_arm):
    answers = Answers(1)
    with open_engine(tiny_arm.model, tiny_arm.choice) as engine:
        engine.run([Request(prompt=PROMPT, max_new_tokens=12)], None, answers)
    return answers.tokens[0], answers.margins[0]


def test_the_lead_is_of_the_model_s_logits_at_the_first_token_that_is_another(tiny_arm, said):
    tokens, margins = said
    for position in (0, 5):
        with torch.inference_mode():
            logits = tiny_arm.model(torch.tensor([[*PROMPT, *tokens[:position]]])).logits[0, -1]
        runner_up = int(logits.topk(2).indices[1])
        found = parting(tiny_arm, PROMPT, tokens, [*tokens[:position], runner_up, 1, 2])
        assert found is not None
        assert (found.position, found.said, found.other) == (position, tokens[position], runner_up)
        assert found.lead == pytest.approx(margins[position], abs=1e-4)
        largest = torch.tensor(float(logits.abs()[[tokens[position], runner_up]].max())).bfloat16()
        assert found.spacing == torch.nextafter(largest, torch.tensor(torch.inf).bfloat16()) - largest


def test_the_same_answers_do_not_part_and_one_that_is_over_has_no_lead(tiny_arm, said):
    tokens, _ = said
    assert parting(tiny_arm, PROMPT, tokens, list(tokens)) is None
    found = parting(tiny_arm, PROMPT, tokens, tokens[:4])
    assert found == Parting(position=4, said=tokens[4], other=None)


@pytest.mark.parametrize(("lead", "tie"), [(0.125, True), (-0.125, True), (0.126, False), (None, False)])
def test_a_tie_is_at_most_one_spacing_apart(lead, tie):
    assert Parting(position=0, said=1, other=2, lead=lead, spacing=0.125).shown["tie"] is tie
