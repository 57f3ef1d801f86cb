"""What is learned: the target's distribution at each place of a draft, by rates and batches that a seed fixes."""

from __future__ import annotations

import random

import pytest
import torch

from qualgate.engine.draft_heads import training
from qualgate.engine.draft_heads.texts import Text, read_texts
from qualgate.engine.draft_heads.training import Lessons, Teacher, batches, learned, rate
from qualgate.engine.head import OutputHead
from qualgate.errors import UsageError
from tests.engine.jobs import INT4, loaded
from tests.tiny_models import save_tiny_model


@pytest.fixture(scope="module")
def arm(tmp_path_factory):
    folder = tmp_path_factory.mktemp("target")
    return loaded(save_tiny_model(folder / "model"), folder)


def some_texts(arm, count: int = 12) -> list[Text]:
    draw = random.Random(0)
    return read_texts(
        arm, [([draw.randrange(256) for _ in range(2 + at)], [1, 2, 3, 4] * (1 + at % 4)) for at in range(count)]
    )


def test_texts_hold_what_entered_the_head_at_every_token_but_the_last(arm):
    texts = some_texts(arm)
    head = OutputHead(arm.model)
    for text in texts:
        assert len(text.states) == len(text.tokens) - 1
        found = arm.model(input_ids=text.tokens[None, :-1]).logits[0]
        assert torch.allclose(head.logits(text.states), found, atol=1e-3)


def test_the_loss_falls_to_what_the_target_itself_leaves_open(arm):
    losses, texts, teacher = list[float](), some_texts(arm), Teacher(arm)
    shape, tensors = learned(arm, texts, Lessons(tokens=3, steps=150), lambda loss, *_: losses.append(loss))
    theirs = torch.cat([teacher._logits(text.states[text.prompt :]) for text in texts]).log_softmax(-1)
    left_open = float(-(theirs.exp() * theirs).sum(-1).mean())
    assert losses[0] > left_open + 1
    assert sum(losses[-5:]) / 5 < left_open + 0.2
    assert {one.dtype for one in tensors.values()} == {torch.bfloat16}
    assert (shape.width, shape.vocabulary, shape.heads, shape.kv_heads, shape.head_dim) == (64, 260, 4, 2, 16)


def test_the_teacher_of_a_packed_head_says_what_its_head_says(tmp_path):
    recipe = INT4
    arm = loaded(save_tiny_model(tmp_path / "model"), tmp_path, "v", recipe)
    states, teacher = torch.randn(5, 64), Teacher(arm)
    assert torch.allclose(teacher._logits(states), OutputHead(arm.model).logits(states), atol=1e-2)


def test_every_text_is_in_a_batch_once_a_round(arm, monkeypatch):
    monkeypatch.setattr(training, "TEXTS", 5)
    texts = some_texts(arm)
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


def test_states_that_are_no_numbers_teach_nothing(arm):
    texts = some_texts(arm)
    texts[0].states.fill_(torch.nan)
    with pytest.raises(UsageError, match="The loss is nan at step"):
        learned(arm, texts, Lessons(steps=40), lambda *_: None)
