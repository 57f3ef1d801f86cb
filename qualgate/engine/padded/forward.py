"""Call the model's `forward` on a padded ragged batch. Nothing else in this package calls the model."""

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
    """The result of a forward pass. states: input of the output head, [rows, kept, width], or the logits if the head is
    not `whole`; logits: float32 [rows, kept, vocabulary], empty in a lean step, where `OutputHead.logits` gives
    them."""

    states: torch.Tensor
    logits: torch.Tensor


class Decoder:
    """A model that can be stepped. Made by `open_decoder`, which also removes its hook."""

    def __init__(self, model: PreTrainedModel) -> None:
        """Wrap `model`, whose forward may or may not take positions and `logits_to_keep`."""
        self.model = model
        self.config = model.config.get_text_config(decoder=True)
        self.head = OutputHead(model)
        self.overflows: Overflows | None = None  # if the dtype has a smaller range than float32
        accepted = inspect.signature(model.forward).parameters
        self._takes_positions = "position_ids" in accepted
        self._takes_keep = "logits_to_keep" in accepted
        self._hidden: torch.Tensor | None = None
        self._lean: bool | None = None  # of the current step

    @property
    def device(self) -> torch.device:
        """The device of the output head."""
        return self.head.device

    @property
    def overflow(self) -> tuple[Overflow, ...]:
        """Values so far beyond the range of the server's dtype."""
        return self.overflows.overflow if self.overflows else ()

    def forward(self, token_ids: torch.Tensor, lengths: torch.Tensor, cache: Cache | None, keep: int) -> Step:
        """Read `token_ids` [rows, new], the last `new` slots of right-aligned rows.

        lengths: [rows], each row's filled slots including the new ones; slots to their left are padding. cache: read
        and extended, or None. keep: number of last slots with results.
        """
        new = token_ids.shape[1]
        width = new + (cache.get_seq_length() if cache is not None else 0)
        slots = torch.arange(width, device=token_ids.device)
        return self.step(token_ids, slots >= (width - lengths)[:, None], cache, keep)

    def step(
        self, token_ids: torch.Tensor, mask: torch.Tensor, cache: Cache | None, keep: int, *, lean: bool = False
    ) -> Step:
        """Like `forward`, with a mask [rows, width]: True for slots that hold a token of the row.

        lean: no logits if the head is `whole`. NotInThisVersion for a layer that does not keep its slots.
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
        """Check that each layer keeps all `slots`, and look for overflows in the `new` ones."""
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
    """Yield a Decoder in inference mode, for the length of the block. stored: what a server stores activations in."""
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
    """Return right-aligned token ids [rows, longest] and lengths [rows]. Padding is token 0, which the mask hides."""
    width = max(map(len, sequences))
    rows = [[0] * (width - len(sequence)) + list(sequence) for sequence in sequences]
    return torch.tensor(rows, device=device), torch.tensor([*map(len, sequences)], device=device)


def split(widths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Yield groups of indices of similar width, longest first; rows x width of a group stays within `most`, unless
    one row alone exceeds it."""
    group: list[int] = []
    for row in sorted(range(len(widths)), key=lambda row: -widths[row]):
        if group and (len(group) + 1) * widths[group[0]] > most:
            yield group
            group = []
        group.append(row)
    if group:
        yield group
