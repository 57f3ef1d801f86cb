"""Recipes of a variant's weights."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizeRecipe:
    """Recipe of a variant's weights from the baseline's. Every linear layer but the output head is quantized.

    A field that does not apply to the method, or is left to it, has its default and is no part of `content`.
    """

    method: Literal[
        "int8", "int4", "int3", "int2", "fp8", "mxfp4", "mxfp8", "nvfp4", "gptq", "awq", "smoothquant"
    ]  # fmt: skip
    group_size: int  # along in_features; 0 = one scale a row, or as `granularity` says
    bits: int = 0  # gptq, awq; 0 = the method's name says it
    symmetric: bool = True  # integers: zero at the middle code; else a zero point for each scale
    clip: Literal["", "mse", "percentile"] = ""  # integers: how far the range may shrink below the largest weight
    granularity: Literal["", "tensor", "block"] = ""  # one scale a tensor, or for each 128 x 128 weights
    element: Literal["", "e5m2"] = ""  # fp8; "" = e4m3
    exponent: Literal["", "rounded"] = ""  # mxfp4, mxfp8: "" = floor, as OCP's specification has it
    activations: Literal["", "int8", "fp8"] = ""  # format of a quantized layer's inputs, one scale per token
    rounding: Literal["", "gptq"] = ""  # smoothquant: of the weights it leaves; to nearest in the first versions
    act_order: Literal["", "group", "static"] = ""  # gptq: columns by falling importance, groups with them or not
    calibration: str = ""  # where the cases lie; `calibration_sha256` says which they are
    calibration_sha256: str = ""
    keep: tuple[tuple[str, str], ...] = ()  # (pattern of module names, precision), the first match counts

    def __post_init__(self) -> None:
        object.__setattr__(self, "keep", tuple((pattern, to) for pattern, to in self.keep))  # JSON gives lists

    @property
    def content(self) -> dict[str, Any]:
        """Fields that determine the weights, as plain JSON, without defaults and without paths of data."""
        return {
            item.name: [list(pair) for pair in value] if item.name == "keep" else value
            for item in fields(self)
            if item.name != "calibration"
            and ((value := getattr(self, item.name)) != item.default or item.name in ("method", "group_size"))
        }

    @property
    def label(self) -> str:
        """A name for people and folders: `int4 g32`, `gptq int4 g128 act-order`, `fp8 e5m2 128x128`."""
        words: list[str] = [self.method]
        if self.bits:
            words.append(f"int{self.bits}")
        if self.element:
            words.append(self.element)
        if self.granularity:
            words.append({"tensor": "per tensor", "block": "128x128"}[self.granularity])
        elif self.method not in ("mxfp4", "mxfp8", "nvfp4"):
            words.append(f"g{self.group_size}" if self.group_size else "per row")
        words += ["asym"] if not self.symmetric and self.method != "awq" else []
        words += ["sym"] if self.symmetric and self.method == "awq" else []
        words += [f"clip-{self.clip}"] if self.clip else []
        words += [f"exponent-{self.exponent}"] if self.exponent else []
        words += [{"group": "act-order", "static": "act-order-static"}[self.act_order]] if self.act_order else []
        words += [f"a-{self.activations}"] if self.activations else []
        words += ["calibrated"] if self.calibration_sha256 and self.method == "nvfp4" else []
        words += ["keep"] if self.keep else []
        return " ".join(words)
