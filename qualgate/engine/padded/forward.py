"""One call of the model's `forward` on a ragged batch, padded. Nothing else in this package calls the model."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from transformers.cache_utils import Cache

from qualgate.engine.head import OutputHead
from qualgate.engine.overflow import Overflows, looked_at
from qualgate.engine.padded.cache import KVLayer
from qualgate.errors import NotInThisVersion
from qualgate.records import Overflow

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TRIED = 8  # tokens on which it is tried whether the head is all there is


@dataclass(frozen=True, slots=True)
class Step:
    """states: what entered the output head, [rows, kept, width], or the logits where the head is not `whole`; logits:
    float32 [rows, kept, vocabulary], or of no slot in a lean step, where `OutputHead.logits` gives them."""

    states: torch.Tensor
    logits: torch.Tensor


class Decoder:
    """A model ready to be stepped. Made by `open_decoder`, which also takes its hook away again."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self.config = model.config.get_text_config(decoder=True)
        self.head = OutputHead(model)
        self.overflows: Overflows | None = None  # where the dtype cannot hold what float32 can
        accepted = inspect.signature(model.forward).parameters
        self._takes_positions = "position_ids" in accepted
        self._takes_keep = "logits_to_keep" in accepted
        self._hidden: torch.Tensor | None = None
        self._lean: bool | None = None  # of the step that goes on

    @property
    def device(self) -> torch.device:
        """Where the output head is."""
        return self.head.device

    @property
    def overflow(self) -> tuple[Overflow, ...]:
        """What a server's dtype would not have held so far."""
        return self.overflows.found if self.overflows else ()

    def forward(self, token_ids: torch.Tensor, lengths: torch.Tensor, cache: Cache | None, keep: int) -> Step:
        """Read `token_ids` [rows, new], the last `new` slots of rows that are right-aligned.

        lengths: [rows], each row's filled slots including the new ones; everything left of them is padding.
        cache: read and extended; None reads without keeping anything. keep: of how many last slots something is asked.
        """
        new = token_ids.shape[1]
        width = new + (cache.get_seq_length() if cache is not None else 0)
        slots = torch.arange(width, device=token_ids.device)
        return self.step(token_ids, slots >= (width - lengths)[:, None], cache, keep)

    def step(
        self, token_ids: torch.Tensor, mask: torch.Tensor, cache: Cache | None, keep: int, *, lean: bool = False
    ) -> Step:
        """As `forward`, with the mask [rows, width] given: True where a slot holds a token of the row.

        lean: no logits, where the head is `whole`. NotInThisVersion for a layer that does not hold its slots.
        """
        inputs: dict[str, Any] = {"input_ids": token_ids, "attention_mask": mask, "use_cache": cache is not None}
        if cache is not None:
            inputs["past_key_values"] = cache
        if self._takes_positions:
            inputs["position_ids"] = (mask.cumsum(-1)[:, -token_ids.shape[1] :] - 1).clamp_(min=0)
        if self._takes_keep:
            inputs["logits_to_keep"] = keep
        if self.overflows is not None:
            self.overflows.mask = mask[:, -token_ids.shape[1] :]
        self._lean = lean and self.head.whole
        try:
            logits = self.model(**inputs).logits[:, -keep:].float()
        finally:
            hidden, self._hidden, self._lean = self._hidden, None, None
        if cache is not None:
            self._look_at(cache, token_ids.shape[1], mask.shape[1])
        if self.overflows is not None:
            self.overflows.mask = None  # what the head is asked later has no padding
        assert hidden is not None, "the output head was not called"
        return Step(hidden[:, -keep:] if self.head.whole else logits, logits)

    def try_head(self) -> None:
        """Find out whether the head is `whole`: its config may not say all that a model does to its logits."""
        token_ids = torch.arange(TRIED, device=self.device)[None] % self.head.vocabulary
        self.head.whole = True
        step = self.step(token_ids, torch.ones_like(token_ids, dtype=torch.bool), None, TRIED)
        # Same input, same shape: equal to the bit, or something else is done. NaN is no difference.
        self.head.whole = torch.equal(self.head.logits(step.states).nan_to_num(), step.logits.nan_to_num())

    def _look_at(self, cache: Cache, new: int, slots: int) -> None:
        """At what each layer keeps: all `slots`, and of the `new` ones what a server could not hold."""
        for index, layer in enumerate(cache.layers):
            if not isinstance(layer, KVLayer):
                continue
            if layer.length != slots:
                raise NotInThisVersion(
                    f"Layer {index} of {type(self.model).__name__} ({self.config.model_type}) holds {layer.length} of "
                    f"{slots} slots that were read: it does not keep its keys and values where it is told to, so its "
                    "next token would not be its own."
                )
            for side in ("keys", "values"):
                if self.overflows is not None:
                    states = getattr(layer, side)[:, :, slots - new : slots]
                    self.overflows.look(f"{side} of layer {index}", states)

    def _keep_hidden(self, head: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor] | None:
        if self._lean is None:  # the head is asked by itself
            return None
        self._hidden = inputs[0]
        return (inputs[0][:, :0],) if self._lean else None


@contextmanager
def open_decoder(model: PreTrainedModel, stored: str = "float32") -> Iterator[Decoder]:
    """A Decoder in inference mode, for the length of the block. stored: what a server stores activations in."""
    decoder = Decoder(model)
    hook = decoder.head.module.register_forward_pre_hook(decoder._keep_hidden)
    try:
        with torch.inference_mode():
            decoder.try_head()
            with looked_at(model, stored) as decoder.overflows:
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
