"""llama.cpp's KL table against what the reference prints, and clustered errors."""

from __future__ import annotations

from math import isnan, sqrt

import numpy as np
import pytest
from scipy.special import log_softmax

from qualgate.drift.llama_table import Chunk, clustered_error, compare, encode, llama_table
from qualgate.errors import EvidenceMissing, UsageError
from tests.verification.references.llama_lines import chunks_of


def test_codes_are_the_log_probs_to_half_a_step_within_16_nats():
    base = chunks_of("extreme")[0][0]
    truth, codes = log_softmax(base.astype(float), axis=-1), encode(base)
    kept = base > base.max(-1, keepdims=True) - 16
    distance = np.abs(codes.log_probs - truth)
    assert (distance[kept] <= 0.5 * codes.scale.max() + 1e-5).all()
    assert not kept.all()
    assert (codes.codes[~kept] == 0).all()


def test_fewer_than_100_tokens_make_no_table():
    base, variant, following = chunks_of("small")[0]
    with pytest.raises(EvidenceMissing, match="64 tokens"):
        llama_table([compare(base, variant, following)])
    with pytest.raises(EvidenceMissing, match="0 tokens"):
        llama_table([])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_broken_logit_makes_no_table(value):
    base, variant, following = chunks_of("small")[0]
    variant[3, 4] = value
    with pytest.raises(UsageError, match="not a number"):
        compare(base, variant, following)
    with pytest.raises(UsageError, match="not a number"):
        compare(variant, base, following)


def test_shapes_and_tokens_must_fit():
    base, variant, following = chunks_of("small")[0]
    for broken in (
        (base[:-1], variant, following),
        (base, variant[:, :-1], following),
        (base, variant, following[:-1]),
        (base, variant, following - 100),
        (base, variant, following + 50),
        (base, variant, following.astype(float)),
        (base[0], variant[0], following),
        (base[:0], variant[:0], following[:0]),
    ):
        with pytest.raises(UsageError):
            compare(*broken)


# ------------------------------------------------------------------------------------- errors by cluster


def tokens_of_dependent_chunks(random: np.random.Generator, chunks: int, tokens: int) -> list[Chunk]:
    """Each chunk has a level of its own: half of a value's variance is shared by its tokens. The true mean KL is 1."""
    found = []
    for _ in range(chunks):
        level = random.gamma(4.0, 0.25)  # mean 1
        kld = level * random.gamma(4.0, 0.25, tokens)
        nll_base = (2 * level + random.exponential(1.0, tokens)).astype(np.float32)
        nll = nll_base + (0.1 * kld).astype(np.float32)
        p_diff = (0.02 * level * random.standard_normal(tokens)).astype(np.float32)
        same = random.random(tokens) < 1 / (1 + 0.2 * level)
        found.append(Chunk(nll=nll, nll_base=nll_base, kld=kld, p_diff=p_diff, same_top=same))
    return found


def test_clustered_errors_cover_where_the_printed_ones_do_not():
    random = np.random.default_rng(0)
    draws, inside, printed = 400, 0, 0
    for _ in range(draws):
        table = llama_table(tokens_of_dependent_chunks(random, 25, 50))
        low, high = table.interval("Mean KLD")
        inside += low <= 1 <= high
        mean = table["Mean KLD"]
        printed += abs(mean.value - 1) <= 1.96 * mean.error
    assert inside / draws > 0.91  # 95 % less skewness's cost and three errors of 400 draws
    assert printed / draws < 0.6


def test_clustered_errors_are_those_of_leaving_chunks_out():
    chunks = tokens_of_dependent_chunks(np.random.default_rng(1), 60, 40)
    whole = llama_table(chunks)
    without = [llama_table(chunks[:i] + chunks[i + 1 :]) for i in range(60)]
    checked = 0
    for value in whole.values:
        if value.clustered is not None:
            left = np.array([table[value.name].value for table in without])
            jackknife = sqrt(59 / 60 * float(((left - left.mean()) ** 2).sum()))
            assert value.clustered == pytest.approx(jackknife, rel=0.05), value.name
            checked += 1
    assert checked == 9  # every line with a ±


def test_clustered_error_of_single_tokens_is_the_usual_one_and_one_chunk_has_none():
    values = np.random.default_rng(2).standard_normal(500)
    assert clustered_error(values, np.arange(500)) == pytest.approx(values.std(ddof=1) / sqrt(500))
    assert clustered_error(values, np.zeros(500)) is None
    low, high = llama_table(tokens_of_dependent_chunks(np.random.default_rng(3), 1, 200)).interval("Mean KLD")
    assert (low, high) == (-np.inf, np.inf)


def test_no_difference_at_all_reads_as_the_reference_has_it():
    base, _, following = chunks_of("large")[0]
    table = llama_table([compare(base, base, following)] * 3)
    assert table["Same top p"].value == 1
    assert table["Mean KLD"].value == pytest.approx(0, abs=1e-4)  # not zero: the codes are rounded
    still = [Chunk(**{n: np.zeros(120, np.float32) for n in ("nll", "nll_base", "kld", "p_diff", "same_top")})] * 2
    assert isnan(llama_table(still)["Cor(ln(PPL(Q)), ln(PPL(base)))"].value)
    assert isnan(llama_table(still)["RMS Δp"].error)
