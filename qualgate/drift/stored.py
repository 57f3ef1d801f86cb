"""A baseline's distributions in few bytes, and the KL of any variant from them with an error that is proven.

**What is kept.** A position is either *counted*: every token with a probability over a cutoff, rounded down to a
multiple of a step, and of the rest (the tail) its mass and one number below. Or it is *hidden*: what entered the
output head, in 16-bit codes, where that takes fewer bytes; the head is the baseline's own and not kept again.
llama.cpp's logits file takes 2 bytes a token of the vocabulary and 8 a position, whatever the distribution.

**Theorem.** Let p be the baseline's distribution, q the variant's, p' any positive numbers, a = Σ p log(p / p'). Then
KL(p || q) = a + Σ p b with b = log p' − log q. Of p it is known that each p_v lies in a box [low_v, high_v] and that
a group of tokens sums to what it sums to. So KL(p || q) − a lies between the least and the greatest value that Σ x b
takes over all x in those boxes with those sums, and since some such x is the true p, no tail can break it. Proof: the
identity is log(p/q) = log(p/p') + log(p'/q); p is one of the x. The extremes are those of a fractional knapsack: start
at the low ends, then fill the boxes in the order of b until the sum is reached (Dantzig, Operations Research 5, 1957;
any other x changes into it by moving mass towards larger b). No narrower interval follows from boxes and sums. Where a
sum is only known to lie in [least, most], what was said holds for `least`, and mass of at most `most` − `least` is
added to it, each unit of which weighs at most the largest |b|. The middle of the interval is the estimate, half its
width the error, widened by what rounding in float64 and of `a` may do.

A counted position: p' is the middle of each kept token's box, and the tail's mass spread evenly; a is then a number of
the baseline alone; boxes of the tail reach from 0 to the cutoff. A hidden position: p' is the softmax of the head's
answer to the codes, and the boxes are p' e^±η with η the largest |log p − log p'|, found when it was kept.

**How much is kept.** The fewest tokens that make the error of q = p at most half of `at_most` (a variant's tail reaches
about as far), with steps that sum to a quarter of `at_most`. What is certified is found with each variant: one
that is far away has a larger error, and is told so. Hidden states take 2 bytes x width, below 1/50 of llama.cpp's where
width < vocabulary / 50, ten bytes less: up to some 2,560 wide at 128,256 tokens, 3,030 at 151,936, 5,230 at 262,144.
Wider models stay below it as long as enough positions are counted, at about 2 bytes a kept token.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qualgate.errors import IntegrityError, UsageError

AT_MOST = 1e-4  # nats
OF_OWN = 0.5  # of `at_most`, what a variant equal to the baseline may use up
CUTOFFS = 8.0  # a doubling of the cutoff is told in so many steps
BYTES_PER_KEPT = 2  # measured: token and count after compression
TAIL_UNIT, A_UNIT = 2.0**-15, 2.0**-10  # of the float16 numbers: their normal range is where the values are
HALF, SMALLEST = 2.0**-11, 2.0**-24  # float16: relative rounding, and the least number over zero
SUMS = 2.0**-49  # float64: what a sum of n numbers may be off, relative to n times the largest
AGAIN = 1e-9  # nats that a head computed in float64 on another machine may differ by
ROWS_AT_ONCE = 32  # hidden positions through the head
LARGEST = 2**31  # bytes of one column

Doubles = NDArray[np.float64]
Head = Callable[[Doubles], NDArray]
"""Hidden states [positions, width] to logits [positions, vocabulary], in float64."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBaseline:
    """Columns over positions, and over kept tokens, position after position. `kept` is 0 at a hidden position."""

    vocabulary: int
    at_most: float
    kept: NDArray[np.uint32]  # [positions]
    cutoff: NDArray[np.uint8]  # [positions]; no token of the tail is likelier than 2^(−cutoff/8)
    tail: NDArray[np.float16]  # [positions], the tail's mass in units of 2^-15
    a: NDArray[np.float16]  # [positions], KL(p || p') in units of 2^-10 nats
    gaps: NDArray[np.uint32]  # [kept tokens], from the token before it, in rising order
    counts: NDArray[np.uint32]  # [kept tokens], probability in steps, rounded down
    codes: NDArray[np.int16]  # [hidden positions, width]
    scale: NDArray[np.float32]  # [hidden positions], of the codes
    eta: NDArray[np.float32]  # [hidden positions], largest |log p − log p'|, rounded up

    def to_bytes(self) -> bytes:
        """A line with the digest of all that follows it and what describes the columns, then the columns, each split
        into byte planes and compressed."""
        columns = {name: _packed(getattr(self, name)) for name in _COLUMNS}
        head = {
            "vocabulary": self.vocabulary,
            "at_most": self.at_most,
            "width": self.codes.shape[1],
            "columns": {name: [getattr(self, name).size, len(packed)] for name, packed in columns.items()},
        }
        body = json.dumps(head).encode() + b"\n" + b"".join(columns.values())
        return MAGIC + _digest(body) + b" " + body

    @staticmethod
    def from_bytes(data: bytes) -> StoredBaseline:
        """IntegrityError for anything that `to_bytes` did not write."""
        try:
            if not data.startswith(MAGIC):
                raise ValueError("it does not begin as one")
            digest, _, body = data[len(MAGIC) :].partition(b" ")
            if digest != _digest(body):
                raise ValueError("its bytes are not those that were written")
            first, _, rest = body.partition(b"\n")
            head = json.loads(first)
            columns: dict[str, Any] = {}
            for name, dtype in _COLUMNS.items():
                size, length = head["columns"][name]
                columns[name] = _unpacked(rest[:length], dtype, size)
                rest = rest[length:]
            columns["codes"] = columns["codes"].reshape(len(columns["scale"]), head["width"])
            found = StoredBaseline(vocabulary=head["vocabulary"], at_most=head["at_most"], **columns)
            found._check()
            return found
        except (ValueError, KeyError, TypeError, AttributeError, EOFError, RecursionError, lzma.LZMAError) as error:
            raise IntegrityError(f"this is not a stored baseline: {error}. Make it again.") from None

    def _check(self) -> None:
        hidden = int((self.kept == 0).sum())
        sizes = {len(self.kept), len(self.cutoff), len(self.tail), len(self.a)}
        if len(sizes) > 1 or {len(self.codes), len(self.scale), len(self.eta)} != {hidden}:
            raise ValueError("its columns differ in length")
        if len(self.gaps) != len(self.counts) or len(self.gaps) != int(self.kept.sum(dtype=np.uint64)):
            raise ValueError("tokens are missing")
        if type(self.vocabulary) is not int or not isinstance(self.at_most, float) or not 0 < self.at_most < 1:
            raise ValueError("its head is broken")
        if not np.isfinite(self.a).all():
            raise ValueError("a number that is none")
        if self.tail[self.kept >= self.vocabulary].any():
            raise ValueError("a tail without a token")
        for numbers in (self.tail, self.scale, self.eta):
            if not np.isfinite(numbers).all() or (numbers < 0).any():
                raise ValueError("a number that is none or below zero")
        if len(self.gaps):
            tokens = np.cumsum(self.gaps, dtype=np.int64)
            starts = np.cumsum(self.kept, dtype=np.int64) - self.kept
            first = np.zeros(len(tokens), bool)
            first[starts[self.kept > 0]] = True
            if (self.gaps[~first] == 0).any() or self.gaps.max() >= self.vocabulary:
                raise ValueError("a token twice")
            before = np.concatenate([[0], tokens])[starts[self.kept > 0]]
            last = tokens[(starts + self.kept)[self.kept > 0] - 1]
            if ((last - before) >= self.vocabulary).any():
                raise ValueError("a token that is not in the vocabulary")


_COLUMNS = {
    "kept": np.dtype("<u4"), "cutoff": np.dtype("u1"), "tail": np.dtype("<f2"), "a": np.dtype("<f2"),
    "gaps": np.dtype("<u4"), "counts": np.dtype("<u4"), "codes": np.dtype("<i2"),
    "scale": np.dtype("<f4"), "eta": np.dtype("<f4"),
}  # fmt: skip
MAGIC = b"qualgate-kl/2 "


def _digest(body: bytes) -> bytes:
    return sha256(body).hexdigest().encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Certified:
    """KL(baseline || variant) at each position, nats: the truth is within `error` of `kl`."""

    kl: Doubles
    error: Doubles

    @property
    def mean(self) -> tuple[float, float]:
        """The mean KL and its certified error."""
        return float(self.kl.mean()), float(self.error.mean())


# ---------------------------------------------------------------------------------------------- the interval


def extremes(b: Doubles, low: Doubles, high: Doubles, least: float, most: float) -> tuple[float, float]:
    """Bounds of Σ x b over all x with low <= x <= high and least <= Σ x <= most. Exact where least == most."""
    if not len(b):
        return 0.0, 0.0
    order = np.argsort(b, kind="stable")
    extra = max(0.0, most - least) * float(np.abs(b).max())
    base, room = float(low @ b), (high - low)[order]
    left = max(0.0, least - float(low.sum()))
    rising = b[order]
    return base + _filled(rising, room, left) - extra, base + _filled(rising[::-1], room[::-1], left) + extra


def _filled(b: Doubles, room: Doubles, left: float) -> float:
    """Σ b times what each box takes of `left`, box after box."""
    before = np.cumsum(room)
    taken = np.clip(left - (before - room), 0.0, room)
    return float(taken @ b)


def certify(stored: StoredBaseline, logits: ArrayLike, head: Head | None = None) -> Certified:
    """How far a variant is from a stored baseline. logits: the variant's, [positions, vocabulary].

    head: the baseline's, where positions are hidden. UsageError for logits that do not fit or are not finite.
    """
    logits = _logits(logits)
    if logits.shape != (len(stored.kept), stored.vocabulary):
        raise UsageError(
            f"logits of shape {logits.shape} for a baseline of {len(stored.kept)} positions and "
            f"{stored.vocabulary} tokens"
        )
    if len(stored.scale) and head is None:
        raise UsageError("this baseline is kept as hidden states; its output head is needed to read them")
    kl, error = np.empty(len(logits)), np.empty(len(logits))
    ends = np.cumsum(stored.kept, dtype=np.int64)
    read = _read(stored.codes, stored.scale, head)
    etas = iter(stored.eta.tolist())
    for position, kept in enumerate(stored.kept.tolist()):
        log_q = _log_softmax(logits[position])
        if kept:
            low, high = _counted(stored, position, slice(ends[position] - kept, ends[position]), log_q)
        else:
            low, high = _hidden(next(read), next(etas), log_q)
        a = float(stored.a[position]) * A_UNIT
        slack = HALF * abs(a) + SMALLEST * A_UNIT + SUMS * len(log_q) * (1 + float(np.abs(log_q).max()))
        low, high = max(0.0, a + low - slack), a + high + slack
        kl[position], error[position] = (low + high) / 2, (high - low) / 2
    return Certified(kl=kl, error=error)


def _counted(stored: StoredBaseline, position: int, mine: slice, log_q: Doubles) -> tuple[float, float]:
    tokens = np.cumsum(stored.gaps[mine], dtype=np.int64)
    cutoff, mass = _cutoff(int(stored.cutoff[position])), float(stored.tail[position]) * TAIL_UNIT
    low, high, middle = _boxes(stored.counts[mine], cutoff, stored.at_most)
    slack = HALF * mass + SMALLEST * TAIL_UNIT if mass else 0.0
    rest = np.delete(log_q, tokens)
    least, most = max(0.0, mass - slack), min(1.0, mass + slack)
    kept = extremes(np.log(middle) - log_q[tokens], low, high, 1 - most, 1 - least)
    if not mass:
        return kept
    tail = extremes(_spread(mass, len(rest)) - rest, np.zeros(len(rest)), np.full(len(rest), cutoff), least, most)
    return kept[0] + tail[0], kept[1] + tail[1]


def _hidden(log_p: Doubles, eta: float, log_q: Doubles) -> tuple[float, float]:
    p = np.exp(log_p)
    return extremes(log_p - log_q, p * np.exp(-eta), p * np.exp(eta), 1.0, 1.0)


# --------------------------------------------------------------------------------------------------- keeping


def store(
    logits: ArrayLike, *, at_most: float = AT_MOST, hidden: ArrayLike | None = None, head: Head | None = None
) -> StoredBaseline:
    """Keep a baseline's logits [positions, vocabulary].

    hidden, head: what entered the output head, [positions, width], and the head; a position is then kept in whichever
    way takes fewer bytes. UsageError for numbers that are not finite, shapes that do not fit, hidden states that do
    not give these logits, an `at_most` outside 0..1.
    """
    if not 0 < at_most < 1:
        raise UsageError(f"at_most is {at_most:g}; a certified error is over 0 and below 1 nat, for example 1e-4")
    if (hidden is None) != (head is None):
        raise UsageError("hidden states are kept together with the head that reads them: give both or neither")
    logits = _logits(logits)
    states = np.zeros((len(logits), 0)) if hidden is None else np.asarray(hidden, np.float64)
    if states.ndim != 2 or len(states) != len(logits) or not np.isfinite(states).all():
        raise UsageError(f"hidden states of shape {states.shape} for {len(logits)} positions, or not finite")
    rows = [_count(_log_softmax(row), at_most) for row in logits]
    if head is not None:
        large = [place for place, row in enumerate(rows) if BYTES_PER_KEPT * row["kept"] > 2 * states.shape[1]]
        for place, row in zip(large, _hide(logits[large], states[large], head), strict=True):
            rows[place] = row
    columns = {
        name: np.concatenate([np.zeros(0, dtype), *(np.atleast_1d(row[name]) for row in rows if name in row)])
        for name, dtype in _COLUMNS.items()
    }
    typed: dict[str, Any] = {name: column.astype(_COLUMNS[name]) for name, column in columns.items()}
    typed["codes"] = typed["codes"].reshape(len(typed["scale"]), states.shape[1])
    return StoredBaseline(vocabulary=logits.shape[1], at_most=float(at_most), **typed)


def _count(log_p: Doubles, at_most: float) -> dict[str, Any]:
    p = np.exp(log_p)
    cutoff = _choose_cutoff(np.sort(log_p)[::-1], OF_OWN * at_most)
    tokens = np.flatnonzero(p >= _cutoff(cutoff))
    rest = np.delete(p, tokens)
    counts = np.floor(p[tokens] / _step(len(tokens), at_most))
    tail = np.float16(rest.sum() / TAIL_UNIT)
    if rest.any() and not tail:
        tail = np.float16(SMALLEST)
    a = _kl(p[tokens], np.log(_boxes(counts, _cutoff(cutoff), at_most)[2]))
    if tail:
        a += _kl(rest, _spread(float(tail) * TAIL_UNIT, len(rest)))
    return {
        "kept": len(tokens), "cutoff": cutoff, "tail": tail, "a": np.float16(a / A_UNIT),
        "gaps": np.diff(tokens, prepend=0), "counts": counts,
    }  # fmt: skip


def _hide(logits: NDArray, states: Doubles, head: Head) -> Iterator[dict[str, Any]]:
    scale = (np.abs(states).max(-1, initial=0.0) / 32767).astype(np.float32)
    scale[scale == 0] = 1
    codes = np.clip(np.rint(states / scale[:, None]), -32767, 32767).astype(np.int16)
    for row, code, unit, log_kept in zip(logits, codes, scale, _read(codes, scale, head), strict=True):
        log_p = _log_softmax(row)
        eta = float(np.abs(log_p - log_kept).max()) + AGAIN
        if eta > 1:
            raise UsageError(
                f"the head makes of these hidden states other logits than those given, by up to {eta:.3g} nats; "
                "where a model changes its logits after the head, `head` must do so too"
            )
        a = np.float16(_kl(np.exp(log_p), log_kept) / A_UNIT)
        eta = np.nextafter(np.float32(eta), np.float32(np.inf))
        yield {"kept": 0, "cutoff": 0, "tail": np.float16(0), "a": a, "codes": code, "scale": unit, "eta": eta}


def _choose_cutoff(falling: Doubles, target: float) -> int:
    """The step of the highest cutoff at which a variant equal to the baseline is known to within `target`.

    falling: the log-probs in falling order. With the k likeliest kept, each other at most as likely as the k-th, the
    tail's mass fills its likeliest tokens, or its least likely ones.
    """
    p, size = np.exp(falling), len(falling)
    k = np.arange(1, size)
    mass, cap = np.cumsum(p[::-1])[::-1][1:], np.maximum(p[:-1], 1e-300)
    full = np.minimum(mass // cap, size - k).astype(np.int64)
    part = np.maximum(mass - full * cap, 0.0)
    sums = np.concatenate([[0.0], np.cumsum(falling)])
    likely = cap * (sums[k + full] - sums[k]) + part * falling[np.minimum(k + full, size - 1)]
    unlikely = cap * (sums[-1] - sums[size - full]) + part * falling[np.maximum(size - 1 - full, 0)]
    enough = np.flatnonzero((likely - unlikely) / 2 <= target)
    least = falling[enough[0] if len(enough) else size - 1] / np.log(2)
    step = int(min(255, np.ceil(max(0.0, -CUTOFFS * least))))
    return min(255, step + (np.log2(_cutoff(step)) > least))


# ------------------------------------------------------------------------------------------------ the numbers


def _cutoff(step: int) -> float:
    return 2.0 ** (-step / CUTOFFS)


def _step(kept: int, at_most: float) -> float:
    """A power of two; the steps of all kept tokens sum to a quarter of `at_most` (of too many to tell, to more)."""
    return 2.0 ** -int(min(31.0, np.ceil(np.log2(4 * kept / at_most))))  # of an `at_most` near 0 the log is infinite


def _boxes(counts: NDArray, cutoff: float, at_most: float) -> tuple[Doubles, Doubles, Doubles]:
    """Low ends, high ends and middles of the kept tokens' probabilities."""
    step = _step(len(counts), at_most)
    low, high = np.maximum(counts * step, cutoff), np.maximum((counts + 1.0) * step, cutoff)
    return low, high, (low + high) / 2


def _spread(mass: float, tokens: int) -> float:
    return float(np.log(mass / tokens))


def _kl(p: Doubles, log_other: ArrayLike) -> float:
    """Σ p log(p / other); 0 log 0 = 0."""
    seen = p > 0
    return float(p[seen] @ (np.log(p[seen]) - np.broadcast_to(log_other, p.shape)[seen]))


def _read(codes: NDArray[np.int16], scale: NDArray[np.float32], head: Head | None) -> Iterator[Doubles]:
    """log p' of each hidden position."""
    start = 0
    while start < len(codes):
        assert head is not None
        stop = start + ROWS_AT_ONCE
        for row in head(codes[start:stop] * scale[start:stop, None].astype(np.float64)):
            yield _log_softmax(row)
        start = stop


def _logits(logits: ArrayLike) -> NDArray:
    found = np.asarray(logits)
    if found.ndim != 2 or not found.size or not all(np.isfinite(row).all() for row in found):  # it may lie on the disk
        raise UsageError(f"logits of shape {found.shape}: expected finite numbers, [positions, vocabulary]")
    return found


def _log_softmax(logits: NDArray) -> Doubles:
    shifted = logits.astype(np.float64) - float(logits.max())
    return shifted - np.log(np.exp(shifted).sum())


def _filters(size: int) -> list[dict[str, int]]:
    return [{"id": lzma.FILTER_LZMA2, "dict_size": min(max(size, 2**12), 2**26)}]


def _packed(column: NDArray) -> bytes:
    flat = np.ascontiguousarray(column).reshape(-1)
    planes = flat.view(np.uint8).reshape(-1, flat.itemsize).T.tobytes()
    return lzma.compress(planes, format=lzma.FORMAT_RAW, filters=_filters(len(planes)))


def _unpacked(packed: bytes, dtype: np.dtype, size: int) -> NDArray:
    if type(size) is not int or not 0 <= size * dtype.itemsize <= LARGEST:
        raise ValueError("a column without a size")
    reader = lzma.LZMADecompressor(format=lzma.FORMAT_RAW, filters=_filters(size * dtype.itemsize))
    plain = reader.decompress(packed, max_length=size * dtype.itemsize + 1)
    if len(plain) != size * dtype.itemsize:
        raise ValueError("a column of another size")
    return np.frombuffer(plain, np.uint8).reshape(dtype.itemsize, size).T.copy().view(dtype).reshape(-1)
