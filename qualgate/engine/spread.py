"""A model larger than one GPU, laid over several: whole layers on each, all that is before and after them on the first.

No product is cut, so a row's sums are those of one GPU, to the bit, and what crosses from one to the next are states.
(Tensor parallelism cuts products and adds up their parts, which rounds otherwise.) One GPU works at a time: it is room
that is won, and a server that is to be fast as well is judged by `serve:`.
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
    """Move its weights there, so that each device holds about as many bytes. Once, before a pass; NotInThisVersion for
    a model whose layers are in no list."""
    layers = layers_of(model)
    inside = {id(module) for layer in layers for module in layer.modules()}
    beside = [module for module in model.modules() if id(module) not in inside]
    first = sum({id(one): one.nbytes for module in beside for one in _tensors(module, recurse=False)}.values())
    sizes = [sum(one.nbytes for one in _tensors(layer)) for layer in layers]
    there = dict[int, torch.Tensor]()
    for module in beside:
        _lay(module, devices[0], there)
    for layer, at in zip(layers, shares(first, sizes, len(devices)), strict=True):
        for module in layer.modules():
            _lay(module, devices[at], there)
        layer.register_forward_pre_hook(_moving(devices[at]), with_kwargs=True)
    layers[-1].register_forward_hook(_giving_back(devices[0]))


def shares(first: int, layers: Sequence[int], count: int) -> list[int]:
    """On which of so many devices each layer is. first, layers: bytes of what is on the first anyway, and of each."""
    ends = list(accumulate(layers, initial=first))
    total = max(1, ends[-1])
    return [min(count - 1, (ends[at] + size // 2) * count // total) for at, size in enumerate(layers)]


def layers_of(model: PreTrainedModel) -> nn.ModuleList:
    """Its decoder layers, in their order."""
    config: Any = model.config.get_text_config(decoder=True)
    for module in model.modules():
        if isinstance(module, nn.ModuleList) and len(module) == config.num_hidden_layers:
            return module
    raise NotInThisVersion(f"{type(model).__name__} keeps its layers in no list, so it cannot lie over several GPUs.")


def layers_by_device(model: PreTrainedModel, head: torch.device) -> Mapping[torch.device, float]:
    """Of the layers, which share is on each device. head: where the model is that is not spread."""
    try:
        found = Counter(next(_tensors(layer)).device for layer in layers_of(model))
    except (NotInThisVersion, StopIteration, AttributeError):
        return {head: 1.0}
    return {device: count / found.total() for device, count in found.items()} or {head: 1.0}


def _tensors(module: nn.Module, *, recurse: bool = True) -> Any:
    yield from module.parameters(recurse=recurse)
    yield from module.buffers(recurse=recurse)


def _lay(module: nn.Module, place: torch.device, there: dict[int, torch.Tensor]) -> None:
    """Its own tensors, and no others'. there: those that were moved, by what they were: tied ones stay one."""
    for kind in (module._parameters, module._buffers):
        for name, one in kind.items():
            if one is None:
                continue
            if id(one) not in there:
                moved = one.detach().to(place)
                there[id(one)] = nn.Parameter(moved, requires_grad=False) if isinstance(one, nn.Parameter) else moved
            kind[name] = there[id(one)]  # pyright: ignore[reportArgumentType]


def _moving(place: torch.device) -> Any:
    def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        _work_on(place)
        return _moved(args, place), _moved(kwargs, place)

    return before


def _giving_back(place: torch.device) -> Any:
    def after(_: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        _work_on(place)
        return _moved(output, place)

    return after


def _work_on(place: torch.device) -> None:
    if place.type == "cuda" and torch.cuda.is_available():
        torch.cuda.set_device(place)  # Triton launches on the current one, wherever its tensors are


def _moved(what: Any, place: torch.device) -> Any:
    if isinstance(what, torch.Tensor):
        return what.to(place)
    if type(what) in (tuple, list):
        return type(what)(_moved(one, place) for one in what)
    if type(what) is dict:
        return {name: _moved(one, place) for name, one in what.items()}
    return what
