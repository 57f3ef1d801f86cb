"""Drafts by the upper bits of their target's codes: which weights have them, and what they take beside these."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from qualgate.errors import UsageError
from qualgate.quant.model_folder import ModelFolder
from qualgate.records import ArmSpec

if TYPE_CHECKING:
    from transformers import PreTrainedModel

BITS = 8
INTEGERS = ("int8", "gptq", "awq")  # methods whose codes are integers, of 8 bits if they say so


def check_high_bits(name: str, verifier: ArmSpec, folder: ModelFolder) -> None:
    """Raise UsageError where the weights of `verifier`, whose model is `folder`, have no integer codes of 8 bits that
    are multiplied as they are: the arm `name` is to draft by their upper half."""
    recipe = verifier.quantize
    if recipe is not None:
        if recipe.method in INTEGERS and recipe.bits in (0, BITS) and not recipe.activations:
            return
        raise UsageError(_missing(name, f"its weights are {recipe.label}"))
    if folder.format is None:
        raise UsageError(_missing(name, f"{folder.path} is of full precision"))
    import torch

    from qualgate.engine.quantized import load_quantized
    from qualgate.quant.linear import QuantizedLinear

    layers = load_quantized(folder, torch.float32, weightless=True).model.modules()
    packed = [one.packed for one in layers if isinstance(one, QuantizedLinear) and one.activations is None]
    if not any((weight.code, weight.bits) == ("int", BITS) for weight in packed):
        raise UsageError(_missing(name, f"{folder.path} holds others ({folder.format.method})"))


def bytes_made(name: str, model: PreTrainedModel, layers: int | None) -> int:
    """Bytes that reading the upper halves of a plain decoder takes beside its weights: their scales and offsets. model:
    laid out in halves; layers: of its first so many. UsageError where none of these has any."""
    from qualgate.quant.linear import QuantizedLinear
    from qualgate_kernels.cpu.halves import upper_half
    from qualgate_kernels.cpu.layout import Prepared

    body: Any = model
    modules = (one for layer in body.model.layers[:layers] for one in layer.modules())
    found = {id(one.layout): one.layout for one in modules if isinstance(one, QuantizedLinear)}
    halves = [upper_half(layout) for layout in found.values() if isinstance(layout, Prepared) and layout.halves]
    if not halves:
        raise UsageError(_missing(name, "no layer of it was laid out so"))
    return sum(one.nbytes for half in halves for one in (half.scales, half.offsets) if one is not None)


def _missing(name: str, why: str) -> str:
    return (
        f"{name}: `high_bits: 4` drafts by the upper half of integer weights of 8 bits whose inputs are not rounded, "
        f"and what verifies that draft has none: {why}. Give it `quantize: int8`, or draft by `quantize: int4`."
    )
