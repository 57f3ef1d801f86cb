"""A sampler that does not draw is found by what it tells, and one that draws is not accused."""

from __future__ import annotations

from math import log

import numpy as np
import pytest

from qualgate.stats.greedy_sampler import RATES, SURE, log_e_value, log_e_values

ALPHA = 1e-4


def told(generator: np.random.Generator, tokens: int, *, peak: float, greedy: float = 0.0, temperature: float = 1.0):
    """Margins of tokens drawn of random distributions over 20, a share of them greedily; peak: how sharp these are."""
    logits = generator.normal(size=(tokens, 20)) * peak
    tempered = logits / temperature
    noisy = tempered + generator.gumbel(size=logits.shape)
    chosen = np.where(generator.random(tokens) < greedy, tempered.argmax(1), noisy.argmax(1))
    rows = np.arange(tokens)
    mine = tempered[rows, chosen]
    tempered[rows, chosen] = -np.inf
    return mine - tempered.max(1)


def value(margins: np.ndarray, share: float = SURE) -> float:
    return log_e_value(log_e_values(margins, share))


@pytest.mark.parametrize("peak", [0.1, 3.0])
def test_of_a_sampler_that_draws_the_value_has_a_mean_of_one_at_most(peak):
    generator = np.random.default_rng(0)
    found = np.array([log_e_values(told(generator, 6, peak=peak)) for _ in range(5_000)])
    means, errors = np.exp(found).mean(0), np.exp(found).std(0) / np.sqrt(len(found))
    assert (means <= 1 + 4 * errors).all(), means


@pytest.mark.parametrize("temperature", [0.3, 0.7, 1.0, 1.5])
def test_a_silently_greedy_sampler_is_caught_in_200_prompts(temperature):
    """Distributions as sharp as a language model's: the likeliest token mostly holds nearly all; eight tokens each."""
    generator = np.random.default_rng(2)
    for _ in range(20):
        margins = told(generator, 200 * 8, peak=8.0, greedy=1.0, temperature=temperature)
        assert value(margins) >= log(1 / ALPHA)


def test_certain_tokens_and_ties_tell_nothing():
    assert log_e_values([40.0] * 5000) == log_e_values([0.0] * 5000) == (0.0,) * len(RATES)
    assert log_e_values([]) == (0.0,) * len(RATES)
    assert value(np.full(5000, 1.0), share=0.5) == 0.0  # top-p 0.5 leaves the likeliest alone


def test_a_cut_that_leaves_the_next_token_in_accuses_nobody_who_draws_within_it():
    """Top-p 0.7 of what is told: where the likeliest holds less, at least two are left."""
    generator = np.random.default_rng(4)
    found = []
    for _ in range(1500):
        logits = np.sort(generator.normal(size=(8, 20)) * 2.0)[:, ::-1]
        shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        cut = np.where(np.cumsum(shares, 1) - shares < 0.7, logits, -np.inf)
        chosen = (cut + generator.gumbel(size=cut.shape)).argmax(1)
        best_other = np.where(chosen == 0, logits[:, 1], logits[:, 0])
        found.append(value(logits[np.arange(8), chosen] - best_other))
    mean, error = np.exp(found).mean(), np.exp(found).std() / np.sqrt(len(found))
    assert mean <= 1 + 4 * error
