"""The 34 values that llama.cpp's KL tool prints, from two models' logits, equal at printed precision.

Arithmetic as in tools/perplexity/perplexity.cpp of ggml-org/llama.cpp at commit 050fc7f32de1: float32 where it has
float, float64 where it has double, sums in its order, the base model's log-probs read back from the 16-bit codes of
its logits file. expf is rounded correctly here, which glibc's is but for one input in thousands. A build that fuses
multiplication and addition (not the default on x86-64) rounds otherwise: the last printed digit of some KLD lines
then differs. Threads change the order of its sums over tokens, in the 16th digit.

Its ± takes tokens to be independent. Tokens of one chunk read the same text, so beside each stands `clustered`, the
error when chunks are independent and their tokens depend on each other in any way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp, inf, nan, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from qualgate.errors import EvidenceMissing, UsageError

FEWEST_TOKENS = 100  # the reference prints no statistics on fewer
CLIPPED = np.float32(16)  # nats below the largest logit: nothing lower is told apart in the 16-bit codes
NUMBERS_AT_ONCE = 2**20  # logits in each of a few temporaries

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Codes:
    """A base model's log-probs as the logits file holds them: 2 bytes a token of the vocabulary, 8 a position."""

    scale: Floats  # [positions]
    lowest: Floats  # [positions], the log-prob of code 0
    codes: NDArray[np.uint16]  # [positions, vocabulary]

    @property
    def log_probs(self) -> Floats:
        """float32 [positions, vocabulary], nats, as the reference reads them back."""
        return self.scale[:, None] * self.codes.astype(np.float32) + self.lowest[:, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """What the table rests on, one value a scored token. The reference scores the second half of each context."""

    nll: Floats  # of the token that follows, under the variant
    nll_base: Floats  # and under the base model's codes
    kld: Doubles  # KL(base || variant), nats; codes are rounded, so it may be a little below zero
    p_diff: Floats  # probability of the token that follows, variant minus base
    same_top: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """One printed line. Δp values and shares are in 0..1 and printed in percent; the rest is printed as it is."""

    name: str  # as printed before the colon, spaces stripped: "Mean PPL(Q)", "99.9% KLD", "Same top p"
    value: float
    error: float | None = None  # the reference's ±: tokens independent
    clustered: float | None = None  # standard error with chunks as clusters; None for a single chunk


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaTable:
    """The reference's printed table; beside each of its errors one that counts chunks as clusters."""

    values: tuple[Value, ...]  # 34, in printed order: 6 perplexity, 12 KLD, 16 token probability
    tokens: int
    chunks: int

    def __getitem__(self, name: str) -> Value:
        return next(value for value in self.values if value.name == name)

    def interval(self, name: str, alpha: float = 0.05) -> tuple[float, float]:
        """Two-sided 1 − alpha interval from the clustered error, Student's t with chunks − 1 degrees of freedom."""
        found = self[name]
        reach = inf if found.clustered is None else float(stdtrit(self.chunks - 1, 1 - alpha / 2)) * found.clustered
        return found.value - reach, found.value + reach


# ------------------------------------------------------------------------------------------- one position


def encode(logits: ArrayLike) -> Codes:
    """The base model's logits [positions, vocabulary] as 16-bit codes, to the bit those of the logits file."""
    logits = _logits(logits)
    highest = logits.max(-1)
    lowest = np.maximum(logits.min(-1), highest - CLIPPED)
    log_sum = _log_sum_exp(logits, highest)
    scale = (highest - lowest) / np.float32(65535)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):  # equal logits: the scale is zero
        steps = (np.float32(1) / scale)[:, None] * (logits - lowest[:, None])
        codes = np.where((scale[:, None] != 0) & (logits > lowest[:, None]), _nearest(steps), 0)
    return Codes(scale=scale, lowest=lowest - highest - log_sum, codes=codes.astype(np.uint16))


def compare(base_logits: ArrayLike, logits: ArrayLike, following: ArrayLike) -> Chunk:
    """One chunk: the base model's and the variant's logits [positions, vocabulary], and the token after each position.

    UsageError for shapes that do not fit, logits that are not finite, and tokens outside the vocabulary.
    """
    base_logits, logits, following = _logits(base_logits), _logits(logits), np.asarray(following)
    if base_logits.shape != logits.shape or following.shape != logits.shape[:1]:
        raise UsageError(
            f"logits of shape {base_logits.shape} and {logits.shape} with {following.shape} tokens: both models need "
            "one row of logits for each token"
        )
    if following.dtype.kind not in "iu" or ((following < 0) | (following >= logits.shape[1])).any():
        raise UsageError(f"a token that follows is not one of the vocabulary's {logits.shape[1]}")
    at_once = max(1, NUMBERS_AT_ONCE // logits.shape[1])
    parts = [
        _compare(encode(base_logits[rows]), logits[rows], following[rows])
        for rows in (slice(start, start + at_once) for start in range(0, len(logits), at_once))
    ]
    return Chunk(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in Chunk.__slots__})


def _compare(base: Codes, logits: Floats, following: NDArray) -> Chunk:
    rows = np.arange(len(logits))
    highest = logits.max(-1)
    log_sum = _log_sum_exp(logits, highest)
    log_base = base.log_probs
    nll, nll_base = highest + log_sum - logits[rows, following], -log_base[rows, following]
    terms = _expf(log_base) * (log_base - logits + (highest + log_sum)[:, None])
    return Chunk(
        nll=nll,
        nll_base=nll_base,
        kld=_in_order(np.where(log_base > -CLIPPED, terms, np.float32(0))),
        p_diff=_expf(-nll) - _expf(-nll_base),
        same_top=logits.argmax(-1) == log_base.argmax(-1),
    )


def _logits(logits: ArrayLike) -> Floats:
    found = np.asarray(logits, np.float32)
    if found.ndim != 2 or not found.size:
        raise UsageError(f"logits of shape {found.shape}: expected [positions, vocabulary], at least one of each")
    if not np.isfinite(found).all():
        raise UsageError("logits that are infinite or not a number: the model is broken, and no table can be made")
    return found


def _expf(x: Floats) -> Floats:
    with np.errstate(under="ignore"):
        return np.exp(x.astype(np.float64)).astype(np.float32)


def _in_order(terms: NDArray) -> Doubles:
    """Sums of the last axis in double, from left to right as a loop adds them (numpy's own sum adds in pairs)."""
    return np.add.accumulate(terms, axis=-1, dtype=np.float64)[..., -1]


def _log_sum_exp(logits: Floats, highest: Floats) -> Floats:
    return np.log(_in_order(_expf(logits - highest[:, None]))).astype(np.float32)


def _nearest(steps: Floats) -> NDArray[np.int32]:
    """The reference's rounding: half to even, in the mantissa of a large float."""
    return ((steps + np.float32(12582912)).view(np.int32) & 0x007FFFFF) - 0x00400000


# ------------------------------------------------------------------------------------------------ the table


def llama_table(chunks: Sequence[Chunk]) -> LlamaTable:
    """All 34 values over all chunks. EvidenceMissing below 100 tokens, where the reference prints none either."""
    every = Chunk(**{name: np.concatenate([getattr(chunk, name) for chunk in chunks]) for name in Chunk.__slots__}) \
        if chunks else None  # fmt: skip
    if every is None or len(every.nll) < FEWEST_TOKENS:
        found = 0 if every is None else len(every.nll)
        raise EvidenceMissing(f"{found} tokens are too few for these statistics; at least {FEWEST_TOKENS} are needed")
    chunk_of = np.repeat(np.arange(len(chunks)), [len(chunk.nll) for chunk in chunks])
    values = (*_perplexities(every, chunk_of), *_divergences(every, chunk_of), *_probabilities(every, chunk_of))
    return LlamaTable(values=values, tokens=len(every.nll), chunks=len(chunks))


def clustered_error(influence: ArrayLike, clusters: ArrayLike) -> float | None:
    """Standard error of the mean of `influence`, cluster-robust: clusters are independent, their members need not be.

    influence: one value an observation, of a mean the observations themselves, of a function of means its first-order
    change. sqrt(G / (G − 1) Σ_g (Σ_{i in g} (x_i − mean))²) / n; None for fewer than two clusters. (Liang and Zeger,
    Biometrika 73, 1986.)
    """
    x = np.asarray(influence, np.float64)
    labels, members = np.unique(np.asarray(clusters), return_inverse=True)
    if len(labels) < 2:
        return None
    sums = np.bincount(members, x - x.mean())
    return sqrt(len(labels) / (len(labels) - 1) * float(sums @ sums)) / len(x)


def _perplexities(every: Chunk, chunk_of: NDArray) -> Iterator[Value]:
    n = len(every.nll)
    q, base = every.nll.astype(np.float64), every.nll_base.astype(np.float64)
    log_q, log_q_error = _mean(_total(q), _total(every.nll * every.nll), n)
    log_base, log_base_error = _mean(_total(base), _total(every.nll_base * every.nll_base), n)
    covariance = (_total(every.nll * every.nll_base) / n - _total(q) / n * (_total(base) / n)) / (n - 1)
    log_ratio = log_q - log_base
    log_ratio_error = _root(log_q_error**2 + log_base_error**2 - 2.0 * covariance)
    ppl, ppl_base, ratio = _exp(log_q), _exp(log_base), _exp(log_ratio)
    ppl_error, base_error = ppl * log_q_error, ppl_base * log_base_error
    both = log_q_error * log_base_error
    difference_error = _root(ppl_error**2 + base_error**2 - 2.0 * (ppl * ppl_base * covariance))

    def clustered(influence: Doubles) -> float | None:
        return clustered_error(influence, chunk_of)

    yield Value(name="Mean PPL(Q)", value=ppl, error=ppl_error, clustered=clustered(ppl * q))
    yield Value(name="Mean PPL(base)", value=ppl_base, error=base_error, clustered=clustered(ppl_base * base))
    yield Value(name="Cor(ln(PPL(Q)), ln(PPL(base)))", value=covariance / both if both else nan)
    yield Value(name="Mean ln(PPL(Q)/PPL(base))", value=log_ratio, error=log_ratio_error, clustered=clustered(q - base))
    yield Value(
        name="Mean PPL(Q)/PPL(base)",
        value=ratio,
        error=ratio * log_ratio_error,
        clustered=clustered(ratio * (q - base)),
    )
    yield Value(
        name="Mean PPL(Q)-PPL(base)",
        value=ppl - ppl_base,
        error=difference_error,
        clustered=clustered(ppl * q - ppl_base * base),
    )


def _divergences(every: Chunk, chunk_of: NDArray) -> Iterator[Value]:
    mean, error = _mean(_total(every.kld), _total(every.kld * every.kld), len(every.kld))
    yield Value(name="Mean KLD", value=mean, error=error, clustered=clustered_error(every.kld, chunk_of))
    yield from _spread("KLD", np.sort(every.kld.astype(np.float32)), quartiles=False)


def _probabilities(every: Chunk, chunk_of: NDArray) -> Iterator[Value]:
    n, squares = len(every.p_diff), (every.p_diff * every.p_diff).astype(np.float64)
    mean, error = _mean(_total(every.p_diff), _total(squares), n)
    yield Value(name="Mean Δp", value=mean, error=error, clustered=clustered_error(every.p_diff, chunk_of))
    yield from _spread("Δp", np.sort(every.p_diff), quartiles=True)
    square, square_error = _mean(_total(squares), _total(squares * squares), n)
    rms = sqrt(square)
    half = 0.5 / rms if rms else nan  # of no difference at all the reference prints ± nan
    clustered = clustered_error(squares, chunk_of)
    yield Value(
        name="RMS Δp",
        value=rms,
        error=half * square_error,
        clustered=None if clustered is None or not rms else half * clustered,
    )
    same = int(every.same_top.sum()) / n
    yield Value(
        name="Same top p",
        value=same,
        error=sqrt(same * (1.0 - same) / (n - 1)),
        clustered=clustered_error(every.same_top, chunk_of),
    )


def _spread(what: str, ordered: Floats, *, quartiles: bool) -> Iterator[Value]:
    """Maximum to minimum of float32 values in rising order."""
    half = len(ordered) // 2
    median = ordered[half] if len(ordered) % 2 else np.float32(0.5) * (ordered[half] + ordered[half - 1])
    upper, lower = [99.9, 99.0, 95.0, 90.0], [10.0, 5.0, 1.0, 0.1]
    upper, lower = ([*upper, 75.0], [25.0, *lower]) if quartiles else (upper, lower)
    yield Value(name=f"Maximum {what}", value=float(ordered[-1]))
    for percent in upper:
        yield Value(name=f"{percent:.1f}% {what}", value=_percentile(ordered, percent))
    yield Value(name=f"Median {what}", value=float(median))
    for percent in lower:
        yield Value(name=f"{percent:.1f}% {what}", value=_percentile(ordered, percent))
    yield Value(name=f"Minimum {what}", value=float(ordered[0]))


def _percentile(ordered: Floats, percent: float) -> float:
    """Linear interpolation, in float32 as the reference has it."""
    place = np.float32(percent / 100) * np.float32(len(ordered) - 1)
    below = int(place)
    part = place - np.float32(below)
    return float((np.float32(1) - part) * ordered[below] + part * ordered[min(below + 1, len(ordered) - 1)])


def _total(values: NDArray) -> float:
    return float(_in_order(values))


def _mean(total: float, squares: float, n: int) -> tuple[float, float]:
    """Mean and its standard error as the reference has it: from sums; zero where the variance rounds below zero."""
    mean = total / n
    variance = squares / n - mean * mean
    return mean, sqrt(variance / (n - 1)) if variance > 0 else 0.0


def _root(x: float) -> float:
    return sqrt(x) if x >= 0 else nan


def _exp(x: float) -> float:
    return exp(x) if x < 709.0 else inf


# ------------------------------------------------------------------------------------------------- rendering


def render(table: LlamaTable) -> str:
    """The table in the reference's layout, line for line. A value that is not a number reads `nan`, without a sign."""
    perplexity, divergence, probability = table.values[:6], table.values[6:18], table.values[18:]
    lines = ["====== Perplexity statistics ======"]
    for value in perplexity:
        head = f"{value.name:<30}:"
        lines.append(
            f"{head} {100 * value.value:6.2f}%"
            if value.error is None
            else f"{head} {value.value:10.6f} ± {value.error:10.6f}"
        )
    lines += ["", "====== KL divergence statistics ======"]
    for value in divergence:
        error = "" if value.error is None else f" ± {value.error:10.6f}"
        lines.append(f"{_head(value.name)}: {value.value:10.6f}{error}")
    lines += ["", "====== Token probability statistics ======"]
    for value in probability:
        error = "%" if value.error is None else f" ± {100 * value.error:5.3f} %"
        lines.append(f"{_head(value.name)}: {100 * value.value:6.3f}{error}")
    return "\n".join(lines) + "\n"


def _head(name: str) -> str:
    """`Mean    KLD`, ` 5.0%   Δp`, `RMS Δp    `: the reference's columns."""
    if name.startswith(("RMS", "Same")):
        return f"{name:<10}"
    which, what = name.split()
    return f"{which.rjust(5) if '%' in which else which:<8}{what}"
