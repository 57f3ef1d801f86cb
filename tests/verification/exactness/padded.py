"""The padded engine, of a tiny random model with ALiBi that packed passes do not serve: a row's bits depend on its
batch there, so another token in another batch is a tie or a defect."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from qualgate.engine.choice import Choice, choose_engine, open_engine
from qualgate.engine.request import Request
from tests.verification.exactness.bits import Answer, Heard, agreed

ULPS = 4  # of the larger of the two likeliest logits: a lead of less is a tie
TOGETHER = 7
VOCABULARY, LONGEST = 256, 48


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddedCell:
    """One way to ask. tokens: compared; ties: answers that went another way at a tie; broken: that did without one."""

    padded: str
    tokens: int
    ties: int
    broken: int


def padded_cells(count: int) -> list[PaddedCell]:
    """`count` requests together, in small batches and with drafts, each held against itself alone."""
    model = _model()
    choice = choose_engine(model)
    assert choice.kind == "padded", "packed passes serve this model: it shows nothing of padded ones"
    requests = _requests(count)
    alone = [answer for request in requests for answer in _said(model, choice, [request])]
    # What is not said after its first half is read as a draft of what is.
    half = [tuple(one.tokens[: len(one.tokens) // 2]) for one in alone]
    drafted = [replace(request, answer=(*text, 1, 2)) for request, text in zip(requests, half, strict=True)]
    small = [requests[at : at + TOGETHER] for at in range(0, count, TOGETHER)]
    ways = {
        "many at once": _said(model, choice, requests),
        "small batches": [answer for some in small for answer in _said(model, choice, some)],
        "drafted": _said(model, choice, drafted),
    }
    return [_held(way, found, alone) for way, found in ways.items()]


def _model() -> PreTrainedModel:
    config = AutoConfig.for_model(
        "bloom", vocab_size=VOCABULARY, hidden_size=64, n_layer=2, n_head=4, initializer_range=0.15
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)


def _requests(count: int) -> list[Request]:
    draw = random.Random(0)
    return [
        Request(
            prompt=tuple(draw.randrange(VOCABULARY) for _ in range(draw.randint(1, LONGEST))),
            max_new_tokens=draw.randint(1, LONGEST),
        )
        for _ in range(count)
    ]


def _said(model: PreTrainedModel, choice: Choice, requests: Sequence[Request]) -> list[Answer]:
    with open_engine(model, choice) as engine:
        heard = Heard(requests, engine.head)
        engine.run(requests, None, heard)
    return heard.answers


def _held(way: str, found: Sequence[Answer], alone: Sequence[Answer]) -> PaddedCell:
    ties = broken = 0
    for one, other in zip(found, alone, strict=True):
        if one.tokens == other.tokens:
            continue
        at = agreed(one.tokens, other.tokens)
        tied = at < len(other.tokens) and other.margins[at] < ULPS * float(
            np.spacing(np.float32(other.logits[at].topk(2).values.abs().max()))
        )
        ties, broken = ties + tied, broken + (not tied)
    return PaddedCell(padded=way, tokens=sum(len(one.tokens) for one in alone), ties=ties, broken=broken)
