"""Weights that a mixture of experts multiplies by itself, without a linear layer: its routers' and its experts'.

Its modules hand such a parameter to torch's `linear`, or write `x @ it`. torch asks an argument that is no tensor, but
has `__torch_function__`, what shall be done: so what stands in a parameter's place multiplies, by our own kernel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import nn

from qualgate_kernels.dense import Dense, matmul_dense, prepare_dense, restore_dense


class DenseWeight:
    """A weight [out_features, in_features], or that of every expert [experts, out_features, in_features]; `turned`:
    the last two are the other way round. float32 to whoever asks; only an expert's can be taken of it, and products.
    """

    dtype = torch.float32

    def __init__(self, prepared: Sequence[Dense], shape: Sequence[int], turned: bool) -> None:
        self.prepared, self.shape, self.turned = tuple(prepared), torch.Size(shape), turned

    @property
    def device(self) -> torch.device:
        """Where it is."""
        return self.prepared[0].values.device

    def __getitem__(self, expert: int | torch.Tensor) -> DenseWeight:
        """Of one expert."""
        if len(self.shape) != 3:
            raise TypeError("not a weight of several experts")
        return DenseWeight(self.prepared[int(expert) : int(expert) + 1], self.shape[1:], self.turned)

    def float(self) -> DenseWeight:
        """Itself, which is float32."""
        return self

    def type(self, dtype: torch.dtype) -> DenseWeight:
        """As `float`. TypeError for another dtype."""
        if dtype != torch.float32:
            raise TypeError(f"expected float32, got {dtype}")
        return self

    def to(self, dtype: torch.dtype) -> DenseWeight:
        """As `type`."""
        return self.type(dtype)

    def numbers(self) -> torch.Tensor:
        """float32 [shape], made anew."""
        weights = [restore_dense(one).float() for one in self.prepared]
        weights = [weight.T.contiguous() for weight in weights] if self.turned else weights
        return torch.stack(weights) if len(self.shape) == 3 else weights[0]

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """`linear` of a weight, or a product with one that is turned. Of anything else torch says that it is none."""
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
    """Put a DenseWeight in the place of every router's and expert's parameter, and have experts multiplied one by one,
    as each architecture's own code does; "" or why one is not. Models without such experts stay as they are."""
    found = list(_modules(model))
    if all(turned is None for _, turned in found):
        return ""
    for module, turned in found:
        for name, parameter in list(module.named_parameters(recurse=False)):
            if parameter.dim() != (2 if turned is None else 3):
                continue
            prepared = _prepared(parameter, turned)
            if isinstance(prepared, str):
                return f"{type(module).__name__}.{name}: {prepared}"
            for at, one in enumerate(prepared):  # counted, as the parameter was
                module.register_buffer(f"{name}_{at}", one.values, persistent=False)
            delattr(module, name)
            setattr(module, name, DenseWeight(prepared, parameter.shape, bool(turned)))
    model.experts_were = model.get_experts_implementation()
    model.set_experts_implementation("eager")
    return ""


def _prepared(parameter: torch.Tensor, turned: bool | None) -> list[Dense] | str:
    """Of each expert, of a router one; or why not."""
    found = list[Dense]()
    for weight in parameter[None] if turned is None else parameter:
        one = prepare_dense(weight.T if turned else weight)
        if isinstance(one, str):
            return one
        found.append(one)
    return found


def take_back_experts(model: Any) -> None:
    """Put the parameters back, with the same numbers in float32, to be multiplied as they were."""
    if (were := vars(model).pop("experts_were", None)) is not None:
        model.set_experts_implementation(were)
    for module in model.modules():
        for name, weight in list(vars(module).items()):
            if isinstance(weight, DenseWeight):
                delattr(module, name)
                for at in range(len(weight.prepared)):
                    delattr(module, f"{name}_{at}")
                module.register_parameter(name, nn.Parameter(weight.numbers(), requires_grad=False))


def _modules(model: nn.Module) -> Iterator[tuple[nn.Module, bool | None]]:
    """Experts that transformers' interface knows, and whether their weights are turned; routers, and None."""
    for module in model.modules():
        if isinstance(turned := getattr(module, "is_transposed", None), bool):
            yield module, turned
        elif type(module).__name__.lower().endswith("router"):
            yield module, None
