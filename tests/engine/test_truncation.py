"""Which tokens top-k, top-p and min-p leave: those that transformers leaves, and the same ones in any company."""

from __future__ import annotations

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from transformers import GenerationConfig
from transformers.generation.utils import GenerationMixin

from qualgate.engine.truncation import cut
from qualgate.records import Sampling

NEAR = 1e-6  # a sum so close to p may be rounded to either side of it

WAYS = [
    {"top_k": 1}, {"top_k": 7}, {"top_k": 5_000}, {"top_p": 1e-9}, {"top_p": 0.3}, {"top_p": 0.9}, {"top_p": 0.9999},
    {"min_p": 0.001}, {"min_p": 0.5}, {"top_k": 50, "top_p": 0.8}, {"top_k": 3_000, "top_p": 0.99, "min_p": 0.01},
]  # fmt: skip


def theirs(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """What the processors leave that transformers makes of these settings, in its order; in float64."""
    settings = GenerationConfig(
        do_sample=True, temperature=sampling.temperature, top_k=sampling.top_k, top_p=sampling.top_p,
        min_p=sampling.min_p or None,
    )  # fmt: skip
    processors = GenerationMixin()._get_logits_processor(generation_config=settings)  # type: ignore[arg-type]
    return processors(torch.zeros(len(logits), 1, dtype=torch.long), logits.double()) > -torch.inf


def ours(logits: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    return cut(logits.double() / sampling.temperature, sampling) > -torch.inf


def decided(logits: torch.Tensor, sampling: Sampling) -> bool:
    """No share or ratio lies so near its bound that rounding decides. Sums in plain Python, one row."""
    scores = sorted((logits[0].double() / sampling.temperature).tolist(), reverse=True)
    if sampling.top_k:
        scores = [score for score in scores if score >= scores[min(sampling.top_k, len(scores)) - 1]]
    weights = torch.tensor([score - scores[0] for score in scores], dtype=torch.float64).exp().tolist()
    before = [sum(weights[:place]) / sum(weights) for place in range(1, len(weights) + 1)]
    return all(abs(share - sampling.top_p) > NEAR for share in before[:-1]) and all(
        abs(weight - sampling.min_p) > 1e-12 for weight in weights
    )


@st.composite
def rows(draw: st.DrawFn) -> torch.Tensor:
    """[1, vocabulary] float32, most with equal logits among them."""
    numbers = st.one_of(
        st.integers(-6, 6).map(lambda number: number / 2), st.floats(-30, 30, width=32), st.sampled_from([0.0, 4.0])
    )
    return torch.tensor([draw(st.lists(numbers, min_size=2, max_size=90))], dtype=torch.float32)


@given(
    logits=rows(),
    temperature=st.sampled_from([0.1, 0.5, 0.7, 1.0, 2.0]),
    top_k=st.one_of(st.just(0), st.integers(1, 100)),
    top_p=st.one_of(st.just(1.0), st.floats(0.01, 0.999)),
    min_p=st.one_of(st.just(0.0), st.floats(0.001, 0.999)),
)
def test_the_tokens_left_are_those_that_transformers_leaves(logits, temperature, top_k, top_p, min_p):
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    assume(decided(logits, sampling))
    mine, wanted = ours(logits, sampling)[0], theirs(logits, sampling)[0]
    assert mine.sum() == wanted.sum() >= 1
    least = logits[0][mine].min()
    assert torch.equal(mine & (logits[0] > least), wanted & (logits[0] > least))
    equals = mine[logits[0] == least]
    assert equals[: int(equals.sum())].all(), "of equals at the cut the lowest ids; theirs is an unstable sort's"


@pytest.mark.parametrize("flatness", [0.5, 1.5, 5.0])
def test_large_vocabularies_are_cut_alike(flatness):
    """From one token left to most of them, without equal logits: the very same tokens."""
    generator = torch.Generator().manual_seed(5)
    logits = flatness * torch.randn(3, 40_000, generator=generator, dtype=torch.float64)
    for way in WAYS:
        sampling = Sampling(temperature=0.9, **way)
        mine, wanted = ours(logits, sampling), theirs(logits, sampling)
        assert (mine != wanted).sum() <= 1, way  # a sum that is p to eight digits
    few, many = (int(ours(logits, Sampling(temperature=0.9, top_p=p)).sum(-1).min()) for p in (1e-9, 0.9999))
    assert few == 1
    assert many > 1_024, "the last of top-p's is not among the first looked at"


def test_a_row_is_cut_alike_whatever_is_beside_it():
    """Rows that need one look for top-p's last token, or all of them, one with equals at the cut, two broken."""
    generator = torch.Generator().manual_seed(9)
    scores = torch.randn(24, 3_000, generator=generator, dtype=torch.float64) * torch.linspace(0.05, 9, 24)[:, None]
    scores[7] = scores[7].round()
    scores[11, 5] = torch.nan
    scores[12, 5] = torch.inf
    whole_rows = [row for row in range(24) if row not in (11, 12)]
    for way in WAYS:
        sampling = Sampling(temperature=1.0, **way)
        whole = cut(scores, sampling)
        for part in torch.randperm(24, generator=generator).split(5):
            rows = torch.tensor([row for row in part.tolist() if row in whole_rows], dtype=torch.long)
            assert torch.equal(cut(scores[part], sampling)[torch.isin(part, rows)], whole[rows])
        for row in whole_rows[::6]:
            assert torch.equal(cut(scores[row : row + 1], sampling)[0], whole[row])
