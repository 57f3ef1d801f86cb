"""Weights that a mixture of experts multiplies without a linear layer: those of its routers and experts.

The modules pass such a parameter to torch's `linear`, or compute `x @ parameter`. torch calls `__torch_function__` of
an argument that is not a tensor, so a replacement object can multiply with our own kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from qualgate_kernels.dense import Dense, matmul_dense, prepare_dense, restore_dense


class DenseWeight:
    """A weight [out_features, in_features], or of all experts [experts, out_features, in_features]; turned: the last
    two are swapped. It reads as float32 and supports only products and the selection of one expert."""

    dtype = torch.float32

    def __init__(self, prepared: Sequence[Dense], shape: Sequence[int], turned: bool) -> None:
        self.prepared, self.shape, self.turned = tuple(prepared), torch.Size(shape), turned

    @property
    def device(self) -> torch.device:
        """The device of the weight."""
        return self.prepared[0].values.device

    def __getitem__(self, expert: int | torch.Tensor) -> DenseWeight:
        """Return the weight of one expert."""
        if len(self.shape) != 3:
            raise TypeError("not a weight of several experts")
        return DenseWeight(self.prepared[int(expert) : int(expert) + 1], self.shape[1:], self.turned)

    def float(self) -> DenseWeight:
        """Return itself, which is float32."""
        return self

    def type(self, dtype: torch.dtype) -> DenseWeight:
        """Return itself. TypeError for a dtype other than float32."""
        if dtype != torch.float32:
            raise TypeError(f"expected float32, got {dtype}")
        return self

    def to(self, dtype: torch.dtype) -> DenseWeight:
        """Return itself. TypeError for a dtype other than float32."""
        return self.type(dtype)

    def numbers(self) -> torch.Tensor:
        """Return a new float32 tensor of `shape`."""
        weights = [restore_dense(expert).float() for expert in self.prepared]
        weights = [weight.T.contiguous() for weight in weights] if self.turned else weights
        return torch.stack(weights) if len(self.shape) == 3 else weights[0]

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Handle `linear`, and products with a turned weight; NotImplemented for everything else."""
        name, bias = getattr(function, "__name__", ""), (kwargs or {}).get("bias")
        if name == "linear" and len(args) in (2, 3) and _is(args[1], turned=False):
            return args[1].multiply(args[0], args[2] if len(args) == 3 else bias)
        if name in ("matmul", "__matmul__") and len(args) == 2 and _is(args[1], turned=True):
            return args[1].multiply(args[0], None)
        return NotImplemented

    def multiply(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """[..., in_features] → [..., out_features], in x's dtype; sums are float32."""
        rows, columns = self.prepared[0].shape
        if not x.numel():
            return x.new_zeros(*x.shape[:-1], rows)
        product = matmul_dense(x.reshape(-1, columns).float().contiguous(), self.prepared[0])
        product = product.view(*x.shape[:-1], rows)
        return (product if bias is None else product.add_(bias)).to(x.dtype)


def _is(weight: Any, *, turned: bool) -> bool:
    return isinstance(weight, DenseWeight) and len(weight.shape) == 2 and weight.turned == turned


def lay_out_experts(model: Any) -> str:
    """Replace the parameters of routers and experts by DenseWeights, and have experts multiplied one by one, as in each
    architecture's own code. Return "" or why not. Other models stay as they are."""
    modules = list(_modules(model))
    if all(turned is None for _, turned in modules):
        return ""
    for module, turned in modules:
        for name, parameter in list(module.named_parameters(recurse=False)):
            if parameter.dim() != (2 if turned is None else 3):
                continue
            prepared = _prepared(parameter, turned)
            if isinstance(prepared, str):
                return f"{type(module).__name__}.{name}: {prepared}"
            for index, dense in enumerate(prepared):  # counted, as the parameter was
                module.register_buffer(f"{name}_{index}", dense.values, persistent=False)
            delattr(module, name)
            setattr(module, name, DenseWeight(prepared, parameter.shape, bool(turned)))
    model.experts_were = model.get_experts_implementation()
    model.set_experts_implementation("eager")
    return ""


def _prepared(parameter: torch.Tensor, turned: bool | None) -> list[Dense] | str:
    """Return the weight of each expert, or of a router, or why it cannot be prepared."""
    prepared = list[Dense]()
    for weight in parameter[None] if turned is None else parameter:
        dense = prepare_dense(weight.T if turned else weight)
        if isinstance(dense, str):
            return dense
        prepared.append(dense)
    return prepared


def take_back_experts(model: Any) -> None:
    """Restore the parameters, with the same numbers in float32, and their way of being multiplied."""
    if (previous := vars(model).pop("experts_were", None)) is not None:
        model.set_experts_implementation(previous)
    for module in model.modules():
        for name, weight in list(vars(module).items()):
            if isinstance(weight, DenseWeight):
                delattr(module, name)
                for index in range(len(weight.prepared)):
                    delattr(module, f"{name}_{index}")
                module.register_parameter(name, nn.Parameter(weight.numbers(), requires_grad=False))


def _modules(model: nn.Module) -> Iterator[tuple[nn.Module, bool | None]]:
    """Yield experts known to transformers' interface, with whether their weights are turned; routers, with None."""
    for module in model.modules():
        if isinstance(turned := getattr(module, "is_transposed", None), bool):
            yield module, turned
        elif type(module).__name__.lower().endswith("router"):
            yield module, None
