"""Does a model reproduce its bits? Repeats, other batches, one row per step, other thread counts.

Each cell compares teacher-forced logits with those of every text read alone, in one pass, with one thread count, on the
model's engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from qualgate.engine.choice import Choice, open_engine
from qualgate.engine.padded.cache import new_cache
from qualgate.engine.padded.forward import open_decoder
from qualgate.engine.request import Event, Read, Request
from qualgate.engine.schedule import Limits
from qualgate.quant.stability import softmax_sum_error, ulp, ulp_distance
from qualgate.records import ArmSpec, Case

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from qualgate.engine.device import Device

Logits = list[torch.Tensor]  # one [tokens, vocabulary] float32 each text
REPEATS = 5
TIE = 4  # ulp


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One changed condition, everything else equal."""

    condition: str
    trials: int
    equal: bool  # bit for bit, in every trial
    max_ulp: int  # the most float32 numbers between two logits
    max_difference: float  # of two logits
    other_tokens: int  # positions at which another token would be said
    near_ties: int  # of these, where the best two logits lie within TIE ulp of each other: more turned than that = bug


@dataclass(frozen=True, slots=True, kw_only=True)
class DeterminismMatrix:
    """How a model's logits change under conditions that should not change them."""

    cells: tuple[Cell, ...]
    positions: int
    near_tie_share: dict[str, float | None]  # k → share of positions whose best two logits are less than k ULP apart
    softmax_sum_error: float | None  # how far a position's probabilities are from a sum of 1, at worst

    @property
    def repeatable(self) -> bool:
        """Whether the same batch read again gave the same bits."""
        return all(cell.equal for cell in self.cells if cell.condition == "repeat")


def model_determinism(
    folder: Path, cases: Sequence[Case], *, device: Device = "cpu", repeats: int = REPEATS
) -> DeterminismMatrix:
    """Load the model in `folder`, quantized or not, and run `cases`, answers included, through the matrix."""
    from qualgate.engine.calibration import answered
    from qualgate.engine.load import load_arm

    arm = load_arm(ArmSpec(name="variant", model=str(folder)), folder, {}, device=device)
    texts = [(*prompt, *answer) for prompt, answer in answered(folder, cases)]
    return determinism_matrix(arm.model, arm.choice, texts, repeats=repeats)


def determinism_matrix(
    model: PreTrainedModel,
    choice: Choice,
    texts: Sequence[Sequence[int]],
    *,
    repeats: int = REPEATS,
    threads: Sequence[int] = (1, 2),
) -> DeterminismMatrix:
    """Run `texts` (token ids) under each condition. Thread counts are restored after each cell."""

    def again() -> Logits:
        return [read_batch(model, choice, [text])[0] for text in texts]

    reference = again()
    stepwise = [read_stepwise(model, choice, text) for text in texts]
    cells = [
        compare("repeat", reference, [again() for _ in range(repeats)]),
        compare("batch", reference, [read_batch(model, choice, texts), read_batch(model, choice, texts[::-1])[::-1]]),
        compare("one row a step", reference, [stepwise]),
    ]
    before = torch.get_num_threads()
    try:
        runs = []
        for count in threads:
            torch.set_num_threads(count)
            runs.append(again())
    finally:
        torch.set_num_threads(before)
    cells.append(compare(f"threads {', '.join(map(str, threads))}", reference, runs))
    return DeterminismMatrix(
        cells=tuple(cells),
        positions=sum(map(len, reference)),
        near_tie_share={str(k): near_ties(reference, k) for k in (1, 4)},
        softmax_sum_error=softmax_sum_error(reference),
    )


def compare(condition: str, expected: Logits, trials: Sequence[Logits]) -> Cell:
    """Compare `trials` with `expected`, and return the largest differences of any of them."""
    pairs = [(left, right) for trial in trials for left, right in zip(expected, trial, strict=True)]
    difference = max((float((left - right).abs().nan_to_num(torch.inf).max()) for left, right in pairs), default=0.0)
    changed = ties = 0
    for left, right in pairs:
        differs = left.argmax(-1) != right.argmax(-1)
        changed += int(differs.sum())
        ties += sum(_near_tie(best, second, TIE) for best, second in left[differs].topk(2, dim=-1).values.tolist())
    return Cell(
        condition=condition,
        trials=len(trials),
        equal=all(torch.equal(left.view(torch.int32), right.view(torch.int32)) for left, right in pairs),
        max_ulp=max((ulp_distance(left, right) for left, right in pairs), default=0),
        max_difference=difference,
        other_tokens=changed,
        near_ties=ties,
    )


def near_ties(logits: Logits, k: int) -> float | None:
    """Share of positions whose best two logits are less than k ULP of the best apart. None without positions."""
    top_two = [text.topk(2, dim=-1).values.tolist() for text in logits if len(text)]
    pairs = [pair for text in top_two for pair in text]
    return sum(_near_tie(best, second, k) for best, second in pairs) / len(pairs) if pairs else None


def _near_tie(best: float, second: float, k: int) -> bool:
    return best - second < k * ulp(best)


def read_batch(
    model: PreTrainedModel, choice: Choice, texts: Sequence[Sequence[int]], limits: Limits | None = None
) -> Logits:
    """Logits at every position of every text, all read together."""
    rows: list[list[torch.Tensor]] = [[] for _ in texts]

    def take(event: Event) -> None:
        if isinstance(event, Read):
            for request, logits in zip(event.requests, event.logits, strict=True):
                rows[request].append(logits.cpu())

    with open_engine(model, choice, limits=limits) as engine:
        # What stands behind the last token is asked for by an answer that ends with any token.
        engine.run([Request(prompt=tuple(text[:1]), answer=(*text[1:], 0)) for text in texts], None, take)
    return [torch.stack(logits) for logits in rows]


def read_stepwise(model: PreTrainedModel, choice: Choice, text: Sequence[int]) -> torch.Tensor:
    """Return the logits at every position, read token by token with a cache, as in decoding."""
    if choice.kind != "padded":
        return read_batch(model, choice, [text], Limits(rows=1, sequences=1))[0]
    with open_decoder(model) as decoder:
        cache, rows = new_cache(decoder.config), []
        for index, token in enumerate(text):
            token_ids = torch.tensor([[token]], device=decoder.device)
            lengths = torch.tensor([index + 1], device=decoder.device)
            rows.append(decoder.forward(token_ids, lengths, cache, keep=1).logits[0])
    return torch.cat(rows).cpu().contiguous()
