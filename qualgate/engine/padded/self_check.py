"""Check a model before it answers in padded batches: does it give the same as its own plain code on whole texts?

A model whose architecture ignores its cache, or looks ahead, generates other tokens step by step than it was trained
to, and nothing else would show it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from qualgate.engine.padded.cache import KVLayer, new_cache
from qualgate.engine.padded.forward import Decoder, open_decoder
from qualgate.engine.room import is_short
from qualgate.engine.row_check import apart, eager, noise, texts
from qualgate.errors import NotInThisVersion, QualgateError, one_line

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TOKENS = 12  # read whole, and in two parts
FIRST = 8  # slots of the first part
SHORT = 7  # tokens of the row beside it, padded on the left


def check_runs_right(model: PreTrainedModel) -> int:
    """Return how many numbers one position leaves in the cache.

    The run reports logits that are not finite. Raises NotInThisVersion if `model` gives other logits in two parts with
    a cache, padded beside another row, or than transformers' eager code.
    """
    try:
        return _check(model)
    except QualgateError:
        raise
    except Exception as error:  # whatever an architecture does with a cache that it was not made for
        if is_short(error):
            raise
        raise NotInThisVersion(
            f"{_named(model)} cannot be run here: reading a few tokens, it fails with {one_line(error)}."
        ) from error


def _check(model: PreTrainedModel) -> int:
    """Compare the model's logits in three ways of reading with those of reading whole.

    Return the numbers that one position leaves in the cache; NotInThisVersion if a way differs beyond noise.
    """
    sample = texts(model)[0][:TOKENS]
    with open_decoder(model) as decoder:
        ids = torch.tensor(sample, device=decoder.device)
        whole_logits = decoder.forward(ids[None], ids.new_tensor([TOKENS]), None, keep=TOKENS).logits[0]
        parts, beside, numbers = _in_parts(decoder, ids)
        if not whole_logits.isfinite().all():
            return numbers
        ways = {
            "read in two parts": (parts, whole_logits),
            "padded beside another row": (beside, whole_logits[:SHORT]),
            "by transformers' eager code": (eager(model, [sample])[0], whole_logits),
        }
    for way, (logits, expected) in ways.items():
        if not apart(logits, expected) <= noise(model):
            raise NotInThisVersion(
                f"{_named(model)} gives other logits {way} than when its tokens are "
                "read whole, so its answers here would not be its own. This version runs decoders that attend to "
                "earlier tokens alone and keep their keys and values."
            )
    return numbers


def _named(model: PreTrainedModel) -> str:
    return f"{type(model).__name__} ({model.config.model_type})"


def _in_parts(decoder: Decoder, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Return the logits in two parts [TOKENS, vocabulary] and of the padded row [SHORT, vocabulary]; and the numbers
    that one position left in the cache."""
    padded = torch.cat([ids.new_zeros(TOKENS - SHORT), ids[:SHORT]])
    rows, lengths = torch.stack([ids, padded]), ids.new_tensor([TOKENS, SHORT])
    cache, later = new_cache(decoder.config), TOKENS - FIRST
    first = decoder.forward(rows[:, :FIRST], lengths - later, cache, keep=FIRST).logits
    states = [side for layer in cache.layers if isinstance(layer, KVLayer) for side in (layer.keys, layer.values)]
    numbers = sum(side.shape[1] * side.shape[3] for side in states if side is not None)
    both_rows = torch.cat([first, decoder.forward(rows[:, FIRST:], lengths, cache, keep=later).logits], dim=1)
    return both_rows[0], both_rows[1, TOKENS - SHORT :], numbers
