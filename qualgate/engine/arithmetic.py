"""The dtype in which a server stores activations, and whether an arm rounds to it. Needs no torch."""

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
    """Raise UsageError if `spec` asks for `served` arithmetic but the server's activation dtype is float32, which
    rounds nothing, or differs from the dtype of the weights here."""
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
    """Return the dtype in which a server stores activations: from the gate file, else from the model's folder."""
    return spec.dtype if spec.dtype_said else files.dtype or spec.dtype


def default_arithmetic(device: Device, arms: Iterable[tuple[ArmSpec, ModelFiles]]) -> Arithmetic:
    """Return the default arithmetic of a run: "served" on a GPU with our kernels if every arm has a dtype to round to,
    else "float32"."""
    dtypes = [(stored_in(arm, files), arm.dtype) for arm, files in arms]
    as_served = all(stored == dtype != "float32" for stored, dtype in dtypes)
    return "served" if device != "cpu" and packs(device) and dtypes and as_served else "float32"


def with_arithmetic(spec: ArmSpec, model: PreTrainedModel, choice: Choice, stored: str) -> Choice:
    """Return the choice with the arm's arithmetic. A float32 draft stays float32, because it changes no answer."""
    from qualgate.engine.choice import rounding

    if spec.arithmetic == "float32" or stored == "float32":
        return choice
    try:
        return rounding(model, choice, stored)
    except NotInThisVersion as error:
        raise NotInThisVersion(f"{spec.name}: {spec.model}: {error}") from None
