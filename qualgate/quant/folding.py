"""Divide a channel where it is made and multiply it where it is read: the same function, easier to quantize.

A scale s [in_features] for the inputs of a group of linear layers is folded into what makes these inputs: a norm's
weight, or the rows of the linear layer that feeds them channel by channel.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from qualgate.quant.layers import Group

_AS_BEFORE = 1e-3  # of the layer's largest output: float32 noise is a thousandth of it, a wrong fold a thousand times


class Folds:
    """The folds made in one decoder layer, and the float tensors they changed, by name within the layer."""

    def __init__(self, layer: nn.Module, run: Callable[[], torch.Tensor], dtype: torch.dtype) -> None:
        """run: calls the layer on something; dtype: what norms and biases are stored in."""
        self.layer, self.run, self.dtype = layer, run, dtype
        self.changed: set[str] = set()

    def channels(self, group: Group) -> int:
        """Return how many separate scales the group's inputs can have; 0 if no scale can be folded."""
        width = self._linear(group.linears[0]).in_features
        if group.norm:
            return width
        if not group.linear:
            return 0
        fed = self._linear(group.linear).out_features
        return fed if fed == width or self._head_width(group, fed) else 0

    def spread(self, group: Group, scale: torch.Tensor) -> torch.Tensor:
        """Repeat values [channels] for every input, [in_features]: grouped attention reads each of v's heads several
        times."""
        width = self._linear(group.linears[0]).in_features
        if len(scale) == width:
            return scale
        head = self._head_width(group, len(scale))
        return scale.view(-1, 1, head).expand(-1, width // len(scale), head).reshape(-1)

    def gather(self, group: Group, per_input: torch.Tensor) -> torch.Tensor:
        """Reduce values [in_features] to [channels], the mean of the inputs that share a channel."""
        channels = self.channels(group)
        if channels == len(per_input):
            return per_input
        head = self._head_width(group, channels)
        return per_input.view(channels // head, -1, head).mean(1).reshape(-1)

    @torch.no_grad()
    def fold(self, group: Group, scale: torch.Tensor) -> bool:
        """Divide the group's inputs by `scale` [channels] and multiply its weights; False when that changes the layer.

        A norm's new weight is rounded to `dtype` first and the linear layers take up what that rounding left, so that
        the function stays what it was. An architecture that uses its norm in a way of its own (scaled by 1 + weight,
        say) is tried both ways, and left as it was when neither holds.
        """
        before = self.run()
        touched = [f"{name}.weight" for name in group.linears]
        touched += [f"{group.norm or group.linear}.{part}" for part in ("weight", "bias")]
        parameters = {name: parameter for name in touched if (parameter := self._parameter(name)) is not None}
        saved = {name: parameter.clone() for name, parameter in parameters.items()}
        for offset in (0.0, 1.0) if group.norm else (0.0,):
            exact = self._divide(group, scale, offset)
            for name in group.linears:
                parameters[f"{name}.weight"].mul_(self.spread(group, exact))
            after = self.run()
            if (after - before).abs().max() <= _AS_BEFORE * before.abs().max():
                if group.norm:
                    self.changed |= {name for name in parameters if name.startswith(f"{group.norm}.")}
                elif f"{group.linear}.bias" in parameters:
                    self.changed.add(f"{group.linear}.bias")
                return True
            for name, parameter in parameters.items():
                parameter.copy_(saved[name])
        return False

    def _divide(self, group: Group, scale: torch.Tensor, offset: float) -> torch.Tensor:
        """Divide what makes the inputs; returns by how much exactly."""
        weight, bias = (self._parameter(f"{group.norm or group.linear}.{part}") for part in ("weight", "bias"))
        assert weight is not None
        exact = scale
        if group.norm:
            new = ((weight + offset) / scale - offset).to(self.dtype).to(weight.dtype)
            exact = torch.where(new + offset == 0, torch.ones_like(scale), (weight + offset) / (new + offset))
            exact = torch.where(exact == 0, torch.ones_like(exact), exact)
            weight.copy_(new)
        else:
            weight.div_(scale.unsqueeze(1))
        if bias is not None:
            bias.copy_((bias / exact).to(self.dtype).to(bias.dtype))
        return exact

    def _linear(self, name: str) -> nn.Linear:
        module = self.layer.get_submodule(name)
        assert isinstance(module, nn.Linear), f"{name} is no linear layer any more"
        return module

    def _parameter(self, name: str) -> torch.Tensor | None:
        module, _, part = name.rpartition(".")
        return getattr(self.layer.get_submodule(module), part, None)

    def _head_width(self, group: Group, channels: int) -> int:
        """Return the head width of the attention that mixes v's heads; 0 if unknown."""
        attention = self.layer.get_submodule(group.linears[0].rpartition(".")[0])
        width = getattr(attention, "head_dim", 0)
        return width if isinstance(width, int) and width and channels % width == 0 else 0
