"""A transformers model on packed rows: its own modules, our attention, `[1, rows]` without padding or mask.

Any architecture that asks transformers' attention interface runs so. `plain_decoder` does the same for plain decoders
without Python between their layers.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from qualgate.engine import attention
from qualgate.engine.attention import KeysValues
from qualgate.engine.batch import Batch
from qualgate.engine.half_width import half_width
from qualgate.engine.head import OutputHead
from qualgate.engine.overflow import Overflows, looked_at
from qualgate.engine.rotary import turned_by_ours
from qualgate.engine.spread import layers_by_device
from qualgate.records import Overflow
from qualgate_kernels import dispatch

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class ModelDecoder:
    """A transformers model that decodes packed rows. Made by `open_model`, which also removes its hook."""

    def __init__(self, model: PreTrainedModel, head: OutputHead) -> None:
        self.model, self.head = model, head
        self._takes_positions = "position_ids" in inspect.signature(model.forward).parameters
        self.on_one_device = len(layers_by_device(model, head.device)) == 1
        self.overflows: Overflows | None = None
        self._wanted: torch.Tensor | None = None
        self._whole = True
        self._hidden: torch.Tensor | None = None

    def both(self, batch: Batch, states: KeysValues) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the logits that the head gives, and those that the model makes of the same input of the head."""
        hidden, logits = self._passed(batch, states, 1, whole=False)
        return self.head.logits(hidden.float()), logits.float()

    def forward(self, batch: Batch, states: KeysValues, threads: int) -> torch.Tensor:
        """Return the input of the output head at the wanted rows, float32 [wanted, width]; or their logits, if the
        model changes them after the head. Keys and values of all rows are written to `states`."""
        hidden, logits = self._passed(batch, states, threads, whole=self.head.whole)
        return hidden.float() if self.head.whole else logits.float()

    def _passed(
        self, batch: Batch, states: KeysValues, threads: int, *, whole: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the input of the output head at the wanted rows, and the model's logits of them, none if `whole`."""
        device = self.head.device
        if self.on_one_device:
            batch = replace(batch, places=dispatch.prepare_places(batch.places, batch.blocks, device))
        inputs: dict[str, Any] = {"input_ids": batch.token_ids[None].to(device), "use_cache": False}
        if self._takes_positions:
            inputs["position_ids"] = batch.positions[None].to(device)
        self._wanted, self._whole = batch.wanted.to(device), whole
        with attention.attending(batch, states, threads, self.overflows):
            logits = self.model(**inputs).logits[0]
        hidden, self._hidden, self._wanted = self._hidden, None, None
        assert hidden is not None, "the output head was not called"
        return hidden, logits

    @property
    def overflow(self) -> tuple[Overflow, ...]:
        """Values so far beyond the range of the server's dtype."""
        return self.overflows.overflow if self.overflows else ()

    def _keep_hidden(self, head: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor] | None:
        """Record what enters the head, and pass nothing on if the model's logits are not needed."""
        if self._wanted is None:  # the head is called on its own
            return None
        hidden = inputs[0][:, self._wanted]
        self._hidden = hidden[0]
        return (hidden[:, :0] if self._whole else hidden,)


@contextmanager
def open_model(
    model: PreTrainedModel, head: OutputHead, stored: str = "float32", *, rounded: str = "float32"
) -> Iterator[ModelDecoder]:
    """Yield a decoder in inference mode whose model attends to packed rows. stored: the server's activation dtype;
    rounded: the dtype in which its modules compute, see `half_width`."""
    attention.register()
    decoder = ModelDecoder(model, head)
    chosen: Any = model.config._attn_implementation
    hook = head.module.register_forward_pre_hook(decoder._keep_hidden)
    try:
        model.set_attn_implementation(attention.NAME)
        looking, turning = looked_at(model, stored, infinite=rounded != "float32"), turned_by_ours(model, head.device)
        with torch.inference_mode(), half_width(model, rounded), turning, looking as decoder.overflows:
            yield decoder
    finally:
        model.set_attn_implementation(chosen)
        hook.remove()
