"""The output head: from its input to logits, and whether the model does anything else to them."""

from __future__ import annotations

from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

import torch

from qualgate.engine.dense import DenseLinear
from qualgate.errors import NotInThisVersion

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel


After = dict[str, float | str]
"""See `finished`."""


class OutputHead:
    """A model's head and what follows it. whole: states are the head's input; otherwise they are the logits, which this
    model changes in an unknown way."""

    def __init__(self, model: PreTrainedModel, rounded: str = "float32") -> None:
        """rounded: the dtype to which a server rounds logits, see `Choice`."""
        module = model.get_output_embeddings()
        if module is None:
            raise NotInThisVersion(f"{type(model).__name__} has no output head of its own, so it cannot be run yet.")
        self.module: torch.nn.Module = module
        self.after: After = _after_head(model.config.get_text_config(decoder=True))
        if rounded != "float32":
            self.after["stored"] = rounded
        self.whole = True
        # [vocabulary, ...]; a packed head holds codes instead of a parameter.
        weight = next(chain(module.parameters(), module.buffers()))
        self.device = weight.device
        self.vocabulary: int = getattr(module, "out_features", weight.shape[0])

    @property
    def plain(self) -> bool:
        """Whether the head is a float matrix with an optional bias."""
        return isinstance(self.module, torch.nn.Linear | DenseLinear) and self.tensors["weight"].is_floating_point()

    @cached_property
    def tensors(self) -> dict[str, torch.Tensor]:
        """weight, float [vocabulary, width], and bias if there is one. For a head on our kernel this is a copy, made on
        first use."""
        parts = {"weight": self.module.weight, "bias": getattr(self.module, "bias", None)}
        return {name: tensor.detach() for name, tensor in parts.items() if isinstance(tensor, torch.Tensor)}

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """float32 [..., vocabulary] of states [..., width]."""
        return finished(self.module(states), self.after).float() if self.whole else _stored(states, self.after)


def finished(logits: torch.Tensor, after: After) -> torch.Tensor:
    """Apply what a model does after its head, by the names in its config (Cohere, Granite, Gemma); `stored`: the dtype
    to which a server rounds the logits, and the result."""
    logits = _stored(logits, after)
    if "logit_scale" in after:
        logits = logits * float(after["logit_scale"])
    if "logits_scaling" in after:
        logits = logits / float(after["logits_scaling"])
    if cap := after.get("final_logit_softcapping"):
        logits = torch.tanh(logits / float(cap)) * float(cap)
    return _stored(logits, after)


def _stored(logits: torch.Tensor, after: After) -> torch.Tensor:
    return logits.to(getattr(torch, str(after["stored"]))).float() if "stored" in after else logits


def _after_head(config: PreTrainedConfig) -> After:
    values = {
        name: getattr(config, name, None) for name in ("logit_scale", "logits_scaling", "final_logit_softcapping")
    }
    return {name: float(value) for name, value in values.items() if isinstance(value, int | float) and value}
