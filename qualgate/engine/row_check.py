"""Check whether a model's rows depend on each other: two texts are read whole, and cut and mixed in several ways, with
one thread and two. Packed passes need equal bits, and results near those of the model's own plain code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from qualgate.engine.attention import KeysValues
from qualgate.engine.batch import Batch, batch
from qualgate.engine.decoder import ModelDecoder
from qualgate.engine.head import OutputHead
from qualgate.engine.packed import Decoder
from qualgate.engine.request import Request
from qualgate.engine.schedule import Part, Stream
from qualgate.quant.linear import QuantizedLinear
from qualgate_kernels.slots import SLOTS

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TOKENS = 40, 23  # of two texts
CUTS = (
    ((17, 5), (1, 1), (1, 9), (20, 1), (1, 7)),
    (*[(1, 1)] * 7, (8, 8), (1, 1), (1, 1), (23, 6)),
    ((39, 0), (1, 22), (0, 1)),
)
"""Ways to read both: of each pass, how many tokens of either."""
NOISE = 1e-4  # of the spread of the logits; float32 leaves some 1e-6 of it, a tiny untrained encoder 1e-2
NOISE_ROUNDED = 0.1  # where activations are rounded, and the last bit of one may decide which way

Logits = list[torch.Tensor]  # of each text, float32 [tokens, vocabulary]


def noise(model: PreTrainedModel) -> float:
    """Return how far two correct computations of a model may differ, see `apart`."""
    rounds = any(isinstance(module, QuantizedLinear) and module.activations is not None for module in model.modules())
    return NOISE_ROUNDED if rounds else NOISE


def texts(model: PreTrainedModel) -> list[list[int]]:
    """Return two texts of random tokens, always the same."""
    embedded: Any = model.get_input_embeddings()
    count = int(getattr(embedded, "num_embeddings", 0) or embedded.weight.shape[0])
    generator = torch.Generator().manual_seed(sum(TOKENS))
    return [torch.randint(count, (length,), generator=generator).tolist() for length in TOKENS]


def read(
    decoder: Decoder,
    head: OutputHead,
    samples: Sequence[Sequence[int]],
    cuts: Any,
    *,
    threads: int = 1,
    states: KeysValues | None = None,
) -> Logits:
    """Logits at every position of every text, read in passes of so many tokens of each. states: empty ones."""
    kept = KeysValues() if states is None else states
    return _in_passes(samples, cuts, lambda batch: head.logits(decoder.forward(batch, kept, threads)))


def read_both(decoder: ModelDecoder, samples: Sequence[Sequence[int]], states: KeysValues) -> tuple[Logits, Logits]:
    """Logits that the head gives of every text, read whole, and those that the model makes of the same states.

    states: empty ones, which keep what the model's layers attend to.
    """
    by_model = Logits()

    def run(batch: Batch) -> torch.Tensor:
        by_head, logits = decoder.both(batch, states)
        by_model.append(logits)
        return by_head

    return _in_passes(samples, whole(samples), run), by_model


def _in_passes(samples: Sequence[Sequence[int]], cuts: Any, run: Callable[[Batch], torch.Tensor]) -> Logits:
    """Return what `run` gives of the passes' rows, by text. cuts: of each pass, how many tokens of each text."""
    first, streams = 0, list[Stream]()
    for index, text in enumerate(samples):
        blocks = -(-len(text) // SLOTS)
        request = Request(prompt=tuple(text), max_new_tokens=1)
        streams.append(Stream(index, request, list(text), blocks=list(range(first, first + blocks))))
        first += blocks
    by_text: list[list[torch.Tensor]] = [[] for _ in samples]
    for cut in cuts:
        parts = [
            Part(stream, stream.cached, stream.text[stream.cached : stream.cached + count], count)
            for stream, count in zip(streams, cut, strict=True)
            if count
        ]
        logits = run(batch(parts, first))
        for part, rows in zip(parts, logits.split([part.wants for part in parts]), strict=True):
            by_text[part.stream.index].append(rows)
            part.stream.cached += part.wants
    return [torch.cat(rows) for rows in by_text]


def whole(samples: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the cuts that read one text after the other, each whole."""
    return [[len(text) if at == index else 0 for at in range(len(samples))] for index, text in enumerate(samples)]


def row_variant(decoder: Decoder, head: OutputHead, samples: Sequence[Sequence[int]], expected: Logits) -> str:
    """Return which of the CUTS and thread counts gives other bits than `expected`; "" if none does."""
    for threads in (1, 2) if expected[0].device.type == "cpu" else (1,):
        for cuts in CUTS:
            logits = read(decoder, head, samples, cuts, threads=threads)
            if not all(same_bits(*pair) for pair in zip(logits, expected, strict=True)):
                return f"other bits in passes of {cuts[0]} tokens and more, on {threads} thread" + "s" * (threads > 1)
    return ""


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Return whether both have the same bits, NaN and the sign of zero included."""
    return torch.equal(left.contiguous().view(torch.int32), right.contiguous().view(torch.int32))


def far_from(logits: Logits, expected: Logits) -> float:
    """Return the largest distance (`apart`) of any text."""
    return max(apart(*pair) for pair in zip(logits, expected, strict=True))


def apart(logits: torch.Tensor, expected: torch.Tensor) -> float:
    """Root mean square of the difference, in standard deviations of `expected` (of each token, over the entries)."""
    logits, expected = logits.double(), expected.double()
    size = expected.square().mean().sqrt()
    spread = expected.std(-1).square().mean().sqrt().clamp_min(0.1 * size)  # rounding is relative to the size
    return float((logits - expected).square().mean().sqrt() / spread.clamp_min(1e-30))


def eager(model: PreTrainedModel, samples: Sequence[Sequence[int]]) -> Logits:
    """Return the logits of transformers' eager code."""
    return _as(model, "eager", lambda ids: model(input_ids=ids, use_cache=False).logits[0].float(), samples)


def _as(model: PreTrainedModel, how: str, run: Callable[..., torch.Tensor], samples: Sequence[Sequence[int]]) -> Logits:
    """Run each text by the attention implementation `how`, and set the model's own one again."""
    chosen: Any = model.config._attn_implementation
    device = OutputHead(model).device  # laid out, a model may have no parameter to ask
    model.set_attn_implementation(how)
    try:
        with torch.inference_mode():
            return [run(torch.tensor([list(text)], device=device)) for text in samples]
    finally:
        model.set_attn_implementation(chosen)
