"""Before a model answers anything: does it give here what it gives when it is read whole, by its own plain code?

A model whose architecture ignores the cache it is given, or reads what is yet to come, says other tokens step by step
than it was trained to say, and nothing else would tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from qualgate.engine.cache import new_cache
from qualgate.engine.forward import Decoder, open_decoder
from qualgate.errors import NotInThisVersion, QualgateError, one_line
from qualgate.quant.linear import QuantizedLinear

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TOKENS = 12  # read whole, and in two parts
FIRST = 8  # slots of the first part
SHORT = 7  # tokens of the row beside it, padded on the left
NOISE = 1e-4  # of the spread of the logits; float32 leaves some 1e-6 of it, a tiny untrained encoder 1e-2
NOISE_ROUNDED = 0.1  # where activations are rounded, and the last bit of one may decide which way


def check_runs_right(model: PreTrainedModel) -> None:
    """Raise NotInThisVersion where `model` gives other logits in two parts with a cache, padded beside another row, or
    here than in transformers' eager code. A model whose logits are not finite is left to the run, which names it.
    """
    try:
        _check(model)
    except (QualgateError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # whatever an architecture does with a cache that it was not made for
        raise NotInThisVersion(
            f"{_named(model)} cannot be run here: reading a few tokens, it fails with {one_line(error)}."
        ) from error


def _check(model: PreTrainedModel) -> None:
    rounds = any(isinstance(one, QuantizedLinear) and one.activations is not None for one in model.modules())
    noise = NOISE_ROUNDED if rounds else NOISE
    embedded: Any = model.get_input_embeddings()
    count = int(getattr(embedded, "num_embeddings", 0) or embedded.weight.shape[0])
    drawn = torch.randint(count, (TOKENS,), generator=torch.Generator().manual_seed(TOKENS))
    with open_decoder(model) as decoder:
        ids = drawn.to(decoder.device)
        whole = decoder.forward(ids[None], ids.new_tensor([TOKENS]), None, keep=TOKENS).logits[0]
        if not whole.isfinite().all():
            return
        parts, beside = _in_parts(decoder, ids)
        ways = {
            "read in two parts": (parts, whole),
            "padded beside another row": (beside, whole[:SHORT]),
            "by transformers' eager code": (_eager(model, ids), whole),
        }
    for way, (found, expected) in ways.items():
        if not apart(found, expected) <= noise:
            raise NotInThisVersion(
                f"{_named(model)} gives other logits {way} than when its tokens are "
                "read whole, so its answers here would not be its own. This version runs decoders that attend to "
                "earlier tokens alone and keep their keys and values."
            )


def _named(model: PreTrainedModel) -> str:
    return f"{type(model).__name__} ({model.config.model_type})"


def apart(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Root mean square of the difference, in standard deviations of `expected` (of each token, over the entries)."""
    found, expected = found.double(), expected.double()
    size = expected.square().mean().sqrt()
    spread = expected.std(-1).square().mean().sqrt().clamp_min(0.1 * size)  # rounding is relative to the size
    return float((found - expected).square().mean().sqrt() / spread.clamp_min(1e-30))


def _in_parts(decoder: Decoder, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits [TOKENS, vocabulary] and [SHORT, vocabulary], of the tokens and of the first few beside them."""
    padded = torch.cat([ids.new_zeros(TOKENS - SHORT), ids[:SHORT]])
    rows, lengths = torch.stack([ids, padded]), ids.new_tensor([TOKENS, SHORT])
    cache, later = new_cache(decoder.config), TOKENS - FIRST
    first = decoder.forward(rows[:, :FIRST], lengths - later, cache, keep=FIRST).logits
    both = torch.cat([first, decoder.forward(rows[:, FIRST:], lengths, cache, keep=later).logits], dim=1)
    return both[0], both[1, TOKENS - SHORT :]


def _eager(model: PreTrainedModel, ids: torch.Tensor) -> torch.Tensor:
    chosen: Any = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        return model(input_ids=ids[None], use_cache=False).logits[0].float()
    finally:
        model.set_attn_implementation(chosen)
