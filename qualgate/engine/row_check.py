"""Do a model's rows depend on each other? Two texts are read whole, and cut and mixed in several ways, on one
thread and on two: to the bit alike, or packed passes are not for this model. And what its own plain code gives is near.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from qualgate.engine.attention import KeysValues
from qualgate.engine.batch import batch
from qualgate.engine.head import OutputHead
from qualgate.engine.packed import Decoder
from qualgate.engine.request import Request
from qualgate.engine.schedule import Part, Stream
from qualgate.quant.linear import QuantizedLinear
from qualgate_kernels.slots import SLOTS

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TOKENS = 40, 23  # of two texts
CUTS = (((17, 5), (1, 1), (1, 9), (20, 1), (1, 7)), (*[(1, 1)] * 23, (17, 0)), ((39, 0), (1, 22), (0, 1)))
"""Ways to read both: of each pass, how many tokens of either."""
NOISE = 1e-4  # of the spread of the logits; float32 leaves some 1e-6 of it, a tiny untrained encoder 1e-2
NOISE_ROUNDED = 0.1  # where activations are rounded, and the last bit of one may decide which way

Logits = list[torch.Tensor]  # of each text, float32 [tokens, vocabulary]


def noise(model: PreTrainedModel) -> float:
    """How far two right ways to compute a model may be apart, see `apart`."""
    rounds = any(isinstance(one, QuantizedLinear) and one.activations is not None for one in model.modules())
    return NOISE_ROUNDED if rounds else NOISE


def texts(model: PreTrainedModel) -> list[list[int]]:
    """Two texts of random tokens, always the same."""
    embedded: Any = model.get_input_embeddings()
    count = int(getattr(embedded, "num_embeddings", 0) or embedded.weight.shape[0])
    generator = torch.Generator().manual_seed(sum(TOKENS))
    return [torch.randint(count, (length,), generator=generator).tolist() for length in TOKENS]


def read(
    decoder: Decoder,
    head: OutputHead,
    what: Sequence[Sequence[int]],
    cuts: Any,
    *,
    threads: int = 1,
    states: KeysValues | None = None,
) -> Logits:
    """The logits at every position of every text, read in passes of so many tokens of each. states: empty ones."""
    states, first, streams = KeysValues() if states is None else states, 0, list[Stream]()
    for index, text in enumerate(what):
        blocks = -(-len(text) // SLOTS)
        request = Request(prompt=tuple(text), max_new_tokens=1)
        streams.append(Stream(index, request, list(text), blocks=list(range(first, first + blocks))))
        first += blocks
    found: list[list[torch.Tensor]] = [[] for _ in what]
    for cut in cuts:
        parts = [
            Part(one, one.kept, one.text[one.kept : one.kept + count], count)
            for one, count in zip(streams, cut, strict=True)
            if count
        ]
        logits = head.logits(decoder.forward(batch(parts, first), states, threads))
        for part, rows in zip(parts, logits.split([part.wants for part in parts]), strict=True):
            found[part.stream.index].append(rows)
            part.stream.kept += part.wants
    return [torch.cat(rows) for rows in found]


def whole(what: Sequence[Sequence[int]]) -> list[list[int]]:
    """The cut that reads one text after the other, each whole."""
    return [[len(text) if at == index else 0 for at in range(len(what))] for index, text in enumerate(what)]


def row_variant(decoder: Decoder, head: OutputHead, what: Sequence[Sequence[int]], expected: Logits) -> str:
    """Which of the CUTS and threads gives other bits than `expected`; "" where none does."""
    for threads in (1, 2) if expected[0].device.type == "cpu" else (1,):
        for cuts in CUTS:
            found = read(decoder, head, what, cuts, threads=threads)
            if not all(same_bits(*pair) for pair in zip(found, expected, strict=True)):
                return f"other bits in passes of {cuts[0]} tokens and more, on {threads} thread" + "s" * (threads > 1)
    return ""


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """NaN for NaN, zero's sign too."""
    return torch.equal(one.contiguous().view(torch.int32), other.contiguous().view(torch.int32))


def far_from(found: Logits, expected: Logits) -> float:
    """The most that any text is `apart`."""
    return max(apart(*pair) for pair in zip(found, expected, strict=True))


def apart(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Root mean square of the difference, in standard deviations of `expected` (of each token, over the entries)."""
    found, expected = found.double(), expected.double()
    size = expected.square().mean().sqrt()
    spread = expected.std(-1).square().mean().sqrt().clamp_min(0.1 * size)  # rounding is relative to the size
    return float((found - expected).square().mean().sqrt() / spread.clamp_min(1e-30))


def eager(model: PreTrainedModel, what: Sequence[Sequence[int]]) -> Logits:
    """By transformers' eager code."""
    return _as(model, "eager", lambda ids: model(input_ids=ids, use_cache=False).logits[0].float(), what)


def _as(model: PreTrainedModel, how: str, run: Callable[..., torch.Tensor], what: Sequence[Sequence[int]]) -> Logits:
    chosen: Any = model.config._attn_implementation
    device = OutputHead(model).device  # laid out, a model may have no parameter to ask
    model.set_attn_implementation(how)
    try:
        with torch.inference_mode():
            return [run(torch.tensor([list(text)], device=device)) for text in what]
    finally:
        model.set_attn_implementation(chosen)
