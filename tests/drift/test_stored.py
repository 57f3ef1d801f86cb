"""Stored baselines: whatever the distributions, the true KL lies in the certified interval."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.special import log_softmax

from qualgate.drift.stored import StoredBaseline, certify, extremes, store
from qualgate.errors import IntegrityError, UsageError
from tests.depth import examples


def true_kl(logits: np.ndarray, variant: np.ndarray) -> np.ndarray:
    log_p, log_q = log_softmax(logits.astype(float), -1), log_softmax(variant.astype(float), -1)
    return (np.exp(log_p) * (log_p - log_q)).sum(-1)


def covered(stored: StoredBaseline, logits: np.ndarray, variant: np.ndarray, head=None) -> None:
    found = certify(stored, variant, head)
    assert (np.abs(found.kl - true_kl(logits, variant)) <= found.error + 1e-12).all()


def some_logits(random: np.random.Generator, vocabulary: int, kind: str) -> np.ndarray:
    """[3, vocabulary] of one kind of distribution."""
    normal = random.standard_normal((3, vocabulary))
    match kind:
        case "flat":
            return 1e-3 * normal
        case "usual":
            return 3 * normal
        case "peaked":
            return 2 * normal + 15 * (normal == normal.max(-1, keepdims=True))
        case "heavy":
            return np.cumsum(-np.abs(normal) / 20, -1)
        case "ties":
            return np.round(2 * normal)
        case _:  # hostile
            return 200 * normal


KINDS = ("flat", "usual", "peaked", "heavy", "ties", "hostile")


@examples(150)
@given(
    st.integers(0, 2**32 - 1), st.sampled_from(KINDS), st.sampled_from((*KINDS, "near")), st.integers(1, 300),
    st.sampled_from((1e-6, 1e-4, 1e-2, 0.5)),
)  # fmt: skip
def test_the_true_kl_is_within_the_certified_error(seed, kind, other, vocabulary, at_most):
    random = np.random.default_rng(seed)
    logits = some_logits(random, vocabulary, kind)
    near = logits + 0.1 * random.standard_normal(logits.shape)
    variant = near if other == "near" else some_logits(random, vocabulary, other)
    covered(store(logits, at_most=at_most), logits, variant)


@examples(60)
@given(st.integers(0, 2**32 - 1), st.sampled_from(("usual", "peaked", "heavy")), st.integers(20, 200))
def test_no_tail_that_leaves_the_same_bytes_breaks_the_bound(seed, kind, vocabulary):
    """Who is shown the stored bytes and the variant may hand out the tail's probabilities as is worst."""
    random = np.random.default_rng(seed)
    logits, variant = (some_logits(random, vocabulary, each)[:1] for each in (kind, "usual"))
    log_p = log_softmax(logits, -1)
    stored = store(log_p, at_most=0.05)
    tail = np.setdiff1d(np.arange(vocabulary), np.cumsum(stored.gaps))
    by_variant = tail[np.argsort(variant[0, tail])]
    for order in (by_variant, by_variant[::-1]):
        worst = log_p.copy()
        worst[0, order] = np.sort(log_p[0, tail])
        assert (store(worst, at_most=0.05).counts == stored.counts).all()
        covered(stored, worst, variant)


@examples(40)
@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.booleans())
def test_extremes_are_those_of_the_linear_program(seed, size, exact):
    random = np.random.default_rng(seed)
    b, low = random.normal(0, 3, size), random.random(size)
    high = low + random.random(size) * (random.random(size) < 0.8)
    inside = low + random.random(size) * (high - low)
    least = most = float(inside.sum())
    if not exact:
        least, most = max(float(low.sum()), least - 0.1), min(float(high.sum()), most + 0.1)
    found = extremes(b, low, high, least, most)
    bounds = np.stack([low, high], -1)
    sums = {"A_ub": [np.ones(size), -np.ones(size)], "b_ub": [most + 1e-12, -least + 1e-12], "bounds": bounds}
    oracle = linprog(b, **sums).fun, -linprog(-b, **sums).fun
    assert found[0] <= oracle[0] + 1e-9
    assert found[1] >= oracle[1] - 1e-9
    if exact:
        assert found == pytest.approx(oracle, abs=1e-8)


def test_a_close_variant_is_certified_to_what_was_asked():
    random = np.random.default_rng(0)
    logits = np.concatenate([some_logits(random, 2000, kind) for kind in ("usual", "peaked", "heavy")])
    variant = logits + 0.05 * random.standard_normal(logits.shape)
    for at_most in (1e-3, 1e-4, 1e-5):
        found = certify(store(logits, at_most=at_most), variant)
        assert found.error.max() <= at_most
        assert found.mean == (found.kl.mean(), found.error.mean())


# ------------------------------------------------------------------------------------------- hidden states


def a_head(random: np.random.Generator, vocabulary: int, width: int):
    weight = random.standard_normal((vocabulary, width))
    return lambda states: states @ weight.T


@examples(30)
@given(st.integers(0, 2**32 - 1), st.sampled_from((*KINDS, "near")), st.floats(1e-3, 30))
def test_hidden_positions_are_certified_too(seed, other, loud):
    random = np.random.default_rng(seed)
    head, hidden = a_head(random, 400, 8), loud * random.standard_normal((3, 8))
    logits = head(hidden).astype(np.float32)
    stored = store(logits, hidden=hidden, head=head)
    near = logits + 0.1 * random.standard_normal(logits.shape)
    covered(stored, logits, near if other == "near" else some_logits(random, 400, other), head)


def test_each_position_is_kept_as_takes_fewer_bytes():
    random = np.random.default_rng(2)
    head, hidden = a_head(random, 5000, 32), random.standard_normal((40, 32)) / 3
    hidden[::2] *= 10  # peaked
    logits = head(hidden)
    both, counted = store(logits, hidden=hidden, head=head), store(logits)
    assert 0 < len(both.scale) < 40
    assert len(both.to_bytes()) < len(counted.to_bytes()) / 3
    variant = logits + 0.01 * random.standard_normal(logits.shape)
    found = certify(both, variant, head)
    assert found.error.max() < 1e-4
    assert (np.abs(found.kl - true_kl(logits, variant)) <= found.error).all()


def test_hidden_states_need_their_own_head():
    random = np.random.default_rng(3)
    head, other, hidden = a_head(random, 900, 4), a_head(random, 900, 4), random.standard_normal((2, 4))
    logits = head(hidden)
    with pytest.raises(UsageError, match="give both or neither"):
        store(logits, hidden=hidden)
    with pytest.raises(UsageError, match="other logits than those given"):
        store(logits, hidden=hidden, head=other)
    with pytest.raises(UsageError, match="output head is needed"):
        certify(store(logits, hidden=hidden, head=head), logits)


# ---------------------------------------------------------------------------------------------------- bytes


def test_bytes_hold_everything():
    random = np.random.default_rng(4)
    head, hidden = a_head(random, 2000, 16), random.standard_normal((9, 16))
    hidden[::2] *= 10
    stored = store(head(hidden), hidden=hidden, head=head)
    assert 0 < len(stored.scale) < 9
    back = StoredBaseline.from_bytes(stored.to_bytes())
    for name in StoredBaseline.__slots__:
        assert np.array_equal(getattr(back, name), getattr(stored, name)), name


def test_broken_bytes_are_refused():
    data = store(some_logits(np.random.default_rng(5), 300, "usual")).to_bytes()
    line = data.index(b"\n")
    for broken in (b"", b"garbage", data[:line], data[: line + 40], data[:-1], data + b"x", data[1:]):
        with pytest.raises(IntegrityError, match="not a stored baseline"):
            StoredBaseline.from_bytes(broken)
    for before, after in (
        (b"kl/2", b"kl/1"), (b'"kept": [3', b'"kept": [4'), (b'"kept": [3', b'"kept": [-3'), (b'"kept"', b'"kelp"'),
        (b'"vocabulary": 300', b'"vocabulary": 3'), (b'"width": 0', b'"width": "x"'),
        (b'"at_most": 0', b'"at_most": 9'),
        (b'"kept": [3', b'"kept": [399999999999'), (b"{", b"["), (b"{", b"[" * 100_000),
    ):  # fmt: skip
        assert before in data
        with pytest.raises(IntegrityError, match="not a stored baseline"):
            StoredBaseline.from_bytes(data.replace(before, after, 1))


def test_no_changed_bit_is_read():
    data = store(some_logits(np.random.default_rng(5), 300, "usual")).to_bytes()
    for place in (*range(data.index(b"\n") + 40), *range(400, len(data), 37)):
        with pytest.raises(IntegrityError, match="not a stored baseline"):
            StoredBaseline.from_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])


@pytest.mark.parametrize(
    ("column", "value"),
    [("tail", np.nan), ("tail", -1), ("a", np.inf), ("gaps", 0), ("gaps", 2**31), ("kept", 7), ("kept", 0)],
)
def test_columns_that_contradict_each_other_are_refused(column, value):
    good = store(some_logits(np.random.default_rng(6), 300, "usual"))
    spoiled = getattr(good, column).copy()
    spoiled[1] = value
    data = replace(good, **{column: spoiled}).to_bytes()
    with pytest.raises(IntegrityError, match="not a stored baseline"):
        StoredBaseline.from_bytes(data)


def test_a_tail_where_every_token_is_kept_is_refused():
    good = store(np.zeros((2, 5)), at_most=1e-9)
    assert good.kept.tolist() == [5, 5]
    spoiled = replace(good, tail=np.ones_like(good.tail))
    with pytest.raises(IntegrityError, match="not a stored baseline"):
        StoredBaseline.from_bytes(spoiled.to_bytes())


def test_the_least_error_that_can_be_asked_for_is_no_crash():
    logits = np.random.default_rng(4).normal(size=(3, 50))
    kept = store(logits, at_most=5e-324)
    found = certify(StoredBaseline.from_bytes(kept.to_bytes()), logits)
    assert (found.kl <= found.error).all()


def test_numbers_that_are_none_are_refused():
    logits = np.zeros((2, 5))
    stored = store(logits)
    for broken in (np.full((2, 5), np.nan), np.full((2, 5), np.inf), np.zeros((2, 6)), np.zeros((3, 5)), np.zeros(5)):
        with pytest.raises(UsageError):
            certify(stored, broken)
    for broken in (np.full((2, 5), np.nan), np.zeros((0, 5)), np.zeros(5)):
        with pytest.raises(UsageError):
            store(broken)
    for at_most in (0.0, 1.0, -1.0, np.nan):
        with pytest.raises(UsageError, match="at_most"):
            store(logits, at_most=at_most)
