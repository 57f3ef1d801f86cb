"""How far two models' next-token distributions are apart, from hidden states and output heads, in one pass.

Logits exist a tile of the vocabulary at a time and are never kept: the memory taken beside inputs and results is a
fixed workspace, whatever the vocabulary and the number of rows. A row's result does not depend on the other rows.
With running sums of e = exp(l - best), and d = (lp - best_p) - (lq - best_q):

    KL(P || Q) = sum(e_p d) / sum(e_p) - (log sum(e_p) - log sum(e_q))
    entropy = log sum(e) - sum(e (l - best)) / sum(e)

`drift_torch` is the specification. The C kernel (cpu/drift.c) and the Triton kernel (drift_gpu.py) have the same logits
up to float32 rounding, and sum in float32 within a tile, in float64 across tiles; `dispatch.drift` chooses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import torch

from qualgate_kernels.gumbel import Noise, gumbel_torch

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
ROWS, TILE = 64, 1024  # rows and tokens met at a time; rows are padded, so that every product has the same shape
FLOOR = -1e30  # logits below are as broken as infinite ones


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Head:
    """One model: what enters its output head, and the head.

    hidden: [rows, width]; weight: [vocabulary, width]; bias: float32 [vocabulary] or None.
    Logits are float32: weight times hidden, plus bias. No rounding to the weights' dtype.
    """

    hidden: torch.Tensor
    weight: torch.Tensor
    bias: torch.Tensor | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for tensors that no path takes."""
        for name, tensor in (("hidden", self.hidden), ("weight", self.weight)):
            if tensor.dim() != 2 or tensor.dtype not in FLOATS or 0 in tensor.shape:
                raise ValueError(
                    f"{name}: expected two extents above 0 of float32, bfloat16 or float16, "
                    f"got {tensor.dtype} {list(tensor.shape)}"
                )
            if not tensor.is_contiguous():
                raise ValueError(f"{name}: expected contiguous rows, got strides {tensor.stride()}")
        if self.hidden.shape[1] != self.weight.shape[1]:
            raise ValueError(f"weight: expected width {self.hidden.shape[1]}, got {self.weight.shape[1]}")
        if self.weight.shape[0] < 2:
            raise ValueError("weight: expected a vocabulary of 2 or more")
        if self.bias is not None and (
            self.bias.dtype != torch.float32
            or self.bias.shape != self.weight.shape[:1]
            or not self.bias.is_contiguous()
        ):
            raise ValueError(
                f"bias: expected contiguous float32 [{self.weight.shape[0]}], "
                f"got {self.bias.dtype} {list(self.bias.shape)}"
            )
        devices = {tensor.device for tensor in (self.hidden, self.weight, self.bias) if tensor is not None}
        if len(devices) > 1:
            raise ValueError(f"expected one device, got {', '.join(sorted(map(str, devices)))}")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Drift:
    """Per row; float64 in nats, token ids int64. Row 0 of a pair is P's (or KL(P || Q)), row 1 is Q's (KL(Q || P)).

    A row with a NaN or infinite logit of P has NaN and token -1 in all that depends on P; likewise Q. Other rows have
    their values. An exact tie goes to the lowest token id.

    kl: [2, rows], >= 0, and exactly 0 for equal logits
    entropy: [2, rows]; top: [2, rows], the likeliest token; margin: [2, rows], its lead over the runner-up in logits
    best: [2, rows], the log-prob of the likeliest token, <= 0
    logprob: [2, rows] of the labels, <= 0; None without labels
    sample: [2, rows], argmax of logits / temperature + Gumbel noise; None without noise
    """

    kl: torch.Tensor
    entropy: torch.Tensor
    top: torch.Tensor
    margin: torch.Tensor
    best: torch.Tensor
    logprob: torch.Tensor | None
    sample: torch.Tensor | None


def drift_torch(p: Head, q: Head, *, labels: torch.Tensor | None = None, noise: Noise | None = None) -> Drift:
    """Compute the drift by the torch twin: float32 logits, everything after in float64."""
    check(p, q, labels, noise)
    rows, vocabulary = p.hidden.shape[0], p.weight.shape[0]
    parts = []
    for start in range(0, rows, ROWS):
        block = slice(start, min(start + ROWS, rows))
        tiles = (_tile(p, q, block, first, labels, noise) for first in range(0, vocabulary, TILE))
        parts.append(reduce(Sums.then, tiles).results())
    return gathered(parts, labels, noise)


def gathered(parts: Sequence[tuple[torch.Tensor, ...]], labels: torch.Tensor | None, noise: Noise | None) -> Drift:
    """Join the `results` of blocks of rows into one Drift; without labels or noise their fields are None."""
    kl, entropy, top, margin, best, logprob, sample = (
        torch.cat(columns, dim=1) for columns in zip(*parts, strict=True)
    )
    return Drift(
        kl=kl, entropy=entropy, top=top, margin=margin, best=best,
        logprob=None if labels is None else logprob,
        sample=None if noise is None else sample,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sums:
    """What is known of rows after a part of the vocabulary: float64 [2, rows], ids int64. e, d as above."""

    best: torch.Tensor
    second: torch.Tensor
    total: torch.Tensor  # sum of e
    own: torch.Tensor  # sum of e (l - best)
    other: torch.Tensor  # sum of e d, in Q's row with Q's e and -d
    label_logit: torch.Tensor  # the label's logit; NaN where it is elsewhere
    top: torch.Tensor
    most: torch.Tensor  # the highest logit with noise
    sample: torch.Tensor

    def then(self, later: Sums) -> Sums:
        """Combine two parts; `later` holds the higher token ids."""
        best = self.best.maximum(later.best)

        def moved(part: Sums) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            shift = part.best - best
            factor = shift.exp()
            return (
                factor * part.total,
                factor * (part.own + part.total * shift),
                factor * (part.other + part.total * (shift - shift.flip(0))),
            )

        total, own, other = (
            earlier_sums + later_sums for earlier_sums, later_sums in zip(moved(self), moved(later), strict=True)
        )
        won, sampled_later = later.best > self.best, later.most > self.most
        return Sums(
            best=best,
            second=torch.where(won, self.best.maximum(later.second), self.second.maximum(later.best)),
            total=total,
            own=own,
            other=other,
            label_logit=torch.where(later.label_logit.isnan(), self.label_logit, later.label_logit),
            top=torch.where(won, later.top, self.top),
            most=torch.where(sampled_later, later.most, self.most),
            sample=torch.where(sampled_later, later.sample, self.sample),
        )

    def results(self) -> tuple[torch.Tensor, ...]:
        """kl, entropy, top, margin, best, logprob, sample of a Drift."""
        broken = ~((self.total > 0) & self.own.isfinite() & (self.best > FLOOR / 10))
        log_total = self.total.log()
        kl = (self.other / self.total - (log_total - log_total.flip(0))).clamp(min=0)
        return (
            kl.masked_fill(broken | broken.flip(0), torch.nan),
            (log_total - self.own / self.total).clamp(min=0).masked_fill(broken, torch.nan),
            self.top.masked_fill(broken, -1),
            (self.best - self.second).masked_fill(broken, torch.nan),
            (-log_total).clamp(max=0).masked_fill(broken, torch.nan),
            (self.label_logit - self.best - log_total).clamp(max=0).masked_fill(broken, torch.nan),
            self.sample.masked_fill(broken, -1),
        )


def _tile(p: Head, q: Head, rows: slice, start: int, labels: torch.Tensor | None, noise: Noise | None) -> Sums:
    """Return the sums over the tokens from `start` on."""
    logits = torch.stack([_logits(side, rows, start) for side in (p, q)]).double()  # [side, row, token]
    tokens = torch.arange(start, start + logits.shape[-1], device=logits.device)
    leaders = torch.nn.functional.pad(logits.topk(min(2, len(tokens)), dim=-1).values, (0, 1), value=FLOOR)
    best, second = leaders[..., 0], leaders[..., 1]
    lead = logits - best[..., None]
    weight = lead.exp()
    label_logit, most, sample = torch.full_like(best, torch.nan), best, torch.full_like(best, -1, dtype=torch.int64)
    if labels is not None:
        inside = (labels[rows] >= start) & (labels[rows] < start + TILE)
        label_index = torch.where(inside, labels[rows] - start, 0).expand(2, -1)[..., None]
        label_logit = torch.where(inside, logits.gather(-1, label_index)[..., 0], label_logit)
    if noise is not None:
        most, label_index = (logits / noise.temperature + gumbel_torch(noise, rows, tokens)).max(
            -1
        )  # the first of equals
        sample = tokens[label_index]
    return Sums(
        best=best, second=second, label_logit=label_logit, most=most, sample=sample,
        top=tokens[logits.argmax(-1)],  # the first of equals
        total=(weight + 0 * logits).sum(-1),  # 0 * infinity: NaN, and all that follows
        own=(weight * lead).sum(-1),
        other=(weight * (lead - lead.flip(0))).sum(-1),
    )  # fmt: skip


def _logits(side: Head, rows: slice, start: int) -> torch.Tensor:
    """float32 [rows, tokens of this tile]; padded to ROWS rows, since products of other shapes round otherwise."""
    hidden = side.hidden[rows].float()
    padded = torch.nn.functional.pad(hidden, (0, 0, 0, ROWS - len(hidden)))
    logits = torch.nn.functional.linear(padded, side.weight[start : start + TILE].float())[: len(hidden)]
    return logits if side.bias is None else logits + side.bias[start : start + TILE]


def check(p: Head, q: Head, labels: torch.Tensor | None, noise: Noise | None) -> None:
    """ValueError unless both sides, labels and noise are of as many rows, on one device, and the numbers in range."""
    if p.hidden.shape[0] != q.hidden.shape[0] or p.weight.shape[0] != q.weight.shape[0]:
        raise ValueError(
            f"expected as many rows and tokens of both models, got {p.hidden.shape[0]} and {q.hidden.shape[0]} rows, "
            f"{p.weight.shape[0]} and {q.weight.shape[0]} tokens"
        )
    if p.hidden.device != q.hidden.device:
        raise ValueError(f"expected one device, got {p.hidden.device} and {q.hidden.device}")
    rows = p.hidden.shape[0]
    for name, tensor in (
        ("labels", labels),
        *(() if noise is None else (("cases", noise.cases), ("positions", noise.positions))),
    ):
        if tensor is not None and (
            tensor.dtype != torch.int64 or tuple(tensor.shape) != (rows,) or tensor.device != p.hidden.device
        ):
            raise ValueError(
                f"{name}: expected int64 [{rows}] on {p.hidden.device}, "
                f"got {tensor.dtype} {list(tensor.shape)} on {tensor.device}"
            )
    if labels is not None and not 0 <= int(labels.min()) <= int(labels.max()) < p.weight.shape[0]:
        raise ValueError(f"labels: expected token ids below {p.weight.shape[0]}")
