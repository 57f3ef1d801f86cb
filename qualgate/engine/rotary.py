"""Rotate heads on GPUs by our own kernel: one launch for queries and keys, not ten.

transformers rotates them by a function in each model's own file, looked up at each call. Each such function is tried on
numbers: if it equals ours to the bit it is replaced, else it stays.
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
    """A replacement for such a function, which falls back to it for other arguments."""

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
    """Rotate the heads of `model` by a Turning inside the block, on a GPU."""
    replaced: list[tuple[ModuleType, Any]] = []
    try:
        for code in _files(model) if availability.on_triton(device) else ():
            original = vars(code)[NAME]
            if not isinstance(original, Turning) and _is_one(
                original, device
            ):  # of a model of the same file it may be there
                setattr(code, NAME, Turning(original))
                replaced.append((code, original))
        yield
    finally:
        for code, original in replaced:
            setattr(code, NAME, original)


def _files(model: nn.Module) -> list[ModuleType]:
    """Return the source modules of the model's classes that have such a function."""
    names = dict.fromkeys(type(module).__module__ for module in model.modules())
    return [code for name in names if (code := sys.modules.get(name)) and callable(vars(code).get(NAME))]


def _is_one(function: Callable[..., Any], device: torch.device) -> bool:
    """Return whether the function, the twin and the kernel agree to the bit on a few numbers."""
    generator = torch.Generator().manual_seed(0)
    shapes = (1, 3, 2, 16), (1, 1, 2, 16), (1, 2, 16), (1, 2, 16)
    query, key, cosines, sines = (torch.randn(shape, generator=generator).to(device) for shape in shapes)
    try:
        with torch.inference_mode():
            for dtype in (torch.float32, torch.bfloat16, torch.float16):
                arguments = query.to(dtype), key.to(dtype), cosines, sines
                expected = function(*arguments)
                if not all(
                    _same(actual, expected) for actual in (turn_torch(*arguments), Turning(function)(*arguments))
                ):
                    return False
    except Exception:  # whatever a function of that name may want
        return False
    return True


def _same(actual: Turned, expected: Any) -> bool:
    """Return whether both pairs of float32 tensors agree to the bit."""
    return len(expected) == 2 and all(
        actual_part.dtype == expected_part.dtype == torch.float32 and torch.equal(actual_part, expected_part)
        for actual_part, expected_part in zip(actual, expected, strict=True)
    )
