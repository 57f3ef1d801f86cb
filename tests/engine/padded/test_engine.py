"""The engine of padded batches: its batches, and architectures that packed passes do not serve."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from qualgate.engine.overflow import Overflows
from qualgate.engine.padded import engine as module
from qualgate.engine.padded.engine import open_padded
from qualgate.engine.request import Read, Request, Spoken
from tests.engine.engines import answered, generated, load, opened
from tests.tiny_models import END

STOPS = (END, 3, 50, 99, 120, 200)


@pytest.fixture
def model(saved) -> Any:
    return load(saved())


@pytest.fixture
def engine(model) -> Iterator[Any]:
    with opened("padded", model) as engine:
        yield engine


def asked(count: int = 12, **how: Any) -> list[Request]:
    draw = random.Random(0)
    return [
        Request(
            prompt=tuple(draw.randrange(256) for _ in range(draw.choice([1, 7, 30, 60]))),
            max_new_tokens=draw.choice([1, 5, 16, 28]),
            stop_ids=frozenset(STOPS),
            **how,
        )
        for _ in range(count)
    ]


def made(arch: str) -> Any:
    """A tiny model that has positions of its own kind: a table of them, or a bias of heads."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        sizes = {"hidden_size": 32, "n_layer": 2, "n_head": 4, "initializer_range": 0.3, "n_positions": 128}
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(arch, vocab_size=260, **sizes)).eval()


@pytest.mark.parametrize("arch", ["bloom", "gpt2"])
def test_answers_of_other_architectures_are_those_of_transformers_generate(arch):
    model = made(arch)
    expected = [generated(model, request.prompt, request.max_new_tokens, STOPS) for request in asked()]
    assert len({len(answer) for answer in expected}) > 2
    offered = [replace(request, answer=(*answer[:3], 7)) for request, answer in zip(
        asked(), expected, strict=True)]  # fmt: skip
    with opened("padded", model) as engine:
        assert answered(engine, asked()).tokens == expected
        assert answered(engine, offered).tokens == expected


def test_batches_hold_so_many_rows_of_like_length_the_longest_expected_first(model, engine, monkeypatch):
    monkeypatch.setattr(module, "ROWS", 5)
    shapes: list[tuple[int, ...]] = []
    hook = model.register_forward_pre_hook(
        lambda _, __, inputs: shapes.append(tuple(inputs["input_ids"].shape)), with_kwargs=True
    )
    requests = [
        Request(prompt=(7,) * length, max_new_tokens=1, expected=expected)
        for length, expected in ((10, 1), (50, 1), (20, 1), (11, 1), (51, 1), (21, 1), (12, 200), (52, 1))
    ]
    told = answered(engine, requests)
    hook.remove()
    assert shapes == [(5, 52), (3, 20)]
    assert [event.request for event in told.events if not isinstance(event, Spoken)] == [7, 4, 1, 5, 6, 2, 3, 0]


def test_a_proposer_is_not_asked(engine):
    refuses = SimpleNamespace(name="refuses", runs_model=False)  # can neither propose nor be told of ends
    assert answered(engine, asked(3), proposer=refuses).tokens == answered(engine, asked(3)).tokens


def test_states_are_the_logits_of_a_model_that_does_more_to_them_than_its_config_says(model):
    real = model.forward

    def forward(**inputs: Any) -> Any:
        out = real(**inputs)
        out.logits = out.logits.roll(1, -1)
        return out

    model.forward = forward
    with open_padded(model) as engine:
        assert not engine.head.whole
        told = answered(engine, asked())
        again = answered(engine, [replace(request, answer=tuple(tokens[:4])) for request, tokens in zip(
            asked(), told.tokens, strict=True)])  # fmt: skip
    assert again.tokens == told.tokens
    for event in (*told.events, *again.events):
        if isinstance(event, Read | Spoken) and event.states is not None:
            logits = event.states
            tokens = event.tokens if isinstance(event, Spoken) else event.predicted.tokens.tolist()
            assert logits.argmax(-1).tolist() == tokens
    del model.forward
    with open_padded(model) as plain:
        assert plain.head.whole
        assert answered(plain, asked()).tokens != told.tokens


@pytest.mark.parametrize("lengths", [((3, 6), (20, 2), (8, 1)), ((64, 1), (10, 1))])  # 64: as wide as the model
def test_what_a_dtype_cannot_hold_is_counted_once_a_token_and_never_of_padding(model, monkeypatch, lengths):
    real = Overflows.__init__
    monkeypatch.setattr(Overflows, "__init__", lambda self, limit, **how: real(self, 0.5, **how))

    def counts(requests: list[Request]) -> dict[str, int]:
        with open_padded(model, "float16") as engine:
            assert engine.overflow == ()  # opening asks the model something
            answered(engine, requests)
            return {name: count for _, name, count in engine.overflow}

    requests = [Request(prompt=tuple(range(9, 9 + length)), answer=(5,) * answer) for length, answer in lengths]
    apart = [counts([request]) for request in requests]
    together = counts(requests)
    assert {"lm_head", "what enters lm_head"} <= together.keys()
    assert together.keys() == {name for one in apart for name in one}
    for name, count in together.items():
        assert abs(count - sum(one.get(name, 0) for one in apart)) <= 2  # of values at the limit, to the last bit


def test_keys_and_values_are_looked_at_where_they_are_kept(model, monkeypatch):
    real = Overflows.__init__
    monkeypatch.setattr(Overflows, "__init__", lambda self, limit, **how: real(self, 0.5, **how))
    with open_padded(model, "float16") as engine:
        answered(engine, asked(2))
        names = {name for _, name, _ in engine.overflow}
    assert {"keys of layer 0", "values of layer 1"} <= names
    with open_padded(model, "bfloat16") as engine:
        answered(engine, asked(2))
        assert engine.overflow == ()
