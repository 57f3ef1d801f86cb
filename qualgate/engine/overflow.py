"""Values beyond the dtype in which a server stores them.

Arithmetic here is float32, so an activation that float16 cannot hold stays finite, and answers look right that a server
would turn into infinities. Checked is what a server stores: inputs and outputs of linear layers and norms (the residual
stream among them), and cached keys and values; not accumulators, squares and masks. Weights beyond the dtype are
refused at load.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import nn

from qualgate.engine.adapters import LoraLinear
from qualgate.engine.dense import DenseLinear
from qualgate.errors import UsageError
from qualgate.quant.linear import QuantizedLinear
from qualgate.records import Overflow
from qualgate.text.numbers import counted

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def check_weights_fit(who: str, model: PreTrainedModel, dtype: str) -> None:
    """Raise UsageError if rounding `model` to `dtype` made weights infinite. who: the arm's folder."""
    if dtype != "float16":  # the others hold whatever a checkpoint does
        return
    for name, weight in model.named_parameters():
        if beyond := 0 if weight.is_meta else int(weight.isinf().sum()):
            raise UsageError(
                f"{who}: {counted(beyond, 'number')} of {name} {'is' if beyond == 1 else 'are'} beyond float16's "
                f"largest, {torch.finfo(torch.float16).max:g}, so a server would hold infinities there. Write "
                "`dtype: bfloat16` beside the model, or give a checkpoint that was made for float16."
            )


class Overflows:
    """Count overflows over the steps of one decoder. mask: of the current step, bool [rows, new], False for padding.
    infinite: values were rounded to the dtype, so overflows show as infinities."""

    def __init__(self, limit: float, *, infinite: bool = False) -> None:
        self.limit, self._infinite = limit, infinite
        self.mask: torch.Tensor | None = None
        self._seen: dict[str, list[int]] = {}  # by module, in the order of the forward pass: [values]
        self._last: weakref.ref[torch.Tensor] | None = None  # what a norm gave, or several layers take, is one tensor

    def look(self, name: str, tensor: torch.Tensor) -> None:
        """Check a float tensor [..., width] or [rows, heads, new, width], with a second pass only if values are beyond
        the limit."""
        count = self._seen.setdefault(name, [0])
        if tensor.numel() == 0 or not tensor.is_floating_point():
            return
        low, high = torch.aminmax(tensor)
        if not (high.item() <= self.limit and -low.item() <= self.limit):  # NaN hides what is beside it
            beyond = tensor.abs().gt(self.limit)
            count[0] += int(self._of_tokens(beyond if self._infinite else beyond & tensor.isfinite()).sum())

    def look_once(self, name: str, tensor: torch.Tensor) -> None:
        """Check a tensor unless it was the last one checked."""
        if self._last is None or self._last() is not tensor:
            self._last = weakref.ref(tensor)
            self.look(name, tensor)

    @property
    def overflow(self) -> tuple[Overflow, ...]:
        """Modules with values beyond the limit, in the order of the forward pass."""
        return tuple((place, name, count) for place, (name, (count,)) in enumerate(self._seen.items()) if count)

    def _of_tokens(self, beyond: torch.Tensor) -> torch.Tensor:
        """Keep the overflows of real tokens, without padding; all of them if the shape does not tell."""
        mask = self.mask
        if mask is None or mask.all():
            return beyond
        if beyond.dim() == 4 and beyond.shape[0] == mask.shape[0] and beyond.shape[2] == mask.shape[1]:
            return beyond & mask[:, None, :, None]
        if beyond.numel() == mask.numel() * beyond.shape[-1]:
            return beyond.reshape(*mask.shape, -1) & mask[..., None]
        if beyond.shape[:2] == mask.shape:
            return beyond & mask.reshape(*mask.shape, *([1] * (beyond.dim() - 2)))
        return beyond


def why_broken(rounded: str, overflow: Sequence[Overflow]) -> str:
    """Return why logits are not finite, as far as known. rounded: see `Choice`."""
    if overflow and rounded != "float32":
        return f"{rounded}, in which a server would store it, does not hold {overflow[0][1]}"
    return "Its weights are damaged or overflow"


@contextmanager
def looked_at(model: PreTrainedModel, dtype: str, *, infinite: bool = False) -> Iterator[Overflows | None]:
    """Watch every forward pass in the block; yields None if `dtype` holds all of float32's range (bfloat16, float32).
    infinite: see `Overflows`."""
    limit = torch.finfo(getattr(torch, dtype)).max
    if limit > 1e38:
        yield None
        return
    overflows = Overflows(limit, infinite=infinite)
    hooks = []
    for name, module in model.named_modules():
        kind = type(module).__name__
        norm = "norm" in kind.lower()
        linear = isinstance(module, nn.Linear | QuantizedLinear | DenseLinear | LoraLinear) or kind == "Conv1D"
        if norm or linear or kind.endswith("Experts"):
            hooks.append(module.register_forward_hook(_hook(overflows, name, norm=norm)))
    try:
        yield overflows
    finally:
        for hook in hooks:
            hook.remove()


def _hook(overflows: Overflows, name: str, *, norm: bool):
    """Return a forward hook that counts overflows in a module's first input and its output.

    norm: whether the module is a norm; an output that was the last tensor checked is then not counted again.
    """

    def look(_: nn.Module, inputs: tuple[object, ...], output: object) -> None:
        if inputs and isinstance(inputs[0], torch.Tensor):
            overflows.look_once(f"what enters {name}", inputs[0])
        output = output[0] if isinstance(output, tuple) else output
        if isinstance(output, torch.Tensor):
            (overflows.look_once if norm else overflows.look)(name, output)

    return look
