"""Heads turned by their positions on GPUs, by our own kernel: one launch for queries and keys, not ten.

transformers turns them by a function of each model's own file, which its attention looks up when it is called. Which of
these turn as most do is tried on numbers, not looked up: to the bit alike, or the function stays.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from torch import nn

from qualgate_kernels import availability
from qualgate_kernels.rotary import misfit, turn_torch

NAME = "apply_rotary_pos_emb"
Turned = tuple[torch.Tensor, torch.Tensor]


class Turning:
    """In the place of such a function; what it is asked besides, that function does."""

    def __init__(self, was: Callable[..., Any]) -> None:
        self.was = was

    def __call__(
        self, query: torch.Tensor, key: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor, *others: Any,
        **more: Any,
    ) -> Turned:  # fmt: skip
        """See `rotary.turn_torch`."""
        if others or more or misfit(query, key, cosines, sines):
            return self.was(query, key, cosines, sines, *others, **more)
        from qualgate_kernels.rotary_gpu import turn_triton

        return turn_triton(query, key, cosines, sines)


@contextmanager
def turned_by_ours(model: nn.Module, device: torch.device) -> Iterator[None]:
    """Inside the block, a Turning in the place of what turns the heads of `model`, on a GPU."""
    put: list[tuple[ModuleType, Any]] = []
    try:
        for code in _files(model) if availability.on_triton(device) else ():
            was = vars(code)[NAME]
            if not isinstance(was, Turning) and _is_one(was, device):  # of a model of the same file it may be there
                setattr(code, NAME, Turning(was))
                put.append((code, was))
        yield
    finally:
        for code, was in put:
            setattr(code, NAME, was)


def _files(model: nn.Module) -> list[ModuleType]:
    """Of whose modules' classes have such a function."""
    names = dict.fromkeys(type(module).__module__ for module in model.modules())
    return [code for name in names if (code := sys.modules.get(name)) and callable(vars(code).get(NAME))]


def _is_one(function: Callable[..., Any], device: torch.device) -> bool:
    """By what it makes of a few numbers, which the twin and the kernel have to make as well, to the bit."""
    drawn = torch.Generator().manual_seed(0)
    shapes = (1, 3, 2, 16), (1, 1, 2, 16), (1, 2, 16), (1, 2, 16)
    query, key, cosines, sines = (torch.randn(shape, generator=drawn).to(device) for shape in shapes)
    try:
        with torch.inference_mode():
            for dtype in (torch.float32, torch.bfloat16, torch.float16):
                asked = query.to(dtype), key.to(dtype), cosines, sines
                expected = function(*asked)
                if not all(_same(found, expected) for found in (turn_torch(*asked), Turning(function)(*asked))):
                    return False
    except Exception:  # whatever a function of that name may want
        return False
    return True


def _same(found: Turned, expected: Any) -> bool:
    return len(expected) == 2 and all(
        one.dtype == other.dtype == torch.float32 and torch.equal(one, other)
        for one, other in zip(found, expected, strict=True)
    )
