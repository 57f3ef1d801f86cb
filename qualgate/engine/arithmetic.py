"""In which dtype a server would store what an arm computes, and whether the arm rounds to it. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from qualgate.engine.device import Device, packs
from qualgate.errors import NotInThisVersion, UsageError
from qualgate.quant.model_files import ModelFiles
from qualgate.quant.model_folder import ModelFolder
from qualgate.records import ArmSpec
from qualgate.records.arms import Arithmetic

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from qualgate.engine.choice import Choice


def check_arithmetic(spec: ArmSpec, folder: ModelFolder) -> None:
    """Raise UsageError where `spec` is to be computed as served, and the dtype in which a server would store what it
    computes is float32, in which nothing is rounded, or not that of its weights here."""
    stored = stored_in(spec, folder.files)
    if spec.arithmetic == "float32" or stored == spec.dtype != "float32":
        return
    if stored == "float32":
        raise UsageError(
            f"{spec.name}: `arithmetic: served` rounds what a server stores to the model's dtype, and that of "
            f"{folder.path} is float32, in which nothing is rounded. Write the dtype that it is served in beside the "
            "model, as in `dtype: bfloat16`, or leave `arithmetic` out."
        )
    raise UsageError(
        f"{spec.name}: `arithmetic: served` computes in {stored}, as {folder.path} says, but its weights would be "
        f"rounded to {spec.dtype}; no server does both. Write `dtype: {stored}` beside the model, or the one it is "
        "served in."
    )


def stored_in(spec: ArmSpec, files: ModelFiles) -> str:
    """The dtype in which a server stores activations: what the gate file says, else what the model's folder does."""
    return spec.dtype if spec.dtype_said else files.dtype or spec.dtype


def default_arithmetic(device: Device, arms: Iterable[tuple[ArmSpec, ModelFiles]]) -> Arithmetic:
    """Of a run whose gate file does not say: a GPU computes as servers do there, where its kernels are installed and
    every arm has a dtype to round to; float32 is a CPU's."""
    dtypes = [(stored_in(arm, files), arm.dtype) for arm, files in arms]
    as_served = all(stored == dtype != "float32" for stored, dtype in dtypes)
    return "served" if device != "cpu" and packs(device) and dtypes and as_served else "float32"


def with_arithmetic(spec: ArmSpec, model: PreTrainedModel, choice: Choice, stored: str) -> Choice:
    """The choice, with the arithmetic that the arm has. A draft in float32 stays so: it changes no answer."""
    from qualgate.engine.choice import rounding

    if spec.arithmetic == "float32" or stored == "float32":
        return choice
    try:
        return rounding(model, choice, stored)
    except NotInThisVersion as error:
        raise NotInThisVersion(f"{spec.name}: {spec.model}: {error}") from None
