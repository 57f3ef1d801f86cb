"""Linear layers that are not quantized, multiplied by our own kernel: a row's bits are its own, which torch's float32
product breaks, and a bfloat16 weight takes bfloat16's bytes."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn

from qualgate_kernels import cpu
from qualgate_kernels.dense import PreparedDense, prepare_dense, restore_dense


class DenseLinear(nn.Module):
    """y = x @ W.T + bias, in float32."""

    def __init__(self, prepared: PreparedDense, bias: torch.Tensor | None) -> None:
        super().__init__()
        self.prepared = prepared
        self.out_features, self.in_features = prepared.shape
        self.register_buffer("values", prepared.values)  # counted, as a parameter was
        self.bias = None if bias is None else nn.Parameter(bias.float(), requires_grad=False)

    @property
    def weight(self) -> torch.Tensor:
        """float32 [out_features, in_features], made anew."""
        return restore_dense(self.prepared).float()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[..., in_features] → [..., out_features], float32."""
        if not x.numel():
            return x.new_zeros(*x.shape[:-1], self.out_features)
        rows = x.reshape(-1, self.in_features).float().contiguous()
        product = cpu.matmul(rows, self.prepared).view(*x.shape[:-1], self.out_features)
        return product if self.bias is None else product.add_(self.bias)

    def extra_repr(self) -> str:
        """What torch prints of it."""
        return f"{self.in_features}, {self.out_features}, {self.prepared.values.dtype}"


def lay_out(model: nn.Module) -> str:
    """Put a DenseLinear in the place of every linear layer of floats; "" or why one has none. What was laid out by
    then stays: `take_back` undoes it."""
    for name, module in list(model.named_modules()):
        if type(module) is nn.Linear:
            prepared = prepare_dense(module.weight)
            if isinstance(prepared, str):
                return f"{name}: {prepared}"
            _put(model, name, DenseLinear(prepared, module.bias))
    return ""


def take_back(model: nn.Module) -> None:
    """Put torch's linear layers back, with the same numbers; weights that were tied are tied again."""
    for name, module in list(model.named_modules()):
        if isinstance(module, DenseLinear):
            _put(model, name, _torch_linear(module.weight, module.bias))
    tie = getattr(model, "tie_weights", None)
    if tie is not None:
        tie()


def head_of(tensors: Mapping[str, torch.Tensor]) -> nn.Module:
    """A linear layer of `weight` and perhaps `bias`, ours where it can be: the one of a model's own head."""
    weight, bias = tensors["weight"], tensors.get("bias")
    prepared = prepare_dense(weight)
    if isinstance(prepared, str):
        return _torch_linear(weight, None if bias is None else nn.Parameter(bias, requires_grad=False))
    return DenseLinear(prepared, bias)


def _torch_linear(weight: torch.Tensor, bias: nn.Parameter | None) -> nn.Linear:
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias=False, device="meta")
    linear.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        linear.bias = bias
    return linear


def _put(model: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, module)
