"""Conventions of GPTQ and of groups by activation: what the config says of zero points and g_idx, held against both."""

from __future__ import annotations

from pathlib import Path

import torch

from qualgate.errors import UsageError
from qualgate.quant.agreement.table import READINGS
from qualgate_kernels.packed import unpack_codes

# The key that names the layout of zero points, and its values for v1 and v2.
_LAYOUTS = {"checkpoint_format": ("gptq", "gptq_v2"), "packing_format": ("auto_round:auto_gptq", "auto_round")}


def check_zero_points(config: Path, module: str, codes: torch.Tensor, zeros: torch.Tensor, bits: int, *, v1: bool,
                      sym: object, key: str = "checkpoint_format") -> None:  # fmt: skip
    """Raise UsageError for zero points that contradict `sym: true`, naming the layout where it is the other one's.
    transformers' GPTQConfig takes a missing `sym` for true, and a missing `desc_act` for false.

    codes: packed, of one module; zeros: uint8 [groups, out_features], as the config's layout reads them; key: what the
    config calls that layout by.
    """
    middle = 2 ** (bits - 1)
    if sym is False or bool((zeros == middle).all()):
        return
    (declared, other), first = _LAYOUTS[key] if v1 else _LAYOUTS[key][::-1], int(zeros.flatten()[0])
    one_off = bool((zeros == first).all()) and first == middle + (1 if v1 else -1)
    # Whether the codes gather around the middle, as symmetric ones do, or around the zero point that is read.
    mean = float(unpack_codes(codes, bits, codes.shape[1] * 8 // bits).float().mean()) if one_off else 0.0
    if one_off and abs(mean - middle) < abs(mean - first):
        raise UsageError(
            f"{config} says {key} {declared!r}, by which every zero point of {module} is {first}. But its "
            f"codes lie around {middle}, as they do in {other!r}, so each weight would be read one step off. Set "
            f"`{key}`{' (and `format`)' if key == 'checkpoint_format' else ''} to {other!r} there."
        )
    sym_text = "says `sym: true`" if sym is True else "does not say `sym`, which means true"
    raise UsageError(
        f"{config} {sym_text}, but {module} has zero points other than {middle}, from {int(zeros.min())} to "
        f"{int(zeros.max())}: {READINGS['gptq: sym'].sentence}. Set `sym` to false if the weights were quantized with "
        "zero points; else save the checkpoint again."
    )


def check_order(config: Path, module: str, g_idx: torch.Tensor | None, *, given: bool, desc_act: object,
                groups: int) -> None:  # fmt: skip
    """Raise UsageError for a g_idx that contradicts `desc_act`. g_idx: None where it says nothing; given: whether the
    file has one."""
    if g_idx is not None and desc_act in (None, False):
        order_text = "says `desc_act: false`" if desc_act is False else "does not say `desc_act`, which means false"
        raise UsageError(
            f"{config} {order_text}, but the g_idx of {module} permutes its in_features: "
            f"{READINGS['gptq: g_idx'].sentence}. Set `desc_act` to true there."
        )
    if not given and desc_act is True and groups > 1:
        raise UsageError(
            f"{config} says `desc_act: true`, but {module} has no g_idx, which assigns each in_feature to a group. Set "
            "`desc_act` to false if the groups are in order; else save the checkpoint again."
        )


def check_activation_order(config: Path, module: str, g_idx: torch.Tensor | None, *, given: bool,
                           actorder: object) -> None:  # fmt: skip
    """Raise UsageError where compressed-tensors' `actorder` and `weight_g_idx` contradict each other."""
    grouped = actorder in ("group", "dynamic", True)
    if grouped and not given:
        fault = f"says `actorder: {str(actorder).lower()}`, but {module} has no weight_g_idx"
    elif g_idx is not None and not grouped:
        fault = f"does not say `actorder: group`, but the weight_g_idx of {module} permutes its in_features"
    else:
        return
    raise UsageError(
        f"{config} {fault}: {READINGS['compressed-tensors: actorder'].sentence}. Correct `actorder` there, or save the "
        "checkpoint again."
    )
