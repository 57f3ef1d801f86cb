"""Spread a model over several GPUs: whole layers on each, and everything before and after them on the first.

No product is split, so a row's sums are those of one GPU to the bit; only states move between GPUs. (Tensor parallelism
splits products and adds their parts, which rounds differently.) One GPU works at a time: this gains memory, not speed;
`serve:` judges a fast server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from qualgate.errors import NotInThisVersion

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def spread(model: PreTrainedModel, devices: Sequence[torch.device]) -> None:
    """Move the weights so that each device holds about as many bytes. Call it once, before a pass; NotInThisVersion for
    a model whose layers are not in a list."""
    layers = layers_of(model)
    inside = {id(module) for layer in layers for module in layer.modules()}
    beside = [module for module in model.modules() if id(module) not in inside]
    first = sum({id(tensor): tensor.nbytes for module in beside for tensor in _tensors(module, recurse=False)}.values())
    sizes = [sum(tensor.nbytes for tensor in _tensors(layer)) for layer in layers]
    by_id = dict[int, torch.Tensor]()
    for module in beside:
        _lay(module, devices[0], by_id)
    for layer, index in zip(layers, shares(first, sizes, len(devices)), strict=True):
        for module in layer.modules():
            _lay(module, devices[index], by_id)
        layer.register_forward_pre_hook(_moving(devices[index]), with_kwargs=True)
    layers[-1].register_forward_hook(_giving_back(devices[0]))


def shares(first: int, layers: Sequence[int], count: int) -> list[int]:
    """Return the device index of each layer. first: bytes on the first device besides layers; layers: bytes of each."""
    ends = list(accumulate(layers, initial=first))
    total = max(1, ends[-1])
    return [min(count - 1, (ends[index] + size // 2) * count // total) for index, size in enumerate(layers)]


def layers_of(model: PreTrainedModel) -> nn.ModuleList:
    """Return the decoder layers in order."""
    config: Any = model.config.get_text_config(decoder=True)
    for module in model.modules():
        if isinstance(module, nn.ModuleList) and len(module) == config.num_hidden_layers:
            return module
    raise NotInThisVersion(f"{type(model).__name__} keeps its layers in no list, so it cannot lie over several GPUs.")


def layers_by_device(model: PreTrainedModel, head: torch.device) -> Mapping[torch.device, float]:
    """Return the share of layers on each device. head: the device of a model that is not spread."""
    try:
        counts = Counter(next(_tensors(layer)).device for layer in layers_of(model))
    except (NotInThisVersion, StopIteration, AttributeError):
        return {head: 1.0}
    return {device: count / counts.total() for device, count in counts.items()} or {head: 1.0}


def _tensors(module: nn.Module, *, recurse: bool = True) -> Any:
    yield from module.parameters(recurse=recurse)
    yield from module.buffers(recurse=recurse)


def _lay(module: nn.Module, device: torch.device, by_id: dict[int, torch.Tensor]) -> None:
    """Move a module's own tensors. by_id: moved tensors by the id of the original, so that tied ones stay one."""
    for kind in (module._parameters, module._buffers):
        for name, tensor in kind.items():
            if tensor is None:
                continue
            if id(tensor) not in by_id:
                moved = tensor.detach().to(device)
                by_id[id(tensor)] = (
                    nn.Parameter(moved, requires_grad=False) if isinstance(tensor, nn.Parameter) else moved
                )
            kind[name] = by_id[id(tensor)]  # pyrefly: ignore[unsupported-operation]


def _moving(device: torch.device) -> Any:
    """Return a pre-hook that moves a layer's inputs to `device`."""

    def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        _work_on(device)
        return _moved(args, device), _moved(kwargs, device)

    return before


def _giving_back(device: torch.device) -> Any:
    """Return a hook that moves a layer's output to `device`."""

    def after(_: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        _work_on(device)
        return _moved(output, device)

    return after


def _work_on(device: torch.device) -> None:
    if device.type == "cuda" and torch.cuda.is_available():
        torch.cuda.set_device(device)  # Triton launches on the current one, wherever its tensors are


def _moved(value: Any, device: torch.device) -> Any:
    """Return `value` with its tensors on `device`, within tuples, lists and dicts; other values as they are."""
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if type(value) in (tuple, list):
        return type(value)(_moved(item, device) for item in value)
    if type(value) is dict:
        return {name: _moved(item, device) for name, item in value.items()}
    return value
