"""Fine-grained FP8 as DeepSeek and Qwen publish it (quant_method "fp8").

    weight            float8_e4m3fn [N, K]
    weight_scale_inv  float32, or E8M0, [ceil(N / rows), ceil(K / columns)], blocks of `weight_block_size`

Despite its name the scale is multiplied. Older checkpoints without blocks have one `weight_scale` a tensor or a row.
FBGEMM's (quant_method "fbgemm_fp8") have one `weight_scale` a row, and a bound on what an input's own scale is made of.
With activation_scheme "static" a layer has one scale for all its inputs, `input_scale` (vLLM) or `activation_scale`
(transformers).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from qualgate.errors import UsageError
from qualgate.quant.activations import Rounding
from qualgate.quant.formats import Format
from qualgate.quant.readers.source import AGAIN, FLOATS, Activations, Layer, Source, as_exponents, float8_codes, packed

_SCALES = (*FLOATS, torch.float8_e8m0fnu)
_MOST_BOUND = 2.0**64
_LEAST_UE8M0 = 2.0**-22  # DeepSeek's kernels take 1e-4 for the absmax of inputs that are smaller


def read(source: Source) -> Iterator[tuple[str, Layer]]:
    """Yield every quantized layer, by module name."""
    block = _block(source.format)
    scheme = source.format.settings.get("activation_scheme", "dynamic")
    for ending in (".weight_scale_inv", ".weight_scale"):
        for module in source.modules(ending):
            yield module, _layer(source, module, ending, block, scheme)


def _block(format: Format) -> tuple[int, int] | None:
    """Return the config's block of weights that share a scale, (rows, columns); None if it has none."""
    block = format.settings.get("weight_block_size")
    if block is None:
        return None
    if not isinstance(block, list) or len(block) != 2 or any(type(extent) is not int or extent < 1 for extent in block):
        raise UsageError(
            f"{format.where}: weight_block_size is {block!r:.40}, expected two numbers such as [128, 128]."
        )
    return block[0], block[1]


def _activations(source: Source, module: str, block: tuple[int, int] | None, scheme: Any) -> Activations:
    """Return how a layer's inputs are rounded. scheme: `activation_scheme` of the config; block: that of `_block`.

    A fixed scale beside another scheme makes the activations unsupported.
    """
    if source.format.method == "fbgemm_fp8":
        source.take(f"{module}.input_scale_ub")
        most = source.format.settings.get("activation_scale_ub", 1200.0)
        if type(most) not in (int, float) or not 0 < most < _MOST_BOUND:
            raise UsageError(f"{source.format.where}: activation_scale_ub is {most!s:.20}, expected more than 0.")
        return Activations(rounding=Rounding(code="e4m3", bits=8, most=float(most)))
    fixed = [name for part in ("input_scale", "activation_scale") if source.has(name := f"{module}.{part}")]
    if scheme == "static":
        if len(fixed) > 1:
            raise UsageError(f"{source.where(fixed[0])}: {fixed[0]} and {fixed[1]} scale the same inputs. {AGAIN}")
        scale = source.scale(fixed[0] if fixed else f"{module}.input_scale")
        return Activations(rounding=Rounding(code="e4m3", bits=8, scale=scale))
    for name in fixed:
        source.take(name)
        return Activations(unsupported=f"{name} is there, but activation_scheme is {scheme!r:.20}")
    if scheme is None:
        return Activations()
    if scheme != "dynamic":
        return Activations(unsupported=f"activation_scheme {scheme!r:.20}")
    size = block[1] if block else 0
    if source.format.settings.get("scale_fmt") == "ue8m0":
        return Activations(
            rounding=Rounding(code="e4m3", bits=8, group_size=size, rule="e8m0 ceiling", least=_LEAST_UE8M0)
        )
    return Activations(rounding=Rounding(code="e4m3", bits=8, group_size=size))


def _layer(source: Source, module: str, ending: str, block: tuple[int, int] | None, scheme: Any) -> Layer:
    """Read one layer. ending: of its scale's name; block: that of `_block`, for scales by blocks."""
    name, scale_name = f"{module}.weight", f"{module}{ending}"
    codes = float8_codes(source, name)
    rows, columns = codes["shape"]
    scales = source.tensor(scale_name)
    if block is not None and ending == ".weight_scale_inv":
        shape = (-(-rows // block[0]), -(-columns // block[1]))
        scales = source.expect(scale_name, _SCALES, shape, f"{rows} x {columns} in blocks of {block[0]} x {block[1]}")
        group_size, block_rows = block[1], block[0]
    elif scales.numel() == 1:
        scales = source.expect(scale_name, _SCALES, [1] * scales.dim()).reshape(1, 1)
        group_size, block_rows = 0, 0
    else:
        scales = source.expect(scale_name, _SCALES, (rows, 1), "one scale a row")
        group_size, block_rows = 0, 1
    bias, oddities = source.bias(module, rows)
    if group_size == columns and block_rows == 1:
        group_size = 0
    return Layer(
        weight=packed(
            source,
            name,
            **codes,
            scales=as_exponents(scales),
            group_size=group_size,
            block_rows=block_rows,
        ),
        layout=f"{source.format.method} {ending[1:]}",
        bias=bias,
        activations=_activations(source, module, block, scheme),
        oddities=oddities,
    )
