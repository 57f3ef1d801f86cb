"""What is learned: the target's distribution at each place of a draft, by rates and batches that a seed fixes."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch

from qualgate.engine.draft_heads import training
from qualgate.engine.draft_heads.texts import Text, read_texts
from qualgate.engine.draft_heads.training import Lessons, Teacher, batches, learned, rate
from qualgate.engine.head import OutputHead
from qualgate.errors import UsageError
from tests.engine.jobs import INT4


@pytest.fixture(scope="module")
def texts(tiny_arm) -> list[Text]:
    draw = random.Random(0)
    what = [([draw.randrange(256) for _ in range(2 + at)], [1, 2, 3, 4] * (1 + at % 4)) for at in range(12)]
    return read_texts(tiny_arm, what)


def test_texts_hold_what_entered_the_head_at_every_token_but_the_last(tiny_arm, texts):
    head = OutputHead(tiny_arm.model)
    for text in texts:
        assert len(text.states) == len(text.tokens) - 1
        found = tiny_arm.model(input_ids=text.tokens[None, :-1]).logits[0]
        assert torch.allclose(head.logits(text.states), found, atol=1e-3)


@pytest.mark.parametrize(("steps", "near"), [(40, 0.5), pytest.param(150, 0.2, marks=pytest.mark.proof)])
def test_the_loss_falls_to_what_the_target_itself_leaves_open(tiny_arm, texts, steps, near):
    losses, teacher = list[float](), Teacher(tiny_arm)
    shape, tensors = learned(tiny_arm, texts, Lessons(tokens=3, steps=steps), lambda loss, *_: losses.append(loss))
    theirs = torch.cat([teacher._logits(text.states[text.prompt :]) for text in texts]).log_softmax(-1)
    left_open = float(-(theirs.exp() * theirs).sum(-1).mean())
    assert losses[0] > left_open + 1
    assert sum(losses[-5:]) / 5 < left_open + near
    assert {one.dtype for one in tensors.values()} == {torch.bfloat16}
    assert (shape.width, shape.vocabulary, shape.heads, shape.kv_heads, shape.head_dim) == (64, 260, 4, 2, 16)


def test_the_teacher_of_a_packed_head_says_what_its_head_says(arms_of):
    arm = arms_of()("variant", INT4)
    states, teacher = torch.randn(5, 64), Teacher(arm)
    assert torch.allclose(teacher._logits(states), OutputHead(arm.model).logits(states), atol=1e-2)


def test_every_text_is_in_a_batch_once_a_round(texts, monkeypatch):
    monkeypatch.setattr(training, "TEXTS", 5)
    found = batches(texts, random.Random(1))
    for _ in range(2):
        ids = [id(text) for _ in range(3) for text in next(found)]
        assert sorted(ids) == sorted(map(id, texts))


def test_the_rate_rises_and_falls():
    shares = [rate(step, 200) for step in range(200)]
    assert shares.index(max(shares)) in (9, 10)
    assert max(shares) == 1.0
    assert shares[:10] == sorted(shares[:10])
    assert shares[10:] == sorted(shares[10:], reverse=True)
    assert shares[-1] < 1e-3


def test_states_that_are_no_numbers_teach_nothing(tiny_arm, texts):
    broken = replace(texts[0], states=torch.full_like(texts[0].states, torch.nan))
    with pytest.raises(UsageError, match="The loss is nan at step"):
        learned(tiny_arm, [broken, *texts[1:]], Lessons(steps=40), lambda *_: None)
