"""One call of the model's `forward` on a ragged batch. Nothing else in the engine calls the model."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from transformers.cache_utils import Cache

from qualgate.engine.cache import KVLayer
from qualgate.engine.overflow import Overflows, looked_at
from qualgate.errors import NotInThisVersion

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel


@dataclass(frozen=True, slots=True)
class Step:
    """hidden: what entered the output head, [rows, kept, width]; logits: float32, of the last of these slots."""

    logits: torch.Tensor
    hidden: torch.Tensor


class Decoder:
    """A model ready to be stepped. Made by `open_decoder`, which also takes its hook away again."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self.config = model.config.get_text_config(decoder=True)
        accepted = inspect.signature(model.forward).parameters
        self._takes_positions = "position_ids" in accepted
        self._takes_keep = "logits_to_keep" in accepted
        self._hidden: torch.Tensor | None = None
        self._lean = False
        self.overflows: Overflows | None = None  # where the dtype cannot hold what float32 can

        head = model.get_output_embeddings()
        if head is None:
            raise NotInThisVersion(f"{type(model).__name__} has no output head of its own, so it cannot be run yet.")
        self.head: torch.nn.Module = head
        # [vocabulary, ...]; a packed head holds codes instead of a parameter.
        self._weight = next(chain(head.parameters(), head.buffers()))

        self.after = _after_head(self.config)

    @property
    def device(self) -> torch.device:
        """Where the output head is."""
        return self._weight.device

    @property
    def vocabulary(self) -> int:
        """Entries of the output head."""
        return self._weight.shape[0]

    def forward(self, token_ids: torch.Tensor, lengths: torch.Tensor, cache: Cache | None, keep: int) -> Step:
        """Read `token_ids` [rows, new], the last `new` slots of rows that are right-aligned.

        lengths: [rows], each row's filled slots including the new ones; everything left of them is padding.
        cache: read and extended; None reads without keeping anything. keep: how many last slots need logits.
        """
        new = token_ids.shape[1]
        width = new + (cache.get_seq_length() if cache is not None else 0)
        slots = torch.arange(width, device=token_ids.device)
        return self.step(token_ids, slots >= (width - lengths)[:, None], cache, keep)

    def step(
        self, token_ids: torch.Tensor, mask: torch.Tensor, cache: Cache | None, keep: int, *, lean: bool = False
    ) -> Step:
        """As `forward`, with the mask [rows, width] given: True where a slot holds a token of the row.

        lean: only the last slot gets logits; those of the others can be had from `logits(step.hidden)`, if `knows`.
        """
        inputs: dict[str, Any] = {"input_ids": token_ids, "attention_mask": mask, "use_cache": cache is not None}
        if cache is not None:
            inputs["past_key_values"] = cache
        if self._takes_positions:
            inputs["position_ids"] = (mask.cumsum(-1)[:, -token_ids.shape[1] :] - 1).clamp_(min=0)
        if self._takes_keep:
            inputs["logits_to_keep"] = keep
        self._lean = lean
        if self.overflows is not None:
            self.overflows.mask = mask[:, -token_ids.shape[1] :]
        logits = self.model(**inputs).logits[:, -keep:].float()
        self._lean = False
        if self.overflows is not None and cache is not None:
            self.overflows.look_at_cache(cache, token_ids.shape[1])
        if cache is not None:
            self._held(cache, mask.shape[1])
        assert self._hidden is not None, "the output head was not called"
        hidden, self._hidden = self._hidden[:, -keep:], None
        return Step(logits, hidden)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """float32 logits [..., vocabulary] of what enters the head, [..., width]: right where `knows` says so."""
        return finished(self.head(hidden), self.after).float()

    def knows(self, step: Step) -> bool:
        """Whether all that is done to get a step's logits is known: same input, same shape, equal to the bit."""
        return torch.equal(self.logits(step.hidden[:, -step.logits.shape[1] :]), step.logits)

    def _held(self, cache: Cache, slots: int) -> None:
        for index, layer in enumerate(cache.layers):
            if isinstance(layer, KVLayer) and layer.length != slots:
                raise NotInThisVersion(
                    f"Layer {index} of {type(self.model).__name__} ({self.config.model_type}) holds {layer.length} of "
                    f"{slots} slots that were read: it does not keep its keys and values where it is told to, so its "
                    "next token would not be its own."
                )

    def _keep_hidden(self, head: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor] | None:
        self._hidden = inputs[0]
        return (inputs[0][:, -1:],) if self._lean else None


def finished(logits: torch.Tensor, after: dict[str, float]) -> torch.Tensor:
    """What a model does to the head's output, by the names its config has for it (Cohere, Granite, Gemma)."""
    if "logit_scale" in after:
        logits = logits * after["logit_scale"]
    if "logits_scaling" in after:
        logits = logits / after["logits_scaling"]
    if cap := after.get("final_logit_softcapping"):
        logits = torch.tanh(logits / cap) * cap
    return logits


def _after_head(config: PreTrainedConfig) -> dict[str, float]:
    """What the config says is done to the head's output; whether it says it rightly, `knows` looks."""
    values = {
        name: getattr(config, name, None) for name in ("logit_scale", "logits_scaling", "final_logit_softcapping")
    }
    return {name: float(value) for name, value in values.items() if isinstance(value, int | float) and value}


@contextmanager
def open_decoder(model: PreTrainedModel, stored: str = "float32") -> Iterator[Decoder]:
    """A Decoder in inference mode, for the length of the block. stored: what a server stores activations in."""
    decoder = Decoder(model)
    hook = decoder.head.register_forward_pre_hook(decoder._keep_hidden)
    try:
        with torch.inference_mode(), looked_at(model, stored) as decoder.overflows:
            yield decoder
    finally:
        hook.remove()


def pad(sequences: Sequence[Sequence[int]], device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Right-aligned token ids [rows, longest] and lengths [rows]. Padding is token 0, which the mask hides."""
    width = max(map(len, sequences))
    rows = [[0] * (width - len(sequence)) + list(sequence) for sequence in sequences]
    return torch.tensor(rows, device=device), torch.tensor([*map(len, sequences)], device=device)


def split(widths: Sequence[int], budget: int) -> Iterator[list[int]]:
    """Indices in parts of like width, longest first; rows x width of a part stays within `budget` (one row may not)."""
    part: list[int] = []
    for row in sorted(range(len(widths)), key=lambda row: -widths[row]):
        if part and (len(part) + 1) * widths[part[0]] > budget:
            yield part
            part = []
        part.append(row)
    if part:
        yield part
