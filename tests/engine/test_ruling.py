"""A rule at work in the packed engine: what it says has the target's distribution, which chances alone decide."""

from __future__ import annotations

from collections import Counter
from math import exp, log

import pytest
import torch

from qualgate.engine.ruling import Ruling
from qualgate.engine.sampling import Draws
from qualgate.engine.speculation.propose import NO_DRAFT, Draft
from qualgate.records import Sampling

LOGITS = torch.tensor([[0.0, 1.0, 2.0, 0.5], [1.0, 0.0, 0.0, 1.0], [0.0, 0.0, 3.0, 0.0]])
LOSSLESS = ("speculative_sampling", "block_verification")


def ruling(rule: str, seed: int, sampling: Sampling) -> Ruling:
    return Ruling(rule, Draws(seed=seed, cases=torch.tensor([5, 6]), sampling=sampling))


@pytest.mark.parametrize("rule", LOSSLESS)
def test_the_first_token_has_the_target_s_distribution_whatever_was_drafted(rule):
    sampling, count = Sampling(temperature=0.7, top_k=3), 1500
    law = (LOGITS[0].double() / 0.7)[1:].softmax(0)  # the least likely is cut
    drawn_from = torch.tensor([[0.1, 0.2, 0.1, 0.6], [0.25, 0.25, 0.25, 0.25]], dtype=torch.float64)
    generator, found = torch.Generator().manual_seed(1), Counter[int]()
    for seed in range(count):
        tokens = tuple(int(torch.multinomial(row, 1, generator=generator)) for row in drawn_from)
        draft = Draft(tokens, "draft", 8, drawn_from)
        found[ruling(rule, seed, sampling).verify(0, (0,), draft, LOGITS).tokens[0]] += 1
    assert found[0] == 0
    squares = sum((found[token] - count * p) ** 2 / (count * p) for token, p in enumerate(law.tolist(), 1))
    assert squares < 27.6  # chi-square of two degrees: one in a million


@pytest.mark.parametrize("rule", [*LOSSLESS, "typical", "lenient"])
def test_log_probs_are_the_model_s_own_and_what_is_said_repeats(rule):
    one = ruling(rule, 3, Sampling(temperature=0.7, top_k=3))
    draft = Draft((2, 0), "ngram", 2)
    said = one.verify(1, (4,), draft, LOGITS)
    assert said == one.verify(1, (4,), draft, LOGITS)
    for row, token, logprob in zip(LOGITS.tolist(), said.tokens, said.logprobs, strict=False):
        assert logprob == pytest.approx(row[token] - log(sum(map(exp, row))), abs=1e-6)


def test_a_draft_with_fewer_tokens_than_its_target_is_judged_by_those_it_has():
    drawn_from, count = torch.tensor([[0.2, 0.8]], dtype=torch.float64), 1500
    found = Counter(
        ruling("speculative_sampling", seed, Sampling(temperature=1.0))
        .verify(0, (0,), Draft((int(seed % 5 > 0),), "draft", 8, drawn_from), LOGITS[:2])
        .tokens[0]
        for seed in range(count)
    )
    law = LOGITS[0].double().softmax(0).tolist()
    assert sum((found[token] - count * p) ** 2 / (count * p) for token, p in enumerate(law)) < 30.7  # 3 degrees, 1e-6


def test_rounds_and_rows_have_chances_of_their_own():
    one = ruling("speculative_sampling", 3, Sampling(temperature=2.0))
    rows = {tuple(one.verify(row, (at,), NO_DRAFT, LOGITS[:1]).tokens[0] for at in range(40)) for row in (0, 1)}
    assert len(rows) == 2
    assert all(len(set(tokens)) > 1 for tokens in rows)


def test_a_draft_is_drawn_by_chances_of_its_own_and_tells_what_from():
    one = ruling("speculative_sampling", 3, Sampling(temperature=0.7))
    draft, overlaps = one.drafted(0, (0, 0), NO_DRAFT, LOGITS[:1], "draft")
    assert (overlaps, len(draft.tokens)) == ([], 1)
    assert draft.drawn_from is not None
    torch.testing.assert_close(draft.drawn_from, (LOGITS[:1].double() / 0.7).softmax(-1))
    together, count = Counter[tuple[int, int]](), 800
    for seed in range(count):
        one = ruling("speculative_sampling", seed, Sampling(temperature=50.0))
        drafted, _ = one.drafted(0, (0, 0), NO_DRAFT, LOGITS[:1], "")
        together[drafted.tokens[0], one.verify(0, (0,), NO_DRAFT, LOGITS[:1]).tokens[0]] += 1
    assert len(together) == 16
    assert sum((seen - count / 16) ** 2 / (count / 16) for seen in together.values()) < 60  # 15 degrees: 1 in 3 million


@pytest.mark.parametrize("drawn", [True, False])
def test_what_was_tested_tells_how_likely_it_was_to_be_accepted(drawn):
    """Of each token that was accepted and of the first that was not: Σ min(p, q), of a one-hot draft p."""
    rows = torch.tensor([[0.1, 0.2, 0.1, 0.6], [0.25, 0.25, 0.25, 0.25]], dtype=torch.float64)
    draft = Draft((3, 0), "draft", 8, rows if drawn else None)
    law = LOGITS[:2].double().softmax(-1)
    chances = [
        sum(map(min, law[at].tolist(), rows[at].tolist())) if drawn else law[at, token].item()
        for at, token in enumerate(draft.tokens)
    ]
    counts = set()
    for seed in range(40):
        said = ruling("speculative_sampling", seed, Sampling(temperature=1.0)).verify(0, (0,), draft, LOGITS)
        counts.add(len(said.tokens))
        assert said.overlaps == pytest.approx(chances[: min(len(said.tokens), 2)])
    assert counts >= {1, 3}
